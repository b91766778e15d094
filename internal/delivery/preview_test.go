package delivery

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

func TestPreview(t *testing.T) {
	t.Parallel()
	policy := func(change func(*Policy)) Policy {
		p := DefaultPolicy()
		p.AttemptTimeout, p.MaxAttempts, p.BackoffBase = Duration(10*time.Second), 5, Duration(4*time.Second)
		p.BackoffCap, p.MaxAge = Duration(16*time.Second), Duration(time.Hour)
		change(&p)
		return p
	}
	for name, c := range map[string]struct {
		policy   Policy
		attempts int
		// mean and latest of each step, in seconds
		mean, latest []float64
		end          Outcome
		after        float64
		made         int
		over         float64
	}{
		"all of them": {
			policy: policy(func(*Policy) {}),
			mean:   []float64{0, 2, 6, 14, 22}, latest: []float64{0, 14, 32, 58, 84},
			end: Exhausted, after: 22, made: 5, over: 94,
		},
		"the first two": {
			policy: policy(func(*Policy) {}), attempts: 2,
			mean: []float64{0, 2}, latest: []float64{0, 14},
			end: Exhausted, after: 22, made: 5, over: 94,
		},
		"more than there are": {
			policy: policy(func(p *Policy) { p.MaxAttempts = 2 }), attempts: 50,
			mean: []float64{0, 2}, latest: []float64{0, 14},
			end: Exhausted, after: 2, made: 2, over: 24,
		},
		"one alone": {
			policy: policy(func(p *Policy) { p.MaxAttempts = 1 }),
			mean:   []float64{0}, latest: []float64{0}, end: Exhausted, made: 1, over: 10,
		},
		"age comes first": {
			policy: policy(func(p *Policy) { p.MaxAge = Duration(13 * time.Second) }),
			mean:   []float64{0, 2, 6, 14, 22}, latest: []float64{0, 13, 13, 13, 13},
			end: Expired, after: 6, made: 3, over: 23,
		},
		"age at the very start of the last": {
			policy: policy(func(p *Policy) { p.MaxAge = Duration(22 * time.Second) }),
			mean:   []float64{0, 2, 6, 14, 22}, latest: []float64{0, 14, 22, 22, 22},
			end: Exhausted, after: 22, made: 5, over: 32,
		},
		"age ends it, but not what is shown": {
			policy: policy(func(p *Policy) { p.MaxAge = Duration(13 * time.Second) }), attempts: 1,
			mean: []float64{0}, latest: []float64{0}, end: Expired, after: 6, made: 3, over: 23,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Preview(c.policy, c.attempts)
			if len(got.Steps) != len(c.mean) {
				t.Fatalf("%d steps, want %d", len(got.Steps), len(c.mean))
			}
			for i, s := range got.Steps {
				want := Step{Attempt: i + 1, Mean: seconds(c.mean[i]), Latest: seconds(c.latest[i])}
				if s != want {
					t.Errorf("step %+v, want %+v", s, want)
				}
			}
			if got.End != c.end || got.EndsAfter != seconds(c.after) || got.Attempts != c.made || got.Latest != seconds(c.over) {
				t.Errorf("ends %s after %s and %d attempts, at the latest at %s", got.End, got.EndsAfter, got.Attempts, got.Latest)
			}
		})
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// TestPreviewAgreesWithDecide plays deliveries to their end by Decide, against an
// endpoint that fails after a while: no attempt starts outside of its step, and,
// where it fails at once and age does not cut it short, they start at the mean in
// the mean.
func TestPreviewAgreesWithDecide(t *testing.T) {
	t.Parallel()
	const deliveries = 4000
	for name, c := range map[string]struct {
		change func(*Policy)
		takes  time.Duration // at most, of each attempt
		means  bool
	}{
		"at once":        {func(*Policy) {}, 0, true},
		"up to a hang":   {func(*Policy) {}, 10 * time.Second, false},
		"cut by age":     {func(p *Policy) { p.MaxAge = Duration(40 * time.Second) }, 0, false},
		"age and hang":   {func(p *Policy) { p.MaxAge = Duration(40 * time.Second) }, 10 * time.Second, false},
		"a window of ns": {func(p *Policy) { p.BackoffBase = Duration(10*time.Millisecond + 3); p.MaxAttempts = 3 }, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := DefaultPolicy()
			p.MaxAttempts, p.BackoffCap = 8, Duration(time.Minute)
			c.change(&p)
			f := Preview(p, 0)
			starts := make([][]time.Duration, p.MaxAttempts)
			rng := rand.New(rand.NewPCG(1, 2))
			for i := range deliveries {
				for n, at := range play(t, p, fmt.Sprint("evt_", i), c.takes, rng) {
					s := f.Steps[n]
					if at < s.Earliest || at > s.Latest {
						t.Fatalf("attempt %d starts at %s, outside of %+v", n+1, at, s)
					}
					starts[n] = append(starts[n], at)
				}
			}
			if !c.means {
				return
			}
			for n, s := range f.Steps {
				var sum time.Duration
				for _, at := range starts[n] {
					sum += at
				}
				mean := sum / time.Duration(len(starts[n]))
				if off := (mean - s.Mean).Abs(); off > s.Mean/20 {
					t.Errorf("attempt %d starts at %s in the mean, %s was foreseen", n+1, mean, s.Mean)
				}
			}
		})
	}
}

// play is one delivery from its acceptance to its death: when its attempts start.
func play(t *testing.T, p Policy, event string, takes time.Duration, rng *rand.Rand) (starts []time.Duration) {
	t.Helper()
	accepted := time.Unix(1_800_000_000, 0)
	d := New(event, "sub_1", accepted, time.Duration(p.MaxAge))
	for now := accepted; ; {
		d.State = Leased
		d.Attempts++
		d.DeliveryCount++
		starts = append(starts, now.Sub(accepted))
		if takes > 0 {
			now = now.Add(time.Duration(rng.Int64N(int64(takes) + 1)))
		}
		next, err := Decide(p, d, Result{Outcome: Timeout}, now)
		if err != nil {
			t.Fatal(err)
		}
		if next.Next == Dead {
			return starts
		}
		now = next.DueAt
	}
}
