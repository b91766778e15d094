package redrive

import (
	"context"
	"fmt"
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
	// busyShare is the part of all slots that may be in use.
	busyShare = 0.9
	// failShare is the part of a cohort's own results that may be failures, once there
	// are failMin of them.
	failShare = 0.1
	failMin   = 5
	// lookAt is how many of a cohort's deliveries that are out are looked at in a step:
	// those that have been out for longest, which are those that failed if any did.
	lookAt = 100
)

// health is what the guard sees in one look.
type health struct {
	sample  schedule.Sample
	workers []schedule.WorkerReport
	tally   schedule.Tally
	out     []delivery.Delivery // of the cohort, the longest out first
	holds   []schedule.Standing // of the subscribers that it sends to
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
	if h.tally, err = s.letters.Tally(ctx, c.ID); err != nil {
		return h, err
	}
	ids, err := s.letters.OutOfCohort(ctx, c.ID, lookAt)
	if err != nil {
		return h, err
	}
	if h.out, err = s.letters.Deliveries(ctx, ids); err != nil {
		return h, err
	}
	next, err := s.letters.NextOfCohort(ctx, c.ID, lookAt)
	if err != nil {
		return h, err
	}
	coming, err := s.letters.Deliveries(ctx, next)
	if err != nil {
		return h, err
	}
	var subs []string
	for _, d := range slices.Concat(h.out, coming) {
		if !slices.Contains(subs, d.SubscriberID) {
			subs = append(subs, d.SubscriberID)
		}
	}
	h.holds, err = s.letters.Standings(ctx, subs)
	return h, err
}

// objection is why a cohort may not go on now; "" if it may.
func (s *Service) objection(c *Cohort, h health) string {
	for _, a := range h.sample.Ages {
		slo, known := s.opts.Classes[a.Class]
		if !known || a.Lane == delivery.Redrive || a.Eligible.IsZero() {
			continue
		}
		if age := h.sample.Now.Sub(a.Eligible); age > time.Duration(float64(slo)*sloShare) {
			return fmt.Sprintf("the oldest eligible %s delivery of class %s is %s old, above %.0f %% of its SLO of %s",
				a.Lane, a.Class, age.Round(time.Millisecond), 100*sloShare, slo)
		}
	}
	if why := onHold(h.holds); why != "" {
		return why
	}
	if bad, all := c.failures(h); all >= failMin && float64(bad) > failShare*float64(all) {
		return fmt.Sprintf("%d of its %d results since it began to run are failures, above %.0f %%", bad, all, 100*failShare)
	}
	slots, used := 0, 0
	for _, w := range h.workers {
		slots += w.Slots
		used += w.Used()
	}
	switch {
	case slots == 0:
		return "no dispatcher is at work"
	case float64(used) > busyShare*float64(slots):
		return fmt.Sprintf("%d of %d slots of the dispatchers are in use, above %.0f %%", used, slots, 100*busyShare)
	}
	return ""
}

// onHold names the first that is; "" if none is.
func onHold(standings []schedule.Standing) string {
	for _, st := range standings {
		if len(st.Holds) > 0 {
			words := make([]string, len(st.Holds))
			for i, hold := range st.Holds {
				words[i] = string(hold)
			}
			return fmt.Sprintf("subscriber %s is on hold: %s", st.SubscriberID, strings.Join(words, ", "))
		}
	}
	return ""
}

// failures counts the results since it began to run: those that have ended, and those
// that are out again after an attempt that failed.
func (c *Cohort) failures(h health) (bad, all int64) {
	bad = h.tally.Dead - c.Base.Dead
	all = bad + h.tally.Delivered - c.Base.Delivered
	for _, d := range h.out {
		if d.State == delivery.Scheduled && d.Attempts > d.BudgetBase {
			bad++
			all++
		}
	}
	return bad, all
}

// HeadRoom is what could be sent beyond what arrives.
type HeadRoom struct {
	// Capacity is how many attempts a second all slots would carry at the time that
	// attempts take now, Arrivals how many deliveries are accepted a second.
	Capacity float64 `json:"capacity_per_second"`
	Arrivals float64 `json:"arrivals_per_second"`
	// Slots of all dispatchers, and those in use.
	Slots int `json:"slots"`
	Used  int `json:"slots_in_use"`
}

// PerSecond is the head-room; not below 0.
func (h HeadRoom) PerSecond() float64 { return max(h.Capacity-h.Arrivals, 0) }

// unknownSlotTime stands for how long an attempt takes while nothing was sent yet.
const unknownSlotTime = 50 * time.Millisecond

// headRoom measures it, over a moment.
func (s *Service) headRoom(ctx context.Context) (HeadRoom, error) {
	workers, err := s.letters.Workers(ctx)
	if err != nil {
		return HeadRoom{}, err
	}
	var h HeadRoom
	for _, w := range workers {
		each := w.SlotSeconds
		if each <= 0 {
			each = unknownSlotTime.Seconds()
		}
		h.Slots += w.Slots
		h.Used += w.Used()
		h.Capacity += float64(w.Slots) / each
	}
	h.Arrivals, err = s.arrivals(ctx)
	return h, err
}

// arrivals is how many deliveries were accepted a second since it was asked last, or
// over a moment from now. It is kept by the runner; another process measures its own.
func (s *Service) arrivals(ctx context.Context) (float64, error) {
	now, err := s.letters.Sample(ctx, nil)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	last := s.last
	s.last = now
	s.mu.Unlock()
	if span := now.Now.Sub(last.Now); span >= arrivalSpan && span <= time.Minute {
		return float64(now.Ledger.Accepted-last.Ledger.Accepted) / span.Seconds(), nil
	}
	select {
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-time.After(arrivalSpan):
	}
	then, err := s.letters.Sample(ctx, nil)
	if err != nil {
		return 0, err
	}
	return max(0, float64(then.Ledger.Accepted-now.Ledger.Accepted)/then.Now.Sub(now.Now).Seconds()), nil
}

// arrivalSpan is the least over which arrivals are measured.
const arrivalSpan = time.Second
