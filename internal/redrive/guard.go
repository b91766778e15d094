package redrive

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// What the guard pauses at.
const (
	// sloShare is the part of a class's age SLO that its oldest eligible fresh or retry
	// delivery may reach while a cohort runs. Half: on-call is paged at the whole.
	sloShare = 0.5
	// busyShare is the part of all slots that may be in use. A cohort is held back once
	// there were more for busyOver, and paused if it lasts for busyFor: dispatchers tell
	// how many there are every two seconds, as of that moment, and one moment is a burst.
	// Held back at each it would never get anywhere beside fresh traffic of two thirds of
	// what the slots carry.
	busyShare = 0.9
	busyOver  = 2 * time.Second
	busyFor   = 6 * time.Second
	// failShare is the part of a cohort's own results that may be failures, once there
	// are failMin of them.
	failShare = 0.1
	failMin   = 5
	// failWindow is of how many results the guard keeps account at least; twice as many at
	// most. Of ten thousand it would see a thousand fail before it spoke.
	failWindow = 50
	// lookAtOut is how many of a cohort's deliveries that are out are looked at in a step,
	// those that have been out for longest first, and lookAtNext how many at least of
	// those that come next.
	lookAtOut  = 1000
	lookAtNext = 100
)

// health is what the guard sees in one look.
type health struct {
	sample  schedule.Sample
	workers []schedule.WorkerReport
	tally   schedule.Tally
	outIDs  []string
	next    []string            // to be released, in order
	out     []delivery.Delivery // of the cohort, the longest out first
	holds   []schedule.Standing // of those that it sends to and that are on hold
}

// results are what of a cohort has ended.
func (h health) results() Results {
	return Results{h.tally.Delivered, h.tally.Dead, h.sample.Now}
}

// look reads it.
func (s *Service) look(ctx context.Context, c *Cohort) (health, error) {
	var h health
	var err error
	if h.sample, err = s.letters.Sample(ctx, s.classes()); err != nil {
		return h, err
	}
	if h.workers, err = s.letters.Workers(ctx); err != nil {
		return h, err
	}
	// Who is out, before the counts: one that ends in between is in both rather than in
	// neither, or a canary that fails just then would pass for one that is gone.
	if h.outIDs, err = s.letters.OutOfCohort(ctx, c.ID, lookAtOut); err != nil {
		return h, err
	}
	if h.tally, err = s.letters.Tally(ctx, c.ID); err != nil {
		return h, err
	}
	if h.out, err = s.letters.Deliveries(ctx, h.outIDs); err != nil {
		return h, err
	}
	soon := int(2 * c.Rate * s.opts.Every.Seconds())
	if h.next, err = s.letters.NextOfCohort(ctx, c.ID, max(lookAtNext, soon)); err != nil {
		return h, err
	}
	coming, err := s.letters.Deliveries(ctx, h.next)
	if err != nil {
		return h, err
	}
	subs := map[string]bool{}
	for _, d := range slices.Concat(h.out, coming) {
		subs[d.SubscriberID] = true
	}
	h.holds, err = s.holds(ctx, slices.Sorted(maps.Keys(subs)))
	return h, err
}

