package oncall

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/dispatch"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/webhook"
	"github.com/fanout/fanout/test/redistest"
)

// engine is a real one, whose clock the test moves, with on-call over it. (That a sample
// is what the raw state says is proved in internal/schedule.)
type engine struct {
	*testing.T
	*schedule.Engine
	o      *OnCall
	reg    *prometheus.Registry
	offset time.Duration
	seq    int64
}

func overRedis(t *testing.T, rdb redis.UniversalClient, offset time.Duration) *engine {
	t.Helper()
	e, err := schedule.Open(t.Context(), rdb, schedule.Options{Partitions: 2, TestClock: true, InitialCap: 100})
	if err != nil {
		t.Fatal(err)
	}
	w := &engine{T: t, Engine: e, reg: prometheus.NewRegistry()}
	w.advance(offset)
	w.o = newOnCall(t, e, Options{Classes: map[string]time.Duration{"standard": 30 * time.Second}, Registerer: w.reg, Rings: e})
	return w
}

func (w *engine) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *engine) advance(d time.Duration) {
	w.Helper()
	w.offset += d
	w.ok(w.SetTestClock(w.Context(), w.offset))
}

func (w *engine) put(id string, set func(*schedule.Terms)) {
	w.Helper()
	terms := schedule.Terms{Class: "standard", MaxInFlight: 100, LeaseTime: 25 * time.Second, BreakerFailures: 1000}
	set(&terms)
	_, err := w.PutConfig(w.Context(), id, 0, []byte("{}"), terms, schedule.Edited)
	w.ok(err)
}

func (w *engine) post(event string, subs ...string) {
	w.Helper()
	for _, s := range subs {
		targets := []schedule.Target{{SubscriberID: s, MaxAge: 24 * time.Hour}}
		a, err := w.Accept(w.Context(), schedule.NewEvent{ID: event + s, BodyHash: "h", Body: []byte("{}"), Targets: targets})
		w.ok(err)
		w.ok(w.Enqueue(w.Context(), event+s, a.At, w.ExpandBy(a.At), w.PartitionOf(s), targets))
		_, err = w.Strike(w.Context(), event+s, w.PartitionOf(s))
		w.ok(err)
	}
}

// lease takes what a subscriber's partition gives.
func (w *engine) lease(sub string, n int) []schedule.Leased {
	w.Helper()
	w.seq++
	rooms := schedule.Rooms{Total: n, Fresh: n, Retry: n, Redrive: n, Slow: n}
	replies, err := w.Lease(w.Context(), []schedule.LeaseRequest{{
		Partition: w.PartitionOf(sub), Worker: "w", Seq: w.seq, Rooms: rooms, Free: 1000,
	}})
	w.ok(err)
	return replies[0].Leased
}

func (w *engine) settle(l schedule.Leased, o delivery.Outcome, next delivery.State, due time.Time) {
	w.Helper()
	_, err := w.Settle(w.Context(), w.PartitionOf(l.SubscriberID), []schedule.Verdict{{
		ID: l.ID, Fence: l.Fence(), Outcome: o, Decision: delivery.Decision{Next: next, DueAt: due},
	}})
	w.ok(err)
}

// ages samples, and gives the published ages of the class by kind; the greatest of the
// lanes.
func (w *engine) ages() (eligible, limited, held time.Duration) {
	w.Helper()
	w.o.sample(w.Context())
	s, ok := w.o.Latest()
	if !ok {
		w.Fatal("no sample")
	}
	for _, l := range s.Classes[0].Lanes {
		eligible, limited, held = max(eligible, l.Eligible), max(limited, l.Limited), max(held, l.Held)
	}
	return eligible, limited, held
}

