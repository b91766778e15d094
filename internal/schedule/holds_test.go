package schedule_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// throttled is a 429 with a Retry-After.
func throttled(l schedule.Leased, wait time.Duration) schedule.Verdict {
	v := failed(l, delivery.HTTP429)
	v.RetryAfter = wait
	return v
}

// gone is a 410.
func gone(l schedule.Leased) schedule.Verdict {
	v := dead(l, "{}")
	v.Outcome, v.Status, v.Reason, v.Disable = delivery.Gone, 410, delivery.Gone, true
	return v
}

// A 410 disables: nothing is sent until somebody lifts it, and only that lifts it.
func TestGoneDisables(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("s1", 10)
		w.post("e1", "s1")
		l := w.one("w")
		w.post("e2", "s1")
		w.settle(schedule.Applied, gone(l))
		w.wantHolds("s1", schedule.Disabled)
		w.none("while disabled")
		w.advance(day - time.Hour)
		w.put("s1", schedule.Edited, nil)
		w.wantHolds("s1", schedule.Disabled)
		w.none("after an edit")
		w.put("s1", schedule.Lifted, nil)
		w.wantHolds("s1")
		if l := w.one("w"); l.Attempts != 1 {
			w.Fatalf("waiting spent attempts: %+v", l.Delivery)
		}
		w.audit()
	})
}

// A Retry-After holds the subscriber until the latest of those asked for, and ends by
// the time alone, not by a resume.
func TestThrottledUntilTheLatest(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.freeze()
		w.subscribe("s1", 10)
		for i := range 4 {
			w.post(fmt.Sprint("e", i), "s1")
		}
		out := w.lease("w", room(3)).Leased
		until := w.frozen.Add(time.Minute)
		for i, wait := range []time.Duration{10 * time.Second, time.Minute, 30 * time.Second} {
			w.settle(schedule.Applied, throttled(out[i], wait))
		}
		w.wantHolds("s1", schedule.Throttled)
		if s := w.standing("s1"); !s.ThrottledUntil.Equal(until) || !s.Since.Equal(w.frozen) {
			w.Fatalf("standing: %+v, want until %s", s, until)
		}
		w.put("s1", schedule.Lifted, nil)
		w.wantHolds("s1", schedule.Throttled)
		w.advance(time.Minute - time.Millisecond)
		if rep := w.lease("w", anyRoom); len(rep.Leased) > 0 || !rep.NextDue.Equal(until) {
			w.Fatalf("before its time: %+v, want next due %s", rep, until)
		}
		w.advance(time.Millisecond)
		w.wantHolds("s1")
		if got := w.lease("w", anyRoom).Leased; len(got) != 4 {
			w.Fatalf("leased %d of 4 when the throttle was over", len(got))
		}
		w.wantHolds("s1")
	})
}

// A delivery that is due later than the throttle ends waits for its own time.
func TestThrottleLeavesDueTimes(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.freeze()
		w.subscribe("s1", 10)
		w.post("e1", "s1")
		v := throttled(w.one("w"), time.Minute)
		v.DueAt = w.frozen.Add(time.Hour)
		w.settle(schedule.Applied, v)
		w.advance(10 * time.Minute)
		if rep := w.lease("w", anyRoom); len(rep.Leased) > 0 || !rep.NextDue.Equal(v.DueAt) {
			w.Fatalf("leased %+v, next due %s", rep.Leased, rep.NextDue)
		}
		w.audit()
		w.advance(50 * time.Minute)
		w.one("w")
	})
}

// When a throttle ends with nothing left to send, the subscriber is on hold no more
// for whoever counts.
func TestThrottleThatEndsUnseen(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.freeze()
		w.subscribe("s1", 10)
		w.post("e1", "s1")
		v := dead(w.one("w"), "{}")
		v.Outcome, v.RetryAfter = delivery.HTTP429, time.Minute
		w.settle(schedule.Applied, v)
		w.advance(2 * time.Minute)
		w.none("of nothing")
		s, err := w.Sample(w.ctx, nil)
		w.ok(err)
		if s.OnHold != 0 {
			w.Fatalf("%d subscribers on hold, want none", s.OnHold)
		}
	})
}

