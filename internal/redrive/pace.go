package redrive

import (
	"fmt"
	"math"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

const (
	// growth is by what the rate is multiplied in a second without an objection: from
	// 1/s to 100/s in half a minute.
	growth = 1.17
	// releaseMost go in one call: see schedule's other batches.
	releaseMost = 128
	// untriedFor and untriedMin bound how many of a cohort may wait in the lane for their
	// first attempt: those of so many seconds, and not fewer than that. What has entered
	// the lane is sent, whatever the guard says: so nothing is put there that the
	// dispatchers do not come to.
	untriedFor = 5
	untriedMin = 10
)

// rampFor is how long it takes to release n, the rate growing to its limit.
func rampFor(n, limit float64) time.Duration {
	rate, seconds := 1.0, 0.0
	for ; n > 0 && rate < limit; rate = min(rate*growth, limit) {
		n -= rate
		seconds++
	}
	if n > 0 {
		seconds += n / limit
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Second)
}

// pace says how many may be released now, at up to limit a second, and notes that they
// are paid for. A part of one is not lost: it counts the next time, or a rate of 1.9
// would be one of 1, and one below 1 none at all. Whoever comes late, after another
// runner's death, is owed no more than one and what collects in most.
func (c *Cohort) pace(now time.Time, most time.Duration, limit float64) int64 {
	rate := min(c.Rate, limit)
	most += time.Duration(float64(time.Second) / rate)
	if now.Before(c.PacedAt) { // a clock that was set back
		c.PacedAt = now
	}
	if now.Sub(c.PacedAt) > most {
		c.PacedAt = now.Add(-most)
	}
	n := math.Floor(rate*now.Sub(c.PacedAt).Seconds() + 1e-6)
	if n < 1 {
		return 0
	}
	spent := n / rate
	c.PacedAt = c.PacedAt.Add(time.Duration(spent * float64(time.Second)))
	c.Rate = min(rate*math.Pow(growth, spent), limit)
	return int64(n)
}

// crowded is why no more is put into the lane now; "" if it may.
func (c *Cohort) crowded(h health) string {
	if len(h.out) >= lookAtOut {
		return fmt.Sprintf("%d or more are out and have not ended", len(h.out))
	}
	waiting := 0
	for _, d := range h.out {
		if d.State == delivery.Scheduled && d.Attempts <= d.BudgetBase {
			waiting++
		}
	}
	if most := max(untriedMin, int(c.Rate*untriedFor)); waiting >= most {
		return fmt.Sprintf("%d were released and are not tried yet: the dispatchers do not come to them", waiting)
	}
	return ""
}
