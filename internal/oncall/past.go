package oncall

import (
	"time"
)

// How far back the history reaches, and how finely.
const (
	FineEvery   = 5 * time.Second
	FineFor     = time.Hour
	CoarseEvery = time.Minute
	CoarseFor   = 24 * time.Hour
)

// Past is what was, from Redis: every API process keeps the same. Points are oldest
// first, at most one for each 5 s (Fine) and each minute (Coarse) by the Redis clock. A
// time when nobody looked has none.
type Past struct {
	Fine   []Point // the last hour, at most 720
	Coarse []Point // the last 24 h, at most 1440
}

// Point is one sample as it is kept.
type Point struct {
	At      time.Time // of the sample, Redis time
	Classes []PointClass
	// Accepted, Delivered, Dead and Pending are the ledger's: of the first three the
	// difference of two points is what came in between.
	Accepted, Delivered, Dead, Pending int64
	Held                               int64 // deliveries that wait for a hold to end
	DeadLetters                        int64 // kept
	// Attempts and Failures of the minute before the point, all classes.
	Attempts, Failures int64
	Slots, Used        int
	RetryUsed          int // of Used, by retries
}

// PointClass has the ages of the oldest heads of one class, over its lanes.
type PointClass struct {
	Name                    string
	Eligible, Limited, Held time.Duration
	// Attempts and Failures of the minute before the point.
	Attempts, Failures int64
}

// Class is the class of that name; zero if the point has none.
func (p Point) Class(name string) PointClass {
	for _, c := range p.Classes {
		if c.Name == name {
			return c
		}
	}
	return PointClass{Name: name}
}

// Rates are what came between two points, per second.
type Rates struct{ Arrivals, Delivered, Dead float64 }

// Since is the rates from an earlier point to this one; zero if it is not later. Dead
// falls when a redrive takes dead letters out: its rate is then 0.
func (p Point) Since(earlier Point) Rates {
	seconds := p.At.Sub(earlier.At).Seconds()
	if seconds <= 0 {
		return Rates{}
	}
	per := func(now, then int64) float64 { return float64(max(0, now-then)) / seconds }
	return Rates{per(p.Accepted, earlier.Accepted), per(p.Delivered, earlier.Delivered), per(p.Dead, earlier.Dead)}
}

// Last are the fine points of the last so long before now, oldest first.
func (p Past) Last(d time.Duration, now time.Time) []Point {
	for i, one := range p.Fine {
		if now.Sub(one.At) <= d {
			return p.Fine[i:]
		}
	}
	return nil
}