// Holds are several: each has to end before anything is sent.
func TestHoldsCombine(t *testing.T) {
	t.Parallel()
	const pause, lift, wait, probe = "resume", "lift", "wait", "probe"
	paused := func(tm *schedule.Terms) { tm.BreakerFailures, tm.Paused = 3, true }
	for name, c := range map[string]struct {
		begin func(w *world)
		holds []schedule.Hold
		ends  []string // what ends one hold each, in this order
	}{
		"paused and disabled": {
			func(w *world) { w.settle(schedule.Applied, gone(w.next())); w.put("s1", schedule.Edited, paused) },
			[]schedule.Hold{schedule.Paused, schedule.Disabled},
			[]string{pause, lift},
		},
		"paused and throttled": {
			func(w *world) {
				w.settle(schedule.Applied, throttled(w.next(), time.Minute))
				w.put("s1", schedule.Edited, paused)
			},
			[]schedule.Hold{schedule.Paused, schedule.Throttled},
			[]string{pause, wait},
		},
		"throttled and paused": {
			func(w *world) {
				w.settle(schedule.Applied, throttled(w.next(), time.Minute))
				w.put("s1", schedule.Edited, paused)
			},
			[]schedule.Hold{schedule.Paused, schedule.Throttled},
			[]string{wait, pause},
		},
		"paused and breaker": {
			func(w *world) {
				w.fail(3, delivery.HTTP5xx)
				w.put("s1", schedule.Edited, paused)
				w.advance(time.Hour)
			},
			[]schedule.Hold{schedule.Paused, schedule.Breaker},
			[]string{pause, probe},
		},
		"throttled and breaker": {
			func(w *world) {
				w.fail(2, delivery.HTTP5xx)
				w.settle(schedule.Applied, throttled(w.next(), time.Minute))
			},
			[]schedule.Hold{schedule.Throttled, schedule.Breaker},
			[]string{wait, probe},
		},
		"disabled and breaker": {
			func(w *world) { w.fail(2, delivery.HTTP5xx); w.settle(schedule.Applied, gone(w.next())) },
			[]schedule.Hold{schedule.Disabled, schedule.Breaker},
			[]string{lift, probe},
		},
		"all four": {
			func(w *world) {
				out := w.lease("w", room(1)).Leased
				w.fail(2, delivery.HTTP5xx)
				w.settle(schedule.Applied, throttled(w.next(), time.Minute))
				w.settle(schedule.Applied, gone(out[0]))
				w.put("s1", schedule.Edited, paused)
			},
			[]schedule.Hold{schedule.Paused, schedule.Disabled, schedule.Throttled, schedule.Breaker},
			[]string{pause, lift, wait, probe},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			breakers(t, 8, func(w *world) {
				c.begin(w)
				w.wantHolds("s1", c.holds...)
				left := slices.Clone(c.holds)
				for _, end := range c.ends {
					if end != probe {
						w.none("while on hold")
					}
					left = w.endHold(end, left)
					w.wantHolds("s1", left...)
				}
				w.one("w")
				w.audit()
			})
		})
	}
}

// endHold ends one hold, and returns those that remain.
func (w *world) endHold(how string, holds []schedule.Hold) []schedule.Hold {
	w.Helper()
	stays := func(tm *schedule.Terms) {
		tm.BreakerFailures, tm.Paused = 3, slices.Contains(holds, schedule.Paused)
	}
	var ended schedule.Hold
	switch how {
	case "resume":
		ended = schedule.Paused
		w.put("s1", schedule.Edited, three)
	case "lift":
		ended = schedule.Disabled
		w.put("s1", schedule.Lifted, stays)
	case "wait":
		ended = schedule.Throttled
		w.advance(time.Minute)
	case "probe":
		ended = schedule.Breaker
		w.untilProbe()
		w.settle(schedule.Applied, delivered(w.next()))
	}
	return slices.DeleteFunc(slices.Clone(holds), func(h schedule.Hold) bool { return h == ended })
}

// Somebody who resumes a subscriber has its breaker ask at once.
func TestLiftedProbesAtOnce(t *testing.T) {
	t.Parallel()
	breakers(t, 4, func(w *world) {
		w.fail(3, delivery.Timeout)
		for range 6 { // a rest of half a minute and more
			w.untilProbe()
			w.settle(schedule.Applied, failed(w.next(), delivery.Timeout))
		}
		w.none("before its time")
		w.put("s1", schedule.Lifted, three)
		w.wantHolds("s1", schedule.Breaker)
		if got := w.lease("w", anyRoom).Leased; len(got) != 1 {
			w.Fatalf("leased %d, want one probe", len(got))
		}
		w.put("s1", schedule.Lifted, three)
		w.none("beside the probe")
		w.audit()
	})
}

