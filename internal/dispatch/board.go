package dispatch

import (
	"sync"
	"time"

	"github.com/fanout/fanout/internal/schedule"
)

// askAtOnce is how many partitions one call for work asks. Leasing and settling
// cost far less in large batches than in small ones, so the room is not spread
// thinner than this.
const askAtOnce = 2

// minGap keeps a partition that gave nothing, and yet calls its next work due,
// from being asked in a tight loop.
const minGap = 50 * time.Millisecond

// reaskFor is how long an unanswered request keeps its seq. By then every lease
// that it may have brought has expired, so there is nothing left to get back, and
// a fresh seq gets past a reply that can never be read.
const reaskFor = 2 * time.Minute

// board is what the loop knows: which partitions have a reason to be asked, and
// which slots are free. Anybody may change it, and rings the bell.
type board struct {
	bell    chan struct{} // holds one ring: many changes, one look
	metrics *metrics
	calls   sync.WaitGroup // lease calls under way

	mu       sync.Mutex
	slots    *slots
	parts    []partition
	cursor   int       // whose turn it is to be asked first
	polledAt time.Time // when all partitions were last asked
	asking   bool      // a call for new leases is out
	rhythm   rhythm    // of those calls
	restTill time.Time // until when it has the next one wait
	reasking bool      // a call for unanswered ones is out
	fails    int       // failed calls since all was answered last
	reaskAt  time.Time
}

// partition is what is known of one partition.
type partition struct {
	seq   int64
	woken bool      // work was announced since it was asked last
	dueAt time.Time // local time at which work falls due; zero: none known
	// ready is how many subscribers still waited for a turn at the last reply, slow how
	// many more that are slow; stalled says that they could not be served in all the
	// room there was, so that asking again is no use before a slot frees.
	ready, slow int
	stalled     bool
	// asked is the request that is not answered yet; lost says that its call
	// failed. Redis may have leased for it all the same, so it is asked again as
	// it is, seq and rooms, until it is answered: the leases of a lost reply are
	// got back rather than left to expire.
	asked   *schedule.LeaseRequest
	askedAt time.Time
	lost    bool
	// narrowed says that a lane with room was left out of asked by the split.
	narrowed bool
}

func newBoard(partitions int, s *slots, m *metrics) *board {
	b := &board{bell: make(chan struct{}, 1), metrics: m, slots: s, parts: make([]partition, partitions)}
	for i := range b.parts {
		// A seq must not be below one of an earlier life, should somebody give a
		// worker the same name again: the scheduler would refuse it.
		b.parts[i].seq = time.Now().UnixMilli()
	}
	return b
}

// hasWork says whether there is reason to ask for more. Slow subscribers are one only
// while there is room for such.
func (p *partition) hasWork(now time.Time, slowRoom bool) bool {
	waits := p.ready > 0 || (p.slow > 0 && slowRoom)
	return p.woken || (waits && !p.stalled) || (!p.dueAt.IsZero() && !p.dueAt.After(now))
}

func (b *board) ring() {
	select {
	case b.bell <- struct{}{}:
	default:
	}
}

// wake notes that a partition got work.
func (b *board) wake(p int) {
	b.mu.Lock()
	if p >= 0 && p < len(b.parts) {
		b.parts[p].woken = true
	}
	b.mu.Unlock()
	b.ring()
}

// pollSoon has all partitions asked at the next look.
func (b *board) pollSoon() {
	b.mu.Lock()
	b.polledAt = time.Time{}
	b.mu.Unlock()
	b.ring()
}

// due notes that work falls due in a partition at a local time.
func (b *board) due(p int, at time.Time) {
	b.mu.Lock()
	b.parts[p].dueBy(at)
	b.mu.Unlock()
	b.ring()
}

func (p *partition) dueBy(at time.Time) {
	if p.dueAt.IsZero() || at.Before(p.dueAt) {
		p.dueAt = at
	}
}

// free gives slots back, all under one ring, so that the next call asks for all
// of them at once.
func (b *board) free(leases ...*lease) {
	b.mu.Lock()
	for _, l := range leases {
		b.slots.release(l.slot)
	}
	for i := range b.parts {
		b.parts[i].stalled = false
	}
	b.mu.Unlock()
	b.ring()
}

// landed notes that a lease's request is over.
func (b *board) landed(l *lease) {
	b.mu.Lock()
	b.slots.landed(l.slot)
	b.mu.Unlock()
}

// hangs is slots.hangs. What it finds leaves the fast pool at once.
func (b *board) hangs(now time.Time) map[int]map[string]time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.slots.hangs(now)
}

