package simulate

import "github.com/fanout/fanout/internal/delivery"

// scheduler is one partition of the queue: the transitions that a delivery takes, as the
// scripts of package schedule make them. It knows nothing of slots beyond what a lease call
// tells it, and of time only now.
type scheduler struct {
	now     int64 // ms
	quantum int   // most deliveries a subscriber gets in one turn
	vclock  int64 // virtual time: that of the last turn given
	orders  [orders]order
	fed     [orders]int // when an order last got one, counted in puts
	puts    int
	woke    bool // some lane became ready since it was asked last
	calls   int  // of lease
	turns   turns
	given   []*item
}

// defaultQuantum is that of schedule.Options.
const defaultQuantum = 8

// enqueue makes a delivery. It says false if its subscriber is on hold and holds its
// fill: a dead letter at once.
func (m *scheduler) enqueue(it *item) bool {
	s := it.sub
	if m.onHold(s) && s.pending >= s.maxHeld {
		return false
	}
	s.pending++
	it.lane = fresh
	s.fresh.push(it)
	// Behind others that wait for no more than a turn or the cap, nothing changes.
	st := s.place[fresh]
	behind := !s.troubled && (st == ready || st == waiting || st == limited)
	if !behind || s.fresh.n == 1 {
		s.dirty[fresh] = true
		m.putAll(s)
	}
	return true
}

// settle ends a lease with what its attempt came to and what was decided. Draw, from 0
// to 999,999, is that of the breaker's rest.
func (m *scheduler) settle(it *item, a answer, d delivery.Decision, draw int) {
	s := it.sub
	s.n--
	probe := s.probe == it.key
	if probe {
		s.probe, s.last = 0, it.key
		s.open = min(s.open, m.now)
	}
	m.observe(s, a, d.Disable, it.leased, probe, draw)
	if d.Next == delivery.Scheduled {
		it.due, it.lane = d.DueAt.UnixMilli(), retry
		s.retry.push(it)
		s.dirty[retry] = true
	} else {
		s.pending--
	}
	m.putAll(s)
}

// hangs notes for how long an attempt has been out already: slow.lua.
func (m *scheduler) hangs(s *subscriber, out int64) {
	if s.lat < out {
		s.lat = out
		m.putAll(s)
	}
}

// expire ends what waits past its time, and says until when the next one lives; 0 if
// none waits.
func (m *scheduler) expire(s *subscriber, bury func(*item)) (next int64) {
	for s.fresh.n > 0 && s.fresh.at(0).expires <= m.now {
		bury(s.fresh.popFront())
		s.dirty[fresh] = true
		s.pending--
	}
	if s.fresh.n > 0 {
		next = s.fresh.at(0).expires
	}
	kept := s.retry[:0:0]
	for _, it := range s.retry {
		if it.expires <= m.now {
			bury(it)
			s.dirty[retry] = true
			s.pending--
			continue
		}
		kept.push(it)
		if next == 0 || it.expires < next {
			next = it.expires
		}
	}
	s.retry = kept
	if s.dirty != [lanes]bool{} {
		m.putAll(s)
	}
	return next
}

// headDue is when the next of a lane falls due, or its hold or rate may end; 0 for never.
func (m *scheduler) headDue(l int) int64 {
	if o := m.orders[dueOrder+l]; len(o) > 0 {
		return o[0].score
	}
	return 0
}

// nextDue is the soonest of all lanes.
func (m *scheduler) nextDue() (soonest int64) {
	for l := range int(lanes) {
		if due := m.headDue(l); due > 0 && (soonest == 0 || due < soonest) {
			soonest = due
		}
	}
	return soonest
}
