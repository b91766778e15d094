package oncall

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/fanout/fanout/internal/schedule"
)

// The thresholds of triage, each with its reason. docs/runbook.md says how they follow
// from the SLO, and when to change them.
const (
	// pageAfter is for how long every sample must be past the SLO before somebody is woken.
	// A subscriber at its own cap is eligible for the moment until it is served, with a
	// head as old as its backlog: it is seen so in one sample, and not in ten.
	pageAfter = 10 * time.Second
	// soonShare of the SLO is where an age that grows is about to breach, if it does so
	// within soonWithin as it grew over the last growthOver.
	soonShare  = 0.5
	soonWithin = 5 * time.Minute
	growthOver = time.Minute
	// unmanned is how old something eligible may be while no dispatcher reports: a rollout
	// of one at a time takes less.
	unmanned = 30 * time.Second
	// fewFailures in a minute are noise: a poison delivery, a restart of an endpoint.
	fewFailures = 10
	// failShare of the attempts of a minute is an outage's, not what endpoints fail in
	// daily life.
	failShare = 0.1
	// topShare of the failures, made by at most topFew subscribers, is concentrated.
	topShare = 0.6
	topFew   = 3
	// wideShare of the attempts failing, over at least wideFew subscribers: so many
	// endpoints do not go down together, what they share is us.
	wideShare = 0.5
	wideFew   = 5
	// fullShare of the slots, and of the slow subscribers' slots, is full: the rest are
	// between a verdict and the next lease.
	fullShare = 0.9
	// fullOver is over how long: at a moment many may be between the two.
	fullOver = 15 * time.Second
	// slowRedis is a call's mean time at which Redis itself is the bottleneck: it takes
	// 1 ms at full load.
	slowRedis = 100 * time.Millisecond
	// retryShare of the used slots on retries shuts new events out noticeably; they may
	// have three quarters.
	retryShare = 0.5
)

// facts are what the answers are drawn from.
type facts struct {
	s    Snapshot
	past Past
	v    Verdict
	// late are the classes past their SLO for long enough to page, blink those that are
	// past it for less, soon those that are about to be.
	late, blink, soon []Class
	// staleRetry: retries or redrives are what is late or about to be.
	staleRetry bool
}

// Diagnose says what is the matter. It is a pure function of what was seen (s), what was
// before it (past), and how it was come by (sight). Past blindAfter without a good sample
// it says that nothing is known.
func Diagnose(s Snapshot, past Past, sight Sight, blindAfter time.Duration) Triage {
	f := gather(s, past, Judge(s, sight, blindAfter))
	t := Triage{Diagnosis: Healthy}
	blind := f.v.State == Blind || f.v.State == Starting
	if blind {
		t.Answers = unanswered()
	} else {
		t.Answers = [4]Answer{f.slo(), f.concentrated(), f.saturated(), f.retries()}
	}
	t.Diagnosis, t.Page = f.diagnosis(t.Answers)
	t.Sentence = f.sentence(t.Diagnosis, t.Answers)
	t.Runbook = strings.ReplaceAll(string(t.Diagnosis), "_", "-")
	if !blind {
		t.Notes = f.notes()
	}
	return t
}

func gather(s Snapshot, past Past, v Verdict) facts {
	f := facts{s: s, past: past, v: v}
	for _, c := range s.Classes {
		switch {
		case c.Breaching() && c.LateFor >= pageAfter:
			f.late = append(f.late, c)
		case c.Breaching():
			f.blink = append(f.blink, c)
		case f.breachIn(c) > 0:
			f.soon = append(f.soon, c)
		default:
			continue
		}
		if c.Oldest().Name != "fresh" {
			f.staleRetry = true
		}
	}
	return f
}

// breachIn is when a class would pass its SLO if its age went on as in the last minute; 0
// if it is not about to.
func (f facts) breachIn(c Class) time.Duration {
	age := c.Oldest().Eligible
	points := f.past.Last(growthOver, f.s.At)
	if float64(age) < soonShare*float64(c.SLO) || len(points) == 0 {
		return 0
	}
	first := points[0]
	over := f.s.At.Sub(first.At)
	growth := age - first.Class(c.Name).Eligible
	if growth <= 0 || over <= 0 {
		return 0
	}
	in := time.Duration(float64(c.SLO-age) / float64(growth) * float64(over))
	if in > soonWithin {
		return 0
	}
	return max(in, time.Second)
}

// unmanned: something waits, and nobody is there to send it.
func (f facts) unmanned() bool {
	return f.s.Fleet.Known && len(f.s.Fleet.Workers) == 0 && f.v.Worst.Age > 0
}

// diagnosis picks the most likely one, and says whether it pages. What cannot be known
// comes first, then what is lost whatever else is true, then what keeps deliveries from
// being made.
func (f facts) diagnosis(a [4]Answer) (Diagnosis, bool) {
	concentrated, saturated, retries := a[1].Says == Yes, a[2].Says == Yes, a[3].Says == Yes
	breach := len(f.late) > 0
	waits := breach || len(f.soon) > 0
	failing := f.s.Fleet.failShare() >= failShare
	switch {
	case f.v.State == Blind:
		return BlindSampler, true
	case f.v.State == Starting:
		return NotSampled, false
	case f.s.Imbalance() != 0, gapsOf(f.s.Gaps) > 0, f.s.LateEvents > 0:
		return LedgerGap, true
	case f.v.Trouble != "":
		return NotReady, true
	case f.unmanned():
		return NoWorkers, breach || f.v.Worst.Age >= unmanned
	case f.widespread():
		return WidespreadFailures, true
	// With nothing late, the outage of a few is theirs: the breaker holds their deliveries,
	// and nobody is woken. With something late it is the cause only if it costs attempts.
	case concentrated && (!waits || failing):
		return ConcentratedOutage, breach
	case retries && (waits && f.staleRetry || !waits):
		return RetryPressure, breach
	case saturated && waits:
		return SaturatedWorkers, breach
	case retries && waits:
		return RetryPressure, breach
	case waits:
		return StaleDeliveries, breach
	}
	return Healthy, false
}