// pick chooses whom to ask for work now, and with how much room. The caller holds
// the mutex.
func (b *board) pick(now time.Time, worker string, safety time.Duration) []schedule.LeaseRequest {
	room := b.slots.rooms()
	if b.asking || room.Total == 0 {
		return nil
	}
	free := room.Total
	room = atMost(room, b.slots.callMost())
	poll, most := now.Sub(b.polledAt) >= safety, askAtOnce
	if poll {
		most = len(b.parts)
	}
	var chosen []*partition
	var ids, weights []int
	start := b.cursor
	for i := range b.parts {
		id := (start + i) % len(b.parts)
		p := &b.parts[id]
		if p.asked != nil || len(chosen) == min(most, room.Total) || (!poll && !p.hasWork(now, room.Slow > 0)) {
			continue
		}
		chosen, ids, weights = append(chosen, p), append(ids, id), append(weights, max(p.ready+p.slow, 1))
		b.cursor = id + 1
	}
	if len(chosen) > 0 {
		if wait := b.rhythm.take(now); wait > 0 {
			b.restTill = now.Add(wait)
			return nil
		}
	}
	if poll {
		b.polledAt = now
	}
	reqs := make([]schedule.LeaseRequest, len(chosen))
	for i, r := range split(room, weights) {
		p := chosen[i]
		p.seq++
		p.woken = false
		if !p.dueAt.After(now) {
			p.dueAt = time.Time{}
		}
		p.narrowed = narrowed(r, room)
		reqs[i] = schedule.LeaseRequest{
			Partition: ids[i], Worker: worker, Seq: p.seq, Rooms: r, Free: free, Holds: b.slots.holds(ids[i]),
		}
		p.asked, p.askedAt = &reqs[i], now
	}
	return reqs
}

// atMost narrows rooms to n in all.
func atMost(r schedule.Rooms, n int) schedule.Rooms {
	return schedule.Rooms{
		Total: min(r.Total, n), Fresh: min(r.Fresh, n), Retry: min(r.Retry, n), Redrive: min(r.Redrive, n), Slow: min(r.Slow, n),
	}
}

// narrowed says whether a lane that has room got none of it.
func narrowed(r, all schedule.Rooms) bool {
	return (r.Fresh == 0 && all.Fresh > 0) || (r.Retry == 0 && all.Retry > 0) || (r.Redrive == 0 && all.Redrive > 0) ||
		(r.Slow == 0 && all.Slow > 0)
}

// pickLost repeats the requests that were not answered, once their backoff is
// over. The caller holds the mutex.
func (b *board) pickLost(now time.Time) []schedule.LeaseRequest {
	if b.reasking || now.Before(b.reaskAt) {
		return nil
	}
	var reqs []schedule.LeaseRequest
	for i := range b.parts {
		p := &b.parts[i]
		if !p.lost {
			continue
		}
		p.lost = false // it is under way, and so in no other call
		if now.Sub(p.askedAt) > reaskFor {
			p.seq++
			fresh := *p.asked
			fresh.Seq = p.seq
			p.asked, p.askedAt = &fresh, now
		}
		reqs = append(reqs, *p.asked)
	}
	return reqs
}

// next is how long until there is a reason to look that nobody will ring for. The
// caller holds the mutex.
func (b *board) next(now time.Time, safety time.Duration) time.Duration {
	wait := time.Hour
	by := func(at time.Time) { wait = max(min(wait, at.Sub(now)), 0) }
	switch {
	case b.asking || b.slots.free() == 0: // a reply or a freed slot rings
	case b.restTill.After(now):
		by(b.restTill)
	default:
		by(b.polledAt.Add(safety))
		for i := range b.parts {
			if p := &b.parts[i]; p.asked == nil && !p.dueAt.IsZero() {
				by(p.dueAt)
			}
		}
	}
	if !b.reasking {
		for i := range b.parts {
			if b.parts[i].lost {
				by(b.reaskAt)
			}
		}
	}
	return wait
}

// answered notes the replies to one call and takes slots for what they brought.
// Surplus is what no slot is free for: a repeated request was made for slots that
// may be in use by now. Lost is how many requests stand unanswered.
func (b *board) answered(
	reqs []schedule.LeaseRequest, replies []schedule.LeaseReply, again bool, asked, at time.Time,
) (got, surplus []*lease, lost int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	missed := false
	for i, req := range reqs {
		p := &b.parts[req.Partition]
		if i >= len(replies) || replies[i].Now.IsZero() {
			p.lost, missed = true, true
			continue
		}
		reply := replies[i]
		p.learn(reply, at)
		for _, d := range reply.Leased {
			l := &lease{Leased: d, partition: req.Partition, clock: clock{reply.Now, at, at.Sub(asked)}}
			if l.slot = b.slots.take(req.Partition, d, at); l.slot != nil {
				got = append(got, l)
			} else {
				surplus = append(surplus, l)
			}
		}
	}
	if again {
		b.reasking = false
	} else {
		b.asking = false
	}
	for i := range b.parts {
		if b.parts[i].lost {
			lost++
		}
	}
	switch {
	case missed:
		b.reaskAt = at.Add(pause(b.fails))
		b.fails++
	case lost == 0:
		b.fails = 0
	}
	return got, surplus, lost
}

// learn notes what one reply says of its partition. Hints that came while the
// call was out stay: they may be of work that came too late for it.
func (p *partition) learn(r schedule.LeaseReply, at time.Time) {
	nothing := len(r.Leased) == 0
	p.asked, p.lost = nil, false
	p.ready, p.slow = r.Ready, r.Slow
	p.stalled = nothing && !p.narrowed
	if r.NextDue.IsZero() {
		return
	}
	due := clock{redis: r.Now, local: at}.here(r.NextDue)
	if nothing && due.Before(at.Add(minGap)) {
		due = at.Add(minGap)
	}
	p.dueBy(due)
}
