package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/test/redistest"
)

// contract runs a test of the engine against a real redis-server and against the
// in-memory stand-in, each with a clock that the test moves.
func contract(t *testing.T, opts schedule.Options, test func(t *testing.T, w *world)) {
	t.Helper()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		test(t, newWorld(t, rdb, opts))
	})
}

// walk runs random sequences on a real redis-server, empty at each beginning. The
// stand-in interprets the same scripts ten times as slowly: there TestModel is enough.
func walk(t *testing.T, test func(rt *rapid.T, rdb redis.UniversalClient)) {
	t.Helper()
	rdb := redistest.Server(t).Client()
	rapid.Check(t, func(rt *rapid.T) {
		if err := redistest.Flush(t.Context(), rdb); err != nil {
			t.Fatal(err)
		}
		test(rt, rdb)
	})
}

// world is an engine with what the tests do to it in one line each.
type world struct {
	*testing.T
	*schedule.Engine
	ctx    context.Context
	rdb    redis.UniversalClient
	offset time.Duration
	frozen time.Time // if the clock stands
	seq    map[string]int64
}

func newWorld(t *testing.T, rdb redis.UniversalClient, opts schedule.Options) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	opts.TestClock = true
	if opts.InitialCap == 0 {
		opts.InitialCap = 1000 // caps are a matter of the tests that are about them
	}
	if opts.Partitions == 0 {
		opts.Partitions = 1
	}
	e, err := schedule.Open(ctx, rdb, opts)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return &world{T: t, Engine: e, ctx: ctx, rdb: rdb, seq: map[string]int64{}}
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// freeze stops the clock of the scripts: from here on only advance moves it.
func (w *world) freeze() {
	w.Helper()
	w.frozen = time.UnixMilli(1_800_000_000_000).UTC()
	w.ok(w.FreezeTestClock(w.ctx, w.frozen))
}

// advance moves the clock of the scripts.
func (w *world) advance(d time.Duration) {
	w.Helper()
	if !w.frozen.IsZero() {
		w.frozen = w.frozen.Add(d)
		w.ok(w.FreezeTestClock(w.ctx, w.frozen))
		return
	}
	w.offset += d
	w.ok(w.SetTestClock(w.ctx, w.offset))
}

// clock is the time that the scripts see.
func (w *world) clock() time.Time {
	w.Helper()
	s, err := w.Sample(w.ctx, nil)
	w.ok(err)
	return s.Now
}

// terms have a breaker that stays out of the way, as caps do: see newWorld.
var terms = schedule.Terms{Class: "standard", MaxInFlight: 100, LeaseTime: 25 * time.Second, BreakerFailures: 1000}

// subscribe makes a subscriber with a cap.
func (w *world) subscribe(id string, maxInFlight int) {
	w.Helper()
	tm := terms
	tm.MaxInFlight = maxInFlight
	_, err := w.PutConfig(w.ctx, id, -1, []byte("{}"), tm, schedule.Edited)
	if err != nil {
		_, err = w.PutConfig(w.ctx, id, 0, []byte("{}"), tm, schedule.Edited)
	}
	w.ok(err)
}

// put writes a subscriber at other terms than the usual ones.
func (w *world) put(id string, change schedule.Change, set func(*schedule.Terms)) {
	w.Helper()
	tm := terms
	if set != nil {
		set(&tm)
	}
	_, err := w.PutConfig(w.ctx, id, -1, []byte("{}"), tm, change)
	if errors.Is(err, schedule.ErrNotFound) {
		_, err = w.PutConfig(w.ctx, id, 0, []byte("{}"), tm, change)
	}
	w.ok(err)
}

// standing is how a subscriber stands.
func (w *world) standing(id string) schedule.Standing {
	w.Helper()
	s, err := w.Standings(w.ctx, []string{id})
	w.ok(err)
	return s[0]
}

// wantHolds checks which holds a subscriber is on, and that all is consistent.
func (w *world) wantHolds(id string, want ...schedule.Hold) {
	w.Helper()
	if got := w.standing(id).Holds; !slices.Equal(got, want) {
		w.Fatalf("%s is on hold for %v, want %v", id, got, want)
	}
	w.audit()
}