// widespread: most attempts fail, of many subscribers.
func (f facts) widespread() bool {
	fl := f.s.Fleet
	return fl.Failures >= fewFailures && fl.failShare() >= wideShare && fl.FailingTotal >= wideFew && f.top() < topShare
}

// top is the share of the failures that the few that fail most make.
func (f facts) top() (sum float64) {
	for _, one := range f.s.Fleet.Failing[:min(topFew, len(f.s.Fleet.Failing))] {
		sum += one.Share
	}
	return min(1, sum)
}

func (f facts) sentence(d Diagnosis, a [4]Answer) string {
	steady, running := f.v.Sentence()
	switch d {
	case BlindSampler, NotSampled, NotReady:
		return steady + running
	case Healthy:
		if len(f.blink) > 0 {
			return a[0].Sentence
		}
		return "Every class is within its SLO" + f.v.oldest()
	case LedgerGap:
		return f.gapText()
	case NoWorkers:
		return fmt.Sprintf("No dispatcher reports, and the oldest eligible delivery has waited %s (%s, %s lane).",
			ageText(f.v.Worst.Age), classText(f.v.Worst.Class), f.v.Worst.Lane)
	case WidespreadFailures:
		return fmt.Sprintf("%s of all attempts of the last minute fail, of %s or more: look at what they share, which is us (DNS, egress, a rollout).",
			percent(f.s.Fleet.Failures, f.s.Fleet.Attempts), counted(int64(f.s.Fleet.FailingTotal), "subscriber", "subscribers"))
	case ConcentratedOutage:
		return a[1].Sentence + f.consequence()
	case RetryPressure:
		return a[3].Sentence + f.consequence()
	case SaturatedWorkers:
		return a[2].Sentence + f.consequence()
	case StaleDeliveries:
	}
	if !f.s.Fleet.Known {
		return a[0].Sentence + " What the dispatchers do is not known: their reports cannot be read."
	}
	return a[0].Sentence + " The slots are not full, and failures and retries do not explain it."
}

// consequence says what it means for the SLO.
func (f facts) consequence() string {
	switch {
	case len(f.late) > 0:
		c := f.late[0]
		return fmt.Sprintf(" Class %s is past its SLO of %s: its oldest eligible delivery has waited %s.",
			classText(c.Name), sloText(c.SLO), ageText(c.Oldest().Eligible))
	case len(f.blink) > 0:
		c := f.blink[0]
		return fmt.Sprintf(" Class %s is past its SLO of %s, for %s only.", classText(c.Name), sloText(c.SLO), ageText(c.LateFor))
	case len(f.soon) > 0:
		return fmt.Sprintf(" Class %s is about to pass its SLO of %s.", classText(f.soon[0].Name), sloText(f.soon[0].SLO))
	}
	return " Every class is within its SLO."
}

func (f facts) gapText() string {
	var parts []string
	if n := f.s.Imbalance(); n != 0 {
		parts = append(parts, fmt.Sprintf("accepted differs from the sum of the states by %+d", n))
	}
	for _, gap := range schedule.Gaps {
		if n := f.s.Gaps[gap]; n > 0 {
			parts = append(parts, fmt.Sprintf("the reconciliation found %s of kind %s", number(n), gap))
		}
	}
	if n := f.s.LateEvents; n > 0 && f.s.Gaps[schedule.GapLate] == 0 {
		parts = append(parts, counted(n, "event was", "events were")+" not expanded in time")
	}
	return "What was accepted and what became of it do not add up: " + strings.Join(parts, "; ") + "."
}

// notes are worth knowing, and wake nobody.
func (f facts) notes() (notes []Evidence) {
	add := func(text, link string) { notes = append(notes, Evidence{text, link}) }
	for _, n := range f.v.Notes() {
		add(n, "")
	}
	if held := f.v.HeldText(); held != "" {
		add(held, "")
	}
	for _, w := range f.v.Aside {
		add(w.Text(), "")
	}
	if n := f.newlyDead(); n > 0 {
		text := fmt.Sprintf("%s died in the last hour", counted(n, "delivery", "deliveries"))
		link := ""
		if len(f.s.Failures) > 0 {
			last := f.s.Failures[0]
			text += fmt.Sprintf("; the last of %s", last.Outcome)
			link = "/v1/deliveries/" + url.PathEscape(last.DeliveryID)
		}
		add(text, link)
	}
	return notes
}

// newlyDead is how many died within the history, an hour at most.
func (f facts) newlyDead() int64 {
	if len(f.past.Fine) == 0 {
		return 0
	}
	return max(0, f.s.Ledger.Dead-f.past.Fine[0].Dead)
}

// counted is a number with its noun.
func counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return number(n) + " " + many
}

func percent(n, all int64) string { return percentOf(share(n, all)) }

func percentOf(part float64) string { return fmt.Sprintf("%.0f %%", 100*part) }
