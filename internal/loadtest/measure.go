package loadtest

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// age is how old one delivery was when it arrived.
type age struct {
	id       string
	accepted time.Duration // since origin
	age      time.Duration
	arrived  bool // if not, age is how old it was when the look ended: it is at least that
}

// ages are those of a group's deliveries whose events were accepted in [from, to),
// as seen until cut: of each, until the arrival of the request that was answered 2xx.
func ages(events []event, g *group, from, to, cut time.Duration) []age {
	var all []age
	for _, e := range g.endpoints {
		all = append(all, e.ages(events, from, to, cut)...)
	}
	return all
}

// ages are those of one endpoint.
func (e *endpoint) ages(events []event, from, to, cut time.Duration) []age {
	var all []age
	for _, ev := range events {
		if ev.accepted < from || ev.accepted >= to || !ev.reaches(e.group) {
			continue
		}
		a := age{id: delivery.NewID(ev.id, e.subscriber), accepted: ev.accepted, age: cut - ev.accepted}
		if h := e.hit(a.id); h.taken != 0 && h.taken <= cut {
			a.age, a.arrived = max(h.taken-ev.accepted, 0), true // accepted is rounded to 1 ms
		}
		all = append(all, a)
	}
	return all
}

// arrival is when it arrived, or the end of the look.
func (a age) arrival() time.Duration { return a.accepted + a.age }

// Ages sums up the ages of a group's deliveries. What had not arrived counts as
// old as it was at the last look, so that the figures are, if anything, too good
// for what is missing, and Share says how much that is.
type Ages struct {
	Deliveries int     `json:"deliveries"`
	Arrived    int     `json:"arrived"`
	Share      float64 `json:"share"` // arrived, of all; 1 if there were none
	P50        float64 `json:"p50_ms"`
	P99        float64 `json:"p99_ms"`
	Max        float64 `json:"max_ms"`
	// Oldest is the delivery that Max is of, for a look into the service's log.
	Oldest string `json:"oldest"`
}

func summarise(all []age) Ages {
	s := Ages{Deliveries: len(all), Share: 1}
	values := make([]time.Duration, len(all))
	for i, a := range all {
		values[i] = a.age
		if a.arrived {
			s.Arrived++
		}
	}
	if len(all) == 0 {
		return s
	}
	s.Share = float64(s.Arrived) / float64(len(all))
	oldest := slices.MaxFunc(all, func(a, b age) int { return cmp.Compare(a.age, b.age) })
	slices.Sort(values)
	s.Oldest = oldest.id
	s.P50, s.P99, s.Max = ms(percentile(values, 50)), ms(percentile(values, 99)), ms(values[len(values)-1])
	return s
}

// medianSecond is the p99 of the median second, ms, by when they were accepted; 0 of
// nothing.
func medianSecond(all []age) float64 {
	seconds := map[time.Duration][]time.Duration{}
	for _, a := range all {
		at := a.accepted / time.Second
		seconds[at] = append(seconds[at], a.age)
	}
	var p99s []time.Duration
	for _, values := range seconds {
		slices.Sort(values)
		p99s = append(p99s, percentile(values, 99))
	}
	slices.Sort(p99s)
	return ms(percentile(p99s, 50))
}

// percentile is the nearest rank: the least value that p per cent of the sorted
// ones do not exceed. It is 0 of nothing.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

func ms(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Millisecond)*100) / 100
}
