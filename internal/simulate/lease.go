package simulate

// This is lease.lua: whose turn it is, and what it gets.

const (
	page = 32
	// promoteMost is how many subscribers of a lane one call promotes.
	promoteMost = 64
	// behindAfter is how late, in ms, the oldest fresh delivery must be for every other turn
	// to serve the newest.
	behindAfter = 5000
	// probeAmong is how many of a lane a probe is chosen from.
	probeAmong = 16
)

// rooms is how many deliveries a call may take: in all, by lane, and of slow subscribers.
type rooms struct {
	total int
	lane  [lanes]int
	slow  int
}

// leased is the reply to a call. Items are good until the next.
type leased struct {
	items       []*item
	ready, slow int   // lanes that still wait for a turn
	nextDue     int64 // ms; 0 for none
}

// turns is the state of one call.
type turns struct {
	rooms
	worker, free int
	cursors      [4]cursor
	// What promote saw of the lanes' next due times, -1 for what it changed; as in the script
	// that holds until something is put there, and so may be early, never late.
	seen  [lanes]int64
	puts0 int
}

// cursor reads an order of service by the page.
type cursor struct {
	order int
	lane  lane
	slow  bool
	page  [page]place
	n, at int
	skip  int
	since int // what was put after it is not where the page says
	ended int // the last page was read then; -1: not yet
}

// lease gives a worker with free slots what there is room for, each subscriber in its
// turn, and counts the slots that each holds.
func (m *scheduler) lease(worker int, r rooms, free int) leased {
	m.calls++
	m.promote()
	t := &m.turns
	t.rooms, t.worker, t.free = r, worker, max(free, r.total)
	for l := range lanes {
		for i, order := range [...]int{readyOrder, slowOrder} {
			c := &t.cursors[2*int(l)+i]
			c.order, c.lane, c.slow = order+int(l), l, order == slowOrder
			c.n, c.at, c.skip, c.ended = 0, 0, 0, -1
		}
	}
	clear(m.given)
	m.given = m.given[:0]
	vclock := m.vclock
	for t.total > 0 {
		s, vt := m.nextTurn()
		if s == nil {
			break
		}
		m.serve(s, vt)
	}
	if len(m.given) == 0 {
		m.vclock = vclock
	}
	out := leased{items: m.given}
	for l := range int(lanes) {
		due := t.seen[l]
		if due < 0 || m.fed[dueOrder+l] > t.puts0 {
			due = m.headDue(l)
		}
		if due > 0 && (out.nextDue == 0 || due < out.nextDue) {
			out.nextDue = due
		}
		out.ready += len(m.orders[readyOrder+l])
		out.slow += len(m.orders[slowOrder+l])
	}
	if out.ready+out.slow == 0 {
		m.woke = false // nothing is left that others need know of
	}
	return out
}

// promote puts those in place whose head fell due, or whose hold or rate may have ended.
func (m *scheduler) promote() {
	var buf [promoteMost]*subscriber
	m.turns.puts0 = m.puts
	for l := range int(lanes) {
		if due := m.headDue(l); due == 0 || due > m.now {
			m.turns.seen[l] = due
			continue
		}
		m.turns.seen[l] = -1
		o := m.orders[dueOrder+l]
		n := 0
		for n < len(o) && n < promoteMost && o[n].score <= m.now {
			buf[n] = o[n].sub
			n++
		}
		for _, s := range buf[:n] {
			m.remove(dueOrder+l, s)
			s.dirty = [lanes]bool{true, true}
			m.putAll(s)
		}
	}
}

// threshold is how many more of the worker's slots s may take: as many as are then free.
func (t *turns) threshold(s *subscriber) int {
	left := t.free - s.held[t.worker].slots
	if left < 0 {
		return -(-left / 2)
	}
	return (left + 1) / 2
}

func (m *scheduler) turnPage(c *cursor) bool {
	if c.ended >= 0 && m.fed[c.order] <= c.ended {
		return false
	}
	o := m.orders[c.order]
	c.n = copy(c.page[:], o[min(c.skip, len(o)):])
	c.at, c.since, c.ended = 0, m.puts, -1
	if c.n < page {
		c.ended = m.puts
	}
	return c.n > 0
}

// head is the first of an order that can be served, and its virtual time.
func (m *scheduler) head(c *cursor) (*subscriber, int64) {
	for c.at < c.n || m.turnPage(c) {
		p := c.page[c.at]
		if p.sub.put <= c.since {
			if p.sub.passed != m.calls && m.turns.threshold(p.sub) > 0 {
				return p.sub, p.score
			}
			c.skip++
		}
		c.at++
	}
	return nil, 0
}

