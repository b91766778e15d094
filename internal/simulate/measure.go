package simulate

import (
	"math/bits"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// fineness is how many bins a factor of two has in a histogram: a percentile is high by
// 1.6 % at most.
const fineness = 64

// histogram counts times in us, in bins that widen with them.
type histogram struct {
	bins []uint32
	n    int64
	most int64
}

func binOf(v int64) int {
	u := uint64(max(v, 0))
	if u < fineness {
		return int(u)
	}
	shift := bits.Len64(u) - bits.Len64(fineness)
	return fineness*shift + int(u>>shift) //nolint:gosec // below 2 * fineness
}

// upper is the greatest value of a bin.
func upper(bin int) int64 {
	if bin < 2*fineness {
		return int64(bin)
	}
	shift := bin/fineness - 1
	return int64(bin%fineness+fineness+1)<<shift - 1
}

func (h *histogram) add(v int64) {
	b := binOf(v)
	if b >= len(h.bins) {
		wider := make([]uint32, b+fineness)
		copy(wider, h.bins)
		h.bins = wider
	}
	h.bins[b]++
	h.n++
	h.most = max(h.most, v)
}

func (h *histogram) merge(o *histogram) {
	if len(o.bins) > len(h.bins) {
		wider := make([]uint32, len(o.bins))
		copy(wider, h.bins)
		h.bins = wider
	}
	for i, n := range o.bins {
		h.bins[i] += n
	}
	h.n += o.n
	h.most = max(h.most, o.most)
}

// percentile is the nearest rank; 0 of nothing.
func (h *histogram) percentile(p int64) int64 {
	rank := max((h.n*p+99)/100, 1)
	for b, n := range h.bins {
		rank -= int64(n)
		if rank <= 0 {
			return min(upper(b), h.most)
		}
	}
	return 0
}

// levels is for how long a gauge stood at each value, us.
type levels struct {
	at    int
	since int64
	spent []int64
}

// move changes the gauge; what is after the end does not count.
func (l *levels) move(by int, now, end int64) {
	if upto := min(now, end); upto > l.since {
		if l.at >= len(l.spent) {
			wider := make([]int64, 2*l.at+8)
			copy(wider, l.spent)
			l.spent = wider
		}
		l.spent[l.at] += upto - l.since
		l.since = upto
	}
	l.at += by
}

// percentile is the least value that the gauge did not exceed for p % of the time.
func (l *levels) percentile(p int64) int {
	var all int64
	for _, t := range l.spent {
		all += t
	}
	left := (all*p + 99) / 100
	for v, t := range l.spent {
		if left -= t; left <= 0 {
			return v
		}
	}
	return 0
}

// share is the part of the time that the gauge stood at a value or above.
func (l *levels) share(least int) float64 {
	var all, there int64
	for v, t := range l.spent {
		all += t
		if v >= least {
			there += t
		}
	}
	if all == 0 {
		return 0
	}
	return float64(there) / float64(all)
}

// bins is into how many parts the time of a chart is divided.
const bins = 120

// tally is what is counted of a group.
type tally struct {
	posted, delivered, requests int64
	dead                        map[delivery.Outcome]int64
	age                         histogram
	byTime                      [bins]histogram // by when it was accepted
	slots                       levels
	drains                      []*drain
}

// drain watches what was accepted before an outage ended, until all of it has.
type drain struct {
	from, end int64 // us
	left      int
	took      int64 // us; -1: not yet
}

// ended counts one of its deliveries.
func (d *drain) ended(now int64) {
	d.left--
	if d.left == 0 {
		d.took = now - d.end
	}
}

// hit counts a request that arrives at an endpoint.
func (s *subscriber) hit(at int64) {
	if second := at / (1000 * micros); second > s.second {
		s.second, s.hits = second, 0
	}
	s.hits++
	s.peak = max(s.peak, s.hits)
}

func usOf(d delivery.Duration) int64 { return time.Duration(d).Microseconds() }
