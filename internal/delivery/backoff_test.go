package delivery

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// backoffPolicy is a policy of which only the backoff matters.
func backoffPolicy(base, limit time.Duration) Policy {
	p := DefaultPolicy()
	p.BackoffBase, p.BackoffCap = Duration(base), Duration(limit)
	return p
}

func TestWindow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		base, limit time.Duration
		attempt     int
		want        time.Duration
	}{
		{5 * time.Second, time.Hour, 1, 5 * time.Second},
		{5 * time.Second, time.Hour, 2, 10 * time.Second},
		{5 * time.Second, time.Hour, 10, 2560 * time.Second},
		{5 * time.Second, time.Hour, 11, time.Hour}, // 5120 s
		{5 * time.Second, time.Hour, 12, time.Hour},
		{5 * time.Second, time.Hour, 0, 5 * time.Second}, // below 1 counts as 1
		{5 * time.Second, time.Hour, -1, 5 * time.Second},
		{5 * time.Second, time.Hour, math.MinInt, 5 * time.Second},
		{5 * time.Second, time.Hour, math.MaxInt, time.Hour},
		{time.Second, time.Second, 1, time.Second},
		{time.Second, time.Second, 9, time.Second},
		{time.Second, 8 * time.Second, 4, 8 * time.Second}, // the cap exactly
		{time.Minute, time.Second, 1, time.Second},         // refused by Validate, and yet safe
		{1, math.MaxInt64, 63, 1 << 62},
		{1, math.MaxInt64, 64, math.MaxInt64}, // 2^63 would be negative
		{1, math.MaxInt64, math.MaxInt, math.MaxInt64},
		{math.MaxInt64, math.MaxInt64, math.MaxInt, math.MaxInt64},
		{0, time.Hour, math.MaxInt, 0},
		{-time.Second, time.Hour, math.MaxInt, -time.Second},
	} {
		if got := Window(backoffPolicy(c.base, c.limit), c.attempt); got != c.want {
			t.Errorf("base %s, cap %s, attempt %d: %s, want %s", c.base, c.limit, c.attempt, got, c.want)
		}
	}
}

// TestBackoffGolden pins the draw. Every machine, release and "explain" must
// agree on it: a change here moves deliveries that are scheduled already.
func TestBackoffGolden(t *testing.T) {
	t.Parallel()
	id := NewID("evt_1", "sub_1")
	for _, c := range []struct {
		id      string
		attempt int
		want    time.Duration
	}{
		{id, 1, 3259 * time.Millisecond},
		{id, 2, 1542 * time.Millisecond},
		{id, 3, 10865 * time.Millisecond},
		{id, 11, 57408 * time.Millisecond},
		{id, 15, 3449581 * time.Millisecond},
		{id, math.MaxInt, 2156858 * time.Millisecond},
		{"", 1, 3819 * time.Millisecond},
	} {
		for range 3 { // nothing is remembered between the draws
			if got := Backoff(DefaultPolicy(), c.id, c.attempt); got != c.want {
				t.Errorf("%q, attempt %d: %dms, want %dms", c.id, c.attempt, got.Milliseconds(), c.want.Milliseconds())
			}
		}
	}
	for _, attempt := range []int{0, -1, math.MinInt} {
		if got, first := Backoff(DefaultPolicy(), id, attempt), Backoff(DefaultPolicy(), id, 1); got != first {
			t.Errorf("attempt %d waits %s, attempt 1 %s", attempt, got, first)
		}
	}
}

func TestBackoffStaysInTheWindow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := backoffPolicy(
			time.Duration(rapid.Int64().Draw(t, "base")),
			time.Duration(rapid.Int64().Draw(t, "cap")))
		attempt := rapid.Int().Draw(t, "attempt")
		got := Backoff(p, rapid.String().Draw(t, "id"), attempt)
		if top := max(Window(p, attempt), 0); got < 0 || got > top || got%time.Millisecond != 0 {
			t.Fatalf("%s is not in whole milliseconds of [0, %s]", got, top)
		}
	})
}

// deciles counts how often a delay falls into each tenth of [0, window], over
// many ids. The ids are fixed, so the counts are too: this cannot flake.
func deciles(delay func(id string) time.Duration, window time.Duration) (bins [10]int, n int) {
	for i := range 5000 {
		d := delay(NewID(fmt.Sprint("evt_", i), fmt.Sprint("sub_", i%50)))
		bins[min(int(d*10/(window+1)), 9)]++
		n++
	}
	return bins, n
}

