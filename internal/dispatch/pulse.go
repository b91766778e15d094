package dispatch

import (
	"sync/atomic"
	"time"
)

// pulse tells whether this process stood still for a while: stopped, or starved of CPU. It
// beats every quarter of hangAfter.
//
// A deadline that passed meanwhile says nothing of the endpoint, which may have answered
// long ago; and as all requests that are out meet it together, they would open the breakers
// of healthy endpoints.
type pulse struct {
	start     time.Time
	last, gap atomic.Int64 // of the last beat, and of the last one that came late; ns since start
}

// skipped is how late a beat may be.
const skipped = time.Second

func newPulse() *pulse { return &pulse{start: time.Now()} }

// beat is called at each tick.
func (p *pulse) beat() {
	now := int64(time.Since(p.start))
	if now-p.last.Swap(now) > int64(hangAfter/4+skipped) {
		p.gap.Store(now)
	}
}

// stoodStillSince says whether there was such a while that ended after t, or has not ended:
// whoever wakes first need not be who beats.
func (p *pulse) stoodStillSince(t time.Time) bool {
	late := time.Since(p.start)-time.Duration(p.last.Load()) > hangAfter/4+skipped
	return late || p.start.Add(time.Duration(p.gap.Load())).After(t)
}
