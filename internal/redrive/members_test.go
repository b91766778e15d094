package redrive_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/redrive"
	"github.com/fanout/fanout/internal/schedule"
)

// A member that is delivered late, before it was released, is no canary's success, and
// keeps its cohort from no end.
func TestLateSuccessOfAMember(t *testing.T) {
	t.Parallel()
	contract(t, func(t *testing.T, w *world) {
		var leases []schedule.Leased
		for i := range 4 {
			w.post(fmt.Sprint("picked", i), "s1")
			l := w.leased()[0]
			leases = append(leases, l)
			w.settle(l, 404)
			w.pass(time.Millisecond)
		}
		id := w.create(order)
		w.step()
		w.step() // the first is out
		if got := w.settle(leases[3], 200); got != schedule.AppliedOld {
			t.Fatalf("late: %s", got)
		}
		w.step()
		w.want(id, redrive.Canary, "") // the canary itself has said nothing yet
		canary := w.leased()[0]
		w.settle(canary, 200)
		w.step()
		w.want(id, redrive.Awaiting, "")
		w.approve(id)
		w.settle(leases[2], 200)
		v := w.finish(id, always(200))
		if v.State != redrive.Done || v.Tally.Delivered < 2 {
			t.Errorf("%s %+v", v.State, v.Tally)
		}
		w.nothingLeft()
	})
}

// A canary that is delivered late, before it was sent, is replaced.
func TestLateSuccessOfTheCanary(t *testing.T) {
	t.Parallel()
	contract(t, func(t *testing.T, w *world) {
		w.post("picked0", "s1")
		l := w.leased()[0]
		w.settle(l, 404)
		w.pass(time.Millisecond)
		w.die("other", "s1", 2)
		id := w.create(order)
		w.step()
		w.settle(l, 200)
		w.step()
		if v := w.want(id, redrive.Canary, ""); v.Tally.Released != 1 || v.CanaryIDs[0] == l.ID {
			t.Fatalf("%+v %+v", v.Cohort, v.Tally)
		}
	})
}

// The dead letters of a subscriber that is deleted leave the cohort; what is out of it is
// cancelled.
func TestSubscriberDeleted(t *testing.T) {
	t.Parallel()
	contract(t, func(t *testing.T, w *world) {
		ids := w.die("picked", "s1", 6)
		w.die("lost", "s2", 4)
		id := w.create(order)
		w.step()
		w.step()
		gone := func(sub string) {
			t.Helper()
			err := w.Tombstone(w.ctx, sub, "")
			delete(w.class, sub)
			w.ok(err)
			_, _, _, err = w.CancelPending(w.ctx, sub, 100)
			w.ok(err)
		}
		gone("s1") // the canary is out: it is cancelled, and all others of s1 are over
		w.step()
		v := w.want(id, redrive.Canary, "")
		if v.Tally.Cancelled != 1 || v.Tally.Over != 5 || v.Tally.Released != 2 {
			t.Fatalf("%+v", v.Tally)
		}
		w.serve(always(200))
		w.step()
		w.approve(id)
		w.step()
		w.step()
		gone("s2")
		v = w.finish(id, always(200))
		if v.State != redrive.Done || v.Tally.Waiting() != 0 || v.Tally.Out() != 0 || v.Tally.Delivered != 1 {
			t.Errorf("%s %+v", v.State, v.Tally)
		}
		w.generations(ids[1:], 0)
		w.nothingLeft()
	})
}

// One that an operator cancels half way is counted, and holds nobody up.
func TestMemberCancelled(t *testing.T) {
	t.Parallel()
	contract(t, func(t *testing.T, w *world) {
		id, ids := w.running(5, order)
		w.step()
		_, err := w.CancelDelivery(w.ctx, ids[1])
		w.ok(err)
		v := w.finish(id, always(200))
		if want := (schedule.Tally{Claimed: 5, Released: 5, Delivered: 4, Cancelled: 1}); v.Tally != want {
			t.Errorf("%+v", v.Tally)
		}
		w.nothingLeft()
	})
}

// One that is paused, and of which nothing is left, has ended.
func TestPausedToItsEnd(t *testing.T) {
	t.Parallel()
	contract(t, func(t *testing.T, w *world) {
		id, _ := w.running(2, order)
		w.step()
		_, err := w.svc.Pause(w.ctx, id, "key_1", "lunch")
		w.ok(err)
		w.step()
		w.want(id, redrive.Paused, "lunch")
		w.serve(always(200))
		w.step()
		if v := w.want(id, redrive.Done, "lunch"); v.Tally.Delivered != 2 || !v.Closed {
			t.Errorf("%+v", v)
		}
	})
}

// A rate below one a second releases, and a long silence is no reason for a burst.
func TestSlowly(t *testing.T) {
	t.Parallel()
	contract(t, func(t *testing.T, w *world) {
		id, _ := w.running(12, redrive.Order{Reason: "slowly", MaxRate: 0.2})
		sent := 0
		for range 30 {
			w.step()
			sent += len(w.serve(always(200)))
		}
		if sent != 6 {
			t.Errorf("%d in half a minute at 0.2/s", sent)
		}
		w.pass(time.Hour) // no runner
		w.pass(time.Second)
		w.step()
		if n := len(w.serve(always(200))); n != 1 {
			t.Errorf("%d after an hour's silence", n)
		}
		w.finish(id, always(200))
	})
}

// Those that run share the head-room that is measured.
func TestRunningTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t, server(t))
	w.report.Slots, w.report.SlotSeconds = 20, 1 // 20/s, of which half are for redrives
	w.die("picked", "s1", 120)
	w.die("lost", "s2", 120)
	for _, sub := range []string{"s1", "s2"} {
		w.toRunning2(w.create(redrive.Order{Reason: "both at once", Filter: redrive.Filter{SubscriberID: sub}}))
	}
	most := 0
	for range 30 {
		w.step()
		most = max(most, len(w.serve(always(200))))
	}
	if most < 9 || most > 11 {
		t.Errorf("%d in a second, want 10", most)
	}
}

// What another member's late answer says is nothing about a canary that was cancelled.
func TestCancelledCanaryIsReplaced(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *testing.T, w *world) {
		ids := w.die("picked", "s1", 3)
		w.post("late0", "s1")
		l := w.leased()[0]
		w.settle(l, 404)
		id := w.create(order)
		w.step()
		w.step()
		w.settle(l, 200)
		_, err := w.CancelDelivery(w.ctx, ids[0])
		w.ok(err)
		w.step()
		if v := w.want(id, redrive.Canary, ""); v.CanaryPassed || v.CanaryIDs[0] != ids[1] {
			t.Fatalf("%+v", v.Cohort)
		}
	})
}
