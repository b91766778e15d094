package schedule_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// answered is a delivery that took a time.
func answered(l schedule.Leased, took time.Duration) schedule.Verdict {
	v := delivered(l)
	v.Took = took
	return v
}

// known makes subscribers whose last answer took a time, with n deliveries each. It
// works off whatever waited before.
func (w *world) known(took time.Duration, n int, ids ...string) {
	w.Helper()
	for _, id := range ids {
		w.subscribe(id, 100)
		w.post("first-"+id, id)
		for _, l := range w.lease("w", anyRoom).Leased {
			w.settle(schedule.Applied, answered(l, took))
		}
	}
	for i := range n {
		w.post(fmt.Sprint("e", i, "-", ids[0]), ids...)
	}
}

// perSubscriber counts leases.
func perSubscriber(ls []schedule.Leased) map[string]int {
	n := map[string]int{}
	for _, l := range ls {
		n[l.SubscriberID]++
	}
	return n
}

// Who is not known takes a slot for the slow, until its first answer.
func TestUnknownIsSlow(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("s1", 10)
		w.post("e1", "s1")
		w.post("e2", "s1")
		noSlow := anyRoom
		noSlow.Slow = 0
		if rep := w.lease("w", noSlow); len(rep.Leased) != 0 || rep.Slow != 1 || rep.Ready != 0 {
			w.Fatalf("without a slot for the slow: %+v", rep)
		}
		rep := w.lease("w", room(1))
		if len(rep.Leased) != 1 || !rep.Leased[0].Slow {
			w.Fatalf("leased %+v, want one that is slow", rep.Leased)
		}
		w.audit()
		w.settle(schedule.Applied, answered(rep.Leased[0], 20*time.Millisecond))
		if rep := w.lease("w", noSlow); len(rep.Leased) != 1 || rep.Leased[0].Slow {
			w.Fatalf("after a fast answer: %+v", rep)
		}
		w.audit()
	})
}

// More than a second is slow; what the endpoint answers does not matter, but what says
// nothing of it does not count.
func TestSlowByItsAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		outcome delivery.Outcome
		took    time.Duration
		slow    bool
	}{
		{delivery.OK, time.Second, false},
		{delivery.OK, 1001 * time.Millisecond, true},
		{delivery.Timeout, 10 * time.Second, true},
		{delivery.Connect, time.Millisecond, false},
		{delivery.HTTP400, 5 * time.Second, true},
		{delivery.HTTP400, 0, false},
		{delivery.LeaseLost, time.Millisecond, true}, // still unknown
		{delivery.BadRequest, time.Millisecond, true},
	} {
		t.Run(fmt.Sprint(c.outcome, c.took), func(t *testing.T) {
			t.Parallel()
			contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
				w.subscribe("s1", 10)
				w.post("e1", "s1")
				v := failed(w.one("w"), c.outcome)
				v.Took, v.GiveBack = c.took, c.outcome == delivery.LeaseLost
				w.settle(schedule.Applied, v)
				w.audit()
				if l := w.one("w"); l.Slow != c.slow {
					w.Fatalf("slow is %v, want %v", l.Slow, c.slow)
				}
			})
		})
	}
}

// The slow get no more than the slots for them; the others take the rest.
func TestSlowShareTheirSlots(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{Quantum: 2}, func(_ *testing.T, w *world) {
		w.known(5*time.Second, 0, "slow1", "slow2")
		w.known(time.Millisecond, 0, "fast1", "fast2")
		for i := range 10 {
			w.post(fmt.Sprint("e", i), "slow1", "slow2", "fast1", "fast2")
		}
		r := room(12)
		r.Slow = 4
		got := w.lease("w", r).Leased
		n := perSubscriber(got)
		if len(got) != 12 || n["slow1"]+n["slow2"] != 4 {
			w.Fatalf("leased %v with 12 slots, 4 for the slow", n)
		}
		for _, l := range got {
			if l.Slow != (l.SubscriberID[0] == 's') {
				w.Fatalf("%s is leased as slow: %v", l.SubscriberID, l.Slow)
			}
		}
		w.audit()
	})
}

