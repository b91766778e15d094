package schedule_test

import (
	"testing"
	"time"

	"github.com/fanout/fanout/internal/schedule"
)

// Redis was set back to an older state: the changes made since then are numbered
// above all that anybody has seen, so that a reader who asks for what changed after
// the last one it knows is told of them.
func TestGenerationsAreNotGivenTwice(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		gen := func() int64 {
			w.Helper()
			all, err := w.Generations(w.ctx)
			w.ok(err)
			return all[0]
		}
		w.subscribe("s1", 1)
		older := gen()
		w.advance(time.Second)
		w.subscribe("s1", 2)
		seen := gen()
		w.ok(w.rdb.Set(w.ctx, w.keys("*:gen")[0], older, 0).Err())
		w.advance(time.Second)
		w.subscribe("s2", 1)
		changed, _, err := w.Changes(w.ctx, 0, seen)
		w.ok(err)
		if len(changed) != 1 || changed[0].ID != "s2" {
			w.Fatalf("after %d: %+v at generation %d", seen, changed, gen())
		}
	})
}

// A plan that cannot be read is in the error, and the others are handed out.
func TestBadPlanHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		for _, id := range []string{"e1", "e2", "e3"} {
			_, err := w.Accept(w.ctx, schedule.NewEvent{
				ID: id, BodyHash: "h", Targets: []schedule.Target{{SubscriberID: "s1", MaxAge: day}},
			})
			w.ok(err)
		}
		w.ok(w.rdb.HSet(w.ctx, w.keys("*:ev:e2")[0], "subs", "0:s1 never").Err())
		w.advance(time.Minute)
		plans, err := w.ClaimOpen(w.ctx, 0, 10, time.Second)
		if err == nil || len(plans) != 2 {
			w.Fatalf("%d plans, %v", len(plans), err)
		}
	})
}
