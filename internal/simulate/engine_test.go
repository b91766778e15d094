package simulate

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/test/redistest"
)

// Random operations on the engine and on the model: each lease call must give the same
// deliveries in the same order, from the same slots, and leave the same number of lanes
// waiting until the same time; and after each operation every subscriber must stand the
// same. What the engine draws, the rest of a breaker that opens, must be within its bounds,
// and is taken over.
func TestSameAsTheEngine(t *testing.T) {
	t.Parallel()
	rdb := redistest.Server(t).Client()
	rapid.Check(t, func(rt *rapid.T) {
		if err := redistest.Flush(t.Context(), rdb); err != nil {
			t.Fatal(err)
		}
		e, err := schedule.Open(t.Context(), rdb, schedule.Options{TestClock: true})
		if err != nil {
			t.Fatal(err)
		}
		b := newBoth(t.Context(), rt, e)
		for range rapid.IntRange(10, 90).Draw(rt, "steps") {
			b.step()
		}
	})
}

// both is the engine and the model, and what both are told.
type both struct {
	*scheduler

	ctx      context.Context
	rt       *rapid.T
	engine   *schedule.Engine
	policies []delivery.Policy
	subs     []*subscriber
	names    []string
	ids      map[string]*item // every delivery
	wire     []*item          // leased ones
	leases   map[*item]schedule.Leased
	seq      map[int]int64
	events   int
	bad      bool  // most attempts fail: breakers open, probe and close
	tick     int64 // keeps due times apart: Redis orders those that are equal by their id
}

const testWorkers = 2

func newBoth(ctx context.Context, rt *rapid.T, e *schedule.Engine) *both {
	b := &both{
		scheduler: &scheduler{now: epoch, quantum: defaultQuantum}, ctx: ctx, rt: rt, engine: e,
		ids: map[string]*item{}, leases: map[*item]schedule.Leased{}, seq: map[int]int64{},
	}
	b.ok(e.FreezeTestClock(ctx, time.UnixMilli(b.now)))
	b.bad = rapid.Bool().Draw(rt, "bad")
	for i := range rapid.IntRange(2, 5).Draw(rt, "subscribers") {
		p := delivery.DefaultPolicy()
		p.MaxInFlight = rapid.SampledFrom([]int{1, 2, 4, 16}).Draw(rt, "max_in_flight")
		p.BreakerFailures = rapid.IntRange(1, 4).Draw(rt, "breaker_failures")
		p.RatePerSecond = rapid.SampledFrom([]float64{0, 0, 0, 3, 0.7}).Draw(rt, "rate")
		p.MaxHeld = rapid.SampledFrom([]int{3, 100}).Draw(rt, "max_held")
		p.MaxAge = delivery.Duration(time.Hour)
		name := fmt.Sprintf("s%02d", i)
		_, err := e.PutConfig(ctx, name, 0, []byte("{}"), schedule.Terms{
			Class: "standard", MaxInFlight: p.MaxInFlight, LeaseTime: 10 * time.Hour, RatePerSecond: p.RatePerSecond,
			Burst: p.AtOnce(), BreakerFailures: p.BreakerFailures, MaxHeld: p.MaxHeld,
		}, schedule.Edited)
		b.ok(err)
		b.subs, b.names, b.policies = append(b.subs, newSubscriber(name, i, p, testWorkers)), append(b.names, name), append(b.policies, p)
	}
	return b
}

func (b *both) ok(err error) {
	b.rt.Helper()
	if err != nil {
		b.rt.Fatal(err)
	}
}

func (b *both) step() {
	steps := map[string]func(){
		"post": b.post, "burst": b.burst, "lease": b.leaseSome, "settle": b.settleOne, "answer": b.settleAll,
		"slow": b.tellOne, "pass": b.pass, "expire": b.expireAll,
	}
	often := []string{"post", "burst", "lease", "lease", "lease", "settle", "settle", "settle", "answer", "slow", "pass", "pass", "expire"}
	if b.bad {
		often = []string{"post", "post", "lease", "lease", "lease", "lease", "settle", "settle", "settle", "settle", "pass", "pass", "pass", "burst"}
	}
	name := rapid.SampledFrom(often).Draw(b.rt, "step")
	steps[name]()
	b.compare(name)
}

// forward moves both clocks.
func (b *both) forward(ms int64) {
	b.now += ms
	b.ok(b.engine.FreezeTestClock(b.ctx, time.UnixMilli(b.now)))
}

func (b *both) pass() {
	b.forward(rapid.SampledFrom([]int64{1, 40, 300, 1000, 2500, 6000, 30_000, 130_000, 900_000}).Draw(b.rt, "by"))
}

func (b *both) burst() {
	for range rapid.IntRange(3, 20).Draw(b.rt, "events") {
		b.post()
	}
}

