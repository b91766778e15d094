package schedule_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// rated is a world whose clock stands, with a subscriber s1 at a rate, and n
// deliveries that wait for it and never end: each settle has it due again at once.
func rated(w *world, perSecond float64, burst, n int) {
	w.Helper()
	w.freeze()
	w.put("s1", schedule.Edited, func(tm *schedule.Terms) { tm.RatePerSecond, tm.Burst = perSecond, burst })
	for i := range n {
		w.post(fmt.Sprint("e", i), "s1")
	}
}

// again leases as a worker, has all of it due again at once, and says how many.
func (w *world) again(worker string, r schedule.Rooms) (int, time.Time) {
	w.Helper()
	rep := w.lease(worker, r)
	vs := make([]schedule.Verdict, len(rep.Leased))
	for i, l := range rep.Leased {
		vs[i] = failed(l, delivery.HTTP400)
	}
	_, err := w.Settle(w.ctx, 0, vs)
	w.ok(err)
	return len(rep.Leased), rep.NextDue
}

// Over any window of length t no more than burst + rate*t attempts begin, whatever the
// workers ask for and when.
func TestRateIsNeverExceeded(t *testing.T) {
	t.Parallel()
	walk(t, func(rt *rapid.T, rdb redis.UniversalClient) {
		rate := rapid.SampledFrom([]float64{0.05, 0.7, 1, 3, 17, 333, 3000}).Draw(rt, "rate")
		burst := rapid.IntRange(1, 12).Draw(rt, "burst")
		w := newWorld(t, rdb, schedule.Options{})
		rated(w, rate, burst, 12)
		type taken struct {
			at time.Time
			n  int
		}
		var all []taken
		for range rapid.IntRange(2, 16).Draw(rt, "steps") {
			worker := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "worker")
			n, _ := w.again(worker, room(rapid.IntRange(1, 15).Draw(rt, "room")))
			all = append(all, taken{w.frozen, n})
			in := rapid.Float64Range(0, 3).Draw(rt, "intervals") / rate
			w.advance(time.Duration(in * float64(time.Second)).Truncate(time.Millisecond))
		}
		for i := range all {
			sum := 0
			for _, a := range all[i:] {
				sum += a.n
				// The sum of what a millisecond and a printed tat may be off by.
				window := a.at.Sub(all[i].at)
				if float64(sum) > float64(burst)+rate*window.Seconds()+0.05 {
					rt.Fatalf("%d within %s at a rate of %v and a burst of %d", sum, window, rate, burst)
				}
			}
		}
		w.audit()
	})
}

// Who has a backlog gets all of its rate: asked at each time that the reply names, and
// shared by three workers, not one token is lost.
func TestRateIsUsedUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate  float64
		burst int
	}{{0.5, 1}, {1, 5}, {3, 1}, {7, 10}, {40, 2}} {
		t.Run(fmt.Sprintf("%v a second, %d at once", c.rate, c.burst), func(t *testing.T) {
			t.Parallel()
			contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
				rated(w, c.rate, c.burst, 12)
				begin, total := w.frozen, 0
				for range 60 {
					n, next := w.again(string(rune('a'+total%3)), anyRoom)
					total += n
					if n == 0 || !next.After(w.frozen) {
						w.Fatalf("%d leased at a time that was named, next %s, now %s", n, next, w.frozen)
					}
					w.advance(next.Sub(w.frozen))
				}
				passed := w.frozen.Sub(begin).Seconds()
				if want := c.rate * passed; float64(total-c.burst) < want-1.1-c.rate*0.06 {
					w.Fatalf("%d leased in %.3f s", total, passed)
				}
				w.audit()
			})
		})
	}
}

// Waiting for a token is limited, not eligible, and spends no attempt.
func TestRateLimits(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		rated(w, 0.1, 2, 5)
		rep := w.lease("w", anyRoom)
		if len(rep.Leased) != 2 || !rep.NextDue.Equal(w.frozen.Add(10*time.Second)) {
			w.Fatalf("leased %d, next due %s", len(rep.Leased), rep.NextDue)
		}
		w.audit()
		w.advance(9 * time.Second)
		w.none("without a token")
		if a := w.ages("standard"); !a.Eligible.IsZero() || a.Limited.IsZero() || !a.Held.IsZero() {
			w.Fatalf("ages: %+v", a)
		}
		w.advance(time.Second)
		if l := w.one("other"); l.Attempts != 1 {
			w.Fatalf("after its wait: %+v", l.Delivery)
		}
		w.none("with the token spent")
		// A release gives no token back: the attempt may begin again, and that is another.
		l := rep.Leased[0]
		w.ok(w.Release(w.ctx, 0, []schedule.Claim{{ID: l.ID, Fence: l.Fence()}}))
		w.none("with a token given back")
		w.audit()
	})
}

// An idle subscriber saves up no more than its burst.
func TestRateDoesNotSaveUp(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		rated(w, 10, 3, 12)
		for range 3 {
			w.advance(time.Hour)
			if n, _ := w.again("w", anyRoom); n != 3 {
				w.Fatalf("leased %d at once, want the burst of 3", n)
			}
		}
	})
}

// Raised, it helps at once: no debt from the old rate is left to wait for.
func TestRateIsRaised(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		rated(w, 0.01, 10, 12)
		if n, _ := w.again("w", anyRoom); n != 10 {
			w.Fatalf("leased %d at once, want the burst of 10", n)
		}
		w.put("s1", schedule.Edited, func(tm *schedule.Terms) { tm.RatePerSecond, tm.Burst = 100, 10 })
		w.audit()
		w.advance(time.Second)
		if n, _ := w.again("w", anyRoom); n != 10 {
			w.Fatalf("leased %d a second after the rate was raised", n)
		}
		w.put("s1", schedule.Edited, nil)
		if n, _ := w.again("w", anyRoom); n != 12 {
			w.Fatalf("leased %d without a rate", n)
		}
	})
}

// A probe takes a token like any attempt.
func TestProbeTakesAToken(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.freeze()
		w.put("s1", schedule.Edited, func(tm *schedule.Terms) {
			tm.RatePerSecond, tm.Burst, tm.BreakerFailures = 0.01, 3, 3
		})
		for i := range 5 {
			w.post(fmt.Sprint("e", i), "s1")
		}
		w.fail(3, delivery.Timeout)
		w.wantHolds("s1", schedule.Breaker)
		w.untilProbe()
		rep := w.lease("w", anyRoom)
		if len(rep.Leased) != 0 || rep.NextDue.Sub(w.frozen) > 100*time.Second {
			w.Fatalf("probes without a token: %d, next due %s", len(rep.Leased), rep.NextDue)
		}
		w.audit()
		w.advance(rep.NextDue.Sub(w.frozen))
		w.settle(schedule.Applied, delivered(w.one("w")))
		w.wantHolds("s1")
	})
}