// A hang is known before it has ended, and forgotten within a dozen answers.
func TestHangIsNotedAndForgotten(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.known(20*time.Millisecond, 16, "s1")
		w.ok(w.Slow(w.ctx, 0, map[string]time.Duration{"s1": 8 * time.Second, "unheard-of": time.Hour}))
		w.audit()
		answers := 0
		for l := w.one("w"); l.Slow; l = w.one("w") {
			w.settle(schedule.Applied, answered(l, 20*time.Millisecond))
			answers++
			w.audit()
		}
		if answers < 3 || answers > 12 {
			w.Fatalf("forgotten after %d fast answers", answers)
		}
		w.ok(w.Slow(w.ctx, 0, map[string]time.Duration{"s1": time.Millisecond}))
		if got := w.standing("s1").Latency; got < 20*time.Millisecond {
			w.Fatalf("a short wait made it faster: %s", got)
		}
	})
}

// A subscriber holds at most as many slots as are free (but one more, so that the last
// can be given), counting what it holds already.
func TestThresholdOfSlots(t *testing.T) {
	t.Parallel()
	walk(t, func(rt *rapid.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb, schedule.Options{Quantum: rapid.IntRange(1, 8).Draw(rt, "quantum")})
		ids := []string{"s1", "s2", "s3"}[:rapid.IntRange(1, 3).Draw(rt, "subscribers")]
		w.known(time.Millisecond, 10, ids...)
		free := rapid.IntRange(1, 24).Draw(rt, "free")
		q := schedule.LeaseRequest{
			Worker: "t", Seq: 1, Free: free, Rooms: room(rapid.IntRange(1, free).Draw(rt, "room")),
		}
		holds := map[string]int{}
		for _, id := range ids {
			holds[id] = rapid.IntRange(0, 10).Draw(rt, "holds")
			q.Holds = append(q.Holds, schedule.Holding{SubscriberID: id, Slots: holds[id]})
		}
		rep := w.leaseBy(q)
		left := free - len(rep.Leased)
		for id, n := range perSubscriber(rep.Leased) {
			if holds[id]+n > left+len(rep.Leased)-n+1 {
				rt.Fatalf("%s got %d of %d free beside %d that it held", id, n, free, holds[id])
			}
		}
		// Nobody was left out for no reason: room was used up, or all are at their share.
		for _, id := range ids {
			n := perSubscriber(rep.Leased)[id]
			if len(rep.Leased) < q.Rooms.Total && n < 10 && holds[id]+n < left {
				rt.Fatalf("%s got %d and holds %d, with %d still free", id, n, holds[id], left)
			}
		}
		w.audit()
	})
}

// However many hang, one after another, slots stay free: each takes half of the rest.
func TestThresholdLeavesSome(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.known(time.Millisecond, 64, "hangs")
		rep := w.leaseBy(schedule.LeaseRequest{Worker: "t", Seq: 1, Free: 64, Rooms: room(64)})
		if n := len(rep.Leased); n != 32 {
			w.Fatalf("one subscriber got %d of 64 slots", n)
		}
		w.known(time.Millisecond, 8, "other") // works the backlog off, so there is another
		for i := range 64 {
			w.post(fmt.Sprint("again", i), "hangs")
		}
		rep = w.leaseBy(schedule.LeaseRequest{
			Worker: "t", Seq: 2, Free: 32, Rooms: room(32), Holds: []schedule.Holding{{SubscriberID: "hangs", Slots: 32}},
		})
		if n := perSubscriber(rep.Leased); n["hangs"] != 0 || n["other"] != 8 {
			w.Fatalf("then: %v", n)
		}
	})
}

