package schedule_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// Every script is run twice with the same arguments, as after a lost reply: the
// second run must leave everything in Redis as it was. Where a lease could be
// taken in between, that is a test of its own below.

func TestAcceptTwice(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		ev := schedule.NewEvent{
			ID: "e1", BodyHash: "h1", Meta: []byte("m"), Body: []byte(`{"a":1}`), Traceparent: "tp",
			Targets: []schedule.Target{{SubscriberID: "s1", MaxAge: day}},
		}
		var first schedule.Accepted
		w.twice("accept", func() {
			a, err := w.Accept(w.ctx, ev)
			w.ok(err)
			if first.At.IsZero() {
				first = a
				if a.Duplicate || !a.Open || a.Deliveries != 1 {
					w.Fatalf("first answer: %+v", a)
				}
			} else if !a.Duplicate || a.At != first.At || a.Deliveries != 1 || !a.Open {
				w.Fatalf("second answer: %+v, first: %+v", a, first)
			}
		})
		other := ev
		other.BodyHash, other.Body = "h2", []byte(`{"a":2}`)
		w.unchanged("a conflicting accept", func() {
			if _, err := w.Accept(w.ctx, other); !errors.Is(err, schedule.ErrConflict) {
				w.Fatalf("conflict: %v", err)
			}
		})
		b, err := w.Body(w.ctx, "e1")
		w.ok(err)
		if string(b.Bytes) != `{"a":1}` || b.Traceparent != "tp" {
			w.Fatalf("body: %+v", b)
		}
	})
}

func TestEnqueueAndStrikeTwice(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("s1", 10)
		w.subscribe("deleted", 10)
		w.ok(w.Tombstone(w.ctx, "deleted", ""))
		targets := []schedule.Target{{SubscriberID: "s1", MaxAge: day}, {SubscriberID: "deleted", MaxAge: day}}
		a, err := w.Accept(w.ctx, schedule.NewEvent{ID: "e1", BodyHash: "h", Body: []byte("{}"), Targets: targets})
		w.ok(err)
		w.twice("enqueue", func() { w.ok(w.Enqueue(w.ctx, "e1", a.At, w.ExpandBy(a.At), 0, targets)) })
		if got, want := w.ledger(), (schedule.Ledger{Accepted: 2, Pending: 1, Cancelled: 1}); got != want {
			w.Fatalf("ledger %+v, want %+v", got, want)
		}
		w.twice("strike", func() {
			open, err := w.Strike(w.ctx, "e1", 0)
			w.ok(err)
			if open {
				w.Fatal("plan still open")
			}
		})
		// A delivery that went its way is not made again.
		l := w.one("w")
		w.settle(schedule.Applied, delivered(l))
		w.unchanged("a late enqueue", func() { w.ok(w.Enqueue(w.ctx, "e1", a.At, w.ExpandBy(a.At), 0, targets)) })
		w.advance(2 * time.Hour)
		if err := w.Enqueue(w.ctx, "e1", a.At, w.ExpandBy(a.At), 0, targets); !errors.Is(err, schedule.ErrTooLate) {
			w.Fatalf("past expand_by: %v", err)
		}
	})
}

func TestLeaseTwice(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("s1", 10)
		w.post("e1", "s1")
		w.post("e2", "s1")
		var first []schedule.Leased
		w.twice("lease", func() {
			rep := w.leaseAt("w", 1, room(1))
			if len(rep.Leased) != 1 {
				w.Fatalf("leased %d", len(rep.Leased))
			}
			if first == nil {
				first = rep.Leased
			} else if first[0] != rep.Leased[0] {
				w.Fatalf("second reply %+v, first %+v", rep.Leased[0], first[0])
			}
		})
		if l := first[0]; l.Attempts != 1 || l.DeliveryCount != 1 || l.State != delivery.Leased {
			w.Fatalf("not charged before it leaves: %+v", l)
		}
		// What was settled meanwhile is not handed out again.
		w.settle(schedule.Applied, delivered(first[0]))
		if rep := w.leaseAt("w", 1, room(1)); len(rep.Leased) != 0 {
			w.Fatalf("a settled lease came back: %+v", rep.Leased)
		}
		// Nor is what another worker holds by now.
		second := w.leaseAt("w", 2, room(1)).Leased[0]
		w.ok(w.Release(w.ctx, 0, []schedule.Claim{{ID: second.ID, Fence: second.Fence()}}))
		w.one("other")
		if rep := w.leaseAt("w", 2, room(1)); len(rep.Leased) != 0 {
			w.Fatalf("another worker's lease came back: %+v", rep.Leased)
		}
		if _, err := w.Lease(w.ctx, []schedule.LeaseRequest{{Worker: "w", Seq: 1, Rooms: anyRoom}}); err == nil {
			w.Fatal("an old seq was served")
		}
	})
}