// post makes an event for some of the subscribers.
func (b *both) post() {
	b.forward(1)
	b.events++
	event := fmt.Sprintf("e%d", b.events)
	to := rapid.SliceOfNDistinct(rapid.IntRange(0, len(b.subs)-1), 1, len(b.subs), rapid.ID).Draw(b.rt, "to")
	var targets []schedule.Target
	for _, i := range to {
		targets = append(targets, schedule.Target{SubscriberID: b.names[i], MaxAge: time.Duration(b.policies[i].MaxAge)})
	}
	a, err := b.engine.Accept(b.ctx, schedule.NewEvent{ID: event, BodyHash: "h", Body: []byte("{}"), Targets: targets})
	b.ok(err)
	b.ok(b.engine.Enqueue(b.ctx, event, a.At, b.engine.ExpandBy(a.At), 0, targets))
	for _, i := range to {
		it := &item{
			sub: b.subs[i], key: uint64(b.events*100 + i), due: b.now, expires: b.now + time.Duration(b.policies[i].MaxAge).Milliseconds(),
		}
		if b.enqueue(it) {
			b.ids[delivery.NewID(event, b.names[i])] = it
		}
	}
}

// leaseSome asks for work with any room.
func (b *both) leaseSome() {
	worker := rapid.IntRange(0, testWorkers-1).Draw(b.rt, "worker")
	total := rapid.SampledFrom([]int{1, 3, 8, 40}).Draw(b.rt, "total")
	wide := rapid.Bool().Draw(b.rt, "wide")
	part := func(what string) int {
		if wide {
			return total
		}
		return rapid.IntRange(0, total).Draw(b.rt, what)
	}
	r := rooms{total: total, lane: [lanes]int{part("fresh"), part("retry")}, slow: part("slow")}
	free := total + rapid.SampledFrom([]int{0, 0, 1, 2, 20}).Draw(b.rt, "free")
	b.seq[worker]++
	req := schedule.LeaseRequest{
		Worker: fmt.Sprintf("w%d", worker), Seq: b.seq[worker], Free: free,
		Rooms: schedule.Rooms{Total: total, Fresh: r.lane[fresh], Retry: r.lane[retry], Redrive: 0, Slow: r.slow},
	}
	for _, s := range b.subs {
		req.Holds = append(req.Holds, schedule.Holding{SubscriberID: s.id, Slots: s.held[worker].slots})
	}
	replies, err := b.engine.Lease(b.ctx, []schedule.LeaseRequest{req})
	b.ok(err)
	want := b.lease(worker, r, free)
	got := replies[0]
	if len(got.Leased) != len(want.items) || got.Ready != want.ready || got.Slow != want.slow || !due(got.NextDue, want.nextDue) {
		b.rt.Fatalf("at %d the engine gave %+v\nthe model %+v of %+v", b.now-epoch, got, want, b.subs)
	}
	for i, l := range got.Leased {
		it := want.items[i]
		if b.ids[l.ID] != it || l.Slow != it.slow || l.Attempts != it.attempts {
			b.rt.Fatalf("at %d, place %d: the engine gave %+v\nthe model %+v", b.now-epoch, i, l, *it)
		}
		it.worker = worker
		b.leases[it] = l
	}
	b.wire = append(b.wire, want.items...)
}

func due(at time.Time, ms int64) bool {
	return at.IsZero() && ms == 0 || at.UnixMilli() == ms
}

// settleAll answers all that is out, in time or not, for endpoints that do well.
func (b *both) settleAll() {
	for len(b.wire) > 0 {
		b.forward(2)
		b.answer(b.wire[0], answer{outcome: delivery.OK, status: 200, took: 20 * time.Millisecond})
	}
}

func (b *both) settleOne() {
	if len(b.wire) == 0 {
		return
	}
	b.forward(1)
	it := rapid.SampledFrom(b.wire).Draw(b.rt, "of")
	statuses := []int{200, 200, 200, 500, 500, 429, 503, 404, 400, 410, 0}
	if b.bad {
		statuses = []int{200, 500, 500, 500, 503, 0, 400}
	}
	status := rapid.SampledFrom(statuses).Draw(b.rt, "status")
	a := answer{outcome: delivery.Timeout, took: 10 * time.Second}
	if status > 0 {
		took := rapid.SampledFrom([]time.Duration{0, 20 * time.Millisecond, 5 * time.Second}).Draw(b.rt, "took")
		a = answer{outcome: delivery.Classify(status), status: status, took: took}
	}
	if status == 429 {
		a.wait = rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute}).Draw(b.rt, "wait")
	}
	b.answer(it, a)
}

