package schedule_test

import (
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// A verdict can come after the delivery has moved on: its worker was stopped,
// its lease was lost, somebody else has it. A late failure is dropped; a late 2xx
// is a fact and wins.
func TestLateVerdicts(t *testing.T) {
	t.Parallel()
	// where brings the delivery from its lost lease to where the late verdict
	// finds it.
	where := map[string]struct {
		move         func(w *world, id string)
		late2xx      schedule.SettleResult
		lateFailure  schedule.SettleResult
		after2xx     delivery.State
		afterFailure delivery.State
		ledger       schedule.Ledger // after the 2xx
	}{
		"scheduled": {
			func(*world, string) {}, schedule.AppliedOld, schedule.Stale,
			delivery.Delivered, delivery.Scheduled,
			schedule.Ledger{Accepted: 1, Delivered: 1},
		},
		"leased by another": {
			func(w *world, _ string) { w.one("other") }, schedule.AppliedOld, schedule.Stale,
			delivery.Delivered, delivery.Leased,
			schedule.Ledger{Accepted: 1, Delivered: 1},
		},
		"retried by another": {
			func(w *world, _ string) { w.settle(schedule.Applied, retry(w.one("other"), w.clock())) },
			schedule.AppliedOld, schedule.Already,
			delivery.Delivered, delivery.Scheduled,
			schedule.Ledger{Accepted: 1, Delivered: 1},
		},
		"dead": {
			func(w *world, _ string) { w.settle(schedule.Applied, dead(w.one("other"), "{}")) },
			schedule.AppliedOld, schedule.Already,
			delivery.Delivered, delivery.Dead,
			schedule.Ledger{Accepted: 1, Delivered: 1},
		},
		"cancelled": {
			func(w *world, _ string) {
				w.ok(w.Tombstone(w.ctx, "s1", ""))
				w.cancelAll("s1", 10)
			},
			schedule.Already, schedule.Already,
			delivery.Cancelled, delivery.Cancelled,
			schedule.Ledger{Accepted: 1, Cancelled: 1},
		},
		"delivered by another": {
			func(w *world, _ string) { w.settle(schedule.Applied, delivered(w.one("other"))) },
			schedule.Already, schedule.Already,
			delivery.Delivered, delivery.Delivered,
			schedule.Ledger{Accepted: 1, Delivered: 1},
		},
	}
	for name, c := range where {
		setup := func(w *world) schedule.Leased {
			w.subscribe("s1", 10)
			w.post("e1", "s1")
			l := w.one("w")
			w.advance(time.Minute)
			w.settle(schedule.Applied, lost(l, w.clock()))
			c.move(w, l.ID)
			w.audit()
			return l
		}
		t.Run(name+"/2xx", func(t *testing.T) {
			t.Parallel()
			contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
				l := setup(w)
				w.settle(c.late2xx, delivered(l))
				w.unchanged("the second late 2xx", func() { w.settle(schedule.Already, delivered(l)) })
				w.wantState(l.ID, c.after2xx)
				if got := w.ledger(); got != c.ledger {
					w.Fatalf("ledger %+v, want %+v", got, c.ledger)
				}
				if s := w.standing("s1"); s.Delivered != c.ledger.Delivered || s.Dead != c.ledger.Dead {
					w.Fatalf("the subscriber counts %d delivered and %d dead, want %+v", s.Delivered, s.Dead, c.ledger)
				}
			})
		})
		t.Run(name+"/failure", func(t *testing.T) {
			t.Parallel()
			contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
				l := setup(w)
				w.unchanged("a late failure", func() { w.settle(c.lateFailure, dead(l, "{}")) })
				w.wantState(l.ID, c.afterFailure)
			})
		})
	}
}

// The worker that held the lease when a late 2xx won settles after all: its lease
// ends, and the subscriber's cap is free again.
func TestLeaseOutlivesItsDelivery(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("s1", 1)
		w.post("e1", "s1")
		first := w.one("w")
		w.advance(time.Minute)
		w.settle(schedule.Applied, lost(first, w.clock()))
		second := w.one("other")
		w.settle(schedule.AppliedOld, delivered(first))
		w.post("e2", "s1")
		if rep := w.lease("w", anyRoom); len(rep.Leased) != 0 {
			w.Fatal("leased past the cap: the other request is still on the wire")
		}
		w.settle(schedule.Already, retry(second, w.clock()))
		w.wantState(first.ID, delivery.Delivered)
		w.one("w")
		w.audit()
	})
}

