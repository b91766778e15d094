package schedule_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

func TestCapAndRooms(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("s1", 3)
		for i := range 10 {
			w.post(fmt.Sprint("e", i), "s1")
		}
		rep := w.lease("a", anyRoom)
		if len(rep.Leased) != 3 {
			w.Fatalf("leased %d with a cap of 3", len(rep.Leased))
		}
		if more := w.lease("b", anyRoom); len(more.Leased) != 0 || more.Ready != 0 {
			w.Fatalf("past the cap: %+v", more)
		}
		w.audit()
		w.settle(schedule.Applied, delivered(rep.Leased[0]))
		if more := w.lease("b", anyRoom); len(more.Leased) != 1 {
			w.Fatalf("%d leased after one settled", len(more.Leased))
		}
		// Two retries are due; room for retry lets one go.
		w.subscribe("s2", 10)
		w.post("r1", "s2")
		w.post("r2", "s2")
		for _, l := range w.lease("a", anyRoom).Leased {
			w.settle(schedule.Applied, retry(l, w.clock()))
		}
		if got := w.lease("a", schedule.Rooms{Total: 10, Fresh: 10, Retry: 1, Redrive: 1}).Leased; len(got) != 1 {
			w.Fatalf("%d leased with room for one retry", len(got))
		}
		if got := w.lease("a", schedule.Rooms{Total: 10, Fresh: 10, Redrive: 1}).Leased; len(got) != 0 {
			w.Fatalf("%d leased without room for retry", len(got))
		}
		w.audit()
	})
}

// A backlog of a thousand costs its owner, not the one that comes after it.
func TestBacklogDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("big", 1000)
		w.subscribe("small", 1000)
		targets := []schedule.Target{{SubscriberID: "big", MaxAge: day}}
		for i := range 200 {
			id := fmt.Sprint("b", i)
			w.ok(w.Enqueue(w.ctx, id, w.clock(), w.clock().Add(time.Hour), 0, targets))
		}
		w.lease("w", room(32)) // the backlog is being worked on
		w.post("e1", "small")
		w.post("e2", "small")
		got := 0
		for _, l := range w.lease("w", room(16)).Leased {
			if l.SubscriberID == "small" {
				got++
			}
		}
		if got != 2 {
			w.Fatalf("small got %d of 2 within the next 16", got)
		}
	})
}

// Under a cap of one, retries get one turn in four while fresh work waits, and
// fresh work three.
func TestOneTurnInFourToRetry(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("s1", 100)
		for i := range 10 {
			w.post(fmt.Sprint("r", i), "s1")
		}
		for _, l := range w.lease("w", anyRoom).Leased {
			w.settle(schedule.Applied, retry(l, w.clock()))
		}
		w.subscribe("s1", 1)
		for i := range 40 {
			w.post(fmt.Sprint("f", i), "s1")
		}
		lanes := map[delivery.Lane]int{}
		for range 20 {
			l := w.one("w")
			lanes[l.Lane]++
			w.settle(schedule.Applied, delivered(l))
		}
		if lanes[delivery.Retry] != 5 || lanes[delivery.Fresh] != 15 {
			w.Fatalf("turns: %v, want 15 fresh and 5 retry", lanes)
		}
		w.audit()
	})
}

func TestRetryWaitsUntilDue(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("s1", 1)
		w.post("e1", "s1")
		due := w.clock().Add(10 * time.Minute).Truncate(time.Millisecond)
		w.settle(schedule.Applied, retry(w.one("w"), due))
		rep := w.lease("w", anyRoom)
		if len(rep.Leased) != 0 || !rep.NextDue.Equal(due) {
			w.Fatalf("before it is due: %+v, want next due %s", rep, due)
		}
		w.advance(11 * time.Minute)
		if l := w.one("w"); l.Attempts != 2 || l.Lane != delivery.Retry || l.LastStatus != 503 {
			w.Fatalf("second attempt: %+v", l.Delivery)
		}
		w.audit()
	})
}

// What is due leaves its lane, what is due later stays there.
func TestOnlyTheDueLeaveTheirLane(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("s1", 10)
		w.post("e1", "s1")
		w.post("e2", "s1")
		ls := w.lease("w", anyRoom).Leased
		w.settle(schedule.Applied, retry(ls[0], w.clock()))
		w.settle(schedule.Applied, retry(ls[1], w.clock().Add(time.Hour)))
		if got := w.lease("w", anyRoom).Leased; len(got) != 1 || got[0].ID != ls[0].ID {
			w.Fatalf("leased %+v, want the due one", got)
		}
		w.wantState(ls[1].ID, delivery.Scheduled)
		w.advance(2 * time.Hour)
		if l := w.one("w"); l.ID != ls[1].ID {
			w.Fatalf("leased %s, want the one that fell due", l.ID)
		}
	})
}