// Those that can be given nothing do not stand in the way of those behind them,
// however many they are.
func TestThoseAtTheirShareArePassed(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		var ids []string
		var holds []schedule.Holding
		for i := range 80 {
			ids = append(ids, fmt.Sprint("s", i))
		}
		for _, id := range ids {
			w.subscribe(id, 10)
		}
		w.post("e1", ids...)
		for _, l := range w.lease("w", anyRoom).Leased {
			w.settle(schedule.Applied, answered(l, time.Millisecond))
		}
		w.post("e2", ids...)
		w.post("e3", ids...)
		for _, id := range ids[:75] {
			holds = append(holds, schedule.Holding{SubscriberID: id, Slots: 20})
		}
		rep := w.leaseBy(schedule.LeaseRequest{Worker: "t", Seq: 1, Free: 20, Rooms: room(20), Holds: holds})
		n := perSubscriber(rep.Leased)
		for _, id := range ids[75:] {
			if n[id] != 2 {
				w.Fatalf("leased %v, want both of each that holds nothing", n)
			}
		}
		w.audit()
	})
}

// Once the fresh lane has a history, every other turn serves its newest end; while it
// has none, the oldest is always first.
func TestNewestFirstEveryOtherTurn(t *testing.T) {
	t.Parallel()
	for late, want := range map[time.Duration][]string{
		5 * time.Second: {"e00", "e01", "e02", "e03", "e04", "e05", "e06", "e07"},
		time.Hour:       {"e19", "e00", "e18", "e01", "e17", "e02", "e16", "e03"},
	} {
		t.Run(late.String(), func(t *testing.T) {
			t.Parallel()
			contract(t, schedule.Options{Quantum: 1}, func(_ *testing.T, w *world) {
				w.freeze()
				w.subscribe("s1", 100)
				begin := w.frozen
				event := map[string]string{}
				for i := range 20 {
					name := fmt.Sprintf("e%02d", i)
					event[w.post(name, "s1")[0]] = name
					w.advance(time.Millisecond)
				}
				w.advance(late - w.frozen.Sub(begin))
				var got []string
				for range want {
					got = append(got, event[w.one("w").ID])
				}
				if !slices.Equal(got, want) {
					w.Fatalf("%s late: order %v, want %v", late, got, want)
				}
				w.audit()
			})
		})
	}
}

// What is due later is not the newest, however new.
func TestNewestIsDue(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.freeze()
		w.subscribe("s1", 1)
		ids := []string{w.post("e0", "s1")[0], w.post("e1", "s1")[0]}
		l := w.one("w")
		w.ok(w.Release(w.ctx, 0, []schedule.Claim{{ID: l.ID, Fence: l.Fence(), Wait: time.Hour}}))
		w.advance(time.Minute)
		for range 3 {
			got := w.one("w")
			if got.ID == l.ID || !slices.Contains(ids, got.ID) {
				w.Fatalf("leased %s before its time", got.ID)
			}
			w.ok(w.Release(w.ctx, 0, []schedule.Claim{{ID: got.ID, Fence: got.Fence()}}))
		}
	})
}

// A new endpoint's first request does not wait until all slow ones have had their turn.
func TestUnknownGoBeforeTheSlow(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		hang := map[string]time.Duration{}
		for i := range 6 {
			name := fmt.Sprint("a", i)
			w.subscribe(name, 10)
			hang[name] = 5 * time.Second
			for k := range 3 {
				w.post(fmt.Sprint(name, k), name)
			}
		}
		w.ok(w.Slow(w.ctx, 0, hang))
		for range 8 { // each has had a turn, and some two
			w.lease("w", room(1))
		}
		w.subscribe("z", 10)
		w.post("z", "z")
		if l := w.one("w"); l.SubscriberID != "z" || !l.Slow {
			w.Fatalf("%s is served before the new one", l.SubscriberID)
		}
		w.audit()
	})
}
