package simulate

import (
	"math"

	"github.com/fanout/fanout/internal/delivery"
)

// This is subscriber.lua: what the scheduler knows of a subscriber, and where that puts it.

// subscriber is one endpoint's.
type subscriber struct {
	id    string
	index int
	group int // of the scenario

	max, breakerFailures, maxHeld int
	em                            float64 // ms between attempts at its rate, 0 without one
	burst                         float64

	n, turn, win int
	vt, lat      int64
	tat          float64
	stood        standing
	place        [lanes]standing
	dirty        [lanes]bool
	score        [orders]int64 // where it stands in an order
	in           [orders]bool

	troubled                             bool // it ever had trouble
	disabled                             bool
	cut, throttled, open, changed        int64
	fails, step                          int
	probe, last                          uint64
	put                                  int // when it was put in place last
	passed                               int // in which lease call there was nothing for it
	pending                              int
	fresh                                deque
	retry                                heap[*item]
	held                                 []holder // by dispatcher
	expiryAt                             int64    // when it is looked through for expired ones; 0: not
	second, hits, peak                   int64    // requests in this second, and the most in any
	windows                              []*window
	failures                             Failures
	latency                              sampler
	timeoutMicros, retryAfterCap, maxAge int64
	drains                               []*drain
}

func newSubscriber(id string, index int, p delivery.Policy, workers int) *subscriber {
	s := &subscriber{
		id: id, index: index, max: max(p.MaxInFlight, 1), breakerFailures: p.BreakerFailures, maxHeld: p.MaxHeld,
		win: capUnit, held: make([]holder, workers), place: [lanes]standing{nowhere, nowhere}, stood: nowhere,
	}
	if p.RatePerSecond > 0 {
		s.em = math.Round(1000/p.RatePerSecond*1e6) / 1e6 // as it is written into Redis
		s.burst = float64(max(p.AtOnce(), 1))
	}
	return s
}

// standing is how a subscriber may be served, and so where a lane with a due head
// stands; the letters are those of the script.
type standing byte

const (
	nowhere standing = '-'
	held    standing = 'h' // until somebody or a probe ends that
	until   standing = 'u' // held until a time
	asks    standing = 'p' // its breaker lets one probe through
	limited standing = 'l' // at its cap
	token   standing = 't' // at its rate
	ready   standing = 'y'
	waiting standing = 's' // ready, in the slots for the slow
	queued  standing = 'q' // its head is not due
)

// The sorted sets of service.
const (
	dueOrder   = 0 // + lane
	readyOrder = 2
	slowOrder  = 4
	orders     = 6
	noOrder    = -1
)

// orderOf is the set that a lane stands in.
func (st standing) orderOf(l lane) int {
	switch st {
	case queued, until, token:
		return dueOrder + int(l)
	case ready:
		return readyOrder + int(l)
	case waiting, asks:
		return slowOrder + int(l)
	default:
		return noOrder
	}
}

func (st standing) isReady() bool { return st == ready || st == waiting || st == asks }

func (s *subscriber) cap() int { return min(s.max, s.win/capUnit) }

func (s *subscriber) slow() bool { return s.lat == 0 || s.lat > slowAfter }

// tokens is how many attempts its rate allows now (GCRA).
func (m *scheduler) tokens(s *subscriber) int {
	if s.em == 0 {
		return s.max
	}
	return int(math.Floor((s.burst*s.em-max(0, s.tat-float64(m.now)))/s.em + 0.000001))
}

func (m *scheduler) onHold(s *subscriber) bool {
	return s.disabled || s.open > 0 || s.throttled > m.now
}

// standing says how s may be served now, and until when if that ends by itself; else 0.
func (m *scheduler) standing(s *subscriber) (standing, int64) {
	if s.disabled || s.probe != 0 {
		return held, 0
	}
	if till := max(s.throttled, s.open); till > m.now {
		return until, till
	}
	open := s.open > 0
	if s.n >= s.cap() {
		if open {
			return held, 0
		}
		return limited, 0
	}
	if m.tokens(s) < 1 {
		at := int64(math.Ceil(s.tat - (s.burst-1)*s.em))
		if open {
			return until, at
		}
		return token, at
	}
	switch {
	case open:
		return asks, 0
	case s.slow():
		return waiting, 0
	}
	return ready, 0
}

// firstDue is when the head of a lane falls due.
func (s *subscriber) firstDue(l lane) (due int64, there bool) {
	if l == fresh {
		if s.fresh.n == 0 {
			return 0, false
		}
		return s.fresh.at(0).due, true
	}
	if len(s.retry) == 0 {
		return 0, false
	}
	return s.retry[0].due, true
}

func (m *scheduler) add(o int, score int64, s *subscriber) {
	if s.in[o] {
		if s.score[o] == score {
			return
		}
		m.orders[o].remove(s.score[o], s)
	}
	m.orders[o].add(score, s)
	s.score[o], s.in[o] = score, true
}

func (m *scheduler) remove(o int, s *subscriber) {
	if s.in[o] {
		m.orders[o].remove(s.score[o], s)
		s.in[o] = false
	}
}

// put stands a subscriber's lane in the one place that follows from its state.
func (m *scheduler) put(s *subscriber, l lane, stands standing, till int64) {
	was, is := s.place[l], stands
	due, there := s.firstDue(l)
	switch {
	case !there:
		is = nowhere
	case due > m.now && (is == ready || is == waiting):
		is = queued
	case due > m.now && is == asks:
		is = until
	}
	from, to := was.orderOf(l), is.orderOf(l)
	if from != to && from != noOrder {
		m.remove(from, s)
	}
	switch {
	case is.isReady():
		ahead := int64(0)
		if s.lat == 0 || is == asks {
			ahead = 1
		}
		s.vt = max(s.vt, m.vclock-ahead)
		m.add(to, s.vt, s)
		m.fed[to] = m.puts
		m.woke = m.woke || !was.isReady()
	case to != noOrder:
		m.add(to, max(due, till), s)
		m.fed[to] = m.puts
	}
	s.place[l] = is
}

// putAll puts all lanes in place whose deliveries changed, or all if how the subscriber
// stands did.
func (m *scheduler) putAll(s *subscriber) {
	m.puts++
	s.put = m.puts
	stands, till := m.standing(s)
	for l := range lanes {
		if s.dirty[l] || (s.place[l] != nowhere && (stands != s.stood || till > 0)) {
			m.put(s, l, stands, till)
			s.dirty[l] = false
		}
	}
	s.stood = stands
	s.tat = math.Round(s.tat*1000) / 1000 // as it is written into Redis
}