func TestPauseHoldsAndResumeReleases(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("s1", 10)
		w.post("e1", "s1")
		paused := terms
		paused.Paused = true
		_, err := w.PutConfig(w.ctx, "s1", -1, []byte("{}"), paused, schedule.Edited)
		w.ok(err)
		w.post("e2", "s1")
		if rep := w.lease("w", anyRoom); len(rep.Leased) != 0 {
			w.Fatal("leased while paused")
		}
		w.audit()
		w.advance(time.Minute)
		ages := w.ages("standard")
		if !ages.Eligible.IsZero() || ages.Held.IsZero() {
			w.Fatalf("ages while paused: %+v", ages)
		}
		w.subscribe("s1", 10)
		if rep := w.lease("w", anyRoom); len(rep.Leased) != 2 || rep.Leased[0].Version != 3 {
			w.Fatalf("after resume: %+v", rep)
		}
		w.audit()
	})
}

// ages is the fresh lane's ages of a class.
func (w *world) ages(class string) schedule.Ages {
	w.Helper()
	s, err := w.Sample(w.ctx, []string{class})
	w.ok(err)
	return s.Ages[0]
}

// A worker died with a lease: once that has expired, the delivery could have been
// sent and was not, and its age says so, whatever else its subscriber's cap hides.
func TestExpiredLeaseIsEligible(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("s1", 1)
		w.post("e1", "s1")
		w.post("e2", "s1")
		l := w.one("dies")
		if a := w.ages("standard"); !a.Eligible.IsZero() {
			w.Fatalf("leased, and the other at its cap: %+v", a)
		}
		w.advance(time.Hour)
		s, err := w.Sample(w.ctx, []string{"standard"})
		w.ok(err)
		if !s.Ages[0].Eligible.Equal(l.Until) || s.ExpiredLeases != 1 {
			w.Fatalf("lease expired at %s: %+v", l.Until, s)
		}
		w.settle(schedule.Applied, lost(l, w.clock()))
		if s, err := w.Sample(w.ctx, []string{"standard"}); err != nil || s.ExpiredLeases != 0 {
			w.Fatalf("after the reclaim: %+v, %v", s, err)
		}
	})
}

// A class that the process was not told of is not invisible.
func TestUnknownClassesAreSampled(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{Partitions: 4}, func(_ *testing.T, w *world) {
		bulk := terms
		bulk.Class = "bulk"
		_, err := w.PutConfig(w.ctx, "s1", 0, []byte("{}"), bulk, schedule.Edited)
		w.ok(err)
		sample := func() []schedule.Ages {
			w.Helper()
			s, err := w.Sample(w.ctx, []string{"standard"})
			w.ok(err)
			return s.Ages
		}
		if n := len(sample()); n != 3 {
			w.Fatalf("%d ages while nothing waits", n)
		}
		w.post("e1", "s1")
		ages := sample()
		if len(ages) != 6 || ages[3].Class != schedule.OtherClass || ages[3].Eligible.IsZero() {
			w.Fatalf("ages: %+v", ages)
		}
	})
}

func TestAgesTellEligibleFromLimitedAndFuture(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("s1", 1)
		if a := w.ages("standard"); !a.Eligible.IsZero() {
			w.Fatalf("nothing there: %+v", a)
		}
		w.post("e1", "s1")
		w.post("e2", "s1")
		due := w.get(delivery.NewID("e1", "s1")).DueAt
		w.advance(time.Hour)
		if a := w.ages("standard"); !a.Eligible.Equal(due) || !a.Limited.IsZero() {
			w.Fatalf("eligible since %s: %+v", due, a)
		}
		l := w.one("w")
		if a := w.ages("standard"); !a.Eligible.IsZero() || a.Limited.IsZero() {
			w.Fatalf("at its own cap: %+v", a)
		}
		w.settle(schedule.Applied, delivered(l))
		l = w.one("w")
		w.settle(schedule.Applied, retry(l, w.clock().Add(10*time.Hour)))
		s, err := w.Sample(w.ctx, []string{"standard"})
		w.ok(err)
		for _, a := range s.Ages {
			if !a.Eligible.IsZero() && a.Eligible.Before(s.Now) {
				w.Fatalf("a delivery due in 10 h is eligible: %+v", a)
			}
		}
		// Another class takes its ages with it.
		gold := terms
		gold.Class = "gold"
		_, err = w.PutConfig(w.ctx, "s1", -1, []byte("{}"), gold, schedule.Edited)
		w.ok(err)
		w.audit()
	})
}