// Nor does it come back later: whatever the new endpoint is at, the old one's answers say
// nothing of it.
func TestMovedForgetsForGood(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]func(l schedule.Leased) schedule.Verdict{
		"410": gone,
		"429": func(l schedule.Leased) schedule.Verdict { return throttled(l, time.Hour) },
		"200": delivered,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			breakers(t, 9, func(w *world) {
				old := w.next()
				w.advance(time.Millisecond)
				w.put("s1", schedule.Moved, three)
				w.fail(3, delivery.HTTP5xx)
				w.wantHolds("s1", schedule.Breaker)
				w.settle(schedule.Applied, late(old))
				w.wantHolds("s1", schedule.Breaker)
				w.audit()
			})
		})
	}
}

// Another URL is another endpoint: nothing that is known of the one holds for the
// other, nor what it says from now on.
func TestMovedForgets(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]func(l schedule.Leased) schedule.Verdict{
		"":                   nil,
		"and a late 410":     gone,
		"and a late 429":     func(l schedule.Leased) schedule.Verdict { return throttled(l, time.Hour) },
		"and a late failure": func(l schedule.Leased) schedule.Verdict { return failed(l, delivery.Timeout) },
	} {
		t.Run("moved"+name, func(t *testing.T) {
			t.Parallel()
			breakers(t, 9, func(w *world) {
				out := w.lease("w", room(4)).Leased
				w.settle(schedule.Applied, gone(out[0]))
				w.settle(schedule.Applied, throttled(out[1], time.Hour))
				w.advance(time.Millisecond)
				w.settle(schedule.Applied, failed(out[2], delivery.Timeout))
				w.wantHolds("s1", schedule.Disabled, schedule.Throttled, schedule.Breaker)
				w.advance(time.Second)
				w.put("s1", schedule.Moved, three)
				w.wantHolds("s1")
				if late != nil {
					w.settle(schedule.Applied, late(out[3]))
				}
				w.wantHolds("s1")
				s := w.standing("s1")
				if s.Failures != 0 || s.Openings != 0 || (late == nil && (s.Cap != 100 || s.Latency != 0)) {
					w.Fatalf("something of the old endpoint is left: %+v", s)
				}
				w.lease("w", anyRoom)
				w.audit()
			})
		})
	}
}

// Whoever looks sees how many wait for a hold to end, on whom, since when, for how
// long and why.
func TestHoldsAreSeen(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{Partitions: 4}, func(_ *testing.T, w *world) {
		w.freeze()
		begin := w.frozen
		for i, id := range []string{"s3", "s1", "s2"} {
			w.put(id, schedule.Edited, func(tm *schedule.Terms) { tm.Paused = true })
			for n := range i + 1 {
				w.post(fmt.Sprint(id, "-", n), id)
			}
			w.advance(time.Second)
		}
		w.subscribe("free", 10)
		w.post("free", "free")
		see := func(onHold, held int64, who ...string) []schedule.Standing {
			w.Helper()
			s, err := w.Sample(w.ctx, []string{"standard"})
			w.ok(err)
			if s.OnHold != onHold || s.Held != held {
				w.Fatalf("on hold %d with %d held, want %d with %d", s.OnHold, s.Held, onHold, held)
			}
			list, err := w.OnHold(w.ctx, 2)
			w.ok(err)
			var ids []string
			for _, s := range list {
				ids = append(ids, s.SubscriberID)
			}
			if !slices.Equal(ids, who) {
				w.Fatalf("on hold for longest: %v, want %v", ids, who)
			}
			w.audit()
			return list
		}
		list := see(3, 6, "s3", "s1")
		if s := list[1]; !s.Since.Equal(begin.Add(time.Second)) || s.Pending != 2 || s.Waiting[delivery.Fresh] != 2 ||
			!slices.Equal(s.Holds, []schedule.Hold{schedule.Paused}) {
			w.Fatalf("s1 stands %+v", s)
		}
		if a := w.ages("standard"); a.Held.IsZero() || a.Eligible.IsZero() {
			w.Fatalf("ages: %+v", a)
		}
		w.post("more", "s1")
		see(3, 7, "s3", "s1")
		w.subscribe("s3", 10)
		see(2, 6, "s1", "s2")
		w.ok(w.Tombstone(w.ctx, "s2", ""))
		see(1, 3, "s1")
		w.cancelAll("s1", 1)
		see(1, 2, "s1")
	})
}

