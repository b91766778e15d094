package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fanout/fanout/internal/crash"
	"github.com/fanout/fanout/internal/schedule"
)

// releaseFor bounds how long a release is tried. It is worth less than a verdict:
// left alone, the lease expires and the reaper gives the attempt back.
const releaseFor = 10 * time.Second

// settlement is a verdict on its way home.
type settlement struct {
	*lease
	verdict schedule.Verdict
}

// overdue says whether a verdict is past saving: its lease is long over, and the
// reaper has had every chance to settle in its place.
func (s settlement) overdue(now time.Time) bool {
	return now.After(s.clock.here(s.Until).Add(settleFor))
}

// settler brings verdicts home, in order per partition. It is group commit: while one
// batch is out the next gathers. A lone verdict never waits; where they are many, the
// batches keep a rhythm.
type settler struct {
	sched   Settler
	board   *board
	most    int // verdicts in one call
	health  *health
	metrics *metrics
	log     *slog.Logger

	mu      sync.Mutex
	queues  []queue
	flushes sync.WaitGroup // one per partition that has verdicts
	dropped atomic.Int64
}

// queue is the verdicts of one partition. Flushing says that a goroutine is at
// it; it ends when the queue is empty, so an idle settler has none.
type queue struct {
	waiting  []settlement
	flushing bool
	rhythm   rhythm
}

func newSettler(s Settler, partitions int, l *loop, d *Dispatcher) *settler {
	return &settler{
		sched: s, board: l.board, most: l.slots.callMost(), health: d.health, metrics: d.metrics, log: d.log,
		queues: make([]queue, partitions),
	}
}

// add sends a verdict on its way. Its lease's slot is freed when it is home, or
// given up.
func (s *settler) add(ctx context.Context, l *lease, v schedule.Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := &s.queues[l.partition]
	q.waiting = append(q.waiting, settlement{lease: l, verdict: v})
	if !q.flushing {
		q.flushing = true
		s.flushes.Go(func() { s.flush(ctx, l.partition) })
	}
}

// gather waits for the partition's rhythm, unless there is a whole batch already.
func (s *settler) gather(ctx context.Context, partition int) {
	next := func() time.Duration {
		s.mu.Lock()
		defer s.mu.Unlock()
		q := &s.queues[partition]
		if n := len(q.waiting); n == 0 || n >= s.most {
			return 0
		}
		return q.rhythm.take(time.Now())
	}
	wait := next()
	for wait > 0 && sleep(ctx, wait) {
		wait = next()
	}
}

// take removes the next batch from the queue; an empty one ends the flush.
func (s *settler) take(partition int) []settlement {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := &s.queues[partition]
	n := min(len(q.waiting), s.most)
	batch := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	q.flushing = n > 0
	return batch
}

// putBack queues what was not settled before what came since.
func (s *settler) putBack(partition int, left []settlement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := &s.queues[partition]
	q.waiting = slices.Concat(left, q.waiting)
}

// flush settles a partition's verdicts until there are none. On an error the same
// ones go again after a backoff: at their fence they have one effect, however
// often they arrive.
func (s *settler) flush(ctx context.Context, partition int) {
	part := fmt.Sprintf("settle in partition %d", partition)
	fails := 0
	for {
		s.gather(ctx, partition)
		batch := s.take(partition)
		if len(batch) == 0 {
			break
		}
		left, err := s.commit(ctx, partition, batch)
		s.health.set(part, err)
		if err == nil {
			fails = 0
			continue
		}
		s.putBack(partition, s.dropOverdue(ctx, partition, left, err))
		sleep(ctx, pause(fails))
		fails++
	}
	s.health.set(part, nil) // nothing waits here any more, settled or dropped
}