// What is due in ten hours has no age; what is on hold is told apart.
func TestPublishedAges(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := overRedis(t, rdb, 0)
		w.put("sub_later", func(*schedule.Terms) {})
		w.put("sub_held", func(tm *schedule.Terms) { tm.Paused = true })
		if e, l, h := w.ages(); e+l+h != 0 {
			t.Fatalf("nothing waits, and the ages are %s, %s, %s", e, l, h)
		}
		w.post("evt_1", "sub_later")
		w.settle(w.lease("sub_later", 1)[0], delivery.HTTP5xx, delivery.Scheduled, time.Now().Add(10*time.Hour))
		w.advance(time.Hour)
		if e, l, h := w.ages(); e+l+h != 0 {
			t.Errorf("one that is due in ten hours: %s, %s, %s", e, l, h)
		}
		w.post("evt_2", "sub_held")
		w.advance(time.Hour)
		if e, l, h := w.ages(); e+l != 0 || h < time.Hour || h > time.Hour+time.Minute {
			t.Errorf("one that was held for an hour: %s, %s, %s", e, l, h)
		}
		w.post("evt_3", "sub_later")
		w.advance(7 * time.Second)
		if e, _, _ := w.ages(); e < 7*time.Second || e > 12*time.Second {
			t.Errorf("eligible for 7 s: %s", e)
		}
		if got := exposition(t, w.reg); !strings.Contains(got, `fanout_due_soon{within="15m"} 0`) || !strings.Contains(got, "fanout_deliveries_held 1\n") {
			t.Error("ten hours are not within 15 minutes, and one delivery is held")
		}
	})
}

// A subscriber at its own rate with a backlog wakes nobody, be it looked at once a second
// for a minute, with dispatchers that take whatever they are given.
func TestRateLimitedBacklogDoesNotPage(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := overRedis(t, rdb, 0)
		w.put("sub_rate", func(tm *schedule.Terms) { tm.RatePerSecond, tm.Burst = 0.2, 1 })
		for i := range 30 {
			w.post("evt_"+string(rune('a'+i)), "sub_rate")
		}
		w.advance(time.Hour)
		sent := 0
		for range 60 {
			w.advance(time.Second)
			for _, l := range w.lease("sub_rate", 10) {
				sent++
				w.settle(l, delivery.OK, delivery.Delivered, time.Time{})
			}
			w.ok(w.Report(w.Context(), schedule.WorkerReport{Worker: "w", Slots: 10}))
			e, limited, _ := w.ages()
			if triage := w.o.Triage(); triage.Page || triage.Diagnosis != Healthy {
				t.Fatalf("eligible %s, limited %s: %+v", e, limited, triage)
			}
		}
		if sent < 10 || sent > 14 {
			t.Errorf("%d were sent in a minute at 12 a minute", sent)
		}
		if _, limited, _ := w.ages(); limited < time.Hour {
			t.Errorf("the backlog is limited since %s only", limited)
		}
	})
}

// failingSender and anyone are what a dispatcher needs beside Redis.
type failingSender struct{}

func (failingSender) Send(context.Context, webhook.Request) webhook.Answer {
	return webhook.Answer{Outcome: delivery.HTTP5xx, Status: 503, Duration: time.Millisecond}
}

type anyone struct{}

func (anyone) At(_ context.Context, id string, version int64) (*subscriber.Subscriber, error) {
	p := delivery.DefaultPolicy()
	p.BackoffBase, p.BackoffCap = delivery.Duration(20*time.Minute), delivery.Duration(20*time.Minute)
	return &subscriber.Subscriber{ID: id, Version: version, Class: "standard", Policy: p}, nil
}

// A worker whose clock is three hours off sets retries by the clock of Redis: they are as
// old as they would be, which is not yet due, and stand in the same release curve.
func TestSkewedWorkerClock(t *testing.T) {
	t.Parallel()
	rdb := redistest.Server(t).Client()
	for _, skew := range []time.Duration{3 * time.Hour, -3 * time.Hour} {
		w := overRedis(t, rdb, skew) // Redis runs ahead of the worker, or behind it
		w.put("sub_"+skew.String()[:1], func(*schedule.Terms) {})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		d := dispatch.New(w, anyone{}, failingSender{}, dispatch.Options{Slots: 5, Classes: []string{"standard"}})
		go func() { ended <- d.Run(ctx) }()
		w.post("evt_"+skew.String(), "sub_"+skew.String()[:1])
		var s Snapshot
		for deadline := time.Now().Add(20 * time.Second); ; {
			if e, l, h := w.ages(); e+l+h > 5*time.Second {
				t.Fatalf("ages %s, %s, %s", e, l, h)
			}
			if s, _ = w.o.Latest(); s.Fleet.Attempts > 0 && s.Scheduled > 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("no attempt: %+v", s)
			}
			time.Sleep(20 * time.Millisecond)
		}
		if since := s.At.Sub(s.Fleet.Failing[0].Since); since < 0 || since > time.Minute {
			t.Errorf("it has failed for %s", since)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := redistest.Flush(t.Context(), rdb); err != nil {
			t.Fatal(err)
		}
	}
}