// At the fence a verdict counts even past the lease's expiry: nobody else has
// started the delivery since.
func TestVerdictPastExpiryAtTheFence(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("s1", 1)
		w.post("e1", "s1")
		l := w.one("w")
		w.advance(time.Hour)
		leases, now, err := w.ExpiredLeases(w.ctx, 10)
		w.ok(err)
		if len(leases) != 1 || leases[0].ID != l.ID || !now.After(leases[0].Until) {
			w.Fatalf("expired leases: %+v at %s", leases, now)
		}
		w.settle(schedule.Applied, retry(l, now))
		w.wantState(l.ID, delivery.Scheduled)
		w.unchanged("a reclaim that came second", func() { w.settle(schedule.Stale, lost(l, now)) })
	})
}

// A delivery that kills every worker: three losses give the attempt back, those
// after it do not, and Decide ends it after max_attempts + 3 leases.
func TestPoisonEnds(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("s1", 1)
		id := w.post("e1", "s1")[0]
		p := delivery.DefaultPolicy()
		p.MaxAttempts = 2
		leases := 0
		for w.get(id).State != delivery.Dead {
			w.advance(time.Hour)
			l := w.one("w")
			leases++
			w.advance(time.Hour)
			dec, err := delivery.Decide(p, l.Delivery, delivery.Result{Outcome: delivery.LeaseLost}, w.clock())
			w.ok(err)
			w.settle(schedule.Applied, schedule.Verdict{
				ID: l.ID, Fence: l.Fence(), Decision: dec, Outcome: delivery.LeaseLost, Reclaim: true, Body: &schedule.Body{},
			})
			w.audit()
		}
		if want := p.MaxAttempts + delivery.MaxLeaseLosses; leases != want {
			w.Fatalf("dead after %d leases, want %d", leases, want)
		}
		if d := w.get(id); d.Reason != delivery.Exhausted || d.LastOutcome != delivery.LeaseLost {
			w.Fatalf("dead letter: %+v", d)
		}
	})
}

// A worker that cuts its own request off says lease_lost itself. The attempt is
// given back as for a dead one, and the record still adds up: Decide, which refuses
// one that does not, takes the next failure.
func TestWorkerCutsItsRequestOff(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("s1", 1)
		id := w.post("e1", "s1")[0]
		p := delivery.DefaultPolicy()
		for n := 1; n <= delivery.MaxLeaseLosses+2; n++ {
			w.advance(time.Hour)
			l := w.one("w")
			dec, err := delivery.Decide(p, l.Delivery, delivery.Result{Outcome: delivery.LeaseLost}, w.clock())
			w.ok(err)
			w.settle(schedule.Applied, schedule.Verdict{ID: l.ID, Fence: l.Fence(), Decision: dec, Outcome: delivery.LeaseLost})
			w.audit()
			d := w.get(id)
			if charged := max(0, n-delivery.MaxLeaseLosses); d.LeaseLosses != n || d.Attempts != charged {
				w.Fatalf("cut off %d times: %d lease losses, %d attempts", n, d.LeaseLosses, d.Attempts)
			}
		}
	})
}

func TestDeadLetterKeepsEvidence(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("s1", 1)
		w.post("e1", "s1")
		for range 60 {
			l := w.one("w")
			w.settle(schedule.Applied, retry(l, w.clock()))
		}
		l := w.one("w")
		w.settle(schedule.Applied, dead(l, `{"pinned":true}`))
		letters, err := w.DeadLetters(w.ctx, 10)
		w.ok(err)
		if len(letters) != 1 || letters[0].Reason != delivery.HTTP404 || letters[0].Attempts != 61 {
			w.Fatalf("dead letters: %+v", letters)
		}
		if n := len(letters[0].History); n != 50 {
			w.Fatalf("%d attempts kept, want 50", n)
		}
		pinned := w.rdb.Get(w.ctx, w.keys("*:pin:e1")[0]).Val()
		if pinned != "\n"+`{"pinned":true}` {
			w.Fatalf("pinned payload: %q", pinned)
		}
		w.audit()
	})
}

// Released with a wait, a delivery lets others pass.
func TestReleaseWithAWait(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("s1", 1)
		w.post("e1", "s1")
		w.post("e2", "s1")
		l := w.one("w")
		due := w.get(l.ID).DueAt
		w.twice("release", func() {
			w.ok(w.Release(w.ctx, 0, []schedule.Claim{{ID: l.ID, Fence: l.Fence(), Wait: time.Minute}}))
		})
		if d := w.get(l.ID); d.DueAt.Sub(due) < time.Minute || d.Lane != delivery.Fresh || d.Attempts != 0 {
			w.Fatalf("released: %+v, was due %s", d.Delivery, due)
		}
		other := w.one("w")
		if other.ID == l.ID {
			w.Fatal("it did not let the other pass")
		}
		w.settle(schedule.Applied, delivered(other))
		if rep := w.lease("w", anyRoom); len(rep.Leased) != 0 {
			w.Fatalf("leased before its time: %+v", rep.Leased)
		}
		w.advance(2 * time.Minute)
		w.settle(schedule.Applied, delivered(w.one("w")))
		w.wantState(l.ID, delivery.Delivered)
	})
}