// commit settles a batch and returns what is left of it with the error. A batch
// that Redis refuses, rather than misses, is tried in halves: one verdict that
// cannot be settled must not keep the others from it.
func (s *settler) commit(ctx context.Context, partition int, batch []settlement) ([]settlement, error) {
	results, err := s.call(ctx, partition, batch)
	switch {
	case err == nil:
		crash.Point("dispatcher.settle.after")
		s.settled(partition, batch, results)
		return nil, nil
	case len(batch) == 1, ctx.Err() != nil,
		errors.Is(err, schedule.ErrUnavailable), errors.Is(err, schedule.ErrFull),
		errors.Is(err, context.DeadlineExceeded):
		return batch, err
	}
	half := len(batch) / 2
	left, errLeft := s.commit(ctx, partition, batch[:half])
	right, errRight := s.commit(ctx, partition, batch[half:])
	return slices.Concat(left, right), errors.Join(errLeft, errRight)
}

func (s *settler) call(ctx context.Context, partition int, batch []settlement) (schedule.Settled, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	verdicts := make([]schedule.Verdict, len(batch))
	for i, b := range batch {
		verdicts[i] = b.verdict
	}
	done, err := s.sched.Settle(ctx, partition, verdicts)
	if err != nil {
		return schedule.Settled{}, fmt.Errorf("settle %d verdicts: %w", len(batch), err)
	}
	if len(done.Results) != len(batch) {
		return schedule.Settled{}, fmt.Errorf("settle: %d results for %d verdicts", len(done.Results), len(batch))
	}
	return done, nil
}

// settled notes what became of a batch. What falls due next, be it a retry, a probe
// or the end of a throttle, is put on the board before the slots are freed, so that
// none is waited for by the poll.
func (s *settler) settled(partition int, batch []settlement, done schedule.Settled) {
	for i, b := range batch {
		s.metrics.settled(b.verdict, done.Results[i])
		if r := done.Results[i]; r != schedule.Applied && r != schedule.Already {
			s.log.Warn("verdict came late", "delivery_id", b.ID, "fence", b.Fence(),
				"outcome", b.verdict.Outcome, "result", r)
		}
	}
	if !done.NextDue.IsZero() {
		s.board.due(partition, batch[len(batch)-1].clock.here(done.NextDue))
	}
	s.free(batch)
}

// dropOverdue gives up on verdicts whose lease is long over, or on all of them
// when the stop's patience is. The reaper settles these as lost leases.
func (s *settler) dropOverdue(ctx context.Context, partition int, left []settlement, why error) []settlement {
	now := time.Now()
	var keep, drop []settlement
	for _, b := range left {
		if ctx.Err() == nil && !b.overdue(now) {
			keep = append(keep, b)
			continue
		}
		drop = append(drop, b)
		s.dropped.Add(1)
		s.metrics.settles.WithLabelValues(resultDropped).Inc()
		s.log.Error("verdict dropped: it could not be settled in time", "delivery_id", b.ID, "fence", b.Fence(),
			"partition", partition, "outcome", b.verdict.Outcome, "error", why)
	}
	s.free(drop)
	return keep
}

func (s *settler) free(batch []settlement) {
	if len(batch) == 0 {
		return
	}
	leases := make([]*lease, len(batch))
	for i, b := range batch {
		leases[i] = b.lease
	}
	s.board.free(leases...)
}

// giveBack releases leases whose request never left.
func (s *settler) giveBack(ctx context.Context, partition int, claims []schedule.Claim, why releaseReason) {
	ctx, cancel := context.WithTimeout(ctx, releaseFor)
	defer cancel()
	s.metrics.releases.WithLabelValues(string(why)).Add(float64(len(claims)))
	crash.Point("dispatcher.release.before")
	err := persist(ctx, func() error {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return s.sched.Release(call, partition, claims) //nolint:wrapcheck // logged below, with the operation
	})
	crash.Point("dispatcher.release.after")
	if err != nil {
		s.log.Warn("leases not handed back: they will expire", "partition", partition, "leases", len(claims),
			"reason", string(why), "error", err)
	}
}
