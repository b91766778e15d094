package schedule_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// breakers is a world whose clock stands, with a subscriber s1 whose breaker opens
// after three failures, and n deliveries that wait for it.
func breakers(t *testing.T, n int, test func(w *world)) {
	t.Helper()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.freeze()
		w.put("s1", schedule.Edited, three)
		for i := range n {
			w.post(fmt.Sprint("e", i), "s1")
		}
		test(w)
	})
}

func three(tm *schedule.Terms) { tm.BreakerFailures = 3 }

// next leases one, a moment after whatever was before.
func (w *world) next() schedule.Leased {
	w.Helper()
	w.advance(time.Millisecond)
	return w.one("w")
}

// fail leases and fails, one after another.
func (w *world) fail(times int, o delivery.Outcome) {
	w.Helper()
	for range times {
		w.settle(schedule.Applied, failed(w.next(), o))
	}
}

// untilProbe passes the time until the breaker lets its next probe go.
func (w *world) untilProbe() time.Duration {
	w.Helper()
	rest := w.standing("s1").ProbeAt.Sub(w.frozen)
	if rest > 0 {
		w.advance(rest)
	}
	return rest
}

// It opens after exactly so many failures in a row that are the endpoint's.
func TestBreakerOpens(t *testing.T) {
	t.Parallel()
	const e, p, u, ok = delivery.HTTP5xx, delivery.HTTP400, delivery.BadRequest, delivery.OK
	for name, c := range map[string]struct {
		outcomes []delivery.Outcome
		open     bool
	}{
		"one too few":           {[]delivery.Outcome{e, e}, false},
		"enough":                {[]delivery.Outcome{e, e, e}, true},
		"of several kinds":      {[]delivery.Outcome{delivery.Timeout, delivery.HTTP404, delivery.Connect}, true},
		"a success between":     {[]delivery.Outcome{e, e, ok, e, e}, false},
		"three after a success": {[]delivery.Outcome{e, e, ok, e, e, e}, true},
		"the payload's":         {[]delivery.Outcome{p, p, p, p}, false},
		"ours":                  {[]delivery.Outcome{u, u, u, u}, false},
		"others between":        {[]delivery.Outcome{e, p, e, u, e}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			breakers(t, 8, func(w *world) {
				for _, o := range c.outcomes {
					v := failed(w.next(), o)
					if o == ok {
						v.Next = delivery.Delivered
					}
					w.settle(schedule.Applied, v)
				}
				if c.open {
					w.wantHolds("s1", schedule.Breaker)
					w.none("while it is open")
				} else {
					w.wantHolds("s1")
				}
			})
		})
	}
}

// Attempts that were out when it opened, or when it closed, say nothing new.
func TestLateFailuresDoNotMoveTheBreaker(t *testing.T) {
	t.Parallel()
	breakers(t, 12, func(w *world) {
		out := w.lease("w", room(8)).Leased
		w.advance(time.Second)
		for _, l := range out[:3] {
			w.settle(schedule.Applied, failed(l, delivery.Timeout))
		}
		before := w.standing("s1")
		w.settle(schedule.Applied, failed(out[3], delivery.Timeout))
		if s := w.standing("s1"); s.Openings != 1 || !s.ProbeAt.Equal(before.ProbeAt) {
			w.Fatalf("a late failure moved it from %+v to %+v", before, s)
		}
		w.untilProbe()
		w.settle(schedule.Applied, delivered(w.next()))
		for _, l := range out[4:] {
			w.settle(schedule.Applied, failed(l, delivery.Timeout))
		}
		w.wantHolds("s1")
		if s := w.standing("s1"); s.Failures != 0 {
			w.Fatalf("%d failures count that were leased before it closed", s.Failures)
		}
	})
}

