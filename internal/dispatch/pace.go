package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// How long things may take. They fit into subscriber.SettleMargin: preparing, one
// settle call that runs into its deadline, and a second one.
const (
	// callTimeout bounds one Redis call of a loop.
	callTimeout = 5 * time.Second
	// prepareFor bounds what comes before a request: reading config and body, an
	// outage's retries included. After that the lease is handed back.
	prepareFor = 2 * time.Second
	// unreadableFor is the least that a delivery waits whose config or payload could
	// not be read; the most is twice that. Released as it was, it would be leased again
	// at once, and a subscriber with a cap's worth of those would get nothing else: in
	// a cluster that is what a dead primary's payloads are to the others' subscribers.
	unreadableFor = 5 * time.Second
	// settleFor is how long after its lease expired a verdict is still tried. It
	// is accepted while nobody reclaimed the lease, and outlasting an outage of
	// minutes spares receivers a duplicate.
	settleFor = 5 * time.Minute
	// settleGrace is what verdicts get at a stop, beyond Options.Grace.
	settleGrace = 5 * time.Second
	// firstWindow and widestWindow bound the pauses between tries.
	firstWindow  = 50 * time.Millisecond
	widestWindow = 2 * time.Second
)

// waitAfter is the least that a delivery waits after a release for what another
// try may meet again, and half of the most: leased again at once, it would go
// round as fast as Redis can.
var waitAfter = map[releaseReason]time.Duration{
	releaseUnreadable: unreadableFor,
	releaseLate:       time.Second,
}

// pause is the wait after the nth failure in a row, from 0: full jitter over a
// window that doubles from 50 ms to 2 s, so that a crowd of workers does not come
// back to Redis as one.
func pause(n int) time.Duration {
	window := widestWindow
	if n < 6 { // 50 ms * 2^6 is beyond the widest
		window = min(firstWindow<<max(n, 0), widestWindow)
	}
	return rand.N(window) + time.Millisecond //nolint:gosec // jitter needs no secrecy
}

// sleep waits, and says false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}

// persist calls f until it succeeds, fails with one of the final errors, or ctx
// ends. It returns f's last error.
func persist(ctx context.Context, f func() error, final ...error) error {
	for n := 0; ; n++ {
		err := f()
		isFinal := func(target error) bool { return errors.Is(err, target) }
		if err == nil || slices.ContainsFunc(final, isFinal) || !sleep(ctx, pause(n)) {
			return err
		}
	}
}

// rhythm spaces out the calls of one kind when there are many of them, so that each
// carries more: a call costs Redis about 60 us before it has done anything, and 10 us
// for each delivery in it. What comes now and then is never delayed, as a few calls may
// always go at once.
type rhythm struct{ next time.Time }

const (
	beat   = time.Millisecond
	atHand = 8 // calls that may go at once
)

// take says how long to wait before the next call, and counts it if that is now.
func (r *rhythm) take(now time.Time) time.Duration {
	if r.next.Before(now) {
		r.next = now
	}
	if wait := r.next.Sub(now) - (atHand-1)*beat; wait > 0 {
		return wait
	}
	r.next = r.next.Add(beat)
	return 0
}

// clock is Redis time, carried on by this process's monotonic clock: a reading,
// when it arrived, and how long the call took that brought it.
type clock struct {
	redis, local time.Time
	trip         time.Duration
}

// now runs behind Redis by the reply's way back, never ahead.
func (c clock) now() time.Time { return c.redis.Add(time.Since(c.local)) }

// latest is never behind Redis, and ahead by the call at most. It is for what must
// not come early: the retry that an endpoint asked to be spared for a while.
func (c clock) latest() time.Time { return c.now().Add(c.trip) }

// here is when an instant of Redis time comes, on the local clock.
func (c clock) here(t time.Time) time.Time { return c.local.Add(t.Sub(c.redis)) }

// health is what fails now, by the part that fails. It logs the first failure and
// the recovery only: an outage is two lines, not thousands.
type health struct {
	log    *slog.Logger
	mu     sync.Mutex
	faults map[string]error
}

func newHealth(log *slog.Logger) *health {
	return &health{log: log, faults: map[string]error{"lease": errNotAnswered}}
}

// set records how the last try of a part went; nil is well.
func (h *health) set(part string, err error) {
	h.mu.Lock()
	was := h.faults[part]
	if err == nil {
		delete(h.faults, part)
	} else {
		h.faults[part] = err
	}
	h.mu.Unlock()

	switch {
	case err != nil && (was == nil || errors.Is(was, errNotAnswered)) && !errors.Is(err, errStopping):
		h.log.Warn("dispatcher fails, and goes on trying", "part", part, "error", err)
	case err == nil && was != nil:
		h.log.Info("dispatcher works", "part", part)
	}
}

func (h *health) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []error
	for _, part := range slices.Sorted(maps.Keys(h.faults)) {
		all = append(all, h.faults[part])
	}
	return errors.Join(all...)
}
