package redrive

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

func TestRampFor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		n, limit float64
		least    time.Duration
		most     time.Duration
	}{
		{0, 1, 0, 0},
		{0, 0.01, 0, 0},
		{100, 1, 100 * time.Second, 100 * time.Second},
		{1, 0.01, 100 * time.Second, 100 * time.Second},
		{10, 0.5, 20 * time.Second, 20 * time.Second},
		{10_000, 100, 120 * time.Second, 130 * time.Second}, // half a minute of ramp, then 100/s
		{1_000_000, 1000, 1030 * time.Second, 1060 * time.Second},
		{MaxMembers, minRate, 100_000_000 * time.Second, 100_000_000 * time.Second}, // no overflow
	} {
		if got := rampFor(tt.n, tt.limit); got < tt.least || got > tt.most {
			t.Errorf("%.0f at %.2f/s take %s, want %s to %s", tt.n, tt.limit, got, tt.least, tt.most)
		}
	}
}

// paced releases for a time in steps of the given length, and says how many.
func paced(c *Cohort, limit float64, step, length time.Duration) (n int64) {
	for at := time.Duration(0); at <= length; at += step {
		n += c.pace(noon.Add(at), 3*time.Second, limit, false)
	}
	return n
}

// A rate is what is released: below one a second, between two numbers, and at steps that
// come late.
func TestPaceIsTheRate(t *testing.T) {
	t.Parallel()
	for _, limit := range []float64{0.01, 0.2, 0.5, 1, 1.5, 1.9, 7.3, 100, 1000} {
		for _, step := range []time.Duration{time.Second, 1170 * time.Millisecond, 300 * time.Millisecond} {
			c := Cohort{Rate: limit, PacedAt: noon}
			length := 1000 * time.Second
			got, want := float64(paced(&c, limit, step, length)), limit*length.Seconds()
			if math.Abs(got-want) > 2+limit*step.Seconds() {
				t.Errorf("%.0f in 1000 s at %.2f/s and a step of %s, want %.0f", got, limit, step, want)
			}
		}
	}
}

func TestPaceRampsUp(t *testing.T) {
	t.Parallel()
	c := Cohort{Rate: 1, PacedAt: noon}
	if n := c.pace(noon.Add(900*time.Millisecond), time.Minute, 100, false); n != 0 {
		t.Fatalf("%d at once", n)
	}
	first := paced(&c, 100, time.Second, 10*time.Second)
	if first < 15 || first > 35 {
		t.Errorf("%d in the first ten seconds", first)
	}
	c = Cohort{Rate: 1, PacedAt: noon}
	got, want := rampFor(2000, 100).Seconds(), 0.0
	for n := int64(0); n < 2000; want++ {
		n += c.pace(noon.Add(time.Duration(want)*time.Second), 3*time.Second, 100, false)
	}
	if c.Rate != 100 || math.Abs(got-want) > 0.1*want {
		t.Errorf("it takes %.0f s, and is said to take %.0f; rate %.1f", want, got, c.Rate)
	}
}

// Whatever the clock does, no more than the limit is released in a time that passes, and
// no burst follows a silence.
func TestPaceNeverBursts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.Float64Range(minRate, maxRate).Draw(rt, "limit")
		c := Cohort{Rate: min(1, limit), PacedAt: noon}
		now, total, passed := noon, int64(0), 0.0
		for range rapid.IntRange(1, 50).Draw(rt, "steps") {
			d := time.Duration(rapid.Int64Range(-5000, 60_000).Draw(rt, "ms")) * time.Millisecond
			now = now.Add(d)
			n := c.pace(now, 3*time.Second, limit, false)
			total += n
			passed += max(0, d.Seconds())
			if most := 1 + 3*limit + 1e-3; float64(n) > most {
				rt.Fatalf("%d at once at %.3f/s", n, limit)
			}
			if c.PacedAt.After(now.Add(time.Millisecond)) || c.Rate > limit {
				rt.Fatalf("paid for %s beforehand, rate %f of %f", c.PacedAt.Sub(now), c.Rate, limit)
			}
		}
		if float64(total) > limit*passed+1 {
			rt.Fatalf("%d in %.1f s at %.3f/s", total, passed, limit)
		}
	})
}