// chiSquare measures how far the bins are from equal. With 9 degrees of freedom a
// uniform draw exceeds 27.9 once in a thousand.
func chiSquare(bins [10]int, n int) float64 {
	expected, sum := float64(n)/10, 0.0
	for _, b := range bins {
		sum += (float64(b) - expected) * (float64(b) - expected) / expected
	}
	return sum
}

const chiLimit = 27.9

// TestBackoffIsFullJitter: uniform over the whole window, at every attempt.
func TestBackoffIsFullJitter(t *testing.T) {
	t.Parallel()
	p := DefaultPolicy()
	for _, attempt := range []int{1, 2, 5, 11, 15} {
		window := Window(p, attempt)
		bins, n := deciles(func(id string) time.Duration { return Backoff(p, id, attempt) }, window)
		if x := chiSquare(bins, n); x > chiLimit {
			t.Errorf("attempt %d: chi-square %.1f, deciles %v", attempt, x, bins)
		}
	}
}

// TestOtherJittersWouldFail makes sure that the test above can tell.
func TestOtherJittersWouldFail(t *testing.T) {
	t.Parallel()
	p := DefaultPolicy()
	const attempt = 5
	window := Window(p, attempt)
	for name, delay := range map[string]func(id string) time.Duration{
		"equal jitter":    func(id string) time.Duration { return window/2 + Backoff(p, id, attempt)/2 },
		"a fixed delay":   func(string) time.Duration { return window },
		"no delay":        func(string) time.Duration { return 0 },
		"10 % jitter":     func(id string) time.Duration { return window - Backoff(p, id, attempt)/10 },
		"half a window":   func(id string) time.Duration { return Backoff(p, id, attempt) / 2 },
		"a floor of 12 %": func(id string) time.Duration { return max(Backoff(p, id, attempt), window*12/100) },
	} {
		bins, n := deciles(delay, window)
		if x := chiSquare(bins, n); x <= chiLimit {
			t.Errorf("%s passes for full jitter: %v", name, bins)
		}
	}
}

// TestBackoffReachesBothEnds: the window is closed, [0, window].
func TestBackoffReachesBothEnds(t *testing.T) {
	t.Parallel()
	p := backoffPolicy(3*time.Millisecond, 3*time.Millisecond)
	counts := map[time.Duration]int{}
	const n = 8000
	for i := range n {
		counts[Backoff(p, fmt.Sprint("dlv_", i), 1)]++
	}
	for d := time.Duration(0); d <= 3*time.Millisecond; d += time.Millisecond {
		if c := counts[d]; c < n/4-n/40 || c > n/4+n/40 {
			t.Errorf("%s is drawn %d times of %d", d, c, n)
		}
	}
	if len(counts) != 4 {
		t.Errorf("drawn: %v", counts)
	}
}

// TestBackoffsAreIndependent: deliveries that failed together must not come back
// together at any later attempt. Correlation of attempt n with n+1, over ids and
// within the ids of one event, is noise.
func TestBackoffsAreIndependent(t *testing.T) {
	t.Parallel()
	p := backoffPolicy(time.Hour, time.Hour)
	const n = 20_000
	correlate := func(pair func(i int) (time.Duration, time.Duration)) float64 {
		var sx, sy, sxx, syy, sxy float64
		for i := range n {
			a, b := pair(i)
			x, y := a.Seconds(), b.Seconds()
			sx, sy, sxx, syy, sxy = sx+x, sy+y, sxx+x*x, syy+y*y, sxy+x*y
		}
		return (n*sxy - sx*sy) / math.Sqrt((n*sxx-sx*sx)*(n*syy-sy*sy))
	}
	id := func(i int) string { return fmt.Sprintf("dlv_%06d", i) }
	for name, pair := range map[string]func(i int) (time.Duration, time.Duration){
		"consecutive attempts": func(i int) (time.Duration, time.Duration) {
			return Backoff(p, id(i), 1), Backoff(p, id(i), 2)
		},
		"consecutive ids": func(i int) (time.Duration, time.Duration) {
			return Backoff(p, id(i), 1), Backoff(p, id(i+1), 1)
		},
		"id against attempt": func(i int) (time.Duration, time.Duration) {
			return Backoff(p, id(i), 2), Backoff(p, id(i+1), 1)
		},
	} {
		if r := correlate(pair); math.Abs(r) > 0.03 { // 4 sigma of noise
			t.Errorf("%s correlate by %.3f", name, r)
		}
	}
}

func BenchmarkBackoff(b *testing.B) {
	p, id := DefaultPolicy(), NewID("evt_1", "sub_1")
	b.ReportAllocs()
	for b.Loop() {
		Backoff(p, id, 15)
	}
}
