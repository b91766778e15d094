package subscriber

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fanout/fanout/internal/crash"
)

// cancelBatch is how many deliveries one CancelPending ends: enough to be quick
// about 100,000, few enough not to hold up the other subscribers of a partition.
const cancelBatch = 500

// The poll for the last leases starts at 20 ms, since most attempts take less
// than that, and doubles up to 500 ms. No jitter: one delete is one poller.
const (
	pollFirst = 20 * time.Millisecond
	pollLast  = 500 * time.Millisecond
)

// DeleteResult says how far a delete has come.
type DeleteResult struct {
	// Cancelled deliveries, by this call.
	Cancelled int
	// Remaining deliveries are still to be cancelled.
	Remaining int
	// Leases are attempts under way, whose requests may still arrive.
	Leases int
}

// Done says that nothing will be sent to the subscriber any more.
func (r DeleteResult) Done() bool { return r.Remaining == 0 && r.Leases == 0 }

// Delete ends a subscriber. The tombstone comes first: when it stands, nothing
// is leased or enqueued for the id, no config is found under it, and what is
// pending can only shrink. Then the pending deliveries are cancelled in batches.
//
// With wait it returns when the last lease has ended as well: no request leaves
// after it. If ctx ends first, the result says what is left, as of the last batch
// that was answered, beside ctx's error.
// Without wait it returns after the first batch.
//
// Either way, and after a crash at any point, the rest is finished by the same
// Delete again or by FinishDeletes: the tombstone stays and says that there is
// something to finish. It returns ErrNotFound for an id that never was.
func (s *Store) Delete(ctx context.Context, id string, wait bool) (DeleteResult, error) {
	owner, err := s.owner(ctx, id)
	if err == nil {
		err = s.backend.Tombstone(ctx, id, owner)
	}
	if err != nil {
		return DeleteResult{}, fmt.Errorf("delete subscriber %s: %w", clip(id), err)
	}
	crash.Point("api.tombstone.after")
	var total DeleteResult
	for pause := pollFirst; ; {
		step, err := s.cancel(ctx, id)
		if err != nil {
			if ended := timeUp(ctx); ended != nil {
				err = fmt.Errorf("%w: %w", ended, err) // Redis calls it a timeout of its own
			}
			return total, fmt.Errorf("delete subscriber %s: it gets nothing new from here on; delete it again to cancel the rest: %w", id, err)
		}
		step.Cancelled += total.Cancelled
		moved := step.Cancelled > total.Cancelled
		total = step
		switch {
		case total.Done() || !wait:
			return total, nil
		case step.Remaining > 0 && moved:
			continue // there is more, and it moves
		}
		if err := rest(ctx, pause); err != nil {
			return total, fmt.Errorf("delete subscriber %s: waiting for %d leases: %w", id, total.Leases, err)
		}
		pause = min(2*pause, pollLast)
	}
}

// owner is the account of a subscriber that is to be deleted, "" if it is deleted
// already or cannot be read: it may go all the same.
func (s *Store) owner(ctx context.Context, id string) (string, error) {
	c, err := s.backend.Config(ctx, id)
	switch {
	case errors.Is(err, ErrNotFound):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read whose it is: %w", err)
	}
	if sub, _ := s.codec.unmarshal(c); sub != nil { // beside what is sealed stands the account
		return sub.Account, nil
	}
	return "", nil
}

// timeUp is ctx's error. A socket whose deadline is ctx's may report it a moment
// before ctx does, and an end that was foreseen would pass for a failure.
func timeUp(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		<-ctx.Done()
	}
	return ctx.Err() //nolint:wrapcheck // the caller names the operation
}

// cancel is one batch.
func (s *Store) cancel(ctx context.Context, id string) (DeleteResult, error) {
	cancelled, remaining, leases, err := s.backend.CancelPending(ctx, id, cancelBatch)
	crash.Point("api.cancel.after")
	return DeleteResult{Cancelled: cancelled, Remaining: remaining, Leases: leases}, err //nolint:wrapcheck // the callers name the operation
}

// FinishDeletes finishes the deletes that a crash, a lost connection or an
// impatient caller left half done, and returns how many still have deliveries or
// leases. The process that serves the API runs it at its start and every minute;
// any number of processes may.
//
// It reads the changes of every partition since its last run, for tombstones; so
// its first run reads all there is, and a later one next to nothing.
func (s *Store) FinishDeletes(ctx context.Context) (left int, err error) {
	select {
	case s.ending.mu <- struct{}{}: // one run at a time
		defer func() { <-s.ending.mu }()
	case <-ctx.Done():
		return 0, fmt.Errorf("finish deletes: %w", ctx.Err())
	}
	// Tombstones already known are worked on even if no new ones can be read.
	errs := []error{s.findTombstones(ctx)}
	for id := range s.ending.left {
		done, err := s.finish(ctx, id)
		if err != nil {
			errs = append(errs, fmt.Errorf("subscriber %s: %w", id, err))
			break // Redis is away, or ctx over: the others would fare no better
		}
		if done {
			delete(s.ending.left, id)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return len(s.ending.left), fmt.Errorf("finish deletes: %w", err)
	}
	return len(s.ending.left), nil
}

// finish cancels what is pending of a tombstoned subscriber. It does not wait
// for leases: the next run looks again.
func (s *Store) finish(ctx context.Context, id string) (done bool, err error) {
	for {
		step, err := s.cancel(ctx, id)
		if err != nil || step.Cancelled == 0 || step.Remaining == 0 {
			return err == nil && step.Done(), err
		}
	}
}

// findTombstones notes every tombstone written since the last look.
func (s *Store) findTombstones(ctx context.Context) error {
	gens, err := s.backend.Generations(ctx)
	if err != nil {
		return fmt.Errorf("read generations: %w", err)
	}
	e := &s.ending
	if len(e.seen) != len(gens) {
		e.seen = make([]int64, len(gens))
	}
	for p, gen := range gens {
		if gen < e.seen[p] {
			e.seen[p] = 0 // Redis came back older than it was: look at everything again
		}
		if gen == e.seen[p] {
			continue
		}
		configs, upTo, err := s.backend.Changes(ctx, p, e.seen[p])
		if err != nil {
			return fmt.Errorf("read changes of partition %d: %w", p, err)
		}
		for _, c := range configs {
			if c.Deleted {
				e.left[c.ID] = true
			}
		}
		e.seen[p] = upTo
	}
	return nil
}

// rest waits, unless ctx ends first.
func rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // the caller names the operation
	}
}