func TestSettleTwice(t *testing.T) {
	t.Parallel()
	for name, verdict := range map[string]func(schedule.Leased, time.Time) schedule.Verdict{
		"delivered": func(l schedule.Leased, _ time.Time) schedule.Verdict { return delivered(l) },
		"retry":     retry,
		"dead":      func(l schedule.Leased, _ time.Time) schedule.Verdict { return dead(l, "{}") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
				w.subscribe("s1", 1)
				w.post("e1", "s1")
				l := w.one("w")
				v := verdict(l, w.clock().Add(time.Minute))
				w.settle(schedule.Applied, v)
				w.unchanged("the second settle", func() { w.settle(schedule.Already, v) })
				w.wantState(l.ID, v.Next)
				if v.Next != delivery.Scheduled {
					return
				}
				// The reply was lost, the retry fell due, another worker has it.
				w.advance(2 * time.Minute)
				again := w.one("other")
				if again.Fence() != l.Fence()+1 {
					w.Fatalf("fence %d after %d", again.Fence(), l.Fence())
				}
				w.unchanged("settling again after a re-lease", func() { w.settle(schedule.Already, v) })
				w.settle(schedule.Applied, delivered(again))
				w.unchanged("settling again after the end", func() { w.settle(schedule.Already, v) })
				w.wantState(l.ID, delivery.Delivered)
			})
		})
	}
}

func TestReclaimTwice(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("s1", 1)
		w.post("e1", "s1")
		l := w.one("w")
		w.unchanged("reclaiming a live lease", func() { w.settle(schedule.NotExpired, lost(l, w.clock())) })
		w.advance(time.Minute)
		v := lost(l, w.clock())
		w.settle(schedule.Applied, v)
		w.unchanged("the second reclaim", func() { w.settle(schedule.Stale, v) })
		if d := w.get(l.ID); d.Attempts != 0 || d.LeaseLosses != 1 || d.Lane != delivery.Retry {
			w.Fatalf("attempt not given back: %+v", d.Delivery)
		}
		again := w.one("other")
		w.unchanged("reclaiming after a re-lease", func() { w.settle(schedule.Stale, v) })
		w.settle(schedule.Applied, delivered(again))
		w.wantState(l.ID, delivery.Delivered)
	})
}

func TestReleaseTwice(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("s1", 1)
		w.post("e1", "s1")
		l := w.one("w")
		release := func() { w.ok(w.Release(w.ctx, 0, []schedule.Claim{{ID: l.ID, Fence: l.Fence()}})) }
		w.twice("release", release)
		d := w.get(l.ID)
		if d.Attempts != 0 || d.Releases != 1 || d.DeliveryCount != 1 || d.Lane != delivery.Fresh || !d.FirstAttemptAt.IsZero() {
			w.Fatalf("released: %+v", d.Delivery)
		}
		again := w.one("other")
		w.unchanged("releasing after a re-lease", release)
		w.settle(schedule.Applied, delivered(again))
		w.unchanged("releasing after the end", release)
		w.wantState(l.ID, delivery.Delivered)
	})
}

func TestExpireTwice(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("s1", 1)
		w.post("e1", "s1")
		w.post("e2", "s1")
		l := w.one("w")
		waiting := delivery.NewID("e1", "s1") // either may be served first
		if l.ID == waiting {
			waiting = delivery.NewID("e2", "s1")
		}
		expire := func(id string, want schedule.SettleResult) {
			w.Helper()
			got, err := w.Expire(w.ctx, 0, []schedule.Verdict{{ID: id, Body: &schedule.Body{Bytes: []byte("{}")}}})
			w.ok(err)
			if got[0] != want {
				w.Fatalf("expire: %s, want %s", got[0], want)
			}
		}
		w.unchanged("expiring too early", func() { expire(waiting, schedule.Stale) })
		w.advance(25 * time.Hour)
		due, _, err := w.ExpiredDeliveries(w.ctx, 10)
		w.ok(err)
		if len(due) != 1 || due[0].ID != waiting {
			w.Fatalf("expired: %+v", due)
		}
		expire(waiting, schedule.Applied)
		w.unchanged("the second expire", func() { expire(waiting, schedule.Already) })
		if d := w.get(waiting); d.State != delivery.Dead || d.Reason != delivery.Expired {
			w.Fatalf("expired one: %+v", d)
		}
		// The leased one is its worker's to end, however late.
		expire(l.ID, schedule.Stale)
		w.settle(schedule.Applied, delivered(l))
		w.wantState(l.ID, delivery.Delivered)
	})
}