// none leases nothing.
func (w *world) none(why string) {
	w.Helper()
	if got := w.lease("none", anyRoom).Leased; len(got) > 0 {
		w.Fatalf("leased %d %s: %+v", len(got), why, got[0].Delivery)
	}
}

const day = 24 * time.Hour

// post accepts and expands an event.
func (w *world) post(event string, subs ...string) []string {
	w.Helper()
	var targets []schedule.Target
	var ids []string
	byPart := map[int][]schedule.Target{}
	for _, s := range subs {
		t := schedule.Target{SubscriberID: s, MaxAge: day}
		targets = append(targets, t)
		ids = append(ids, delivery.NewID(event, s))
		byPart[w.PartitionOf(s)] = append(byPart[w.PartitionOf(s)], t)
	}
	a, err := w.Accept(w.ctx, schedule.NewEvent{ID: event, BodyHash: "h", Body: []byte("{}"), Targets: targets})
	w.ok(err)
	for p, ts := range byPart {
		w.ok(w.Enqueue(w.ctx, event, a.At, w.ExpandBy(a.At), p, ts))
		_, err = w.Strike(w.ctx, event, p)
		w.ok(err)
	}
	return ids
}

// anyRoom is more room than any test needs.
var anyRoom = schedule.Rooms{Total: 1000, Fresh: 1000, Retry: 1000, Redrive: 1000, Slow: 1000}

func room(n int) schedule.Rooms {
	return schedule.Rooms{Total: n, Fresh: n, Retry: n, Redrive: n, Slow: n}
}

// lease leases from partition 0 with the worker's next seq.
func (w *world) lease(worker string, r schedule.Rooms) schedule.LeaseReply {
	w.Helper()
	w.seq[worker]++
	return w.leaseAt(worker, w.seq[worker], r)
}

func (w *world) leaseAt(worker string, seq int64, r schedule.Rooms) schedule.LeaseReply {
	w.Helper()
	// So many free slots that a subscriber's share of them is no limit.
	return w.leaseBy(schedule.LeaseRequest{Worker: worker, Seq: seq, Rooms: r, Free: 10_000})
}

func (w *world) leaseBy(q schedule.LeaseRequest) schedule.LeaseReply {
	w.Helper()
	reps, err := w.Lease(w.ctx, []schedule.LeaseRequest{q})
	w.ok(err)
	return reps[0]
}

// one leases exactly one delivery.
func (w *world) one(worker string) schedule.Leased {
	w.Helper()
	rep := w.lease(worker, room(1))
	if len(rep.Leased) != 1 {
		w.Fatalf("leased %d deliveries, want 1", len(rep.Leased))
	}
	return rep.Leased[0]
}

// deliverAll leases and settles whatever a subscriber's partition has due.
func (w *world) deliverAll(sub string) {
	w.Helper()
	p := w.PartitionOf(sub)
	w.seq["all"]++
	reps, err := w.Lease(w.ctx, []schedule.LeaseRequest{{Partition: p, Worker: "all", Seq: w.seq["all"], Rooms: anyRoom}})
	w.ok(err)
	var vs []schedule.Verdict
	for _, l := range reps[0].Leased {
		vs = append(vs, delivered(l))
	}
	_, err = w.Settle(w.ctx, p, vs)
	w.ok(err)
}

func delivered(l schedule.Leased) schedule.Verdict {
	return schedule.Verdict{
		ID: l.ID, Fence: l.Fence(), Outcome: delivery.OK, Status: 200,
		Decision: delivery.Decision{Next: delivery.Delivered},
	}
}

func retry(l schedule.Leased, due time.Time) schedule.Verdict {
	return schedule.Verdict{
		ID: l.ID, Fence: l.Fence(), Outcome: delivery.HTTP5xx, Status: 503, Attempt: []byte(`{"attempt":1}`),
		Decision: delivery.Decision{Next: delivery.Scheduled, DueAt: due},
	}
}

// failed is a failure whose retry is due at once.
func failed(l schedule.Leased, o delivery.Outcome) schedule.Verdict {
	v := retry(l, l.LastAttemptAt)
	v.Outcome, v.Status = o, 0
	return v
}

