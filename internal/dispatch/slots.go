package dispatch

import (
	"container/list"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// slowShare is the part of the slots that slow subscribers share. The rest is
// there for those that answer quickly, however many others hang.
const slowShare = 0.60

// hangAfter is how long a request may be out before its subscriber counts as slow.
// After that its patience doubles: told again at 2 s, 4 s, ...
const hangAfter = time.Second

// pool says whose slots a lease is counted in.
type pool int

const (
	fastPool pool = iota
	slowPool
)

// poolLabels are the pools as they stand on a metric.
var poolLabels = [...]string{fastPool: "fast", slowPool: "slow"}

// byLane holds a number for each lane. Slots are counted three times in an attempt,
// under the board's mutex: with maps by pool and lane, and a look for the metric each
// time, that was 2.5 % of the CPU of a delivery.
type byLane [len(laneNames)]int

// laneNames are the lanes as delivery.Lanes has them.
var laneNames = [...]delivery.Lane{delivery.Fresh, delivery.Retry, delivery.Redrive}

// laneIndex is a lane's place in byLane. One that nobody knows counts as fresh.
func laneIndex(l delivery.Lane) int {
	switch l {
	case delivery.Retry:
		return 1
	case delivery.Redrive:
		return 2
	default:
		return 0
	}
}

// slots counts leases held: by pool and lane, and by subscriber. The board's mutex
// guards it.
type slots struct {
	total     int
	limit     byLane
	slowLimit int
	used      [len(poolLabels)]byLane
	inUse     int
	done      int64         // slots given back, ever
	spent     time.Duration // for how long those were taken, all together
	holders   map[string]*holder
	// out are the leases whose request may be on the wire, the oldest first.
	out     *list.List
	metrics *metrics
}

// holder is a subscriber that holds slots.
type holder struct {
	subscriber string
	partition  int
	lanes      byLane
	slots      int
	slow       bool // as the scheduler said last
	hanging    int  // requests that have been out for longer than hangAfter
}

func (h *holder) pool() pool {
	if h.slow || h.hanging > 0 {
		return slowPool
	}
	return fastPool
}

// slot is one that is taken.
type slot struct {
	holder *holder
	lane   int // laneIndex
	since  time.Time
	told   time.Duration // for how long it was out when the scheduler was told last
	out    *list.Element
}

// newSlots gives fresh work all slots, and the other lanes a share that keeps a
// storm of retries, or an operator's redrive, from shutting new events out.
func newSlots(o Options, m *metrics) *slots {
	part := func(share float64) int {
		return min(max(int(float64(o.Slots)*share), 1), o.Slots)
	}
	return &slots{
		total:     o.Slots,
		limit:     byLane{o.Slots, part(o.RetryShare), part(o.RedriveShare)},
		slowLimit: part(slowShare),
		holders:   map[string]*holder{},
		out:       list.New(),
		metrics:   m,
	}
}

// callMost is how many deliveries one call leases or settles at most. If it were all,
// the slots would move in step: all wait for Redis to lease, then Redis waits for all
// to be sent, and a machine with two cores uses one. In parts they overlap: 26 % more
// deliveries a second. A part of 32 still shares a call's own cost of 60 us well.
func (s *slots) callMost() int { return max(32, s.total/8) }

// free is how many leases may be added in all.
func (s *slots) free() int { return s.total - s.inUse }

// rooms is what may be leased now.
func (s *slots) rooms() schedule.Rooms {
	free := s.free()
	lane := func(l delivery.Lane) int {
		i := laneIndex(l)
		return max(min(free, s.limit[i]-s.used[fastPool][i]-s.used[slowPool][i]), 0)
	}
	slow := 0
	for _, n := range s.used[slowPool] {
		slow += n
	}
	return schedule.Rooms{
		Total: free,
		Fresh: lane(delivery.Fresh), Retry: lane(delivery.Retry), Redrive: lane(delivery.Redrive),
		Slow: max(min(free, s.slowLimit-slow), 0),
	}
}

// holds lists what the subscribers of a partition hold, for the scheduler gives each as
// many as are free and no more. All of them are told, be it a slot: one call may find a
// hundred subscribers that each have one and want another, and leave none free.
func (s *slots) holds(partition int) []schedule.Holding {
	var out []schedule.Holding
	for id, h := range s.holders {
		if h.partition == partition {
			out = append(out, schedule.Holding{SubscriberID: id, Slots: h.slots})
		}
	}
	return out
}

// take takes a slot for a lease, or returns nil. A repeated request may bring a lane
// or the slow beyond their share: they then have no room until they are back in it.
func (s *slots) take(partition int, l schedule.Leased, now time.Time) *slot {
	if s.free() == 0 {
		return nil
	}
	h := s.holders[l.SubscriberID]
	if h == nil {
		h = &holder{subscriber: l.SubscriberID, partition: partition}
		s.holders[l.SubscriberID] = h
	}
	t := &slot{holder: h, lane: laneIndex(l.Lane), since: now}
	s.move(h, func() {
		h.slow = l.Slow
		h.lanes[t.lane]++
		h.slots++
	})
	s.inUse++
	t.out = s.out.PushBack(t)
	return t
}

// landed notes that a slot's request is over; its verdict is still to be settled.
func (s *slots) landed(t *slot) {
	if t.out == nil {
		return
	}
	s.out.Remove(t.out)
	t.out = nil
	if t.told > 0 {
		s.move(t.holder, func() { t.holder.hanging-- })
	}
}

// release gives a slot back.
func (s *slots) release(t *slot) {
	s.landed(t)
	h := t.holder
	s.move(h, func() {
		h.lanes[t.lane]--
		h.slots--
	})
	s.inUse--
	s.done++
	s.spent += time.Since(t.since)
	if h.slots == 0 {
		delete(s.holders, h.subscriber)
	}
}

// move changes a holder, and what is counted of it in its pool with it.
func (s *slots) move(h *holder, change func()) {
	was := h.pool()
	for lane, n := range h.lanes {
		s.used[was][lane] -= n
	}
	change()
	is := h.pool()
	for lane, n := range h.lanes {
		s.used[is][lane] += n
	}
	for lane := range h.lanes {
		s.metrics.slots[was][lane].Set(float64(s.used[was][lane]))
		if is != was {
			s.metrics.slots[is][lane].Set(float64(s.used[is][lane]))
		}
	}
}

// hangs finds requests that have been out for long, and are due to be told: for how
// long, by partition and subscriber.
func (s *slots) hangs(now time.Time) map[int]map[string]time.Duration {
	var found map[int]map[string]time.Duration
	for e := s.out.Front(); e != nil; e = e.Next() {
		t := e.Value.(*slot) //nolint:forcetypeassert,errcheck // nothing else is put there
		age := now.Sub(t.since)
		if age < hangAfter {
			break // so are all that follow
		}
		if t.told > 0 && age < 2*t.told {
			continue
		}
		h := t.holder
		if t.told == 0 {
			s.move(h, func() { h.hanging++ })
		}
		t.told = age
		if found == nil {
			found = map[int]map[string]time.Duration{}
		}
		if found[h.partition] == nil {
			found[h.partition] = map[string]time.Duration{}
		}
		found[h.partition][h.subscriber] = max(found[h.partition][h.subscriber], age)
	}
	return found
}

// split deals rooms out to partitions by weight (each at least 1). What is handed
// out never sums to more than there is, in any lane.
func split(r schedule.Rooms, weights []int) []schedule.Rooms {
	total, fresh := share(r.Total, weights), share(r.Fresh, weights)
	retry, redrive, slow := share(r.Retry, weights), share(r.Redrive, weights), share(r.Slow, weights)
	out := make([]schedule.Rooms, len(weights))
	for i, t := range total {
		out[i] = schedule.Rooms{
			Total: t, Fresh: min(t, fresh[i]), Retry: min(t, retry[i]), Redrive: min(t, redrive[i]),
			Slow: min(t, slow[i]),
		}
	}
	return out
}

// share deals n out in proportion, all of it, and at least 1 to each while it
// lasts. The first are served first; callers rotate who that is.
func share(n int, weights []int) []int {
	out := make([]int, len(weights))
	rest := 0
	for _, w := range weights {
		rest += w
	}
	for i, w := range weights {
		after := len(weights) - 1 - i
		k := min(max(n*w/rest, 1), max(n-after, 1), n)
		out[i] = k
		n, rest = n-k, rest-w
	}
	return out
}