// What the dispatchers do not come to holds the release back; what waits for its retry
// does not, up to a bound.
func TestCrowded(t *testing.T) {
	t.Parallel()
	untried := delivery.Delivery{State: delivery.Scheduled, Attempts: 15, BudgetBase: 15}
	failed := delivery.Delivery{State: delivery.Scheduled, Attempts: 16, BudgetBase: 15}
	leased := delivery.Delivery{State: delivery.Leased, Attempts: 16, BudgetBase: 15}
	of := func(d delivery.Delivery, n int) (ds []delivery.Delivery) {
		for range n {
			ds = append(ds, d)
		}
		return ds
	}
	for _, tt := range []struct {
		rate float64
		out  []delivery.Delivery
		want bool
	}{
		{1, nil, false},
		{1, of(untried, untriedMin-1), false},
		{1, of(untried, untriedMin), true},
		{0.1, of(untried, untriedMin), true},
		{100, of(untried, 499), false},
		{100, of(untried, 500), true},
		{1, of(failed, 500), false},
		{1, of(leased, 500), false},
		{1, of(failed, lookAtOut), true},
	} {
		s, c := Service{flows: map[string]flow{}}, Cohort{Rate: tt.rate}
		if why := s.crowded(&c, health{out: tt.out}); (why != "") != tt.want {
			t.Errorf("rate %.1f, %d out: %q", tt.rate, len(tt.out), why)
		}
	}
}

// A subscriber that takes one in five seconds, by a rate of its own, has no more put
// into the lane than the least that may always wait there, however fast the cohort is.
func TestCrowdedByWhatIsTaken(t *testing.T) {
	t.Parallel()
	s, c := Service{flows: map[string]flow{}}, Cohort{Rate: 1, Limit: 1000}
	now := time.UnixMilli(1_800_000_000_000)
	released, tried := int64(0), int64(0)
	for second := range int64(120) {
		now = now.Add(time.Second)
		tried = min(released, second/5)
		h := health{sample: schedule.Sample{Now: now}, tally: schedule.Tally{Released: released}}
		for range released - tried {
			h.out = append(h.out, delivery.Delivery{State: delivery.Scheduled})
		}
		if why := s.crowded(&c, h); why != "" {
			c.Rate = max(c.Rate/2, 1)
			continue
		}
		released += int64(math.Ceil(c.Rate))
		c.Rate = min(c.Rate*growth, c.Limit)
		if waits := released - tried; waits > 2*untriedMin {
			t.Fatalf("after %d s %d wait for a subscriber that takes one in five seconds", second, waits)
		}
	}
	if tried < 20 {
		t.Errorf("only %d of the 23 that it takes were there to be taken", tried)
	}
}

// Many good results do not hide the bad ones that follow.
func TestTheGuardJudgesTheLastResults(t *testing.T) {
	t.Parallel()
	var c Cohort
	var h health
	for range 5000 {
		h.tally.Delivered++
		c.slide(h)
	}
	for n := 1; ; n++ {
		h.tally.Dead++
		if bad, all := c.failures(h); all >= failMin && float64(bad) > failShare*float64(all) {
			if n > 12 {
				t.Errorf("it took %d failures in a row", n)
			}
			return
		}
		c.slide(h)
	}
}

// While fresh deliveries wait at its looks a cohort slows down, but not below what harms
// nobody; from below that it grows all the same.
func TestSlowsDown(t *testing.T) {
	t.Parallel()
	c, now := Cohort{Rate: 1, Limit: 500, PacedAt: noon}, noon
	looks := func(n int, busy bool) {
		for range n {
			now = now.Add(stepEvery)
			c.pace(now, 3*time.Second, c.Limit, busy)
		}
	}
	looks(100, true)
	if c.Rate < slowly || c.Rate > 2*slowly {
		t.Fatalf("from 1/s, with waiting at each look, it came to %.1f/s", c.Rate)
	}
	looks(120, false)
	if c.Rate != 500 {
		t.Fatalf("with none it came to %.1f/s, want its limit", c.Rate)
	}
	looks(10, true)
	if want := 500 * math.Pow(shrink, 10); math.Abs(c.Rate-want) > 1 {
		t.Errorf("ten looks slowed it down to %.1f/s, want %.1f", c.Rate, want)
	}
	looks(100, true)
	if c.Rate < slowly || c.Rate > 2*slowly {
		t.Errorf("it slowed down to %.2f/s", c.Rate)
	}
}
