package dispatch

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/webhook"
)

func leaseOf(sub, id string) *lease {
	return &lease{Leased: schedule.Leased{Delivery: delivery.Delivery{ID: id, SubscriberID: sub}}}
}

// Who fails is known for a minute, with since when: the first failure after the last
// success, by the clock of Redis, however that of this machine goes.
func TestFailing(t *testing.T) {
	t.Parallel()
	here, redis := time.Unix(1_000_000, 0), time.Unix(2_000_000, 0)
	f := newFailing()
	at := func(after time.Duration, sub, id string, o delivery.Outcome) {
		if f.wants(o) {
			f.note(leaseOf(sub, id), "standard", o, here.Add(after), redis.Add(after))
		}
	}
	at(0, "sub_a", "d0", delivery.OK)
	at(time.Second, "sub_a", "d1", delivery.Timeout)
	at(2*time.Second, "sub_b", "d2", delivery.LeaseLost) // ours
	at(3*time.Second, "sub_b", "d3", delivery.HTTP5xx)
	at(4*time.Second, "sub_a", "d4", delivery.OK)
	at(5*time.Second, "sub_a", "d5", delivery.Connect)
	at(6*time.Second, "sub_a", "d6", delivery.HTTP5xx)
	got, total := f.top(here.Add(7 * time.Second))
	want := []schedule.FailingSubscriber{
		{SubscriberID: "sub_a", Class: "standard", Outcome: delivery.HTTP5xx, DeliveryID: "d6", Count: 3, Since: redis.Add(5 * time.Second)},
		{SubscriberID: "sub_b", Class: "standard", Outcome: delivery.HTTP5xx, DeliveryID: "d3", Count: 1, Since: redis.Add(3 * time.Second)},
	}
	if diff := cmp.Diff(want, got); diff != "" || total != 2 {
		t.Errorf("%d in all:\n%s", total, diff)
	}
	if got, total = f.top(here.Add(80 * time.Second)); len(got) != 0 || total != 0 {
		t.Errorf("after a minute: %+v", got)
	}
	at(90*time.Second, "sub_b", "d7", delivery.HTTP5xx) // as a breaker's probe does
	if got, _ = f.top(here.Add(91 * time.Second)); len(got) != 1 || got[0].Count != 1 || !got[0].Since.Equal(redis.Add(3*time.Second)) {
		t.Errorf("it has failed all the time: %+v", got)
	}
	f.top(here.Add(time.Hour))
	if len(f.subs) != 0 || f.any.Load() != 0 {
		t.Errorf("%d are kept for ever", len(f.subs))
	}
}

// However many fail, the memory is bounded, and who fails most stays in it.
func TestFailingIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	f := newFailing()
	for i := range 10_000 {
		now = now.Add(time.Millisecond)
		f.note(leaseOf(fmt.Sprint("sub_", i), "d"), "standard", delivery.Timeout, now, now)
		if i%10 == 0 {
			f.note(leaseOf("sub_most", "d"), "standard", delivery.Timeout, now, now)
		}
	}
	got, total := f.top(now)
	if len(f.subs) != failingMost || total != failingMost || len(got) != failingTop || got[0].SubscriberID != "sub_most" || got[0].Count != 1000 {
		t.Errorf("%d kept, %d in all, first %+v", len(f.subs), total, got[0])
	}
}

// What stands in the reports is of the last minute.
func TestRecent(t *testing.T) {
	t.Parallel()
	ok := schedule.RecentAttempts{Class: "standard", Outcome: delivery.OK}
	var r recent
	start := time.Unix(1_000_000, 0)
	var got []schedule.RecentAttempts
	for i := range 120 { // a report each 2 s, 5 attempts between two
		got = r.since(tallies{start.Add(time.Duration(i) * 2 * time.Second), map[schedule.RecentAttempts]int64{ok: int64(5 * i)}})
	}
	if l := r.lately(); l.Attempts != 25 || l.Failures != 0 {
		t.Errorf("%+v of the last 10 s, want 25", l)
	}
	if len(got) != 1 || got[0].Count != 150 || len(r.past) > 31 {
		t.Errorf("%+v of the last minute, from %d reports; want 150", got, len(r.past))
	}
}

// A report says who fails, and what the attempts came to.
func TestWorkerReportsFailures(t *testing.T) {
	run(t, Options{Slots: 10, Classes: []string{"standard"}, ReapEvery: never}, func(r *rig) {
		r.endpoint(func(context.Context, webhook.Request) webhook.Answer {
			return webhook.Answer{Outcome: delivery.HTTP5xx, Status: 500, Duration: time.Millisecond}
		})
		r.enqueue("e1", "s1")
		after(2500 * time.Millisecond)
		var got schedule.WorkerReport
		r.set(func() { got = r.reported })
		if len(got.Failing) != 1 || got.Failing[0].SubscriberID != "s1" || got.Failing[0].Outcome != delivery.HTTP5xx || got.FailingTotal != 1 {
			t.Errorf("failing: %+v", got.Failing)
		}
		if len(got.Recent) != 1 || got.Recent[0].Outcome != delivery.HTTP5xx || got.Recent[0].Count != got.Attempts {
			t.Errorf("recent: %+v of %d attempts", got.Recent, got.Attempts)
		}
		if want := (schedule.SlotLimits{Slow: 6, Retry: 7, Redrive: 1}); got.Limits != want {
			t.Errorf("limits: %+v, want %+v", got.Limits, want)
		}
	})
}