// What is leased when the hold begins counts as waiting as well, and a cancel of it is
// noticed.
func TestCancelUnderAHold(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("s1", 10)
		w.post("e1", "s1")
		l := w.one("w")
		w.put("s1", schedule.Edited, func(tm *schedule.Terms) { tm.Paused = true })
		w.audit()
		w.cancelAll("s1", 10)
		w.wantState(l.ID, delivery.Cancelled)
		w.settle(schedule.Already, delivered(l))
		w.audit()
	})
}

// So is a late 2xx for what another worker holds.
func TestLateSuccessUnderAHold(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("s1", 10)
		w.post("e1", "s1")
		first := w.one("w")
		w.advance(time.Minute)
		w.settle(schedule.Applied, lost(first, w.clock()))
		w.one("other")
		w.put("s1", schedule.Edited, func(tm *schedule.Terms) { tm.Paused = true })
		w.settle(schedule.AppliedOld, delivered(first))
		w.wantState(first.ID, delivery.Delivered)
	})
}

// A held delivery ends in time like any other.
func TestHeldExpire(t *testing.T) {
	t.Parallel()
	for hold, begin := range map[schedule.Hold]func(w *world){
		schedule.Paused: func(w *world) {
			w.put("s1", schedule.Edited, func(tm *schedule.Terms) { tm.Paused = true })
		},
		schedule.Disabled:  func(w *world) { w.settle(schedule.Applied, gone(w.next())) },
		schedule.Throttled: func(w *world) { w.settle(schedule.Applied, throttled(w.next(), 48*time.Hour)) },
		schedule.Breaker:   func(w *world) { w.fail(3, delivery.HTTP5xx) },
	} {
		t.Run(string(hold), func(t *testing.T) {
			t.Parallel()
			breakers(t, 3, func(w *world) {
				begin(w)
				w.wantHolds("s1", hold)
				w.advance(25 * time.Hour)
				ds, _, err := w.ExpiredDeliveries(w.ctx, 10)
				w.ok(err)
				var vs []schedule.Verdict
				for _, d := range ds {
					vs = append(vs, schedule.Verdict{ID: d.ID, Body: &schedule.Body{}})
				}
				_, err = w.Expire(w.ctx, 0, vs)
				w.ok(err)
				s, err := w.Sample(w.ctx, nil)
				w.ok(err)
				if s.Ledger.Pending != 0 || s.Ledger.Dead != 3 || s.Held != 0 {
					w.Fatalf("after their time: %+v", s)
				}
				w.audit()
			})
		})
	}
}

// A subscriber's deliveries are counted for ever and its dead letters as they stand,
// those of its whole batch at once; a tombstone says whose it was.
func TestWhatASubscriberHasHad(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.subscribe("s1", 10)
		wins := 0
		for i := range 12 {
			w.post(fmt.Sprint("e", i), "s1")
			if l := w.one("w"); i%4 == 3 {
				w.settle(schedule.Applied, dead(l, "{}"))
			} else {
				wins++
				w.settle(schedule.Applied, delivered(l))
				w.settle(schedule.Already, delivered(l)) // a lost reply
			}
		}
		if s := w.standing("s1"); s.Delivered != int64(wins) || s.Dead != 3 {
			w.Fatalf("delivered %d and dead %d, want %d and 3", s.Delivered, s.Dead, wins)
		}
		whose := func(want ...string) {
			w.Helper()
			got, err := w.Owners(w.ctx, []string{"s1", "nobody"})
			w.ok(err)
			if !slices.Equal(got, want) {
				w.Fatalf("owners %q, want %q", got, want)
			}
		}
		whose("", "")
		w.ok(w.Tombstone(w.ctx, "s1", "acme"))
		whose("acme", "")
		w.ok(w.Tombstone(w.ctx, "s1", ""))
		whose("acme", "")
	})
}
