package delivery

import (
	"errors"
	"fmt"
	"time"
)

// MaxLeaseLosses is how many lost leases give their attempt back. Up to here a
// worker's death is taken for an accident, and must not burn a budget of one;
// beyond it the delivery is taken for what kills its workers, and is charged, so
// that it ends after max_attempts + MaxLeaseLosses leases.
const MaxLeaseLosses = 3

// ErrImpossible is returned for a delivery whose counters contradict each other.
var ErrImpossible = errors.New("impossible delivery metadata")

// Result is what an attempt came to, as Decide needs it.
type Result struct {
	Outcome Outcome
	// Status is the answer's, 0 if none came; it selects the policy's classify
	// overrides.
	Status int
	// RetryAfter is how long the endpoint asked to be left alone, already clamped
	// to the policy's retry_after_cap; 0 if it did not.
	RetryAfter time.Duration
}

// Decision is the fate of a leased delivery.
type Decision struct {
	// Next is Delivered, Scheduled (another attempt) or Dead.
	Next State
	// DueAt is when a scheduled one is to be attempted.
	DueAt time.Time
	// Reason of a dead one: a terminal outcome, exhausted or expired.
	Reason Outcome
	// GiveBack returns the charge of this attempt: its worker died in it.
	GiveBack bool
	// Disable says that the endpoint is gone for good: its subscriber is put on hold
	// until somebody resumes it.
	Disable bool
}

// Decide is the only place that says when a delivery stops. A worker's verdict
// and a dead worker's lease (LeaseLost) both come here. It is given the delivery
// as leased, so the attempt under judgement is charged already.
//
// It returns ErrImpossible rather than guess about a delivery that is not
// leased, has no attempt charged, or whose counters do not add up.
func Decide(p Policy, d Delivery, r Result, now time.Time) (Decision, error) {
	if err := possible(d); err != nil {
		return Decision{}, err
	}
	switch p.kind(r) {
	case Success:
		return Decision{Next: Delivered}, nil
	case Terminal:
		return Decision{Next: Dead, Reason: r.Outcome, Disable: r.Outcome == Gone}, nil
	case Transient: // another attempt, if there is budget and time for it
	}

	giveBack := r.Outcome == LeaseLost && d.LeaseLosses < MaxLeaseLosses
	if !giveBack && d.Attempts >= d.AttemptLimit(p) {
		return Decision{Next: Dead, Reason: Exhausted}, nil
	}
	wait := max(Backoff(p, d.ID, d.Attempts-d.BudgetBase), r.RetryAfter)
	due := now.Add(wait)
	if due.After(d.ExpiresAt) {
		return Decision{Next: Dead, Reason: Expired, GiveBack: giveBack}, nil
	}
	return Decision{Next: Scheduled, DueAt: due, GiveBack: giveBack}, nil
}

// possible checks what every lease guarantees.
func possible(d Delivery) error {
	givenBack := int64(d.Releases) + int64(min(d.LeaseLosses, MaxLeaseLosses))
	switch {
	case d.State != Leased:
		return fmt.Errorf("%s is %q, not leased: %w", d.ID, d.State, ErrImpossible)
	case d.Attempts < 1:
		return fmt.Errorf("%s is leased with %d attempts charged: %w", d.ID, d.Attempts, ErrImpossible)
	case d.Releases < 0 || d.LeaseLosses < 0 || d.RedriveGeneration < 0 || d.BudgetBase < 0 || d.Budget < 0:
		return fmt.Errorf("%s has a negative counter: %w", d.ID, ErrImpossible)
	case d.BudgetBase >= d.Attempts:
		return fmt.Errorf("%s: generation began at attempt %d, now at %d: %w",
			d.ID, d.BudgetBase, d.Attempts, ErrImpossible)
	case d.DeliveryCount != int64(d.Attempts)+givenBack:
		return fmt.Errorf("%s: delivery_count %d is not attempts %d + given back %d: %w",
			d.ID, d.DeliveryCount, d.Attempts, givenBack, ErrImpossible)
	case d.ExpiresAt.IsZero():
		return fmt.Errorf("%s never expires: %w", d.ID, ErrImpossible)
	}
	return nil
}
