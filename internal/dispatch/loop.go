package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/fanout/fanout/internal/crash"
	"github.com/fanout/fanout/internal/schedule"
)

// lease is one leased delivery, with what is needed to settle it.
type lease struct {
	schedule.Leased
	partition int
	clock     clock
	slot      *slot
	arrival   *arrival
}

func (l *lease) claim() schedule.Claim { return schedule.Claim{ID: l.ID, Fence: l.Fence()} }

// arrival is what the leases of one call have in common: the time that they have to be
// prepared in, prepareFor. A context with a timer for each took 1.5 us and 4
// allocations, and a turn at the lock of the one that they all descend from.
type arrival struct {
	ctx    context.Context
	cancel context.CancelFunc
	left   atomic.Int64 // leases that are not prepared yet
}

func newArrival(stop context.Context, leases int) *arrival {
	a := &arrival{}
	a.ctx, a.cancel = context.WithTimeout(stop, prepareFor)
	a.left.Store(int64(leases))
	return a
}

// prepared says that one more lease is; the last lets go of the timer.
func (a *arrival) prepared() {
	if a.left.Add(-1) == 0 {
		a.cancel()
	}
}

// loop asks for leases. It is one goroutine that sleeps until the bell rings or
// its timer runs out; everybody else changes the board and rings. At most one
// call for new leases is out at a time, which makes batches of what piles up
// meanwhile, and one more that asks again for what was not answered: so a broken
// shard costs the others nothing.
type loop struct {
	*board

	sched    Leaser
	worker   string
	safety   time.Duration
	begin    func(life, []*lease)
	giveBack func(ctx context.Context, partition int, claims []schedule.Claim, why releaseReason)
	health   *health
	metrics  *metrics
	pulse    *pulse
	log      *slog.Logger
}

func newLoop(s Leaser, opts Options, d *Dispatcher) *loop {
	return &loop{
		board: newBoard(s.Partitions(), newSlots(opts, d.metrics), d.metrics),
		sched: s, worker: opts.Worker, safety: opts.SafetyPoll,
		begin: d.begin,
		giveBack: func(ctx context.Context, p int, claims []schedule.Claim, why releaseReason) {
			d.settler.giveBack(ctx, p, claims, why)
		},
		health: d.health, metrics: d.metrics, pulse: newPulse(), log: d.log,
	}
}

// run leases until ends.lease, and returns when the calls it made have ended.
func (l *loop) run(ends life) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ends.lease.Err() == nil {
		timer.Reset(l.step(ends, time.Now()))
		select {
		case <-ends.lease.Done():
		case <-l.bell:
		case <-timer.C:
		}
	}
	l.calls.Wait()
	// What an unanswered request leased is got back once more, only to be
	// released: a release spends nothing of the delivery, an expired lease does.
	if reqs := l.pickLost(l.reaskAt); len(reqs) > 0 {
		l.call(ends, reqs, true)
	}
}

// step begins the calls there is reason for, and says how long until the next
// reason comes by itself.
func (l *loop) step(ends life, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if reqs := l.pick(now, l.worker, l.safety); len(reqs) > 0 {
		l.asking = true
		l.calls.Go(func() { l.call(ends, reqs, false) })
	}
	if reqs := l.pickLost(now); len(reqs) > 0 {
		l.reasking = true
		l.calls.Go(func() { l.call(ends, reqs, true) })
	}
	return l.next(now, l.safety)
}

// call makes one round trip. It is detached from the stop: Redis may charge what
// it leases whether or not anybody waits for the reply.
func (l *loop) call(ends life, reqs []schedule.LeaseRequest, again bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ends.lease), callTimeout)
	defer cancel()
	l.metrics.leaseCalls.Inc()
	crash.Point("dispatcher.lease.before")
	asked := time.Now()
	replies, err := l.sched.Lease(ctx, reqs)
	crash.Point("dispatcher.lease.after")
	if err == nil && len(replies) != len(reqs) {
		err = fmt.Errorf("lease: %d replies to %d requests", len(replies), len(reqs))
	}
	if err != nil {
		l.metrics.leaseErrors.Inc()
	}
	got, surplus, lost := l.answered(reqs, replies, again, asked, time.Now())
	if err != nil || lost == 0 {
		l.health.set("lease", err)
	}
	l.begin(ends, got) // when a stop has come meanwhile, only to be released
	l.handBack(ends, surplus, releaseSurplus)
	l.ring()
}

// handBack releases leases, a call per partition.
func (l *loop) handBack(ends life, leases []*lease, why releaseReason) {
	byPartition := map[int][]schedule.Claim{}
	for _, ls := range leases {
		byPartition[ls.partition] = append(byPartition[ls.partition], ls.claim())
	}
	for p, claims := range byPartition {
		l.giveBack(ends.settle, p, claims, why)
	}
}

// watch tells the scheduler of requests that have been out for long, until ctx ends:
// their subscribers are slow, and a hang must be known before it has ended. What cannot
// be told is told later: the request goes on being out.
func (l *loop) watch(ctx context.Context) {
	tick := time.NewTicker(hangAfter / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l.pulse.beat()
		for p, out := range l.hangs(time.Now()) {
			call, cancel := context.WithTimeout(ctx, callTimeout)
			if err := l.sched.Slow(call, p, out); err != nil {
				l.log.Debug("cannot tell of slow subscribers", "partition", p, "error", err)
			}
			cancel()
		}
	}
}

// listen hands announcements on until ctx ends. While Redis cannot be listened
// to, the safety poll finds the work, only later.
func (l *loop) listen(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		woken, err := l.sched.Wake(ctx)
		if ctx.Err() == nil {
			l.health.set("wake", err)
		}
		if err == nil {
			l.pollSoon() // what was announced while nobody listened is not announced again
			for p := range woken {
				l.wake(p)
				n = 0
			}
		}
		sleep(ctx, pause(n))
	}
}
