package simulate

// This is package dispatch without its calls: slots and their pools (slots.go), and when
// there is reason to ask for work (board.go).

const (
	// slowShare of the slots is what slow subscribers share, retryShare what retries may use.
	slowShare, retryShare = 0.60, 0.75
	// tellEvery is how often a dispatcher looks for attempts that hang, and hangAfter how
	// long one must have been out, us.
	tellEvery, hangAfter = 250 * 1000, 1000 * 1000
	// pollEvery is how often work is asked for though nothing announced it, us.
	pollEvery = 1000 * 1000
	// minGap keeps one that got nothing from asking again at once, us.
	minGap = 50 * 1000
)

// dispatcher is one worker.
type dispatcher struct {
	index       int
	slots, used int
	laneLimit   [lanes]int
	slowLimit   int
	pools       [2][lanes]int // slots in use: fast, slow
	mostInCall  int

	// Reasons to ask for work: it was announced; some still waited for a turn, and that
	// could not be served in all the room there was; it falls due, us.
	woken, stalled bool
	ready, slow    int
	dueAt          int64 // 0: not known
	armed          int64 // the timer for it
}

// holder is what a subscriber holds of a dispatcher's slots.
type holder struct {
	slots   int
	lanes   [lanes]int
	slow    bool // as the scheduler said last
	hanging int
}

func (h *holder) pool() int {
	if h.slow || h.hanging > 0 {
		return 1
	}
	return 0
}

func newDispatcher(index, slots int) *dispatcher {
	part := func(share float64) int { return min(max(int(float64(slots)*share), 1), slots) }
	return &dispatcher{
		index: index, slots: slots, laneLimit: [lanes]int{slots, part(retryShare)}, slowLimit: part(slowShare),
		mostInCall: max(32, slots/8),
	}
}

// rooms is what may be leased now, in one call.
func (d *dispatcher) rooms() (r rooms, free int) {
	free = d.slots - d.used
	slow := 0
	for l := range lanes {
		slow += d.pools[1][l]
		r.lane[l] = max(min(free, d.laneLimit[l]-d.pools[0][l]-d.pools[1][l], d.mostInCall), 0)
	}
	r.total = min(free, d.mostInCall)
	r.slow = max(min(free, d.slowLimit-slow, d.mostInCall), 0)
	return r, free
}

// hasWork says whether there is reason to ask.
func (d *dispatcher) hasWork(now int64, slowRoom bool) bool {
	waits := d.ready > 0 || (d.slow > 0 && slowRoom)
	return d.woken || (waits && !d.stalled) || (d.dueAt > 0 && d.dueAt <= now)
}

// take moves a leased delivery into its slot. The subscriber's count of slots is the
// lease's own.
func (d *dispatcher) take(it *item, now int64) {
	h := &it.sub.held[d.index]
	d.move(h, func() {
		h.slow = it.slow
		h.lanes[it.lane]++
	})
	d.used++
	it.worker, it.since, it.told, it.hanging = d.index, now, 0, false
}

// tell notes that an attempt hangs, and says when to look again.
func (d *dispatcher) tell(it *item, now int64) (again int64) {
	if !it.hanging {
		it.hanging = true
		h := &it.sub.held[d.index]
		d.move(h, func() { h.hanging++ })
	}
	it.told = now - it.since
	return nextTick(it.since + 2*it.told)
}

func nextTick(at int64) int64 { return (at + tellEvery - 1) / tellEvery * tellEvery }

// release frees a slot.
func (d *dispatcher) release(it *item) {
	h := &it.sub.held[d.index]
	d.move(h, func() {
		if it.hanging {
			h.hanging--
		}
		h.lanes[it.lane]--
	})
	h.slots--
	d.used--
	d.stalled = false
}

// move changes a holder, and what is counted of it in its pool with it.
func (d *dispatcher) move(h *holder, change func()) {
	was := h.pool()
	for l, n := range h.lanes {
		d.pools[was][l] -= n
	}
	change()
	is := h.pool()
	for l, n := range h.lanes {
		d.pools[is][l] += n
	}
}

// learn notes what a reply says.
func (d *dispatcher) learn(r leased, now int64) {
	nothing := len(r.items) == 0
	d.ready, d.slow, d.stalled = r.ready, r.slow, nothing
	if r.nextDue == 0 {
		return
	}
	due := r.nextDue * micros
	if nothing {
		due = max(due, now+minGap)
	}
	d.dueBy(due)
}

// dueBy notes that work falls due.
func (d *dispatcher) dueBy(at int64) {
	if d.dueAt == 0 || at < d.dueAt {
		d.dueAt = at
	}
}