func TestCancelAndTombstoneTwice(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("s1", 1)
		w.post("e1", "s1")
		w.post("e2", "s1")
		l := w.one("w")
		w.twice("tombstone", func() { w.ok(w.Tombstone(w.ctx, "s1", "")) })
		if rep := w.lease("w", anyRoom); len(rep.Leased) != 0 {
			w.Fatal("leased for a deleted subscriber")
		}
		w.twice("cancel", func() {
			remaining, leases := w.cancelAll("s1", 10)
			if remaining != 0 || leases != 1 {
				w.Fatalf("remaining %d, leases %d", remaining, leases)
			}
		})
		w.wantState(l.ID, delivery.Cancelled)
		// The worker's verdict ends the lease and changes nothing else.
		w.settle(schedule.Already, delivered(l))
		w.wantState(l.ID, delivery.Cancelled)
		if _, leases := w.cancelAll("s1", 10); leases != 0 {
			w.Fatalf("%d leases after the last worker settled", leases)
		}
		if got, want := w.ledger(), (schedule.Ledger{Accepted: 2, Cancelled: 2}); got != want {
			w.Fatalf("ledger %+v, want %+v", got, want)
		}
	})
}

func TestPutConfigTwice(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		put := func(expect, want int64, blob string) func() {
			return func() {
				w.Helper()
				v, err := w.PutConfig(w.ctx, "s1", expect, []byte(blob), terms, schedule.Edited)
				w.ok(err)
				if v != want {
					w.Fatalf("version %d, want %d", v, want)
				}
			}
		}
		w.twice("create", put(0, 1, "a"))
		w.twice("change", put(1, 2, "b"))
		if _, err := w.PutConfig(w.ctx, "s1", 1, []byte("c"), terms, schedule.Edited); !errors.Is(err, schedule.ErrVersion) {
			w.Fatalf("stale version: %v", err)
		}
		if _, err := w.PutConfig(w.ctx, "s2", 3, []byte("c"), terms, schedule.Edited); !errors.Is(err, schedule.ErrNotFound) {
			w.Fatalf("unknown: %v", err)
		}
	})
}

// A change that lifts or forgets holds does it once.
func TestChangeTwice(t *testing.T) {
	t.Parallel()
	for _, change := range []schedule.Change{schedule.Edited, schedule.Lifted, schedule.Moved} {
		t.Run("change "+string(change), func(t *testing.T) {
			t.Parallel()
			breakers(t, 5, func(w *world) {
				out := w.one("w")
				w.fail(3, delivery.HTTP5xx)
				w.settle(schedule.Applied, gone(out))
				tm := terms
				tm.Class, tm.RatePerSecond, tm.Burst = "gold", 3, 2
				w.twice("put_config", func() {
					v, err := w.PutConfig(w.ctx, "s1", 1, []byte("b"), tm, change)
					w.ok(err)
					if v != 2 {
						w.Fatalf("version %d", v)
					}
				})
				// And with a probe taken in between, which the second run must leave alone.
				rep := w.lease("w", anyRoom)
				w.unchanged("the second put_config, after a lease", func() {
					_, err := w.PutConfig(w.ctx, "s1", 1, []byte("b"), tm, change)
					w.ok(err)
				})
				if want := map[schedule.Change]int{schedule.Edited: 0, schedule.Lifted: 1, schedule.Moved: 2}[change]; len(rep.Leased) != want {
					w.Fatalf("leased %d, want %d", len(rep.Leased), want)
				}
				w.audit()
			})
		})
	}
}

// The verdict that opens the breaker opens it once, whatever is drawn for its rest; so
// do the probe's, and one that throttles or disables.
func TestSettleThatHoldsTwice(t *testing.T) {
	t.Parallel()
	breakers(t, 6, func(w *world) {
		out := w.lease("w", room(2)).Leased
		w.fail(2, delivery.HTTP5xx)
		once := func(want schedule.SettleResult, v schedule.Verdict) {
			w.Helper()
			w.settle(schedule.Applied, v)
			for range 3 {
				w.unchanged("the second settle", func() { w.settle(want, v) })
			}
			w.audit()
		}
		once(schedule.Already, failed(w.next(), delivery.HTTP5xx))
		once(schedule.Already, throttled(out[0], time.Minute))
		once(schedule.Already, gone(out[1]))
		w.put("s1", schedule.Lifted, three)
		w.advance(time.Hour)
		once(schedule.Already, failed(w.next(), delivery.Timeout)) // a probe
		w.untilProbe()
		probe := w.next()
		w.advance(time.Minute)
		once(schedule.Stale, lost(probe, w.frozen))
		once(schedule.Already, delivered(w.next())) // closes it
		w.wantHolds("s1")
	})
}

