package delivery

import (
	"math/bits"
	"time"
)

// Window is the widest delay before the attempt that follows the given one:
// min(cap, base * 2^(attempt-1)). An attempt below 1 counts as 1. It never
// overflows: doubling stops at the cap.
func Window(p Policy, attempt int) time.Duration {
	w, limit := time.Duration(p.BackoffBase), time.Duration(p.BackoffCap)
	for ; attempt > 1 && w > 0 && w < limit; attempt-- { // 0 would double for ever
		if w > limit/2 { // one more doubling would pass the cap, or overflow
			return limit
		}
		w *= 2
	}
	return min(w, limit)
}

// Backoff is the delay after a failed attempt (from 1; below counts as 1): full
// jitter, uniform over [0, Window] in whole milliseconds. Full jitter spreads a
// crowd of failures over the whole window, where equal jitter leaves half of it
// empty and a fixed delay sends the crowd back as one (Brooker, "Exponential
// Backoff And Jitter", 2015).
//
// The draw is seeded by (delivery id, attempt): no shared generator, the same on
// every machine and after every restart.
func Backoff(p Policy, deliveryID string, attempt int) time.Duration {
	attempt = max(attempt, 1)
	window := uint64(max(Window(p, attempt), 0) / time.Millisecond)
	// The high half of x * (window+1) is uniform over [0, window] (Lemire 2019);
	// the bias, below window/2^64, is beyond any measurement.
	n, _ := bits.Mul64(draw(deliveryID, attempt), window+1)
	return time.Duration(n) * time.Millisecond //nolint:gosec // n <= window, which fits
}

// draw gives 64 well-mixed bits for (id, attempt): FNV-1a over the id, then the
// splitmix64 finaliser, so that consecutive attempts share nothing.
func draw(id string, attempt int) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 1099511628211
	}
	h += uint64(attempt) * 0x9e3779b97f4a7c15 //nolint:gosec // attempt >= 1
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
