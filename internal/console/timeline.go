package console

import (
	"fmt"
	"math"
	"time"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/oncall"
)

// picture is a delivery's way down a rail: its waits, its attempts with where their time
// went, and what is still to come. Waits are drawn by the logarithm of their length, or an
// hour would hide ten seconds, and each says how long it was.
type picture struct {
	Height float64
	Label  string // for who does not see it
	Steps  []step
	Scale  string // how long the longest bar is; empty without bars
}

// step is one station of the rail, or a stretch between two.
type step struct {
	Kind  string // accepted, gap, wait, attempt, next, later, end
	Y, H  float64
	Mark  mark
	What  string
	Note  string
	Bars  []part // where an attempt's time went
	Ahead bool   // it is still to come
}

// Heights in pixels.
const (
	stationHeight = 30.0
	barsHeight    = 20.0 // more, with bars
	shortestWait  = 20.0
	waitGrowth    = 13.0 // for each tenfold length
)

// pictureOf draws a delivery. plan, if it is known, says how long the later waits may be.
func pictureOf(d client.Delivery, plan *client.Schedule) picture {
	p := picture{}
	longest := longestOf(d.Evidence)
	if longest > 0 {
		p.Scale = took(longest)
	}
	p.add(step{Kind: "accepted", Mark: still, What: "accepted", Note: clock(d.AcceptedAt)})
	last := d.AcceptedAt
	for i, a := range d.Evidence {
		if i == 0 && a.Attempt > 1 {
			p.add(step{Kind: "gap", What: "earlier attempts are not kept"})
		} else {
			p.wait(a.StartedAt.Sub(last), false)
		}
		what := fmt.Sprintf("%d · %s", a.Attempt, a.Outcome)
		if a.Status != 0 && a.Outcome != fmt.Sprintf("http_%d", a.Status) {
			what += fmt.Sprintf(" (%d)", a.Status)
		}
		m := bad
		if a.Outcome == "lease_lost" {
			m = still
		}
		p.add(step{Kind: "attempt", Mark: m, What: what, Note: took(lengthOf(a)) + ", " + clock(a.StartedAt), Bars: phaseBars(a, longest)})
		last = a.StartedAt.Add(time.Duration(a.Duration))
	}
	p.rest(d, plan, last)
	p.Label = labelOf(d, len(d.Evidence))
	return p
}

// rest is what followed the failures, or is still to come.
func (p *picture) rest(d client.Delivery, plan *client.Schedule, last time.Time) {
	switch d.State {
	case client.Delivered:
		start := d.LastAttemptAt
		if start.IsZero() || start.Before(last) {
			start = d.EndedAt
		}
		p.wait(start.Sub(last), false)
		p.add(step{Kind: "end", Mark: good, What: fmt.Sprintf("%d · delivered", d.Attempts), Note: clock(d.EndedAt)})
	case client.Leased:
		p.wait(d.LastAttemptAt.Sub(last), false)
		p.add(step{Kind: "next", Mark: moves, What: fmt.Sprintf("%d · is out", d.Attempts), Note: "since " + clock(d.LastAttemptAt)})
	case client.Scheduled:
		p.wait(d.NextAttemptAt.Sub(last), true)
		p.add(step{Kind: "next", Mark: moves, Ahead: true, What: fmt.Sprintf("%d · due", d.Attempts+1), Note: clock(d.NextAttemptAt)})
		p.later(d, plan)
	case client.Dead:
		p.wait(d.EndedAt.Sub(last), false)
		reason := d.Reason
		if reason == "" {
			reason = d.LastOutcome
		}
		p.add(step{Kind: "end", Mark: bad, What: "dead: " + reason, Note: clock(d.EndedAt)})
	case client.Cancelled:
		p.wait(d.EndedAt.Sub(last), false)
		p.add(step{Kind: "end", Mark: still, What: "cancelled", Note: clock(d.EndedAt)})
	case client.Pending:
	}
}

