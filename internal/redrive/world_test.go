package redrive_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/redrive"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/test/audit"
	"github.com/fanout/fanout/test/redistest"
)

// world is an engine with a service of redrives on it, a clock that stands, and a
// dispatcher that does as it is told.
type world struct {
	*testing.T
	*schedule.Engine
	ctx     context.Context
	rdb     redis.UniversalClient
	now     time.Time
	seq     int64
	svc     *redrive.Service
	letters redrive.Letters
	report  schedule.WorkerReport
	silent  bool // no dispatcher reports
	class   map[string]string
	told    []redrive.Action
	mu      sync.Mutex
}

func contract(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		test(t, w)
	})
}

// onRedis runs a test against a real redis-server alone: the stand-in interprets the same
// scripts ten times as slowly, and has been through all of them in the others.
func onRedis(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	test(t, newWorld(t, server(t)))
}

func newWorld(t *testing.T, rdb redis.UniversalClient) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	e, err := schedule.Open(ctx, rdb, schedule.Options{TestClock: true, InitialCap: 1000, Partitions: 1})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	w := &world{
		T: t, Engine: e, ctx: ctx, rdb: rdb, letters: e, class: map[string]string{},
		report: schedule.WorkerReport{Worker: "w1", Slots: 100, InUse: map[string]int{}, SlotSeconds: 0.1},
	}
	w.now = time.UnixMilli(1_800_000_000_000).UTC()
	w.ok(e.FreezeTestClock(ctx, w.now))
	w.restart()
	for _, s := range []string{"s1", "s2", "s3"} {
		w.subscribe(s)
	}
	return w
}

// restart is another process with a service: the one before is gone, and with it its
// lease, as after 15 s.
func (w *world) restart() {
	w.Helper()
	w.svc = w.service(w.letters)
	w.ok(w.rdb.Del(w.ctx, "{fo:redrive}:runner").Err())
}

func (w *world) service(l redrive.Letters) *redrive.Service {
	return redrive.New(w.rdb, l, redrive.Options{
		Classes: map[string]time.Duration{"standard": 10 * time.Second, "gold": 2 * time.Second},
		ClassOf: func(_ context.Context, id string) (string, error) { return w.class[id], nil },
		Audit: func(_ context.Context, a redrive.Action) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.told = append(w.told, a)
			return nil
		},
	})
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// pass lets time pass, and the dispatcher reports.
func (w *world) pass(d time.Duration) {
	w.Helper()
	w.now = w.now.Add(d)
	w.ok(w.FreezeTestClock(w.ctx, w.now))
	if !w.silent {
		w.ok(w.Report(w.ctx, w.report))
	}
}

// step lets a second pass, and moves the cohorts.
func (w *world) step() {
	w.Helper()
	w.pass(time.Second)
	w.ok(w.svc.Step(w.ctx))
}

var terms = schedule.Terms{Class: "standard", MaxInFlight: 1000, LeaseTime: 25 * time.Second, BreakerFailures: 1000}

func (w *world) subscribe(id string) {
	w.Helper()
	w.class[id] = "standard"
	_, err := w.PutConfig(w.ctx, id, 0, []byte("{}"), terms, schedule.Edited)
	w.ok(err)
}

// terms changes those of a subscriber.
func (w *world) terms(id string, set func(*schedule.Terms)) {
	w.Helper()
	tm := terms
	set(&tm)
	_, err := w.PutConfig(w.ctx, id, -1, []byte("{}"), tm, schedule.Edited)
	w.ok(err)
}

// post accepts an event of a type for a subscriber.
func (w *world) post(event, sub string) string {
	w.Helper()
	targets := []schedule.Target{{SubscriberID: sub, MaxAge: 24 * time.Hour}}
	a, err := w.Accept(w.ctx, schedule.NewEvent{ID: event, BodyHash: "h", Body: []byte("{}"), Targets: targets})
	w.ok(err)
	p := w.PartitionOf(sub)
	w.ok(w.Enqueue(w.ctx, event, a.At, w.ExpandBy(a.At), p, targets))
	_, err = w.Strike(w.ctx, event, p)
	w.ok(err)
	return delivery.NewID(event, sub)
}

// leased is all that is due, as a dispatcher takes it.
func (w *world) leased() []schedule.Leased {
	w.Helper()
	var all []schedule.Leased
	for {
		w.seq++
		reps, err := w.Lease(w.ctx, []schedule.LeaseRequest{{
			Worker: "w1", Seq: w.seq, Free: 10_000,
			Rooms: schedule.Rooms{Total: 1000, Fresh: 1000, Retry: 1000, Redrive: 1000, Slow: 1000},
		}})
		w.ok(err)
		if all = append(all, reps[0].Leased...); len(reps[0].Leased) == 0 {
			return all
		}
	}
}

// answer is what a receiver did: a status, at which attempt it is.
type answer func(schedule.Leased) int

func always(status int) answer { return func(schedule.Leased) int { return status } }

// serve sends all that is due, and settles it by what the receiver answers.
func (w *world) serve(a answer) (sent []string) {
	w.Helper()
	for {
		ls := w.leased() // as many as the endpoint's cap allows
		if len(ls) == 0 {
			return sent
		}
		for _, l := range ls {
			sent = append(sent, l.ID)
			w.settle(l, a(l))
		}
	}
}

