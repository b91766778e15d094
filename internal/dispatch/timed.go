package dispatch

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fanout/fanout/internal/schedule"
)

// timed measures the calls that a delivery waits for: to a dispatcher, that is how fast
// Redis is. They come in batches, so that it costs a delivery nothing.
type timed struct {
	Scheduler

	took prometheus.Observer
	// calls, and the time they all took in ns, since the last report.
	calls, spent atomic.Int64
}

// Lease is the scheduler's.
func (t *timed) Lease(ctx context.Context, reqs []schedule.LeaseRequest) ([]schedule.LeaseReply, error) {
	defer t.note(time.Now())
	return t.Scheduler.Lease(ctx, reqs) //nolint:wrapcheck // it is the scheduler's, with a watch beside it
}

// Settle is the scheduler's.
func (t *timed) Settle(ctx context.Context, partition int, vs []schedule.Verdict) (schedule.Settled, error) {
	defer t.note(time.Now())
	return t.Scheduler.Settle(ctx, partition, vs) //nolint:wrapcheck // as above
}

func (t *timed) note(begun time.Time) {
	took := time.Since(begun)
	t.took.Observe(took.Seconds())
	t.calls.Add(1)
	t.spent.Add(int64(took))
}

// mean is how long a call took since the last time that this was asked; 0 if there was
// none.
func (t *timed) mean() time.Duration {
	n, spent := t.calls.Swap(0), t.spent.Swap(0)
	if n == 0 {
		return 0
	}
	return time.Duration(spent / n)
}
