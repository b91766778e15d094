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
	// shrink is by what it is multiplied at a look that finds fresh deliveries waiting: if
	// these are more than about a quarter, it comes down. So it stays where bursts begin to
	// meet, short of a queue. Not below slowly, which harms nobody.
	shrink = 0.9
	slowly = 10.0
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
// runner's death, is owed no more than one and what collects in most. The rate grows, or
// shrinks if fresh deliveries wait.
func (c *Cohort) pace(now time.Time, most time.Duration, limit float64, busy bool) int64 {
	rate := min(c.Rate, limit)
	by := growth
	if busy && rate > slowly {
		rate, by = max(rate*shrink, slowly), 1
	}
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
	c.Rate = min(rate*math.Pow(by, spent), limit)
	return int64(n)
}

// crowded is why no more is put into the lane now; "" if it may. What may wait there is
// what is taken out of it in a few seconds: by the cohort's own rate, or by less if less is
// taken, because a subscriber has a rate or a cap of its own or the slots are busy.
func (s *Service) crowded(c *Cohort, h health) string {
	if len(h.out) >= lookAtOut {
		return fmt.Sprintf("%d or more are out and have not ended", len(h.out))
	}
	waiting := 0
	for _, d := range h.out {
		if d.State == delivery.Scheduled && d.Attempts <= d.BudgetBase {
			waiting++
		}
	}
	taken, known := s.drain(c.ID, h.tally.Released-int64(waiting), h.sample.Now)
	rate := c.Rate
	if known {
		rate = min(rate, taken)
	}
	if most := max(untriedMin, int(rate*untriedFor)); waiting >= most {
		return fmt.Sprintf("%d were released and are not tried yet: their subscribers take no more now (a rate or a cap of their own), "+
			"or the dispatchers do not come to them", waiting)
	}
	return ""
}

// drainOver is the least over which it is measured what is taken.
const drainOver = time.Second / 2

// flow is how many of a cohort were tried at least once, and how many came to be a second.
type flow struct {
	tried int64
	at    time.Time
	rate  float64
	known bool
}

// drain is how many of a cohort are tried a second, of late; unknown at the first look of
// a runner. Only the runner's goroutine asks.
func (s *Service) drain(id string, tried int64, now time.Time) (rate float64, known bool) {
	f, seen := s.flows[id]
	span := now.Sub(f.at).Seconds()
	switch {
	case !seen || span < 0 || span > time.Minute.Seconds(): // of another time
		s.flows[id] = flow{tried: tried, at: now}
		return 0, false
	case span < drainOver.Seconds(): // too short to tell
		return f.rate, f.known
	}
	rate = max(0, float64(tried-f.tried)/span)
	if f.known {
		rate = (rate + f.rate) / 2
	}
	s.flows[id] = flow{tried, now, rate, true}
	return rate, true
}