func (w *world) settle(l schedule.Leased, status int) schedule.SettleResult {
	w.Helper()
	v := schedule.Verdict{ID: l.ID, Fence: l.Fence(), Status: status}
	switch limit := l.AttemptLimit(delivery.Policy{MaxAttempts: 1}); {
	case status < 300:
		v.Outcome, v.Decision = delivery.OK, delivery.Decision{Next: delivery.Delivered}
	case l.Attempts >= limit:
		v.Outcome, v.Decision = delivery.HTTP5xx, delivery.Decision{Next: delivery.Dead, Reason: delivery.Exhausted}
	case status < 500:
		v.Outcome, v.Decision = delivery.HTTP404, delivery.Decision{Next: delivery.Dead, Reason: delivery.HTTP404}
	default:
		v.Outcome, v.Decision = delivery.HTTP5xx, delivery.Decision{Next: delivery.Scheduled, DueAt: w.now.Add(time.Hour)}
	}
	if v.Next != delivery.Delivered {
		v.Attempt = []byte(`{"attempt":1}`)
		event, _, _ := strings.Cut(l.EventID, "#")
		v.Body = &schedule.Body{Bytes: fmt.Appendf(nil, `{"type":"shipment.%s"}`, strings.TrimRight(event, "0123456789"))}
	}
	got, err := w.Settle(w.ctx, 0, []schedule.Verdict{v})
	w.ok(err)
	return got.Results[0]
}

// die posts n events to a subscriber, and has their deliveries die, in order.
func (w *world) die(event, sub string, n int) (ids []string) {
	w.Helper()
	for i := range n {
		ids = append(ids, w.post(fmt.Sprint(event, i), sub))
		w.now = w.now.Add(time.Millisecond)
		w.ok(w.FreezeTestClock(w.ctx, w.now))
		w.serve(always(503))
	}
	return ids
}

var order = redrive.Order{Reason: "their deploy was bad", MaxRate: 100}

func (w *world) create(o redrive.Order) string {
	w.Helper()
	c, err := w.svc.Create(w.ctx, o, "key_1")
	w.ok(err)
	return c.ID
}

func (w *world) view(id string) redrive.View {
	w.Helper()
	v, err := w.svc.Get(w.ctx, id)
	w.ok(err)
	return v
}

func (w *world) approve(id string) {
	w.Helper()
	_, err := w.svc.Approve(w.ctx, id, "key_1", "it is in their system once")
	w.ok(err)
}

func (w *world) want(id string, s redrive.State, why string) redrive.View {
	w.Helper()
	v := w.view(id)
	if v.State != s || !strings.Contains(v.Stopped, why) || why == "" && s != redrive.Aborted && v.Stopped != "" {
		w.Fatalf("it is %s (%q), want %s (%q): %+v %+v", v.State, v.Stopped, s, why, v.Cohort, v.Tally)
	}
	w.audit()
	return v
}

// running makes a cohort of n of s1 that has just been approved.
func (w *world) running(n int, o redrive.Order) (cohort string, ids []string) {
	w.Helper()
	ids = w.die("picked", "s1", n)
	cohort = w.create(o)
	w.toRunning(cohort)
	return cohort, ids
}

func (w *world) toRunning(cohort string) {
	w.Helper()
	w.step() // plans
	w.step() // sends the canary
	w.serve(always(200))
	w.step()
	w.want(cohort, redrive.Awaiting, "")
	w.approve(cohort)
	w.step() // measures
	w.want(cohort, redrive.Running, "")
}

// finish steps and serves until a cohort has ended.
func (w *world) finish(cohort string, a answer) redrive.View {
	w.Helper()
	for range 2000 {
		w.step()
		w.serve(a)
		if v := w.view(cohort); v.Closed {
			return v
		}
	}
	w.Fatalf("it never ends: %+v", w.view(cohort))
	return redrive.View{}
}

// nothingLeft wants no trace of a cohort in the scheduler.
func (w *world) nothingLeft() {
	w.Helper()
	for _, pattern := range []string{"*tally:*", "*}:cohort:*", "*out:*", "*claims"} {
		keys, err := redistest.Keys(w.ctx, w.rdb, pattern)
		w.ok(err)
		if len(keys) > 0 {
			w.Errorf("left behind: %v", keys)
		}
	}
	w.audit()
}

func (w *world) audit() {
	w.Helper()
	faults, err := audit.Check(w.ctx, w.rdb)
	w.ok(err)
	for _, f := range faults {
		w.Errorf("audit: %s", f)
	}
	if w.Failed() {
		w.FailNow()
	}
}

// generations counts how often deliveries were released.
func (w *world) generations(ids []string, want int) {
	w.Helper()
	for _, id := range ids {
		d, err := w.Delivery(w.ctx, id)
		if errors.Is(err, schedule.ErrNotFound) {
			continue
		}
		w.ok(err)
		if d.RedriveGeneration != want {
			w.Errorf("%s was released %d times, want %d", id, d.RedriveGeneration, want)
		}
	}
}