// nextTurn is the least served among the heads of all orders that there is room for.
func (m *scheduler) nextTurn() (best *subscriber, bestVT int64) {
	t := &m.turns
	for i := range t.cursors {
		c := &t.cursors[i]
		if t.lane[c.lane] <= 0 || (c.slow && t.slow <= 0) {
			continue
		}
		if s, vt := m.head(c); s != nil && (best == nil || vt < bestVT) {
			best, bestVT = s, vt
		}
	}
	return best, bestVT
}

// serve gives one subscriber its turn, and puts it back where it now belongs.
func (m *scheduler) serve(s *subscriber, vt int64) {
	t := &m.turns
	m.vclock = max(m.vclock, vt)
	s.turn = (s.turn + 1) % 4
	isSlow := s.open > 0 || s.slow()
	most := min(m.quantum, t.total, t.threshold(s))
	if isSlow {
		most = min(most, t.rooms.slow)
	}
	var taken int
	if s.open > 0 {
		taken = m.probe(s)
	} else {
		taken = m.fill(s, min(most, s.cap()-s.n, m.tokens(s)), isSlow)
	}
	if taken == 0 {
		s.passed = m.calls
	}
	if s.em > 0 {
		s.tat = max(s.tat, float64(m.now)) + float64(taken)*s.em
	}
	if isSlow {
		t.rooms.slow -= taken
	}
	s.n += taken
	t.total -= taken
	t.free -= taken
	s.held[t.worker].slots += taken
	s.vt = max(s.vt, m.vclock) + int64(taken)
	for l := range lanes {
		s.dirty[l] = s.place[l] != nowhere
	}
	m.putAll(s)
}

// charge leases one delivery.
func (m *scheduler) charge(it *item, slow bool) {
	it.attempts++
	it.leased, it.slow = m.now, slow
	m.given = append(m.given, it)
}

// fill takes up to k from the lanes: fresh first, but one turn in four to retry.
func (m *scheduler) fill(s *subscriber, k int, slow bool) (taken int) {
	t := &m.turns
	order := [lanes]lane{fresh, retry}
	if s.turn == 0 {
		order = [lanes]lane{retry, fresh}
	}
	for _, l := range order {
		most := min(k-taken, t.lane[l])
		if most <= 0 || s.place[l] == nowhere {
			continue
		}
		n := 0
		if l == retry {
			for ; n < most && len(s.retry) > 0 && s.retry[0].due <= m.now; n++ {
				m.charge(s.retry.pop(), slow)
			}
		} else {
			n = m.fillFresh(s, most, slow)
		}
		t.lane[l] -= n
		taken += n
	}
	return taken
}

func (m *scheduler) fillFresh(s *subscriber, most int, slow bool) (n int) {
	newest := s.turn%2 == 1 && s.fresh.n > 0 && m.now-s.fresh.at(0).due > behindAfter
	for ; n < most && s.fresh.n > 0; n++ {
		if newest {
			m.charge(s.fresh.popBack(), slow)
		} else {
			m.charge(s.fresh.popFront(), slow)
		}
	}
	return n
}

// probe takes the one delivery that an open breaker lets through: the one with the
// fewest attempts, fresh first, but every third time a retry, and not the last probe if
// there is another.
func (m *scheduler) probe(s *subscriber) int {
	t := &m.turns
	order := [lanes]lane{fresh, retry}
	if s.step%3 == 0 {
		order = [lanes]lane{retry, fresh}
	}
	for _, other := range [...]bool{true, false} {
		for _, l := range order {
			if t.lane[l] <= 0 {
				continue
			}
			if it := m.leastTried(s, l, other); it != nil {
				m.charge(it, true)
				s.probe = it.key
				t.lane[l]--
				return 1
			}
		}
	}
	return 0
}

// leastTried takes the one out of a lane, among the first that are due.
func (m *scheduler) leastTried(s *subscriber, l lane, other bool) (best *item) {
	look := func(it *item) {
		if (it.key != s.last) == other && (best == nil || it.attempts < best.attempts) {
			best = it
		}
	}
	if l == fresh {
		for i := range min(probeAmong, s.fresh.n) {
			look(s.fresh.at(i))
		}
		if best != nil {
			s.fresh.remove(best)
		}
		return best
	}
	var first []*item
	for len(first) < probeAmong && len(s.retry) > 0 && s.retry[0].due <= m.now {
		first = append(first, s.retry.pop())
		look(first[len(first)-1])
	}
	for _, it := range first {
		if it != best {
			s.retry.push(it)
		}
	}
	return best
}
