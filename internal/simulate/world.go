package simulate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

const (
	micros = 1000 // us in a ms
	// epoch is when a run begins, ms: the scripts take 0 for never.
	epoch = 1_800_000_000_000
	// reapEvery is how often what has grown too old is looked for, us.
	reapEvery = 1000 * 1000
	// lookEvery is after how many events the run says where it is.
	lookEvery = 1 << 16
)

// moment is an event of the run. Those of one time go in the order in which they came up.
type moment struct {
	at   int64 // us since the run began
	seq  uint64
	kind kind
	n    int
	item *item
}

type kind uint8

const (
	answered kind = iota // item: its attempt is over
	hangs                // item: its attempt is out for long
	falls                // n: a dispatcher's next work falls due
	polls                // n: a dispatcher asks anyway
	reaps                // n: a subscriber's deliveries may have expired
	recovers             // n: an outage of group n ends
)

func (m moment) before(o moment) bool { return m.at < o.at || (m.at == o.at && m.seq < o.seq) }

// world is one run under one policy.
type world struct {
	scheduler

	scene       *Scenario
	policy      delivery.Policy
	us          int64 // now, since the run began
	end, cut    int64 // of the arrivals, and of the run
	moments     heap[moment]
	seq         uint64
	flows       []*flow
	subs        []*subscriber
	groups      [][]*subscriber
	dispatchers []*dispatcher
	asks        int // whose turn it is to ask first
	tallies     []*tally
	total       levels
	pending     int64
	overhead    sampler
	rests       *rand.Rand // how long a breaker rests
	free        []*item
	events      uint64
}

func newWorld(sc *Scenario, p delivery.Policy) *world {
	w := &world{
		scheduler: scheduler{now: epoch, quantum: defaultQuantum}, scene: sc, policy: p,
		end: usOf(sc.Duration), overhead: newSampler(sc.Overhead),
		rests: rand.New(rand.NewPCG(sc.Seed, 2)), //nolint:gosec // repeatable on purpose
	}
	w.cut = w.end + usOf(sc.RunOn)
	for i := range sc.Dispatchers {
		w.dispatchers = append(w.dispatchers, newDispatcher(i, sc.Slots))
		w.at(0, moment{kind: polls, n: i})
	}
	for i, g := range sc.Groups {
		w.enter(i, g)
	}
	w.flows = newFlows(sc)
	return w
}

// enter makes a group's subscribers.
func (w *world) enter(index int, g Group) {
	t := &tally{dead: map[delivery.Outcome]int64{}}
	var all []*subscriber
	for i := range g.Endpoints {
		s := newSubscriber(fmt.Sprintf("sim_%s_%d", g.Name, i), len(w.subs), w.policy, len(w.dispatchers))
		s.group, s.failures, s.latency = index, g.Failures, newSampler(g.Latency)
		s.timeoutMicros, s.retryAfterCap, s.maxAge = usOf(w.policy.AttemptTimeout), usOf(w.policy.RetryAfterCap), usOf(w.policy.MaxAge)
		all, w.subs = append(all, s), append(w.subs, s)
	}
	for _, o := range g.Outages {
		out := &window{usOf(o.From), usOf(o.From) + usOf(o.For), o.Does, time.Duration(o.RetryAfter)}
		d := &drain{from: out.from, end: out.to, took: -1}
		t.drains = append(t.drains, d)
		// Of 10 endpoints a share of 0.25 is three: a part of one cannot fail.
		for _, s := range all[:o.failing(g.Endpoints)] {
			s.windows = append(s.windows, out)
			s.drains = append(s.drains, d)
		}
		w.at(out.to, moment{kind: recovers, n: index})
	}
	w.groups, w.tallies = append(w.groups, all), append(w.tallies, t)
}

// at puts an event on the calendar.
func (w *world) at(us int64, m moment) {
	w.seq++
	m.at, m.seq = us, w.seq
	w.moments.push(m)
}

// run plays to the end. Say is called now and then with how far it is, us.
func (w *world) run(ctx context.Context, say func(at int64, pending int64)) error {
	for n := 1; ; n++ {
		f := nextFlow(w.flows)
		if f == nil && w.pending == 0 {
			return nil
		}
		next := w.cut + 1
		if len(w.moments) > 0 {
			next = w.moments[0].at
		}
		if f != nil && f.next <= next {
			w.clock(f.next)
			w.arrive(f)
		} else {
			if next > w.cut {
				w.clock(w.cut)
				return nil
			}
			w.clock(next)
			w.happen(w.moments.pop())
		}
		w.ask()
		if n%lookEvery == 0 {
			say(w.us, w.pending)
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("simulate: %w", err)
			}
		}
	}
}