// answer settles a lease in both.
func (b *both) answer(it *item, a answer) {
	l := b.leases[it]
	decision, err := delivery.Decide(b.policies[it.sub.index], l.Delivery,
		delivery.Result{Outcome: a.outcome, Status: a.status, RetryAfter: a.wait}, time.UnixMilli(b.now))
	b.ok(err)
	if decision.Next == delivery.Scheduled {
		b.tick++
		decision.DueAt = decision.DueAt.Truncate(time.Second).Add(time.Duration(b.tick) * time.Millisecond)
		if decision.DueAt.Before(time.UnixMilli(b.now)) {
			decision.DueAt = decision.DueAt.Add(time.Second)
		}
	}
	v := schedule.Verdict{
		ID: l.ID, Fence: l.Fence(), Decision: decision, Outcome: a.outcome, Status: a.status, Took: a.took, RetryAfter: a.wait,
	}
	if decision.Next == delivery.Dead {
		v.Body = &schedule.Body{}
	}
	done, err := b.engine.Settle(b.ctx, 0, []schedule.Verdict{v})
	b.ok(err)
	if done.Results[0] != schedule.Applied {
		b.rt.Fatalf("settle %+v: %s", v, done.Results[0])
	}
	opened := it.sub.step
	it.sub.held[it.worker].slots--
	b.settle(it, a, decision, 0)
	b.wire = slices.DeleteFunc(b.wire, func(o *item) bool { return o == it })
	if it.sub.step > opened {
		b.opened(it.sub)
	}
}

// opened takes over how long a breaker rests that has just opened.
func (b *both) opened(s *subscriber) {
	at, err := b.engine.Standings(b.ctx, []string{s.id})
	b.ok(err)
	window := min(time.Second<<(s.step-1), 2*time.Minute)
	if rest := at[0].ProbeAt.Sub(time.UnixMilli(b.now)); rest < window/2 || rest > window {
		b.rt.Fatalf("a rest of %s in a window of %s", rest, window)
	}
	s.open = at[0].ProbeAt.UnixMilli()
	b.putAll(s)
}

func (b *both) tellOne() {
	if len(b.wire) == 0 {
		return
	}
	s := rapid.SampledFrom(b.wire).Draw(b.rt, "of").sub
	b.ok(b.engine.Slow(b.ctx, 0, map[string]time.Duration{s.id: 3 * time.Second}))
	b.hangs(s, 3000)
}

// expireAll buries all that is too old, a page at a time until there is no more.
func (b *both) expireAll() {
	buried := map[*item]bool{}
	for _, s := range b.subs {
		b.expire(s, func(it *item) { buried[it] = true })
	}
	for range 3 { // a leased head is looked past at the second look
		ds, _, err := b.engine.ExpiredDeliveries(b.ctx, 1000)
		b.ok(err)
		var vs []schedule.Verdict
		for _, d := range ds {
			if !buried[b.ids[d.ID]] {
				b.rt.Fatalf("%s is to expire, the model has it wait", d.ID)
			}
			vs = append(vs, schedule.Verdict{ID: d.ID, Body: &schedule.Body{}})
		}
		_, err = b.engine.Expire(b.ctx, 0, vs)
		b.ok(err)
	}
}

// compare holds how every subscriber stands against the model.
func (b *both) compare(step string) {
	all, err := b.engine.Standings(b.ctx, b.names)
	b.ok(err)
	for i, s := range b.subs {
		got := all[i]
		probe := ""
		for id, it := range b.ids {
			if s.probe != 0 && it.key == s.probe {
				probe = id
			}
		}
		want := got // with what the model has no part in, such as counts of what has ended
		want.SubscriberID, want.Holds, want.Probe, want.Failures, want.Openings = s.id, b.holds(s), probe, s.fails, s.step
		want.Cap, want.InFlight, want.Latency = min(float64(s.max), float64(s.win)/capUnit), s.n, time.Duration(s.lat)*time.Millisecond
		want.Pending, want.ThrottledUntil, want.ProbeAt = int64(s.pending), b.still(s.throttled), time.Time{}
		want.Waiting = map[delivery.Lane]int64{delivery.Fresh: int64(s.fresh.n), delivery.Retry: int64(len(s.retry)), delivery.Redrive: 0}
		if s.open > 0 && s.probe == 0 {
			want.ProbeAt = b.still(s.open)
		}
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			b.rt.Fatalf("after %q at %d:\n got %+v\nwant %+v\nof %+v", step, b.now-epoch, got, want, *s)
		}
	}
}

func (b *both) holds(s *subscriber) (hs []schedule.Hold) {
	if s.disabled {
		hs = append(hs, schedule.Disabled)
	}
	if s.throttled > b.now {
		hs = append(hs, schedule.Throttled)
	}
	if s.open > 0 {
		hs = append(hs, schedule.Breaker)
	}
	return hs
}

// still is a time if it is to come.
func (b *both) still(ms int64) time.Time {
	if ms <= b.now {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
