package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/fanout/fanout/internal/crash"
	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
)

// reapLimit is the most that one look fetches. A full page is followed by the
// next one at once.
const reapLimit = 256

// reapBatch is the most that one call settles: beyond it a batch holds up Redis for
// longer than it saves.
const reapBatch = 128

// afterOutage is the reaper's pause after an error, and once more when Redis is
// back. It is longer than a settler's longest one, so that workers which outlived
// an outage get to settle their own leases before these are taken for lost.
const afterOutage = 3 * widestWindow

var errOutageOver = errors.New("redis is back: leases get a moment to be settled by their workers")

// reaper settles leases that expired, and ends deliveries that grew too old. Every
// dispatcher has one; that several see the same is harmless, since fences let one
// of them win.
type reaper struct {
	sched   Overdue
	dir     Directory
	bodies  *bodies
	judge   *judge
	settler *settler
	board   *board
	every   time.Duration
	health  *health
	metrics *metrics
	log     *slog.Logger
	outage  bool // the last look failed
}

// run looks until ends.lease. What it does can be broken off anywhere: the next
// look, here or elsewhere, finds it again.
func (r *reaper) run(ends life) {
	for ctx := ends.lease; ctx.Err() == nil; {
		moreLeases, err := r.leases(ends)
		moreDeliveries, errDeliveries := r.deliveries(ctx)
		err = errors.Join(err, errDeliveries)
		if ctx.Err() == nil {
			r.health.set("reap", err)
		}
		wait := r.every
		switch {
		case err != nil:
			wait = max(afterOutage, r.every)
		case moreLeases || moreDeliveries:
			wait = 0
		}
		sleep(ctx, wait)
	}
}

// leases settles a page of expired leases as lost. More says that there may be
// another page, and that this one got somewhere.
func (r *reaper) leases(ends life) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ends.lease, callTimeout)
	defer cancel()
	expired, now, failed := r.sched.ExpiredLeases(ctx, reapLimit)
	switch {
	case failed != nil: // what was found all the same is not to wait for the rest
		r.outage = true
		failed = fmt.Errorf("look for expired leases: %w", failed)
	case r.outage:
		r.outage = false
		return false, errOutageOver
	}
	clk := clock{redis: now, local: time.Now()}
	verdicts, cancelled := map[int][]schedule.Verdict{}, map[int][]schedule.Claim{}
	for _, l := range expired {
		p := r.sched.PartitionOf(l.SubscriberID)
		if l.State != delivery.Leased {
			// It was cancelled while it was out: what is left of the lease ends.
			cancelled[p] = append(cancelled[p], schedule.Claim{ID: l.ID, Fence: l.Fence()})
			continue
		}
		v, err := r.lost(ends.lease, l, clk.now())
		if err != nil {
			failed = err // the others are not to wait for it
			continue
		}
		verdicts[p] = append(verdicts[p], v)
	}
	for p, claims := range cancelled {
		r.settler.giveBack(ends.lease, p, claims, releaseGone)
	}
	settle := func(ctx context.Context, p int, vs []schedule.Verdict) ([]schedule.SettleResult, error) {
		done, err := r.sched.Settle(ctx, p, vs)
		return done.Results, err //nolint:wrapcheck // by the caller, as that of Expire
	}
	moved, err := r.settle(ends.lease, verdicts, settle, clk)
	more = len(expired) >= reapLimit && moved+len(cancelled) > 0
	return more, errors.Join(failed, err)
}

// lost decides on one expired lease. A deleted subscriber has no policy any more;
// its deliveries are being cancelled, and the default one bounds what is not yet.
func (r *reaper) lost(ctx context.Context, l schedule.Leased, now time.Time) (schedule.Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	policy := delivery.DefaultPolicy()
	sub, err := r.dir.At(ctx, l.SubscriberID, 0)
	switch {
	case err == nil, errors.Is(err, subscriber.ErrUnreadable) && sub != nil: // a policy is not sealed
		policy = sub.Policy
	case !errors.Is(err, subscriber.ErrGone):
		return schedule.Verdict{}, fmt.Errorf("read the config of subscriber %s: %w", l.SubscriberID, err)
	}
	decision := r.judge.decide(policy, l.Delivery, delivery.Result{Outcome: delivery.LeaseLost}, now)
	var body *schedule.Body
	if decision.Next == delivery.Dead {
		if body, err = r.pin(ctx, l.EventID); err != nil {
			return schedule.Verdict{}, err
		}
	}
	return r.judge.reclaim(l, decision, body), nil
}

