package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// ask has the dispatchers ask for work until none has reason to. Who is first changes, as
// it does between processes.
func (w *world) ask() {
	if w.woke {
		w.woke = false
		for _, d := range w.dispatchers {
			d.woken = true
		}
	}
	for range w.dispatchers {
		d := w.dispatchers[w.asks%len(w.dispatchers)]
		w.asks++
		w.askOne(d)
	}
}

func (w *world) askOne(d *dispatcher) {
	for {
		r, free := d.rooms()
		if free == 0 || !d.hasWork(w.us, r.slow > 0) {
			break
		}
		d.woken = false
		if d.dueAt <= w.us {
			d.dueAt = 0
		}
		reply := w.lease(d.index, r, free)
		reply.nextDue = sinceEpoch(reply.nextDue)
		d.learn(reply, w.us)
		for _, it := range reply.items {
			w.begin(d, it)
		}
		if w.woke { // what this call made ready, and left
			w.woke = false
			for _, other := range w.dispatchers {
				other.woken = other.woken || other != d
			}
		}
	}
	if d.dueAt > w.us && (d.armed == 0 || d.dueAt < d.armed) {
		d.armed = d.dueAt
		w.at(d.dueAt, moment{kind: falls, n: d.index})
	}
}

// sinceEpoch is a time of the scheduler in ms since the run began; 0 stays 0.
func sinceEpoch(ms int64) int64 {
	if ms == 0 {
		return 0
	}
	return max(ms-epoch, 1)
}

// begin sends one leased delivery. What will come of it is known at once, but to nobody.
func (w *world) begin(d *dispatcher, it *item) {
	d.take(it, w.us)
	s := it.sub
	t := w.tallies[s.group]
	t.slots.move(1, w.us, w.end)
	w.total.move(1, w.us, w.end)
	fate := drawsOf(w.scene.Seed, it.key, it.attempts)
	sent := w.us + w.overhead.draw(&fate)
	it.answer = s.answerTo(sent, &fate)
	t.requests++
	s.hit(sent)
	it.sent, it.ends = sent, sent+it.answer.took.Microseconds()
	w.at(it.ends, moment{kind: answered, item: it})
	w.tellAt(it, nextTick(w.us+hangAfter))
}

// took counts a delivery, and its age: until the request arrived that was answered 2xx, as
// the load test does.
func (t *tally) took(it *item, end int64) {
	t.delivered++
	t.age.add(it.sent - it.accepted)
	t.byTime[min(int(it.accepted*bins/end), bins-1)].add(it.sent - it.accepted)
}

// tellAt has an attempt told of that is out for long, if it is still out by then.
func (w *world) tellAt(it *item, at int64) {
	if at < it.ends {
		w.at(at, moment{kind: hangs, item: it})
	}
}

// settled ends an attempt.
func (w *world) settled(it *item) {
	s, d := it.sub, w.dispatchers[it.worker]
	t := w.tallies[s.group]
	t.slots.move(-1, w.us, w.end)
	w.total.move(-1, w.us, w.end)
	// Its lane changes with the verdict, and its slot is of the lane that it was leased from.
	d.release(it)
	decision := w.decide(it)
	w.settle(it, it.answer, decision, w.rests.IntN(1_000_000))
	switch decision.Next {
	case delivery.Delivered:
		t.took(it, w.end)
		w.over(it)
	case delivery.Dead:
		w.bury(it, decision.Reason)
	case delivery.Scheduled:
		w.reapAt(s, it.expires)
	case delivery.Leased, delivery.Cancelled:
	}
	if due := w.nextDue(); due > 0 {
		d.dueBy(sinceEpoch(due) * micros)
	}
}

// decide is the service's own rule.
func (w *world) decide(it *item) delivery.Decision {
	d := delivery.Delivery{
		State: delivery.Leased, Attempts: it.attempts, DeliveryCount: int64(it.attempts),
		ExpiresAt: time.UnixMilli(it.expires),
	}
	if it.answer.outcome != delivery.OK { // the id is for the backoff
		d.ID = delivery.NewID(fmt.Sprintf("sim-%d", it.event), it.sub.id)
	}
	r := delivery.Result{Outcome: it.answer.outcome, Status: it.answer.status, RetryAfter: it.answer.wait}
	decision, err := delivery.Decide(w.policy, d, r, time.UnixMilli(w.now))
	if err != nil {
		panic("simulate: a lease always counts its attempt: " + err.Error())
	}
	return decision
}

// flow is a stream of events.
type flow struct {
	rng    *rand.Rand
	every  float64 // us
	steady bool
	begin  int64
	n      float64
	next   int64 // us
	at     float64
	end    int64
	groups []int
}

// newFlows makes the scenario's streams: each draws by itself, and the same under every
// policy.
func newFlows(sc *Scenario) []*flow {
	var all []*flow
	add := func(rate float64, from, end int64, groups []int) {
		f := &flow{
			rng:   rand.New(rand.NewPCG(sc.Seed, uint64(len(all))+16)), //nolint:gosec // repeatable on purpose
			every: 1e6 / rate, steady: sc.Steady, begin: from, at: float64(from), next: from, end: end, groups: groups,
		}
		if !f.steady {
			f.advance()
		}
		all = append(all, f)
	}
	if sc.Rate > 0 {
		var groups []int
		for i := range sc.Groups {
			groups = append(groups, i)
		}
		add(sc.Rate, 0, usOf(sc.Duration), groups)
	}
	for _, f := range sc.Flows {
		var groups []int
		for i, g := range sc.Groups {
			if slices.Contains(f.Groups, g.Name) {
				groups = append(groups, i)
			}
		}
		add(f.Rate, usOf(f.From), usOf(f.From)+usOf(f.For), groups)
	}
	return all
}

func (f *flow) advance() {
	if f.steady {
		f.n++
		f.at = float64(f.begin) + f.n*f.every
	} else {
		f.at += f.rng.ExpFloat64() * f.every
	}
	f.next = int64(f.at)
}

// nextFlow is the one whose event comes next, or nil.
func nextFlow(all []*flow) (first *flow) {
	for _, f := range all {
		if f.next < f.end && (first == nil || f.next < first.next) {
			first = f
		}
	}
	return first
}

// fanout is how many endpoints of a group an event goes to, by their mean.
func (f *flow) fanout(mean float64) int {
	n, part := math.Modf(mean)
	if part > 0 && f.rng.Float64() < part {
		n++
	}
	return int(n)
}