func (w *world) clock(us int64) {
	w.us, w.now = us, epoch+us/micros
}

func (w *world) happen(m moment) {
	switch m.kind {
	case answered:
		w.settled(m.item)
	case hangs:
		d := w.dispatchers[m.item.worker]
		again := d.tell(m.item, w.us)
		w.hangs(m.item.sub, m.item.told/micros)
		w.tellAt(m.item, again)
	case falls:
		d := w.dispatchers[m.n]
		if d.armed == m.at {
			d.armed = 0
		}
	case polls:
		w.dispatchers[m.n].woken = true
		w.at(w.us+pollEvery, moment{kind: polls, n: m.n})
	case reaps:
		w.reap(w.subs[m.n])
	case recovers:
		w.recovered(m.n)
	}
}

// arrive makes an event of a flow, and its deliveries.
func (w *world) arrive(f *flow) {
	w.events++
	for _, g := range f.groups {
		all := w.groups[g]
		n := f.fanout(w.scene.Groups[g].Fanout)
		if n == 0 {
			continue
		}
		first := 0
		if n < len(all) {
			first = f.rng.IntN(len(all))
		}
		for i := range n {
			w.post(all[(first+i)%len(all)])
		}
	}
	f.advance()
}

// post makes one delivery.
func (w *world) post(s *subscriber) {
	t := w.tallies[s.group]
	t.posted++
	it := w.item()
	it.sub, it.event, it.key = s, w.events, w.events*uint64(len(w.subs))+uint64(s.index) //nolint:gosec // small
	it.accepted, it.due, it.expires = w.us, w.now, epoch+(w.us+s.maxAge)/micros
	w.pending++
	for _, d := range s.drains {
		if w.us < d.end {
			it.accounts = append(it.accounts, d)
			d.left++
		}
	}
	if !w.enqueue(it) {
		w.bury(it, delivery.HeldFull)
		return
	}
	w.reapAt(s, it.expires)
}

// item is a fresh one, or one that is over.
func (w *world) item() *item {
	n := len(w.free)
	if n == 0 {
		return &item{}
	}
	it := w.free[n-1]
	w.free = w.free[:n-1]
	*it = item{accounts: it.accounts[:0]}
	return it
}

// over ends a delivery.
func (w *world) over(it *item) {
	w.pending--
	for _, d := range it.accounts {
		d.ended(w.us)
	}
	w.free = append(w.free, it)
}

func (w *world) bury(it *item, why delivery.Outcome) {
	w.tallies[it.sub.group].dead[why]++
	w.over(it)
}

// reapAt has a subscriber's deliveries looked through when the first may have expired.
func (w *world) reapAt(s *subscriber, expires int64) {
	if s.expiryAt > 0 && s.expiryAt <= expires {
		return
	}
	s.expiryAt = expires
	at := (expires - epoch) * micros
	w.at((at+reapEvery-1)/reapEvery*reapEvery, moment{kind: reaps, n: s.index})
}

func (w *world) reap(s *subscriber) {
	if s.expiryAt == 0 || s.expiryAt > w.now {
		return // an earlier look stands in for it
	}
	s.expiryAt = 0
	if next := w.expire(s, func(it *item) { w.bury(it, delivery.Expired) }); next > 0 {
		w.reapAt(s, next)
	}
}

// recovered makes an outage's end known: what had ended by then needs no time to.
func (w *world) recovered(group int) {
	for _, d := range w.tallies[group].drains {
		if d.end == w.us && d.left == 0 {
			d.took = 0
		}
	}
}

// failing is how many of a group's endpoints an outage takes.
func (o Outage) failing(endpoints int) int {
	n := int(o.Share*float64(endpoints) + 0.999999)
	return min(max(n, 1), endpoints)
}

// names are the groups, and then all of them together.
func (s *Scenario) names() []string {
	var names []string
	for _, g := range s.Groups {
		names = append(names, g.Name)
	}
	return slices.Concat(names, []string{allGroups})
}