// deliveries dead-letters a page of waiting deliveries that passed expires_at.
func (r *reaper) deliveries(ctx context.Context) (more bool, err error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	expired, now, failed := r.sched.ExpiredDeliveries(call, reapLimit)
	if failed != nil {
		failed = fmt.Errorf("look for expired deliveries: %w", failed)
	}
	clk := clock{redis: now, local: time.Now()}
	verdicts := map[int][]schedule.Verdict{}
	for _, d := range expired {
		body, err := r.pin(ctx, d.EventID)
		if err != nil {
			failed = err
			continue
		}
		p := r.sched.PartitionOf(d.SubscriberID)
		verdicts[p] = append(verdicts[p], schedule.Verdict{
			ID: d.ID, Fence: d.DeliveryCount, Body: body,
			Decision: delivery.Decision{Next: delivery.Dead, Reason: delivery.Expired},
			Outcome:  d.LastOutcome, Status: d.LastStatus, // no attempt was made: the last one still speaks
		})
	}
	moved, err := r.settle(ctx, verdicts, r.sched.Expire, clk)
	return len(expired) >= reapLimit && moved > 0, errors.Join(failed, err)
}

// pin reads the payload that a dead letter keeps; nil when it is gone, which must
// not keep the delivery from ending.
func (r *reaper) pin(ctx context.Context, eventID string) (*schedule.Body, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	body, err := r.bodies.get(ctx, eventID)
	if errors.Is(err, schedule.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return body, nil
}

// settleCall is Scheduler.Settle, for its results alone, or Scheduler.Expire.
type settleCall func(context.Context, int, []schedule.Verdict) ([]schedule.SettleResult, error)

// settle applies verdicts at once, not by the settler's queue: the next look must
// not find them again. Moved is how many had an effect.
func (r *reaper) settle(
	ctx context.Context, verdicts map[int][]schedule.Verdict, call settleCall, clk clock,
) (moved int, failed error) {
	for p, all := range verdicts {
		for batch := range slices.Chunk(all, reapBatch) {
			results, err := r.call(ctx, p, batch, call)
			if err != nil {
				failed = errors.Join(failed, err)
				continue
			}
			for i, v := range batch {
				r.metrics.settled(v, results[i])
				if results[i] != schedule.Applied {
					continue
				}
				moved++
				r.applied(p, v, clk)
			}
		}
	}
	return moved, failed
}

func (r *reaper) call(
	ctx context.Context, p int, batch []schedule.Verdict, call settleCall,
) ([]schedule.SettleResult, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	crash.Point("dispatcher.reclaim.before")
	results, err := call(ctx, p, batch)
	crash.Point("dispatcher.reclaim.after")
	if err == nil && len(results) != len(batch) {
		err = errors.New("results do not match the verdicts")
	}
	if err != nil {
		return nil, fmt.Errorf("settle %d overdue in partition %d: %w", len(batch), p, err)
	}
	return results, nil
}

// applied tells of one that ended or goes on by this worker's hand.
func (r *reaper) applied(p int, v schedule.Verdict, clk clock) {
	log := r.log.With("delivery_id", v.ID, "fence", v.Fence, "next", v.Next, "reason", v.Reason)
	if !v.Reclaim {
		log.Warn("waiting delivery expired")
		return
	}
	r.metrics.leasesLost.Inc()
	if v.Next == delivery.Scheduled {
		r.board.due(p, clk.here(v.DueAt))
	}
	log.Warn("lease lost", "give_back", v.GiveBack, "due_at", v.DueAt)
}
