package schedule_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// pages reads a list to its end.
func (w *world) pages(q schedule.DeliveryQuery, limit int, between func()) []string {
	w.Helper()
	var ids []string
	for after, turn := "", 0; ; turn++ {
		page, next, err := w.ListDeliveries(w.ctx, q, after, limit)
		w.ok(err)
		if len(page) > limit || turn > 10_000 {
			w.Fatalf("a page of %d, limit %d, turn %d", len(page), limit, turn)
		}
		for _, d := range page {
			ids = append(ids, d.ID)
		}
		if after = next; after == "" {
			return ids
		}
		between()
	}
}

// A thousand deliveries of one instant are listed completely and once, whatever comes
// and goes meanwhile.
func TestListOfOneInstant(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(t *testing.T, w *world) {
		w.freeze()
		w.subscribe("s1", 100)
		w.subscribe("s2", 100)
		n := 1000
		if strings.Contains(t.Name(), "miniredis") {
			n = 100 // it interprets the same scripts, ten times as slowly
		}
		var stay, leave []string
		for i := range n {
			id := w.post(fmt.Sprint("e", i), "s1", "s2")[0]
			if i%10 == 0 {
				leave = append(leave, id)
			} else {
				stay = append(stay, id)
			}
		}
		q := schedule.DeliveryQuery{SubscriberID: "s1"}
		all := w.pages(q, 7, func() {})
		if want := slices.Concat(stay, leave); !sameSet(all, want) {
			w.Fatalf("listed %d of %d, or not once each", len(all), len(want))
		}
		gone := 0
		got := w.pages(q, 7, func() {
			if gone < len(leave) {
				_, err := w.CancelDelivery(w.ctx, leave[gone]) // ahead of the reader, behind it and under it
				w.ok(err)
				w.post(fmt.Sprint("new", gone), "s1")
				gone++
			}
		})
		seen := map[string]int{}
		for _, id := range got {
			seen[id]++
		}
		for _, id := range stay {
			if seen[id] != 1 {
				w.Fatalf("%s was there all the while and is listed %d times", id, seen[id])
			}
		}
		for id, times := range seen {
			if times > 1 {
				w.Fatalf("%s listed %d times", id, times)
			}
		}
	})
}

func sameSet(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}

// The reader's place holds though the very delivery that it stands on is gone.
func TestListGoesOnWhereItStoodOnOneThatIsGone(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.freeze()
		w.subscribe("s1", 100)
		for i := range 30 {
			w.post(fmt.Sprint("e", i), "s1")
		}
		q := schedule.DeliveryQuery{SubscriberID: "s1"}
		page, next, err := w.ListDeliveries(w.ctx, q, "", 10)
		w.ok(err)
		for _, d := range page {
			_, err := w.CancelDelivery(w.ctx, d.ID)
			w.ok(err)
		}
		rest, _, err := w.ListDeliveries(w.ctx, q, next, 100)
		w.ok(err)
		if len(rest) != 20 {
			w.Fatalf("%d follow, want 20", len(rest))
		}
	})
}

func TestListByState(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{Partitions: 4}, func(_ *testing.T, w *world) {
		w.freeze()
		w.subscribe("s1", 100)
		w.subscribe("s2", 100)
		for i := range 10 {
			w.post(fmt.Sprint("e", i), "s1", "s2")
		}
		for range 4 {
			l := w.one("w1")
			w.advance(time.Second)
			w.settle(schedule.Applied, dead(l, "{}"))
		}
		w.one("w1")
		sums := map[schedule.ListState]int{}
		for _, sub := range []string{"s1", "s2"} {
			for _, st := range []schedule.ListState{schedule.ListPending, schedule.ListScheduled, schedule.ListLeased, schedule.ListDead} {
				ids := w.pages(schedule.DeliveryQuery{SubscriberID: sub, State: st}, 3, func() {})
				sums[st] += len(ids)
				for _, id := range ids {
					d := w.get(id)
					pending := d.State == delivery.Scheduled || d.State == delivery.Leased
					if d.SubscriberID != sub || (st == schedule.ListPending && !pending) || (st != schedule.ListPending && string(st) != string(d.State)) {
						w.Fatalf("%s of %s in the list %s of %s", d.State, d.SubscriberID, st, sub)
					}
				}
			}
		}
		want := map[schedule.ListState]int{schedule.ListPending: 16, schedule.ListScheduled: 15, schedule.ListLeased: 1, schedule.ListDead: 4}
		for st, n := range want {
			if sums[st] != n {
				w.Errorf("%d in the list %s, want %d", sums[st], st, n)
			}
		}

		var letters []schedule.Evidence
		for after := ""; ; {
			page, next, err := w.DeadLettersPage(w.ctx, "", after, 3)
			w.ok(err)
			letters = append(letters, page...)
			if after = next; after == "" {
				break
			}
		}
		newest := func(a, b schedule.Evidence) int { return b.EndedAt.Compare(a.EndedAt) }
		if len(letters) != 4 || !slices.IsSortedFunc(letters, newest) {
			w.Fatalf("%d dead letters over all, or not newest first", len(letters))
		}
	})
}