// Open, it lets one probe go per interval, drawn from the upper half of a window that
// doubles from 1 s to 2 minutes.
func TestBreakerRestsGrow(t *testing.T) {
	t.Parallel()
	breakers(t, 4, func(w *world) {
		w.fail(3, delivery.Connect)
		window := time.Second
		for n := range 10 {
			probeAt := w.standing("s1").ProbeAt
			rest := probeAt.Sub(w.frozen)
			if rest < window/2 || rest > window {
				w.Fatalf("rest %d is %s, want %s to %s", n+1, rest, window/2, window)
			}
			w.advance(rest - time.Millisecond)
			if rep := w.lease("w", anyRoom); len(rep.Leased) > 0 || !rep.NextDue.Equal(probeAt) {
				w.Fatalf("before the probe's time: %+v, want next due %s", rep, probeAt)
			}
			w.advance(time.Millisecond)
			probes := w.lease("w", anyRoom).Leased
			if len(probes) != 1 || !probes[0].Slow {
				w.Fatalf("probes: %+v", probes)
			}
			if s := w.standing("s1"); s.Probe != probes[0].ID || !s.ProbeAt.IsZero() {
				w.Fatalf("while the probe is out: %+v", s)
			}
			w.advance(5 * time.Second)
			w.none("beside the probe")
			w.audit()
			w.settle(schedule.Applied, failed(probes[0], delivery.Timeout))
			window = min(2*window, 2*time.Minute)
			if s := w.standing("s1"); n == 0 {
				window = 2 * time.Second
			} else if s.Openings != n+2 {
				w.Fatalf("%d openings after %d probes", s.Openings, n+1)
			}
		}
	})
}

// Waiting for the breaker spends no attempts: after an hour of probes one delivery
// has paid for each, and the others for nothing.
func TestOnlyProbesAreCharged(t *testing.T) {
	t.Parallel()
	breakers(t, 6, func(w *world) {
		w.fail(3, delivery.Connect)
		probes := 0
		for range 12 {
			w.untilProbe()
			w.settle(schedule.Applied, failed(w.next(), delivery.Connect))
			probes++
		}
		charged := 0
		for i := range 6 {
			charged += w.get(delivery.NewID(fmt.Sprint("e", i), "s1")).Attempts
		}
		if charged != 3+probes {
			w.Fatalf("%d attempts charged for 3 failures and %d probes", charged, probes)
		}
	})
}

// The probe is the delivery with the fewest attempts, fresh first, and never the same
// twice running: so none is spent on finding out.
func TestProbeIsTheLeastTried(t *testing.T) {
	t.Parallel()
	breakers(t, 3, func(w *world) {
		tried := w.next() // e?: three attempts, all of them failures
		w.settle(schedule.Applied, failed(tried, delivery.HTTP5xx))
		w.put("s1", schedule.Edited, func(tm *schedule.Terms) { tm.BreakerFailures, tm.MaxInFlight = 3, 1 })
		w.fail(2, delivery.HTTP5xx)
		w.wantHolds("s1", schedule.Breaker)
		attempts := map[string]int{}
		last, fresh := "", 0
		for range 9 {
			w.untilProbe()
			l := w.next()
			if l.ID == last {
				w.Fatalf("%s is the probe twice running", l.ID)
			}
			least := 1000
			for i := range 3 {
				d := w.get(delivery.NewID(fmt.Sprint("e", i), "s1"))
				if d.Lane == delivery.Fresh && d.State == delivery.Scheduled {
					fresh++
				}
				if d.ID != last && d.ID != l.ID {
					least = min(least, d.Attempts)
				}
			}
			if l.Attempts-1 > least {
				w.Fatalf("the probe has %d attempts, another %d", l.Attempts-1, least)
			}
			if l.Lane != delivery.Fresh && fresh > 0 {
				w.Fatal("a retry is the probe while a fresh one waits")
			}
			fresh, last = 0, l.ID
			attempts[l.ID]++
			w.settle(schedule.Applied, failed(l, delivery.HTTP5xx))
		}
		if len(attempts) != 3 {
			w.Fatalf("probes: %v, want all three", attempts)
		}
	})
}