// later is what comes if the next attempt fails.
func (p *picture) later(d client.Delivery, plan *client.Schedule) {
	if plan == nil {
		return
	}
	for _, a := range plan.Attempts {
		if a.Attempt == d.Attempts+2 {
			p.add(step{Kind: "later", Ahead: true, What: "if it fails: up to " + span(a.Window) + " more"})
			p.add(step{Kind: "next", Mark: still, Ahead: true, What: fmt.Sprintf("%d · then", a.Attempt), Note: fmt.Sprintf("of at most %d", plan.End.Attempts)})
			return
		}
	}
	p.add(step{Kind: "later", Ahead: true, What: "if it fails, it is dead"})
}

func (p *picture) wait(d time.Duration, ahead bool) {
	d = max(d, 0)
	what := "waited " + took(d)
	if ahead {
		what = "waits " + took(d)
	}
	p.add(step{Kind: "wait", What: what, Ahead: ahead, H: math.Round(shortestWait + waitGrowth*math.Log10(1+d.Seconds()))})
}

func (p *picture) add(s step) {
	s.Y = p.Height
	if s.H == 0 {
		s.H = stationHeight
		if len(s.Bars) > 0 {
			s.H += barsHeight
		}
	}
	p.Height += s.H
	p.Steps = append(p.Steps, s)
}

// Middle is where the mark of a station is, Bottom where it ends; Text is the line of its
// words, Under that of its bars.
func (s step) Middle() float64 { return s.Y + stationHeight/2 }

// Bottom is where the step ends.
func (s step) Bottom() float64 { return s.Y + s.H }

// Text is the base line of its words.
func (s step) Text() float64 {
	if s.Kind == "wait" {
		return math.Round(s.Y + s.H/2 + 4)
	}
	return s.Middle() + 5
}

// Corner is where the 16 pixels of its mark begin.
func (s step) Corner() float64 { return s.Middle() - 8 }

// Under is where its bars begin.
func (s step) Under() float64 { return s.Y + stationHeight - 2 }

func longestOf(all []client.Attempt) (longest time.Duration) {
	for _, a := range all {
		longest = max(longest, lengthOf(a))
	}
	return longest
}

// lengthOf is how long an attempt took: by its phases, which are finer, if that is more.
func lengthOf(a client.Attempt) time.Duration {
	if p := a.Phases; p != nil {
		ms := p.DNS + p.Dial + p.TLS + p.FirstByte + p.Body
		return max(time.Duration(a.Duration), time.Duration(ms*float64(time.Millisecond)))
	}
	return time.Duration(a.Duration)
}

// phaseBars are where an attempt's time went, on the scale of the longest.
func phaseBars(a client.Attempt, longest time.Duration) []part {
	if longest <= 0 || a.Phases == nil {
		return nil
	}
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	whole, scale := ms(lengthOf(a)), ms(longest)
	connect := a.Phases.DNS + a.Phases.Dial + a.Phases.TLS
	silent := max(0, whole-connect-a.Phases.FirstByte-a.Phases.Body)
	answer := a.Phases.FirstByte
	if a.Status != 0 { // what is left is ours, too little to tell
		answer, silent = answer+silent, 0
	}
	var all []part
	x := 0.0
	for _, p := range []struct {
		name string
		ms   float64
	}{{"connect", connect}, {"answer", answer}, {"read", a.Phases.Body}, {"silent", silent}} {
		width := min(100*p.ms/scale, 100-x)
		if width < 0.2 {
			continue
		}
		all = append(all, part{Name: p.name, X: round1(x), Width: round1(width)})
		x += width
	}
	return all
}

func labelOf(d client.Delivery, failed int) string {
	label := fmt.Sprintf("Accepted %s; %s", clock(d.AcceptedAt), times(int64(failed), "failed attempt"))
	switch {
	case d.State == client.Scheduled:
		return label + "; the next is due " + clock(d.NextAttemptAt) + ". Below, in words."
	case !d.EndedAt.IsZero():
		return label + "; " + string(d.State) + " " + clock(d.EndedAt) + ". Below, in words."
	}
	return label + "; " + string(d.State) + ". Below, in words."
}

// clock is a time as the picture shows it; the day stands in the facts.
func clock(t time.Time) string {
	if at := oncall.StampOf(t); at != nil {
		return at.Clock
	}
	return "not known"
}

func round1(f float64) float64 { return math.Round(10*f) / 10 }
