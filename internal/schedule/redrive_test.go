package schedule_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// die posts an event to s1, and has its delivery die.
func (w *world) die(event string) string {
	w.Helper()
	id := w.post(event, "s1")[0]
	w.settle(schedule.Applied, dead(w.one("w1"), `{"of":"`+event+`"}`))
	return id
}

func (w *world) redriven(cohort string, ids ...string) {
	w.Helper()
	got, err := w.Claim(w.ctx, cohort, ids)
	w.ok(err)
	released, err := w.Redrive(w.ctx, cohort, 2, time.Hour, ids)
	w.ok(err)
	for i := range ids {
		if got[i] != schedule.Claimed || released[i] != schedule.Released {
			w.Fatalf("claims %v, releases %v", got, released)
		}
	}
}

// A redriven delivery keeps its identity and its history, and gets a budget and a time
// of its own, however old it is; once more it is dead, and can be redriven again.
func TestRedrive(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.freeze()
		w.subscribe("s1", 100)
		id := w.die("e1")
		w.advance(3 * day) // long past its max_age
		for generation := 1; generation <= 2; generation++ {
			cohort := fmt.Sprint("rdv_", generation)
			before := w.get(id)
			w.redriven(cohort, id)
			d := w.get(id)
			if d.State != delivery.Scheduled || d.Lane != delivery.Redrive || d.RedriveGeneration != generation ||
				d.Attempts != before.Attempts || d.BudgetBase != before.Attempts || d.Budget != 2 ||
				!d.ExpiresAt.Equal(w.clock().Add(time.Hour)) || d.DeliveryCount != before.DeliveryCount ||
				len(d.History) != len(before.History) || d.FirstAttemptAt != before.FirstAttemptAt {
				w.Fatalf("generation %d: %+v", generation, d)
			}
			if ds, _, err := w.ExpiredDeliveries(w.ctx, 10); err != nil || len(ds) != 0 {
				w.Fatalf("%d expired at once, %v", len(ds), err)
			}
			w.audit()
			l := w.one("w1")
			if l.ID != id || l.AttemptLimit(delivery.DefaultPolicy()) != before.Attempts+2 {
				w.Fatalf("leased %+v", l)
			}
			w.settle(schedule.Applied, dead(l, ""))
			want := schedule.Tally{Claimed: 1, Released: 1, Dead: 1}
			if got, err := w.Tally(w.ctx, cohort); err != nil || got != want {
				w.Fatalf("tally %+v, %v", got, err)
			}
			w.audit()
		}
	})
}

// The payload that a dead letter keeps is there for as long as it may be sent again.
func TestRedriveKeepsThePayload(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.freeze()
		w.subscribe("s1", 100)
		id := w.die("e1")
		w.redriven("rdv_1", id)
		body, err := w.Pinned(w.ctx, "s1", "e1")
		w.ok(err)
		if string(body.Bytes) != `{"of":"e1"}` {
			w.Fatalf("payload %q", body.Bytes)
		}
		w.settle(schedule.Applied, delivered(w.one("w1")))
		if _, err := w.Pinned(w.ctx, "s1", "e1"); !errors.Is(err, schedule.ErrNotFound) {
			w.Fatalf("still pinned after it was delivered: %v", err)
		}
		if got, err := w.Tally(w.ctx, "rdv_1"); err != nil || got.Delivered != 1 || got.Out() != 0 || got.Waiting() != 0 {
			w.Fatalf("tally %+v, %v", got, err)
		}
		if keys := w.keys("*rdv_1"); len(keys) != 1 {
			w.Errorf("left behind: %v", keys)
		}
		w.ok(w.ForgetCohort(w.ctx, "rdv_1"))
		if keys := w.keys("*rdv_1"); len(keys) != 0 {
			w.Errorf("left behind: %v", keys)
		}
	})
}

// While a retry of it is pending, a delivery is in no other cohort's reach.
func TestOneLiveCohort(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.freeze()
		w.subscribe("s1", 100)
		a, b := w.die("e1"), w.die("e2")
		pending := w.post("e3", "s1")[0]
		claim := func(cohort string, want ...schedule.ClaimResult) {
			w.Helper()
			got, err := w.Claim(w.ctx, cohort, []string{a, b, pending})
			w.ok(err)
			if diff := cmp.Diff(want, got); diff != "" {
				w.Fatal(diff)
			}
		}
		claim("rdv_1", schedule.Claimed, schedule.Claimed, schedule.NotDead)
		claim("rdv_2", schedule.Taken, schedule.Taken, schedule.NotDead)
		w.twice("a redrive", func() {
			_, err := w.Redrive(w.ctx, "rdv_1", 1, time.Hour, []string{a})
			w.ok(err)
		})
		if got, err := w.Redrive(w.ctx, "rdv_2", 1, time.Hour, []string{b}); err != nil || got[0] != schedule.Over {
			w.Fatalf("another cohort's: %v, %v", got, err)
		}
		claim("rdv_2", schedule.Taken, schedule.Taken, schedule.NotDead)
		n, err := w.Unclaim(w.ctx, "rdv_1", 10)
		w.ok(err)
		if n != 1 {
			w.Fatalf("let go of %d", n)
		}
		claim("rdv_2", schedule.Taken, schedule.Claimed, schedule.NotDead)
		w.audit()
	})
}