// Every third probe is a retry, though fresh ones wait: an endpoint that fails at all
// that it sees for the first time is found well by the others.
func TestEveryThirdProbeIsARetry(t *testing.T) {
	t.Parallel()
	breakers(t, 12, func(w *world) {
		w.fail(3, delivery.HTTP5xx)
		w.advance(time.Hour) // the retries are due
		for i, want := range []delivery.Lane{
			delivery.Fresh, delivery.Fresh, delivery.Retry, delivery.Fresh, delivery.Fresh, delivery.Retry,
		} {
			w.untilProbe()
			l := w.next()
			if l.Lane != want {
				w.Fatalf("probe %d is %s, want %s", i+1, l.Lane, want)
			}
			w.settle(schedule.Applied, failed(l, delivery.HTTP5xx))
		}
	})
}

// One that is alone is the probe each time.
func TestOnlyDeliveryIsTheProbe(t *testing.T) {
	t.Parallel()
	breakers(t, 1, func(w *world) {
		w.fail(3, delivery.HTTP5xx)
		for range 4 {
			w.untilProbe()
			w.settle(schedule.Applied, failed(w.next(), delivery.HTTP5xx))
		}
		w.untilProbe()
		w.settle(schedule.Applied, delivered(w.next()))
		w.wantHolds("s1")
	})
}

// A probe's 2xx closes it, at a cap of 1, as for one that nobody knows; a late 2xx of
// before does so as well.
func TestSuccessClosesTheBreaker(t *testing.T) {
	t.Parallel()
	for name, success := range map[string]func(w *world, early, lost schedule.Leased){
		"the probe's": func(w *world, _, _ schedule.Leased) {
			w.untilProbe()
			w.settle(schedule.Applied, delivered(w.next()))
			if s := w.standing("s1"); s.Latency != 0 {
				w.Fatalf("its latency is known, from before: %+v", s)
			}
		},
		"one that was out": func(w *world, early, _ schedule.Leased) { w.settle(schedule.Applied, delivered(early)) },
		"a late one":       func(w *world, _, lost schedule.Leased) { w.settle(schedule.AppliedOld, delivered(lost)) },
		"a late one, beside the probe": func(w *world, _, lost schedule.Leased) {
			w.untilProbe()
			probe := w.next()
			w.settle(schedule.AppliedOld, delivered(lost))
			w.wantHolds("s1")
			w.settle(schedule.Applied, failed(probe, delivery.HTTP5xx)) // was leased before it closed
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			breakers(t, 9, func(w *world) {
				died := w.next()
				w.advance(time.Minute)
				w.settle(schedule.Applied, lost(died, w.frozen.Add(time.Hour)))
				early := w.next()
				w.fail(3, delivery.Timeout)
				w.wantHolds("s1", schedule.Breaker)
				success(w, early, died)
				w.wantHolds("s1")
				if s := w.standing("s1"); s.Cap != 1 || s.Openings != 0 || s.Failures != 0 {
					w.Fatalf("after it closed: %+v", s)
				}
				if s := w.standing("s1"); s.InFlight == 0 {
					if n := len(w.lease("w", anyRoom).Leased); n != 1 {
						w.Fatalf("leased %d at a cap of 1", n)
					}
				}
				w.audit()
			})
		})
	}
}

