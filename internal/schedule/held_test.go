package schedule_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// holdIt puts s1, of whom at most held deliveries are kept, on hold for a reason, with
// one delivery pending.
func holdIt(w *world, hold schedule.Hold, held int) {
	w.Helper()
	set := func(tm *schedule.Terms) { tm.MaxHeld, tm.BreakerFailures = held, 3 }
	w.put("s1", schedule.Edited, set)
	w.post("first", "s1")
	w.post("second", "s1")
	switch hold {
	case schedule.Paused:
		w.settle(schedule.Applied, delivered(w.next()))
		w.put("s1", schedule.Edited, func(tm *schedule.Terms) { set(tm); tm.Paused = true })
	case schedule.Disabled:
		w.settle(schedule.Applied, gone(w.next()))
	case schedule.Throttled:
		v := delivered(w.next())
		w.settle(schedule.Applied, v)
		w.settle(schedule.Applied, throttled(w.next(), time.Hour))
	case schedule.Breaker:
		w.settle(schedule.Applied, delivered(w.next()))
		w.fail(3, delivery.HTTP5xx)
	}
	w.wantHolds("s1", hold)
}

// On hold it goes on accepting, up to max_held; beyond it a new delivery is a dead
// letter at once, with its payload beside it.
func TestHeldFull(t *testing.T) {
	t.Parallel()
	for _, hold := range []schedule.Hold{schedule.Paused, schedule.Disabled, schedule.Throttled, schedule.Breaker} {
		t.Run(string(hold), func(t *testing.T) {
			t.Parallel()
			contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
				w.freeze()
				holdIt(w, hold, 3)
				w.subscribe("other", 10)
				before := w.ledger()
				a, b := w.post("e1", "s1")[0], w.post("e2", "s1", "other")[0]
				w.wantState(a, delivery.Scheduled)
				w.wantState(b, delivery.Scheduled)
				late := w.post("e3", "other", "s1")
				w.wantState(late[0], delivery.Scheduled)
				w.wantState(late[1], delivery.Dead) // and, by the audit, pinned
				if d := w.get(late[1]); d.Reason != delivery.HeldFull || d.DeliveryCount != 0 || d.EndedAt.IsZero() {
					w.Fatalf("dead letter: %+v", d)
				}
				after := w.ledger()
				if after.Accepted-before.Accepted != 5 || after.Dead-before.Dead != 1 || after.Pending-before.Pending != 4 {
					w.Fatalf("ledger %+v, was %+v", after, before)
				}
				letters, err := w.DeadLetters(w.ctx, 1)
				w.ok(err)
				if len(letters) != 1 || letters[0].ID != late[1] {
					w.Fatalf("dead letters: %+v", letters)
				}
				s, err := w.Sample(w.ctx, nil)
				w.ok(err)
				if s.Held != 3 || s.OnHold != 1 {
					w.Fatalf("%d held of %d on hold, want 3 of 1", s.Held, s.OnHold)
				}
			})
		})
	}
}

// The limit is one of holds: who is sent to may have any backlog, and what is held
// already stays when the limit is lowered.
func TestMaxHeldIsForHolds(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		set := func(tm *schedule.Terms) { tm.MaxHeld = 1 }
		w.put("s1", schedule.Edited, set)
		for i := range 4 {
			w.post(fmt.Sprint("e", i), "s1")
		}
		w.put("s1", schedule.Edited, func(tm *schedule.Terms) { set(tm); tm.Paused = true })
		w.post("full", "s1")
		if got, want := w.ledger(), (schedule.Ledger{Accepted: 5, Pending: 4, Dead: 1}); got != want {
			w.Fatalf("ledger %+v, want %+v", got, want)
		}
		w.put("s1", schedule.Edited, set)
		w.post("again", "s1")
		if got := len(w.lease("w", anyRoom).Leased); got != 5 {
			w.Fatalf("leased %d of 5 after the hold", got)
		}
		w.audit()
	})
}

// One event may fill it and go beyond, in one call; and one whose payload is gone dies
// without it.
func TestHeldFullWithinACall(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		full := func(tm *schedule.Terms) { tm.MaxHeld, tm.Paused = 1, true }
		var targets []schedule.Target
		for i := range 3 {
			id := fmt.Sprint("s", i)
			w.put(id, schedule.Edited, full)
			w.post("before-"+id, id)
			targets = append(targets, schedule.Target{SubscriberID: id, MaxAge: day})
		}
		w.post("e1", "s0", "s1", "s2")
		if got, want := w.ledger(), (schedule.Ledger{Accepted: 6, Pending: 3, Dead: 3}); got != want {
			w.Fatalf("ledger %+v, want %+v", got, want)
		}
		if n := len(w.keys("*:pin:e1")); n != 1 {
			w.Fatalf("%d payloads pinned for three dead letters of one event", n)
		}
		w.audit()
		// Never accepted, so its payload is nowhere.
		w.ok(w.Enqueue(w.ctx, "nobody", w.clock(), w.clock().Add(time.Hour), 0, targets))
		if got := w.ledger(); got.Dead != 6 || !got.Balanced() {
			w.Fatalf("ledger %+v", got)
		}
		err := w.Enqueue(w.ctx, "late", w.clock().Add(-time.Hour), w.clock().Add(-time.Second), 0, targets)
		if !errors.Is(err, schedule.ErrTooLate) {
			w.Fatalf("past expand_by: %v", err)
		}
	})
}
