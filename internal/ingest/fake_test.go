package ingest

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
)

var (
	_ Store     = (*schedule.Engine)(nil)
	_ Directory = (*subscriber.Directory)(nil)
)

// mishap is what happens to one call: it may be slow, fail before it does
// anything, or do all of it and lose the reply.
type mishap struct {
	slow          time.Duration
	before, after error
}

// fakeStore keeps the obligations of Store in memory and checks those of its
// caller. One can be set for any call.
type fakeStore struct {
	t     testing.TB
	parts int

	mu     sync.Mutex
	faults func(n int, call string) mishap // n counts calls from 1
	calls  []string
	events map[string]*fakeEvent
	// deliveries maps event id + " " + subscriber id to how often an Enqueue
	// named it; creating twice is a no-op, as in the real one.
	deliveries map[string]int
	chunks     []int
}

type fakeEvent struct {
	schedule.NewEvent
	at       time.Time
	plan     map[int][]schedule.Target
	openFrom time.Time // the score
}

func newFake(t testing.TB) *fakeStore {
	t.Helper()
	return &fakeStore{t: t, parts: 4, events: map[string]*fakeEvent{}, deliveries: map[string]int{}}
}

// do runs one call under the mishap that is set for it.
func (f *fakeStore) do(ctx context.Context, call string, body func() error) error {
	f.mu.Lock()
	f.calls = append(f.calls, call)
	var ft mishap
	if f.faults != nil {
		ft = f.faults(len(f.calls), call)
	}
	f.mu.Unlock()
	if ft.slow > 0 {
		select {
		case <-time.After(ft.slow):
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", call, schedule.ErrUnavailable, ctx.Err())
		}
	}
	if ft.before != nil {
		return fmt.Errorf("%s: %w", call, ft.before)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := body(); err != nil {
		return err
	}
	return ft.after
}

func (f *fakeStore) setFaults(fn func(n int, call string) mishap) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = fn
}

func (f *fakeStore) Accept(ctx context.Context, e schedule.NewEvent) (acc schedule.Accepted, err error) {
	err = f.do(ctx, "accept", func() error {
		if e.BodyHash == "" || len(e.BodyHash) > 64 {
			f.t.Errorf("body hash of %d bytes", len(e.BodyHash))
		}
		old, dup := f.events[e.ID]
		if dup && old.BodyHash != e.BodyHash {
			return schedule.ErrConflict
		}
		if !dup {
			old = &fakeEvent{NewEvent: e, at: time.Now(), plan: map[int][]schedule.Target{}, openFrom: time.Now()}
			for _, t := range e.Targets {
				p := f.PartitionOf(t.SubscriberID)
				old.plan[p] = append(old.plan[p], t)
			}
			f.events[e.ID] = old
		}
		acc = schedule.Accepted{At: old.at, Deliveries: len(old.Targets), Duplicate: dup, Open: len(old.plan) > 0}
		return nil
	})
	if err != nil {
		acc = schedule.Accepted{}
	}
	return acc, err
}

func (f *fakeStore) Event(ctx context.Context, id string) (out schedule.Event, err error) {
	err = f.do(ctx, "event", func() error {
		e, ok := f.events[id]
		if !ok {
			return schedule.ErrNotFound
		}
		out = schedule.Event{ID: id, Meta: e.Meta, AcceptedAt: e.at, Deliveries: len(e.Targets), Open: len(e.plan) > 0}
		return nil
	})
	return out, err
}

func (f *fakeStore) planOf(id string) schedule.Plan {
	e := f.events[id]
	return schedule.Plan{EventID: id, AcceptedAt: e.at, ExpandBy: e.at.Add(time.Hour), Parts: maps.Clone(e.plan)}
}

func (f *fakeStore) Plan(ctx context.Context, id string) (p schedule.Plan, err error) {
	err = f.do(ctx, "plan", func() error { p = f.planOf(id); return nil })
	return p, err
}

func (f *fakeStore) Enqueue(ctx context.Context, id string, at, by time.Time, part int, targets []schedule.Target) error {
	return f.do(ctx, "enqueue", func() error {
		e := f.events[id]
		if e == nil {
			f.t.Errorf("enqueue of an event that was never accepted: %s", id)
			return schedule.ErrNotFound
		}
		if !at.Equal(e.at) || by.After(e.at.Add(time.Hour)) {
			f.t.Errorf("enqueue at %v by %v, accepted at %v", at, by, e.at)
		}
		if time.Now().After(by) {
			return schedule.ErrTooLate
		}
		if len(targets) == 0 || len(targets) > 256 {
			f.t.Errorf("chunk of %d targets", len(targets))
		}
		f.chunks = append(f.chunks, len(targets))
		for _, t := range targets {
			if f.PartitionOf(t.SubscriberID) != part {
				f.t.Errorf("%s enqueued in partition %d", t.SubscriberID, part)
			}
			if !slices.Contains(e.Targets, t) {
				f.t.Errorf("%v is not of the plan", t)
			}
			f.deliveries[id+" "+t.SubscriberID]++
		}
		return nil
	})
}

