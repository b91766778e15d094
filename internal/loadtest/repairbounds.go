package loadtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/fanout/fanout/internal/redrive"
)

const (
	// mostRedriveRatio is by how much a redrive may make fresh deliveries older at p99. The
	// short form has seconds in place of a minute, on a machine that does other things.
	mostRedriveRatio      = 1.5
	mostRedriveRatioShort = 3.0
	// looksFor is what the guard's looks at Redis may take on a machine that is busy.
	looksFor = 500 * time.Millisecond
)

func (p *Repair) judge(broken func(ok bool, format string, a ...any), short bool) {
	most := mostRedriveRatio
	if short {
		most = mostRedriveRatioShort
	}
	broken(p.Twice == 0, "%d requests of the redrive came after a 2xx of the same delivery, beyond lost leases", p.Twice)
	broken(p.Delivered+p.Dead == int64(p.Items), "%d of %d items were delivered, and %d died again: some are missing", p.Delivered, p.Items, p.Dead)
	played := 0
	for _, s := range p.Stops {
		if s.Manner == "" {
			continue
		}
		played++
		within, sent := redrive.PauseBound(s.Rate, looksFor)
		broken(s.Seconds <= within.Seconds(), "the guard paused %.2f s after the first %s, %s were allowed", s.Seconds, s.Manner, within)
		broken(s.Sent <= sent, "%d were sent from the first %s to the pause, %d were allowed", s.Sent, s.Manner, sent)
	}
	if p.Capacity == 0 {
		broken(played == len(relapses), "the guard paused for %d of %d failures", played, len(relapses))
		return
	}
	broken(p.Dead == 0, "%d of %d items died again", p.Dead, p.Items)
	broken(p.Ratio <= most, "fresh deliveries were %.0f ms old at p99 in the median second beside the redrive, %.2f times the %.0f ms before it; at most %g is allowed",
		p.DuringSecond, p.Ratio, max(p.CalmSecond, leastBase), most)
}

// figures are those of the last line.
func (p *Repair) figures(key string, add func(key, format string, v any)) {
	add(key+"_items", "%d", p.Items)
	add(key+"_delivered", "%d", p.Delivered)
	add(key+"_twice", "%d", p.Twice)
	if p.Capacity > 0 {
		add(key+"_capacity", "%.0f", p.Capacity)
		add(key+"_calm_p99_ms", "%.1f", p.CalmSecond)
		add(key+"_p99_ms", "%.1f", p.DuringSecond)
		add(key+"_ratio", "%.2f", p.Ratio)
		add(key+"_seconds", "%.0f", p.Seconds)
		add(key+"_pauses", "%d", len(p.Stops))
	}
	for _, s := range p.Stops {
		if s.Manner != "" {
			add(key+"_"+s.Manner+"_pause_s", "%.2f", s.Seconds)
			add(key+"_"+s.Manner+"_sent", "%d", s.Sent)
		}
	}
}

func (p *Repair) text(name string) string {
	var b strings.Builder
	say := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	say("\n%s: %d of %d delivered in %.0f s, %d died again, %d sent twice", name, p.Delivered, p.Items, p.Seconds, p.Dead, p.Twice)
	if p.Capacity > 0 {
		say("        %.0f/s are carried, %.0f/s of them fresh; planned up to %.0f/s for %.0f s", p.Capacity, p.Fresh, p.Limit, p.Takes)
		say("        fresh age before: p50 %s ms, p99 %s ms, %s ms in the median second; beside it: p50 %s ms, p99 %s ms, %s ms; ratio %.2f",
			num(p.Calm.P50), num(p.Calm.P99), num(p.CalmSecond), num(p.During.P50), num(p.During.P99), num(p.DuringSecond), p.Ratio)
	}
	for _, s := range p.Stops {
		if s.Manner == "" {
			say("        paused: %s", s.Why)
			continue
		}
		within, sent := redrive.PauseBound(s.Rate, looksFor)
		say("        %s at %.0f/s: paused after %.2f s of %s, %d sent of %d, %d more that were out: %s",
			s.Manner, s.Rate, s.Seconds, within, s.Sent, sent, s.After, s.Why)
	}
	return b.String()
}
