package schedule_test

import (
	"math"
	"slices"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// What the model knows of a subscriber: cap, rate and holds by the rules of
// docs/holds.md, in plain Go and beside the scripts.
type oracle struct {
	id              string
	deleted         bool
	terms           schedule.Terms
	cap             int // in 1/10000, as the cap's rounding is part of what it allows
	cut             time.Time
	fails           int
	disabled        bool
	throttled       time.Time
	open            time.Time // zero: the breaker is closed
	opened          bool      // just now: how long it rests is the engine's draw
	step            int
	probe, last     string
	changed, moved  time.Time
	tokenAt         time.Time // when the tokens that were taken are paid off
	leases, pending int       // counted by the model before it asks
	delivered, dead int64     // likewise
}

const (
	capUnit  = 10_000
	modelCap = 2 // InitialCap of the model's engine
)

func newOracle(id string, tm schedule.Terms) *oracle {
	return &oracle{id: id, terms: tm, cap: modelCap * capUnit}
}

func (o *oracle) inFlightCap() int { return min(o.terms.MaxInFlight, o.cap/capUnit) }

// interval is the time between attempts at its rate.
func (o *oracle) interval() time.Duration {
	return time.Duration(float64(time.Second) / o.terms.RatePerSecond)
}

func (o *oracle) tokens(now time.Time) int {
	if o.terms.RatePerSecond == 0 {
		return math.MaxInt
	}
	owed := max(0, o.tokenAt.Sub(now))
	return int((time.Duration(o.terms.Burst)*o.interval() - owed) / o.interval())
}

func (o *oracle) holds(now time.Time) []schedule.Hold {
	var hs []schedule.Hold
	for _, h := range []struct {
		on   bool
		hold schedule.Hold
	}{
		{o.terms.Paused, schedule.Paused},
		{o.disabled, schedule.Disabled},
		{o.throttled.After(now), schedule.Throttled},
		{!o.open.IsZero(), schedule.Breaker},
	} {
		if h.on {
			hs = append(hs, h.hold)
		}
	}
	return hs
}

// may is how many of its due deliveries can be leased now.
func (o *oracle) may(due int, now time.Time) int {
	barred := o.deleted || o.terms.Paused || o.disabled || o.throttled.After(now) || o.probe != "" || o.open.After(now)
	if barred {
		return 0
	}
	k := max(0, min(due, o.inFlightCap()-o.leases, o.tokens(now)))
	if !o.open.IsZero() {
		k = min(k, 1)
	}
	return k
}

// leased takes in that one was.
func (o *oracle) leased(id string, now time.Time) {
	if o.terms.RatePerSecond > 0 {
		if o.tokenAt.Before(now) {
			o.tokenAt = now
		}
		o.tokenAt = o.tokenAt.Add(o.interval())
	}
	if !o.open.IsZero() {
		o.probe = id
	}
}

// ended takes in that a lease was, and says whether it was the probe's.
func (o *oracle) ended(id string, now time.Time) bool {
	if o.probe != id {
		return false
	}
	o.probe, o.last = "", id
	if o.open.After(now) {
		o.open = now
	}
	return true
}

// observe takes in what an attempt said of the endpoint.
func (o *oracle) observe(v schedule.Verdict, leased time.Time, probe bool, now time.Time) {
	blame := v.Outcome.Blame()
	if blame == delivery.Us || (o.open.IsZero() && !leased.After(o.changed)) {
		return
	}
	if !o.moved.IsZero() && !leased.After(o.moved) {
		return // of another endpoint
	}
	switch blame {
	case delivery.NoBlame:
		o.success(now)
	case delivery.Endpoint:
		o.failure(leased, probe, now)
		if until := now.Add(v.RetryAfter); v.RetryAfter > 0 && until.After(o.throttled) {
			o.throttled = until
		}
		o.disabled = o.disabled || v.Disable
	case delivery.Payload, delivery.Us:
	}
}

func (o *oracle) success(now time.Time) {
	o.fails = 0
	if !o.open.IsZero() {
		o.open, o.step, o.probe, o.last, o.changed, o.cap = time.Time{}, 0, "", "", now, capUnit
		return
	}
	rate := 1
	if o.cut.IsZero() {
		rate = 2
	}
	if most := o.terms.MaxInFlight * capUnit; o.cap < most {
		o.cap = min(most, o.cap+rate*capUnit*capUnit/o.cap)
	}
}

func (o *oracle) failure(leased time.Time, probe bool, now time.Time) {
	if leased.After(o.cut) {
		o.cap, o.cut = max(capUnit, min(o.cap, o.terms.MaxInFlight*capUnit)/2), now
	}
	switch {
	case probe:
		o.opened = true
	case o.open.IsZero():
		o.fails++
		if o.fails >= o.terms.BreakerFailures {
			o.opened, o.changed, o.fails = true, now, 0
		}
	}
	if o.opened {
		o.step++
		o.open = now
	}
}

// configure takes in a change of its config.
func (o *oracle) configure(tm schedule.Terms, c schedule.Change, now time.Time) {
	o.terms = tm
	if tm.RatePerSecond == 0 {
		o.tokenAt = time.Time{}
	} else if most := now.Add(time.Duration(tm.Burst) * o.interval()); o.tokenAt.After(most) {
		o.tokenAt = most
	}
	switch c {
	case schedule.Edited:
	case schedule.Lifted:
		o.disabled = false
		if o.open.After(now) {
			o.open = now
		}
	case schedule.Moved:
		*o = oracle{
			id: o.id, terms: tm, cap: modelCap * capUnit, moved: now, tokenAt: o.tokenAt,
			leases: o.leases, pending: o.pending,
		}
	}
}

// compare holds how the subscriber stands against what it should be. How long a
// breaker rests that has just opened is drawn: within bounds, it is taken over.
func (o *oracle) compare(s schedule.Standing, now time.Time) string {
	if o.opened {
		o.opened = false
		window := min(time.Second<<(o.step-1), 2*time.Minute)
		rest := s.ProbeAt.Sub(now)
		if rest < window/2 || rest > window {
			return "a rest of " + rest.String() + " in a window of " + window.String()
		}
		o.open = s.ProbeAt
	}
	switch {
	case !slices.Equal(s.Holds, o.holds(now)):
		return "holds"
	case s.Failures != o.fails || s.Openings != o.step || s.Probe != o.probe:
		return "the breaker"
	case !o.open.IsZero() && o.probe == "" && !s.ProbeAt.Equal(after(o.open, now)):
		return "the time of the next probe"
	case o.throttled.After(now) && !s.ThrottledUntil.Equal(o.throttled):
		return "the end of the throttle"
	case math.Abs(s.Cap-min(float64(o.terms.MaxInFlight), float64(o.cap)/capUnit)) > 1e-9:
		return "the cap"
	case s.InFlight != o.leases || s.Pending != int64(o.pending):
		return "leases or pending"
	case s.Delivered != o.delivered || s.Dead != o.dead:
		return "delivered or dead"
	}
	return ""
}

// after is at if that is still to come, else no time.
func after(at, now time.Time) time.Time {
	if at.After(now) {
		return at
	}
	return time.Time{}
}
