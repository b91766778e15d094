package dispatch

import (
	"context"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// reportEvery is how often a worker says how busy it is.
const reportEvery = 2 * time.Second

// Reports takes what a worker says of itself, for on-call and for an operator's repair.
type Reports interface {
	Report(ctx context.Context, r schedule.WorkerReport) error
}

// report tells how busy this worker is, until ctx ends. What cannot be told is told by
// the next one: nothing waits for it.
func (d *Dispatcher) report(ctx context.Context) {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	r := schedule.WorkerReport{
		Worker: d.opts.Worker, Version: d.opts.Version, Slice: d.opts.Slice, Slots: d.opts.Slots, StartedAt: time.Now().UTC(),
	}
	r.Limits = d.loop.limits()
	var seen usage
	var lately recent
	since := time.Now()
	for {
		used := d.loop.usage()
		if n := used.done - seen.done; n > 0 {
			r.PerSecond = float64(n) / max(time.Since(since), time.Millisecond).Seconds()
			r.SlotSeconds = (used.spent - seen.spent).Seconds() / float64(n)
		} else {
			r.PerSecond = 0
		}
		seen, since = used, time.Now()
		r.InUse = used.inUse
		r.Delivered, r.Failed, r.Dead = d.metrics.delivered.Load(), d.metrics.failed.Load(), d.metrics.dead.Load()
		r.Attempts = r.Delivered + r.Failed
		if took := d.redis.mean(); took > 0 {
			r.RedisSeconds = took.Seconds()
		}
		r.Recent = lately.since(d.metrics.tallies(since))
		r.Lately = lately.lately()
		r.Failing, r.FailingTotal = d.metrics.failing.top(since)
		call, cancel := context.WithTimeout(ctx, callTimeout)
		if err := d.reports.Report(call, r); err != nil && ctx.Err() == nil {
			d.log.Debug("cannot report", "error", err)
		}
		cancel()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// usage is how the slots are used: those in use by pool and lane, how many were given
// back so far, and for how long all those were taken.
type usage struct {
	inUse map[string]int
	done  int64
	spent time.Duration
}

// limits are what the slots are shared out by.
func (b *board) limits() schedule.SlotLimits {
	return schedule.SlotLimits{
		Slow: b.slots.slowLimit, Retry: b.slots.limit[laneIndex(delivery.Retry)], Redrive: b.slots.limit[laneIndex(delivery.Redrive)],
	}
}

func (b *board) usage() usage {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := usage{inUse: map[string]int{}, done: b.slots.done, spent: b.slots.spent}
	for pool, label := range poolLabels {
		for lane, name := range laneNames {
			if n := b.slots.used[pool][lane]; n > 0 {
				u.inUse[label+"/"+string(name)] = n
			}
		}
	}
	return u
}