func (f *fakeStore) Strike(ctx context.Context, id string, parts ...int) (open bool, err error) {
	err = f.do(ctx, "strike", func() error {
		e := f.events[id]
		for _, part := range parts {
			for _, t := range e.plan[part] {
				if f.deliveries[id+" "+t.SubscriberID] == 0 {
					f.t.Errorf("partition %d struck before %s was enqueued", part, t.SubscriberID)
				}
			}
			delete(e.plan, part)
		}
		open = len(e.plan) > 0
		return nil
	})
	return open, err
}

func (f *fakeStore) ClaimOpen(ctx context.Context, part, limit int, after time.Duration) (plans []schedule.Plan, err error) {
	err = f.do(ctx, "claim", func() error {
		for _, id := range slices.Sorted(maps.Keys(f.events)) {
			e := f.events[id]
			if len(plans) == limit || f.PartitionOf(id) != part || len(e.plan) == 0 || time.Since(e.openFrom) <= after {
				continue
			}
			e.openFrom = time.Now()
			plans = append(plans, f.planOf(id))
		}
		return nil
	})
	if err != nil {
		plans = nil
	}
	return plans, err
}

func (f *fakeStore) Partitions() int           { return f.parts }
func (f *fakeStore) PartitionOf(id string) int { return int(delivery.Hash16(id)) % f.parts }

// checkDone says whether every target of an event has its one delivery and the
// plan is empty.
func (f *fakeStore) checkDone(id string) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.events[id]
	if e == nil {
		f.t.Fatalf("event %s is not stored", id)
	}
	if len(e.plan) > 0 {
		f.t.Errorf("event %s is open: %d partitions left", id, len(e.plan))
	}
	created := 0
	for key := range f.deliveries {
		if len(key) > len(id) && key[:len(id)+1] == id+" " {
			created++
		}
	}
	if created != len(e.Targets) {
		f.t.Errorf("event %s has %d deliveries, want %d", id, created, len(e.Targets))
	}
}

func (f *fakeStore) count(call string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if c == call {
			n++
		}
	}
	return n
}

// fakeDir shows changes only after a Refresh, as the real one.
type fakeDir struct {
	mu       sync.Mutex
	now      []*subscriber.Subscriber // visible
	next     []*subscriber.Subscriber // visible after Refresh
	err      error
	lastSeen delivery.Event
}

func (d *fakeDir) Refresh(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.now = d.next
	}
	return d.err
}

func (d *fakeDir) Match(e delivery.Event) []*subscriber.Subscriber {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lastSeen = e
	return d.now
}

func (d *fakeDir) set(subs []*subscriber.Subscriber) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next = subs
}

// subs is n subscribers, over all partitions.
func subs(n int) []*subscriber.Subscriber {
	out := make([]*subscriber.Subscriber, n)
	for i := range out {
		p := delivery.DefaultPolicy()
		p.MaxAge = delivery.Duration(time.Duration(i+1) * time.Hour)
		out[i] = &subscriber.Subscriber{ID: fmt.Sprintf("sub_%04d", i), Policy: p}
	}
	return out
}

type bundle struct {
	*Service
	store *fakeStore
	dir   *fakeDir
	reg   *prometheus.Registry
}

// Submit submits and does not wait for the strike's moment to come: most tests look at
// what the whole road leads to. Those of the wait itself call the Service.
func (b bundle) Submit(ctx context.Context, p Post) (Receipt, error) {
	r, err := b.Service.Submit(ctx, p)
	b.strikes.flush()
	return r, err
}

func setup(t testing.TB, subscribers int, opts Options) bundle {
	t.Helper()
	b := bundle{store: newFake(t), dir: &fakeDir{}, reg: prometheus.NewRegistry()}
	b.dir.set(subs(subscribers))
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	opts.Registerer = b.reg
	b.Service = New(b.store, b.dir, opts)
	return b
}

// another is a second process on the same store.
func (b bundle) another() bundle {
	b.reg = prometheus.NewRegistry()
	b.Service = New(b.store, b.dir, Options{Logger: b.log, Registerer: b.reg})
	return b
}

func validPost() Post {
	return Post{
		ID: "evt-1", Type: "shipment.delivered", ShipmentID: "shp_1",
		OccurredAt: "2026-03-01T09:30:00.5+09:00",
		Attributes: map[string]string{"carrier": "dhl", "seller_id": "s_1"},
		Data:       []byte(`{"b":1.0,"a":18446744073709551616,"a":2}`),
	}
}

// acceptTwice is a store below which a reply was lost and the call repeated.
type acceptTwice struct{ *fakeStore }

func (a acceptTwice) Accept(ctx context.Context, e schedule.NewEvent) (schedule.Accepted, error) {
	if _, err := a.fakeStore.Accept(ctx, e); err != nil {
		return schedule.Accepted{}, err
	}
	return a.fakeStore.Accept(ctx, e)
}

// cancelling is a producer that hangs up as soon as its event is stored.
type cancelling struct {
	*fakeStore
	hangUp context.CancelFunc
}

func (c cancelling) Accept(ctx context.Context, e schedule.NewEvent) (schedule.Accepted, error) {
	defer c.hangUp()
	return c.fakeStore.Accept(ctx, e)
}

func (c cancelling) Enqueue(ctx context.Context, id string, at, by time.Time, part int, targets []schedule.Target) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.fakeStore.Enqueue(ctx, id, at, by, part, targets)
}