// A probe that ends without a word on the endpoint lets the next one go at once: the
// breaker is not stuck behind a lease.
func TestProbeThatSaysNothing(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *world, probe schedule.Leased){
		"its worker died": func(w *world, probe schedule.Leased) {
			w.advance(time.Minute)
			w.settle(schedule.Applied, lost(probe, w.frozen))
		},
		"its worker cut it off": func(w *world, probe schedule.Leased) {
			v := failed(probe, delivery.LeaseLost)
			v.GiveBack = true
			w.settle(schedule.Applied, v)
		},
		"released": func(w *world, probe schedule.Leased) {
			w.ok(w.Release(w.ctx, 0, []schedule.Claim{{ID: probe.ID, Fence: probe.Fence()}}))
		},
		"cancelled, and its worker failed": func(w *world, probe schedule.Leased) {
			w.cancelProbe(probe)
			w.settle(schedule.Already, failed(probe, delivery.BadRequest))
		},
		"cancelled, and its worker died": func(w *world, probe schedule.Leased) {
			w.cancelProbe(probe)
			w.advance(time.Minute)
			leases, _, err := w.ExpiredLeases(w.ctx, 10)
			w.ok(err)
			for _, l := range leases {
				w.ok(w.Release(w.ctx, 0, []schedule.Claim{{ID: l.ID, Fence: l.Fence()}}))
			}
		},
		"the payload's fault": func(w *world, probe schedule.Leased) {
			v := dead(probe, "{}")
			v.Outcome, v.Status, v.Reason = delivery.HTTP400, 400, delivery.HTTP400
			w.settle(schedule.Applied, v)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			breakers(t, 4, func(w *world) {
				w.fail(3, delivery.Timeout)
				w.untilProbe()
				probe := w.next()
				openings := w.standing("s1").Openings
				end(w, probe)
				w.wantHolds("s1", schedule.Breaker)
				if got := w.standing("s1").Openings; got != openings {
					w.Fatalf("the rest grew: %d openings, were %d", got, openings)
				}
				again := w.one("w")
				if again.ID == probe.ID {
					w.Fatal("the same again, while others wait")
				}
				w.settle(schedule.Applied, delivered(again))
				w.wantHolds("s1")
			})
		})
	}
}

// cancelProbe cancels what its subscriber has pending until the probe is among it.
func (w *world) cancelProbe(probe schedule.Leased) {
	w.Helper()
	for n := 0; w.get(probe.ID).State != delivery.Cancelled; n++ {
		w.cancelAll("s1", 1)
		if n > 0 {
			w.post(fmt.Sprint("more", n), "s1")
		}
	}
	w.post("another", "s1")
}

// A delivery at which the endpoint always fails does not keep the breaker open: the
// next probe is another one.
func TestPoisonDoesNotKeepTheBreakerOpen(t *testing.T) {
	t.Parallel()
	breakers(t, 1, func(w *world) {
		poison := delivery.NewID("e0", "s1")
		w.fail(3, delivery.HTTP5xx)
		w.post("good", "s1")
		for range 3 {
			w.untilProbe()
			l := w.next()
			if l.ID != poison {
				w.settle(schedule.Applied, delivered(l))
				w.wantHolds("s1")
				return
			}
			w.settle(schedule.Applied, failed(l, delivery.HTTP5xx))
		}
		w.Fatal("still open after three probes")
	})
}

// With its own leases out up to the cap, the probe waits for one of them to end.
func TestProbeWaitsForItsTurnUnderTheCap(t *testing.T) {
	t.Parallel()
	breakers(t, 8, func(w *world) {
		w.put("s1", schedule.Edited, func(tm *schedule.Terms) { tm.BreakerFailures, tm.MaxInFlight = 3, 5 })
		out := w.lease("w", anyRoom).Leased
		w.advance(time.Second)
		for _, l := range out[2:] { // two hang
			w.settle(schedule.Applied, failed(l, delivery.Timeout))
		}
		w.wantHolds("s1", schedule.Breaker)
		w.untilProbe()
		w.none("although its cap of 2 is used up")
		w.audit()
		w.settle(schedule.Applied, failed(out[0], delivery.Timeout))
		w.settle(schedule.Applied, delivered(w.next()))
		w.wantHolds("s1")
	})
}

// With nothing left that waits, it stays open, and what comes next is the probe.
func TestBreakerOpenWithoutWork(t *testing.T) {
	t.Parallel()
	breakers(t, 3, func(w *world) {
		for range 3 {
			w.settle(schedule.Applied, dead(w.next(), "{}"))
		}
		w.wantHolds("s1", schedule.Breaker)
		w.advance(time.Hour)
		w.none("of nothing")
		w.post("a", "s1")
		w.post("b", "s1")
		if got := w.lease("w", anyRoom).Leased; len(got) != 1 {
			w.Fatalf("leased %d while open", len(got))
		}
		w.audit()
	})
}