func dead(l schedule.Leased, body string) schedule.Verdict {
	return schedule.Verdict{
		ID: l.ID, Fence: l.Fence(), Outcome: delivery.HTTP404, Status: 404, Attempt: []byte(`{"attempt":1}`),
		Body:     &schedule.Body{Bytes: []byte(body)},
		Decision: delivery.Decision{Next: delivery.Dead, Reason: delivery.HTTP404},
	}
}

func lost(l schedule.Leased, due time.Time) schedule.Verdict {
	return schedule.Verdict{
		ID: l.ID, Fence: l.Fence(), Outcome: delivery.LeaseLost, Attempt: []byte(`{"attempt":1}`), Reclaim: true,
		Decision: delivery.Decision{Next: delivery.Scheduled, DueAt: due, GiveBack: true},
	}
}

// settle settles one verdict in partition 0 and wants a result.
func (w *world) settle(want schedule.SettleResult, v schedule.Verdict) {
	w.Helper()
	got, err := w.Settle(w.ctx, 0, []schedule.Verdict{v})
	w.ok(err)
	if got.Results[0] != want {
		w.Fatalf("settle %s at fence %d: %s, want %s", v.Next, v.Fence, got.Results[0], want)
	}
}

// cancelAll cancels up to limit of what a deleted subscriber has pending.
func (w *world) cancelAll(sub string, limit int) (remaining, leases int) {
	w.Helper()
	_, remaining, leases, err := w.CancelPending(w.ctx, sub, limit)
	w.ok(err)
	return remaining, leases
}

// get reads a delivery.
func (w *world) get(id string) schedule.Evidence {
	w.Helper()
	d, err := w.Delivery(w.ctx, id)
	w.ok(err)
	return d
}

// wantState checks a delivery's state and that the whole engine is consistent.
func (w *world) wantState(id string, want delivery.State) {
	w.Helper()
	if got := w.get(id).State; got != want {
		w.Fatalf("%s is %s, want %s", id, got, want)
	}
	w.audit()
}

func (w *world) ledger() schedule.Ledger {
	w.Helper()
	s, err := w.Sample(w.ctx, nil)
	w.ok(err)
	return s.Ledger
}

// keys are those that match a pattern, on all primaries of a cluster.
func (w *world) keys(pattern string) []string {
	w.Helper()
	keys, err := redistest.Keys(w.ctx, w.rdb, pattern)
	w.ok(err)
	return keys
}

// dump is everything in Redis, readable and comparable.
func (w *world) dump() map[string]string {
	w.Helper()
	out := map[string]string{}
	for _, k := range w.keys("*") {
		kind, err := w.rdb.Type(w.ctx, k).Result()
		w.ok(err)
		switch kind {
		case "string":
			out[k] = w.rdb.Get(w.ctx, k).Val()
		case "hash":
			h := w.rdb.HGetAll(w.ctx, k).Val()
			var b strings.Builder
			for _, f := range slices.Sorted(maps.Keys(h)) {
				fmt.Fprintf(&b, "%s=%s ", f, h[f])
			}
			out[k] = b.String()
		case "set":
			m := w.rdb.SMembers(w.ctx, k).Val()
			slices.Sort(m)
			out[k] = strings.Join(m, " ")
		case "zset":
			out[k] = fmt.Sprint(w.rdb.ZRangeWithScores(w.ctx, k, 0, -1).Val())
		case "list":
			out[k] = fmt.Sprint(w.rdb.LRange(w.ctx, k, 0, -1).Val())
		}
	}
	return out
}

// unchanged runs f and fails if anything in Redis is different after it.
func (w *world) unchanged(what string, f func()) {
	w.Helper()
	before := w.dump()
	f()
	if diff := cmp.Diff(before, w.dump()); diff != "" {
		w.Fatalf("%s had an effect (-before +after):\n%s", what, diff)
	}
}

// twice runs f, and again, and wants the second run to leave Redis as it was.
func (w *world) twice(what string, f func()) {
	w.Helper()
	f()
	w.unchanged("the second "+what, f)
	w.audit()
}