func TestSlowTwice(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.known(time.Millisecond, 2, "s1")
		w.twice("slow", func() { w.ok(w.Slow(w.ctx, 0, map[string]time.Duration{"s1": 5 * time.Second})) })
		if got := w.standing("s1").Latency; got != 5*time.Second {
			w.Fatalf("latency %s", got)
		}
	})
}

// One that is left out and buried is buried once, also when the first of the two calls
// is all that was heard of.
func TestEnqueueHeldFullTwice(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		full := func(tm *schedule.Terms) { tm.MaxHeld, tm.Paused = 1, true }
		w.put("s1", schedule.Edited, full)
		w.post("e1", "s1")
		targets := []schedule.Target{{SubscriberID: "s1", MaxAge: day}}
		a, err := w.Accept(w.ctx, schedule.NewEvent{ID: "e2", BodyHash: "h", Body: []byte("{}"), Targets: targets})
		w.ok(err)
		enqueue := func() { w.ok(w.Enqueue(w.ctx, "e2", a.At, w.ExpandBy(a.At), 0, targets)) }
		w.twice("enqueue", enqueue)
		if got, want := w.ledger(), (schedule.Ledger{Accepted: 2, Pending: 1, Dead: 1}); got != want {
			w.Fatalf("ledger %+v, want %+v", got, want)
		}
		// The hold is over, and there is room: what died stays dead.
		w.put("s1", schedule.Edited, nil)
		w.settle(schedule.Applied, delivered(w.one("w")))
		w.unchanged("a late enqueue", enqueue)
	})
}

func TestTrimAndClaimTwice(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("s1", 10)
		w.subscribe("s2", 10)
		w.post("e1", "s1", "s2")
		rep := w.lease("w", anyRoom)
		w.settle(schedule.Applied, dead(rep.Leased[0], "payload"))
		w.advance(time.Hour)
		w.settle(schedule.Applied, dead(rep.Leased[1], "payload"))
		pins := func() int { return len(w.keys("*:pin:e1")) }
		trim := func() { _, err := w.Trim(w.ctx, 10); w.ok(err) }
		w.advance(30*day - 30*time.Minute)
		trim()
		w.unchanged("the second trim", trim)
		if pins() != 1 {
			w.Fatal("payload unpinned while a dead letter needs it")
		}
		w.advance(time.Hour)
		trim()
		w.unchanged("the second trim", trim)
		if pins() != 0 {
			w.Fatal("payload pinned for nobody")
		}
	})
}

func TestClaimOpen(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{Partitions: 4}, func(_ *testing.T, w *world) {
		var targets []schedule.Target
		for _, s := range []string{"a", "b", "c", "d", "e", "f"} {
			w.subscribe(s, 1)
			targets = append(targets, schedule.Target{SubscriberID: s, MaxAge: day})
		}
		a, err := w.Accept(w.ctx, schedule.NewEvent{ID: "e1", BodyHash: "h", Body: []byte("{}"), Targets: targets})
		w.ok(err)
		claim := func() []schedule.Plan {
			w.Helper()
			plans, err := w.ClaimOpen(w.ctx, w.PartitionOf("e1"), 10, 5*time.Second)
			w.ok(err)
			return plans
		}
		if len(claim()) != 0 {
			w.Fatal("claimed while its first process may be at it")
		}
		w.advance(6 * time.Second)
		plans := claim()
		if len(plans) != 1 || !plans[0].AcceptedAt.Equal(a.At) || len(claim()) != 0 {
			w.Fatalf("claimed: %+v", plans)
		}
		n := 0
		for p, ts := range plans[0].Parts {
			w.ok(w.Enqueue(w.ctx, "e1", plans[0].AcceptedAt, plans[0].ExpandBy, p, ts))
			n += len(ts)
			_, err := w.Strike(w.ctx, "e1", p)
			w.ok(err)
		}
		w.advance(6 * time.Second)
		if n != 6 || len(claim()) != 0 || w.ledger().Accepted != 6 {
			w.Fatalf("expanded %d, ledger %+v", n, w.ledger())
		}
		ev, err := w.Event(w.ctx, "e1")
		w.ok(err)
		if ev.Open || len(ev.SubscriberIDs) != 6 {
			w.Fatalf("event: %+v", ev)
		}
	})
}