// A cursor is good for the list that gave it, and nothing else is one.
func TestCursorOfAnotherList(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("s1", 100)
		w.subscribe("s2", 100)
		w.post("e1", "s1", "s2")
		w.post("e2", "s1", "s2")
		_, next, err := w.ListDeliveries(w.ctx, schedule.DeliveryQuery{SubscriberID: "s1"}, "", 1)
		w.ok(err)
		if next == "" {
			w.Fatal("no next page")
		}
		for _, cursor := range []string{next, "x", next[1:], next + "A", "\x00", "LXwx"} {
			_, _, err := w.ListDeliveries(w.ctx, schedule.DeliveryQuery{SubscriberID: "s2"}, cursor, 1)
			_, _, errDead := w.DeadLettersPage(w.ctx, "s1", cursor, 1)
			if !errors.Is(err, schedule.ErrCursor) || !errors.Is(errDead, schedule.ErrCursor) {
				w.Errorf("%q: %v, %v", cursor, err, errDead)
			}
		}
	})
}

// A cursor is refused, or says the place that it was made for.
func FuzzCursor(f *testing.F) {
	f.Add("cGVuZDpzMTp8MTc2NDU0MDAwMDAwMHxkbHZfZThiYzdlOWsyZ2pyMzcyYjB6dmhoZ3Ew")
	f.Add("")
	f.Add("cGVuZDpzMTp8TmFOfA")
	f.Fuzz(func(t *testing.T, cursor string) {
		once, err := schedule.Recoded("pend:s1:", cursor)
		if err != nil || cursor == "" {
			return
		}
		if twice, err := schedule.Recoded("pend:s1:", once); err != nil || twice != once {
			t.Errorf("%q is read as %q, and that as %q: %v", cursor, once, twice, err)
		}
	})
}

func TestRetryNow(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.freeze()
		w.subscribe("s1", 100)
		id := w.post("e1", "s1")[0]
		due := w.get(id).DueAt
		w.unchanged("a retry of one that is due", func() {
			_, err := w.RetryNow(w.ctx, id)
			w.ok(err)
		})
		l := w.one("w1")
		if _, err := w.RetryNow(w.ctx, id); !errors.Is(err, schedule.ErrNotScheduled) {
			w.Fatalf("of a leased one: %v", err)
		}
		w.settle(schedule.Applied, retry(l, due.Add(time.Hour)))
		w.none("it is due in an hour")
		w.twice("retry now", func() {
			d, err := w.RetryNow(w.ctx, id)
			w.ok(err)
			if !d.DueAt.Equal(w.clock()) || d.Attempts != 1 {
				w.Fatalf("%+v", d)
			}
		})
		l = w.one("w1")
		w.settle(schedule.Applied, delivered(l))
		if _, err := w.RetryNow(w.ctx, id); !errors.Is(err, schedule.ErrNotScheduled) {
			w.Fatalf("of a delivered one: %v", err)
		}
		other := w.post("e2", "s1")[0]
		if _, err := w.RetryNow(w.ctx, other[:len(other)-1]); !errors.Is(err, delivery.ErrBadID) {
			w.Fatalf("of no id: %v", err)
		}
	})
}

// On hold it waits all the same.
func TestRetryNowUnderAHold(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.freeze()
		w.subscribe("s1", 100)
		id := w.post("e1", "s1")[0]
		w.settle(schedule.Applied, retry(w.one("w1"), w.clock().Add(time.Hour)))
		w.put("s1", schedule.Edited, func(tm *schedule.Terms) { tm.Paused = true })
		_, err := w.RetryNow(w.ctx, id)
		w.ok(err)
		w.none("it is paused")
		w.put("s1", schedule.Lifted, func(*schedule.Terms) {})
		if l := w.one("w1"); l.ID != id {
			w.Fatalf("leased %s", l.ID)
		}
	})
}

func TestCancelDelivery(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.freeze()
		w.subscribe("s1", 100)
		a, b, c := w.post("e1", "s1")[0], w.post("e2", "s1")[0], w.post("e3", "s1")[0]
		l := w.one("w1")
		for _, id := range []string{a, b} {
			w.twice("cancel", func() {
				d, err := w.CancelDelivery(w.ctx, id)
				w.ok(err)
				if d.State != delivery.Cancelled {
					w.Fatalf("%s", d.State)
				}
			})
		}
		w.settle(schedule.Already, failed(l, delivery.HTTP5xx))
		w.settle(schedule.Applied, dead(w.one("w1"), "{}"))
		if _, err := w.CancelDelivery(w.ctx, c); !errors.Is(err, schedule.ErrFinal) {
			w.Fatalf("of a dead one: %v", err)
		}
		if got := w.ledger(); got.Cancelled != 2 || got.Dead != 1 || got.Pending != 0 {
			w.Fatalf("ledger %+v", got)
		}
	})
}

// What is listed at any time is what an unpaged look finds.
func TestListWhileAllMoves(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("s1", 1000)
		random := rand.New(rand.NewPCG(1, 2))
		kept := map[string]bool{}
		for i := range 60 {
			kept[w.post(fmt.Sprint("keep", i), "s1")[0]] = true
		}
		n := 0
		got := w.pages(schedule.DeliveryQuery{SubscriberID: "s1"}, 5, func() {
			n++
			id := w.post(fmt.Sprint("more", n), "s1")[0]
			if random.IntN(2) == 0 {
				_, err := w.CancelDelivery(w.ctx, id)
				w.ok(err)
			}
		})
		for _, id := range got {
			delete(kept, id)
		}
		if len(kept) > 0 {
			w.Fatalf("%d were never listed", len(kept))
		}
	})
}
