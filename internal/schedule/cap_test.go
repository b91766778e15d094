package schedule_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// capped is a world whose clock stands, with a subscriber s1 of whom nothing is known,
// and n deliveries that wait for it.
func capped(t *testing.T, n, maxInFlight int, test func(w *world)) {
	t.Helper()
	contract(t, schedule.Options{InitialCap: 1}, func(_ *testing.T, w *world) {
		w.freeze()
		w.subscribe("s1", maxInFlight)
		for i := range n {
			w.post(fmt.Sprint("e", i), "s1")
		}
		test(w)
	})
}

func (w *world) wantCap(want float64) {
	w.Helper()
	if got := w.standing("s1").Cap; math.Abs(got-want) > 0.001 {
		w.Fatalf("cap %v, want %v", got, want)
	}
}

// It starts at 1 and grows by 2/cap per success until the first failure, then by
// 1/cap; max_in_flight is the most.
func TestCapGrows(t *testing.T) {
	t.Parallel()
	capped(t, 60, 6, func(w *world) {
		want := 1.0
		w.wantCap(want)
		for range 12 {
			if n := len(w.lease("a", anyRoom).Leased); n != int(want) {
				w.Fatalf("leased %d at a cap of %v", n, want)
			}
			w.audit()
			// Give all back but one, which succeeds.
			for i, l := range w.leaseAt("a", w.seq["a"], anyRoom).Leased {
				if i > 0 {
					w.ok(w.Release(w.ctx, 0, []schedule.Claim{{ID: l.ID, Fence: l.Fence()}}))
					continue
				}
				w.settle(schedule.Applied, delivered(l))
			}
			want = min(6, want+2/want)
			w.wantCap(want)
		}
		w.fail(1, delivery.HTTP5xx)
		want = 3
		for range 6 {
			w.wantCap(want)
			w.settle(schedule.Applied, delivered(w.next()))
			want = min(6, want+1/want)
		}
		w.wantCap(want)
	})
}

// A round of failures halves it once: those that were leased before the cut were sent
// before its lesson was learned.
func TestCapIsHalvedOnceARound(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.freeze()
		w.subscribe("s1", 8)
		for i := range 20 {
			w.post(fmt.Sprint("e", i), "s1")
		}
		round := w.lease("w", anyRoom).Leased
		want := 8.0
		for len(round) > 1 {
			w.wantCap(want)
			w.advance(time.Second)
			w.settle(schedule.Applied, failed(round[0], delivery.Timeout))
			want /= 2
			w.wantCap(want)
			w.advance(time.Second)
			for _, l := range round[1:] {
				w.settle(schedule.Applied, failed(l, delivery.Timeout))
			}
			w.wantCap(want)
			w.advance(time.Second)
			round = w.lease("w", anyRoom).Leased
		}
		w.advance(time.Second)
		w.settle(schedule.Applied, failed(round[0], delivery.Timeout))
		w.wantCap(1) // never below
		w.audit()
	})
}

// What is not the endpoint's fault leaves the cap; a lost lease frees its place.
func TestCapIsCutForTheEndpointOnly(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.freeze()
		w.subscribe("s1", 4)
		for i := range 8 {
			w.post(fmt.Sprint("e", i), "s1")
		}
		w.settle(schedule.Applied, failed(w.next(), delivery.HTTP400))
		w.settle(schedule.Applied, failed(w.next(), delivery.PayloadMissing))
		w.wantCap(4)
		killed := w.lease("dies", anyRoom).Leased
		w.none("past the cap")
		w.advance(time.Minute)
		for _, l := range killed {
			w.settle(schedule.Applied, lost(l, w.frozen))
		}
		w.wantCap(4)
		if n := len(w.lease("w", anyRoom).Leased); n != 4 {
			w.Fatalf("leased %d of 4 after a worker's death", n)
		}
		w.audit()
	})
}

// A config lowers it at once, and raises what it may become.
func TestCapFollowsItsConfig(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{InitialCap: 4}, func(_ *testing.T, w *world) {
		w.freeze()
		w.subscribe("s1", 4)
		w.wantCap(4)
		w.subscribe("s1", 2)
		w.wantCap(2)
		w.subscribe("s1", 100)
		w.wantCap(4)
		for i := range 8 {
			w.post(fmt.Sprint("e", i), "s1")
		}
		w.lease("w", anyRoom)
		w.subscribe("s1", 2)
		w.none("with 4 out at a cap of 2")
		w.audit()
	})
}

// Whatever happens, the cap stays between 1 and max_in_flight, is what an oracle of a
// few lines says, and is never leased past.
func TestCapWalk(t *testing.T) {
	t.Parallel()
	walk(t, func(rt *rapid.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb, schedule.Options{InitialCap: 1})
		w.freeze()
		most := rapid.IntRange(1, 5).Draw(rt, "max_in_flight")
		w.subscribe("s1", most)
		for i := range 7 {
			w.post(fmt.Sprint("e", i), "s1")
		}
		var out []schedule.Leased
		size, cut := 1.0, time.Time{}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			w.advance(time.Duration(rapid.IntRange(0, 2).Draw(rt, "ms")) * time.Millisecond)
			if rapid.Bool().Draw(rt, "lease") {
				got := w.lease("w", anyRoom).Leased
				if room := max(0, int(size+0.001)-len(out)); len(got) != min(room, 7-len(out)) {
					rt.Fatalf("leased %d with %d out at a cap of %v", len(got), len(out), size)
				}
				out = append(out, got...)
			} else if len(out) > 0 {
				i := rapid.IntRange(0, len(out)-1).Draw(rt, "of")
				o := rapid.SampledFrom([]delivery.Outcome{delivery.OK, delivery.Timeout, delivery.HTTP400}).Draw(rt, "outcome")
				w.settle(schedule.Applied, failed(out[i], o)) // each may go again
				switch {
				case o == delivery.OK && cut.IsZero():
					size = min(float64(most), size+2/size)
				case o == delivery.OK:
					size = min(float64(most), size+1/size)
				case o == delivery.Timeout && out[i].LastAttemptAt.After(cut):
					size, cut = max(1, size/2), w.frozen
				}
				out = append(out[:i], out[i+1:]...)
			}
			w.wantCap(size)
		}
		w.audit()
	})
}