// A late success of a dead letter that a cohort has counts as done.
func TestLateSuccessInACohort(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.freeze()
		w.subscribe("s1", 100)
		id := w.post("e1", "s1")[0]
		l := w.one("w1")
		w.settle(schedule.Applied, dead(l, "{}"))
		_, err := w.Claim(w.ctx, "rdv_1", []string{id})
		w.ok(err)
		w.settle(schedule.AppliedOld, delivered(l))
		if got, err := w.Redrive(w.ctx, "rdv_1", 1, time.Hour, []string{id}); err != nil || got[0] != schedule.Over {
			w.Fatalf("redrive of a delivered one: %v, %v", got, err)
		}
		w.wantState(id, delivery.Delivered)
		if got, err := w.Tally(w.ctx, "rdv_1"); err != nil || got != (schedule.Tally{Claimed: 1, Over: 1}) {
			w.Fatalf("tally %+v, %v", got, err)
		}
		w.audit()
	})
}

// Those that a cohort has do not keep the others from being trimmed.
func TestTrimPassesTheClaimed(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.freeze()
		w.subscribe("s1", 100)
		var ids []string
		for i := range 6 {
			ids = append(ids, w.die(fmt.Sprint("e", i)))
			w.advance(time.Second)
		}
		_, err := w.Claim(w.ctx, "rdv_1", ids[:4])
		w.ok(err)
		w.advance(40 * day)
		if n, err := w.Trim(w.ctx, 2); err != nil || n != 2 {
			w.Fatalf("%d trimmed, %v", n, err)
		}
		for _, id := range ids[:4] {
			if d := w.get(id); d.State != delivery.Dead {
				w.Fatalf("%s is %s", id, d.State)
			}
		}
	})
}

func TestDiscard(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.freeze()
		w.subscribe("s1", 100)
		a, b := w.die("e1"), w.die("e2")
		pending := w.post("e3", "s1")[0]
		_, err := w.Claim(w.ctx, "rdv_1", []string{b})
		w.ok(err)
		ids := []string{a, b, pending}
		got, err := w.Discard(w.ctx, ids)
		w.ok(err)
		if diff := cmp.Diff([]schedule.ClaimResult{schedule.Discarded, "claimed", schedule.NotDead}, got); diff != "" {
			w.Fatal(diff)
		}
		w.unchanged("a second discard", func() {
			got, err := w.Discard(w.ctx, ids)
			w.ok(err)
			if got[0] != schedule.NoLetter {
				w.Fatalf("%v", got)
			}
		})
		if _, err := w.Delivery(w.ctx, a); !errors.Is(err, schedule.ErrNotFound) {
			w.Fatalf("it is there: %v", err)
		}
		if _, err := w.Pinned(w.ctx, "s1", "e1"); !errors.Is(err, schedule.ErrNotFound) {
			w.Fatalf("its payload is there: %v", err)
		}
		if got := w.ledger(); got.Dead != 2 {
			w.Fatalf("%+v", got)
		}
		// What a cohort has outlives the retention, until it lets go.
		w.advance(40 * day)
		if n, err := w.Trim(w.ctx, 10); err != nil || n != 0 {
			w.Fatalf("%d trimmed, %v", n, err)
		}
		_, err = w.Unclaim(w.ctx, "rdv_1", 10)
		w.ok(err)
		if n, err := w.Trim(w.ctx, 10); err != nil || n != 1 {
			w.Fatalf("%d trimmed, %v", n, err)
		}
	})
}

func TestCohortOf(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.freeze()
		w.subscribe("s1", 100)
		id := w.die("e1")
		has := func(want string) {
			w.Helper()
			if got, err := w.CohortOf(w.ctx, id); err != nil || got != want {
				w.Fatalf("cohort %q, %v, want %q", got, err, want)
			}
		}
		has("")
		w.redriven("rdv_1", id)
		has("rdv_1")
		w.settle(schedule.Applied, delivered(w.one("w1")))
		has("")
	})
}
