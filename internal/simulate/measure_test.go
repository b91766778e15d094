package simulate

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A percentile is that of the values themselves, or above it by what a bin is wide.
func TestHistogram(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		values := rapid.SliceOfN(rapid.Int64Range(0, 1<<rapid.IntRange(1, 44).Draw(rt, "bits")), 1, 200).Draw(rt, "values")
		var h, a, b histogram
		for i, v := range values {
			h.add(v)
			if i%2 == 0 {
				a.add(v)
			} else {
				b.add(v)
			}
		}
		a.merge(&b)
		slices.Sort(values)
		for _, p := range []int64{1, 50, 90, 99, 100} {
			want := values[(int64(len(values))*p+99)/100-1]
			got := h.percentile(p)
			if got < want || float64(got) > float64(want)*(1+1.0/fineness)+1 || got != a.percentile(p) {
				rt.Fatalf("p%d of %v is %d, merged %d, want %d", p, values, got, a.percentile(p), want)
			}
		}
	})
}

func TestLevels(t *testing.T) {
	t.Parallel()
	var l levels
	l.move(3, 100, 1000)  // 0 until 100
	l.move(-2, 980, 1000) // 3 until 980
	l.move(5, 2000, 1000) // 1 until the end, and nothing after it
	l.move(0, 1000, 1000)
	for p, want := range map[int64]int{5: 0, 11: 1, 12: 1, 13: 3, 99: 3} {
		if got := l.percentile(p); got != want {
			t.Errorf("p%d is %d, want %d", p, got, want)
		}
	}
	if got := l.share(3); math.Abs(got-0.88) > 1e-9 {
		t.Errorf("at 3 for %v of the time", got)
	}
}

// What is drawn has the median and the p99 that were asked for.
func TestLatencyIsAsAsked(t *testing.T) {
	t.Parallel()
	s := newSampler(Latency{ms(50), ms(400)})
	var all []int64
	for key := range uint64(20_000) {
		d := drawsOf(3, key+1, 1)
		all = append(all, s.draw(&d))
	}
	slices.Sort(all)
	p50 := time.Duration(all[len(all)/2]) * time.Microsecond
	p99 := time.Duration(all[len(all)*99/100]) * time.Microsecond
	if p50 < 48*time.Millisecond || p50 > 52*time.Millisecond || p99 < 360*time.Millisecond || p99 > 440*time.Millisecond {
		t.Errorf("p50 %s, p99 %s", p50, p99)
	}
	d := drawsOf(3, 1, 1)
	if got := newSampler(Latency{P50: ms(7)}).draw(&d); got != 7000 {
		t.Errorf("a constant is drawn as %d us", got)
	}
}