// holds are those subscribers that are on hold. One that was deleted while it was stays
// so for ever, and is left out: its dead letters leave the cohort when they are released.
func (s *Service) holds(ctx context.Context, ids []string) (held []schedule.Standing, err error) {
	all, err := s.letters.Standings(ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, st := range all {
		if len(st.Holds) == 0 {
			continue
		}
		class, err := s.opts.ClassOf(ctx, st.SubscriberID)
		if err != nil {
			return nil, err
		}
		if class != "" {
			held = append(held, st)
		}
	}
	return held, nil
}

// objection is why a cohort may not go on now; "" if it may.
func (s *Service) objection(c *Cohort, h health) string {
	for _, a := range h.sample.Ages {
		slo, known := s.opts.Classes[a.Class]
		if !known { // of a class that this process was not told of: the most patient one
			for _, one := range s.opts.Classes {
				slo = max(slo, one)
			}
		}
		if slo == 0 || a.Lane == delivery.Redrive || a.Eligible.IsZero() {
			continue
		}
		if age := h.sample.Now.Sub(a.Eligible); age > time.Duration(float64(slo)*sloShare) {
			return fmt.Sprintf("the oldest eligible %s delivery of class %s is %s old, above %.0f %% of its SLO of %s",
				a.Lane, a.Class, age.Round(time.Millisecond), 100*sloShare, slo)
		}
	}
	if why := h.onHold(); why != "" {
		return why
	}
	if bad, all := c.failures(h); all >= failMin && float64(bad) > failShare*float64(all) {
		return fmt.Sprintf("%d of its %d results since it began to run are failures, above %.0f %%", bad, all, 100*failShare)
	}
	if len(h.workers) == 0 {
		return "no dispatcher is at work"
	}
	if busy := h.busy(); busy != "" && s.busyFor(c, h) >= busyFor {
		return busy
	}
	return ""
}

// busy says that nearly all slots are in use; "" if they are not.
func (h health) busy() string {
	slots, used := 0, 0
	for _, w := range h.workers {
		slots += w.Slots
		used += w.Used()
	}
	if float64(used) <= busyShare*float64(slots) {
		return ""
	}
	return fmt.Sprintf("%d of %d slots of the dispatchers are in use, above %.0f %%", used, slots, 100*busyShare)
}

// onHold names the first subscriber that is; "" if none is.
func (h health) onHold() string {
	for _, st := range h.holds {
		if !h.probes(st) {
			words := make([]string, len(st.Holds))
			for i, hold := range st.Holds {
				words[i] = string(hold)
			}
			return fmt.Sprintf("subscriber %s is on hold: %s", st.SubscriberID, strings.Join(words, ", "))
		}
	}
	return ""
}

// probes says whether a subscriber is on hold only because nothing has probed its
// endpoint since its breaker opened, and this cohort's deliveries are all that it has
// to probe it with. An endpoint that was down for long has often nothing else pending:
// were this an objection, its dead letters could never be sent again.
func (h health) probes(st schedule.Standing) bool {
	if !slices.Equal(st.Holds, []schedule.Hold{schedule.Breaker}) {
		return false
	}
	untried := int64(0)
	for _, d := range h.out {
		attempts := d.Attempts - d.BudgetBase
		if d.SubscriberID == st.SubscriberID && (attempts == 0 || d.State == delivery.Leased && attempts == 1) {
			untried++
		}
	}
	return st.Pending == untried
}

// canaryHeld is why canaries cannot be sent, or wait: the subscriber of one that has
// not ended is on hold.
func (h health) canaryHeld(canaries []delivery.Delivery) string {
	subs := map[string]bool{}
	for _, d := range canaries {
		if slices.Contains(h.outIDs, d.ID) || slices.Contains(h.next, d.ID) {
			subs[d.SubscriberID] = true
		}
	}
	theirs := h
	theirs.holds = nil
	for _, st := range h.holds {
		if subs[st.SubscriberID] {
			theirs.holds = append(theirs.holds, st)
		}
	}
	return theirs.onHold()
}

// failures counts the results since Base: those that have ended, and those that are out
// again after an attempt that failed.
func (c *Cohort) failures(h health) (bad, all int64) {
	bad = h.tally.Dead - c.Base.Dead
	all = bad + h.tally.Delivered - c.Base.Delivered
	for _, d := range h.out {
		if d.State == delivery.Scheduled && d.Attempts > d.BudgetBase && d.LastAttemptAt.After(c.Base.At) {
			bad++
			all++
		}
	}
	return bad, all
}

// slide moves Base on, so that the guard judges the last results.
func (c *Cohort) slide(h health) {
	if h.tally.Dead-c.Mark.Dead+h.tally.Delivered-c.Mark.Delivered >= failWindow {
		c.Base, c.Mark = c.Mark, h.results()
	}
}

// PauseBound is how soon the guard pauses a cohort that releases so many a second, if
// from some moment on all that it sends fails: how long after the first result that failed,
// and how many were sent by then, that one included. looks is how long a step's looks at
// Redis take: some milliseconds, on a busy machine some hundred. What was released by then
// goes on: see untriedFor.
//
// A step's results are seen by the next. What is judged are at worst 2*failWindow results
// and those of two steps, all of them good ones; the guard speaks when more than failShare
// of what it judges is bad. So it takes the step in which the failing began, and as many as
// bring so many failures: one, from about 60 a second on. The rate grows meanwhile.
//
// An endpoint that answers what its breaker counts is left alone sooner: the breaker opens
// after breaker_failures of them, and the next look finds a subscriber on hold.
func PauseBound(rate float64, looks time.Duration) (within time.Duration, sent int) {
	step := max(stepEvery, looks)
	each := max(rate, minRate) * step.Seconds()
	bad := max(failShare/(1-failShare)*(2*failWindow+2*each), failMin)
	within = time.Duration(1+math.Ceil(bad/each))*step + looks
	return within, int(math.Ceil(rate * math.Pow(growth, within.Seconds()) * within.Seconds()))
}
