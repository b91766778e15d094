package redrive_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/redrive"
	"github.com/fanout/fanout/internal/schedule"
)

// A bad canary stops the cohort before a second one is sent, and says how it ended.
func TestABadCanary(t *testing.T) {
	t.Parallel()
	contract(t, func(t *testing.T, w *world) {
		ids := w.die("picked", "s1", 5)
		id := w.create(order)
		w.step()
		w.step()
		if sent := w.serve(always(404)); len(sent) != 1 {
			t.Fatalf("sent %v", sent)
		}
		w.step()
		v := w.want(id, redrive.Paused, "the canary failed")
		for _, word := range []string{ids[0], "http_404", "404"} {
			if !strings.Contains(v.Stopped, word) {
				t.Errorf("%q does not say %s", v.Stopped, word)
			}
		}
		for range 3 {
			w.step()
			if sent := w.serve(always(200)); len(sent) > 0 {
				t.Fatalf("sent %v after a bad canary", sent)
			}
		}
		if len(w.told) != 1 || w.told[0].Name != "redrive.pause" || w.told[0].By != redrive.Guard || w.told[0].Reason != v.Stopped {
			t.Errorf("told %+v", w.told)
		}
		// An operator who goes on gets another canary, and no more.
		_, err := w.svc.Resume(w.ctx, id, "it is mended")
		w.ok(err)
		w.step()
		if sent := w.serve(always(200)); !slices.Equal(sent, ids[1:2]) {
			t.Fatalf("sent %v", sent)
		}
		w.step()
		w.want(id, redrive.Awaiting, "")
	})
}

// A failed canary that is out again for a retry of its own budget is waited for.
func TestACanaryMayRetry(t *testing.T) {
	t.Parallel()
	contract(t, func(t *testing.T, w *world) {
		w.die("picked", "s1", 3)
		id := w.create(order)
		w.step()
		w.step()
		w.serve(always(503))
		w.step()
		w.want(id, redrive.Canary, "")
		w.pass(2 * time.Hour)
		if sent := w.serve(always(200)); len(sent) != 1 {
			t.Fatalf("sent %v", sent)
		}
		w.step()
		w.want(id, redrive.Awaiting, "")
	})
}

// Of several canaries none may fail, and one at least must be delivered.
func TestSeveralCanaries(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status []int // 0: cancelled
		want   redrive.State
		why    string
	}{
		"all delivered":       {[]int{200, 200, 200}, redrive.Awaiting, ""},
		"one failed":          {[]int{200, 404, 200}, redrive.Paused, "the canary failed"},
		"one cancelled":       {[]int{200, 0, 200}, redrive.Awaiting, ""},
		"all cancelled":       {[]int{0, 0, 0}, redrive.Canary, ""},
		"the last one failed": {[]int{200, 200, 404}, redrive.Paused, "the canary failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onRedis(t, func(t *testing.T, w *world) {
				ids := w.die("picked", "s1", 9)
				o := order
				o.Canaries = 3
				id := w.create(o)
				w.step()
				w.step()
				for i, status := range tt.status {
					if status == 0 {
						_, err := w.CancelDelivery(w.ctx, ids[i])
						w.ok(err)
					}
				}
				sent := w.serve(func(l schedule.Leased) int { return tt.status[slices.Index(ids, l.ID)] })
				if len(sent) > 3 {
					t.Fatalf("sent %v", sent)
				}
				w.step()
				w.want(id, tt.want, tt.why)
				if more := w.serve(always(200)); tt.want != redrive.Canary && len(more) > 0 || len(more) > 3 {
					t.Fatalf("sent %v more", more)
				}
			})
		})
	}
}

// A canary whose subscriber is on hold is not sent, or not waited for.
func TestCanaryOnHold(t *testing.T) {
	t.Parallel()
	contract(t, func(t *testing.T, w *world) {
		ids := w.die("picked", "s1", 3)
		pause := func(on bool) { w.terms("s1", func(tm *schedule.Terms) { tm.Paused = on }) }
		id := w.create(order)
		w.step()
		pause(true)
		w.step()
		w.want(id, redrive.Paused, "subscriber s1 is on hold: paused")
		w.generations(ids, 0)
		pause(false)
		_, err := w.svc.Resume(w.ctx, id, "it is mended")
		w.ok(err)
		w.step()
		pause(true)
		w.step()
		w.want(id, redrive.Paused, "subscriber s1 is on hold: paused")
		w.generations(ids[1:], 0)
		pause(false)
		w.serve(always(200)) // what is out goes on
		_, err = w.svc.Resume(w.ctx, id, "it is mended")
		w.ok(err)
		w.step()
		w.want(id, redrive.Awaiting, "")
		w.generations(ids[:1], 1)
		w.generations(ids[1:], 0)
	})
}

// A pause while the canary is out changes nothing of what is learnt from it: the canary
// is not sent anew, nor forgotten if it fails meanwhile.
func TestPauseWhileTheCanaryIsOut(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]redrive.State{200: redrive.Awaiting, 404: redrive.Paused} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			contract(t, func(t *testing.T, w *world) {
				ids := w.die("picked", "s1", 3)
				id := w.create(order)
				w.step()
				w.step()
				for range 3 {
					_, err := w.svc.Pause(w.ctx, id, "key_1", "a rollout")
					w.ok(err)
					w.step()
					_, err = w.svc.Resume(w.ctx, id, "it is over")
					w.ok(err)
					w.step()
				}
				_, err := w.svc.Pause(w.ctx, id, "key_1", "a rollout")
				w.ok(err)
				if sent := w.serve(always(status)); !slices.Equal(sent, ids[:1]) {
					t.Fatalf("sent %v", sent)
				}
				w.step()
				_, err = w.svc.Resume(w.ctx, id, "it is over")
				w.ok(err)
				w.step()
				if sent := w.serve(always(200)); len(sent) > 0 {
					t.Fatalf("sent %v", sent)
				}
				if v := w.view(id); v.State != want || want == redrive.Paused && !strings.Contains(v.Stopped, "the canary failed") {
					t.Errorf("it is %s: %s", v.State, v.Stopped)
				}
			})
		})
	}
}

// Who cancels a canary that was refused has seen enough: no other takes its place.
func TestACancelledCanaryIsABadOne(t *testing.T) {
	t.Parallel()
	contract(t, func(t *testing.T, w *world) {
		ids := w.die("picked", "s1", 3)
		id := w.create(order)
		w.step()
		w.step()
		if sent := w.serve(always(503)); !slices.Equal(sent, ids[:1]) {
			t.Fatalf("sent %v", sent)
		}
		if _, err := w.CancelDelivery(w.ctx, ids[0]); err != nil {
			t.Fatal(err)
		}
		w.step()
		w.want(id, redrive.Paused, ids[0]+" was cancelled")
		if sent := w.serve(always(200)); len(sent) > 0 {
			t.Fatalf("sent %v", sent)
		}
		w.generations(ids[1:], 0)
	})
}

// An endpoint that was down has an open breaker and nothing pending: the canary is what
// probes it.
func TestTheCanaryProbes(t *testing.T) {
	t.Parallel()
	contract(t, func(t *testing.T, w *world) {
		w.terms("s1", func(tm *schedule.Terms) { tm.BreakerFailures = 2 })
		w.die("picked", "s1", 2)
		id := w.create(order)
		w.step()
		for range 3 { // the breaker has time yet
			w.step()
			w.want(id, redrive.Canary, "")
		}
		w.pass(time.Hour)
		if sent := w.serve(always(503)); len(sent) != 1 {
			t.Fatalf("sent %v", sent)
		}
		w.step()
		w.want(id, redrive.Paused, "on hold: breaker")
		w.pass(3 * time.Hour)
		w.serve(always(200)) // its retry
		_, err := w.svc.Resume(w.ctx, id, "it is mended")
		w.ok(err)
		w.step()
		w.serve(always(200))
		w.step()
		w.approve(id)
		w.finish(id, always(200))
		w.nothingLeft()
	})
}

// Each objection pauses a running cohort within one step, and says why; an operator
// resumes it.
func TestGuardPauses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		do   func(w *world, cohort string)
		undo func(w *world)
		why  string // "" for no objection
	}{
		{"fresh ones are too old", func(w *world, _ string) {
			w.post("fresh0", "s2")
			w.pass(6 * time.Second)
		}, func(w *world) { w.serve(always(200)) }, "the oldest eligible fresh delivery of class standard is 7s old, above 50 % of its SLO of 10s"},
		{"a retry is too old", func(w *world, _ string) {
			w.post("fresh0", "s2")
			w.retry(4 * time.Second)
			w.pass(9500 * time.Millisecond)
		}, func(w *world) { w.serve(always(200)) }, "the oldest eligible retry delivery"},
		{"fresh ones of another class", func(w *world, _ string) {
			w.terms("s2", func(tm *schedule.Terms) { tm.Class = "gold" })
			w.post("fresh0", "s2")
			w.pass(time.Second)
		}, func(w *world) { w.serve(always(200)) }, "of class gold"},
		{"fresh ones of a class that nobody knows", func(w *world, _ string) {
			w.terms("s2", func(tm *schedule.Terms) { tm.Class = "lead" })
			w.post("fresh0", "s2")
			w.pass(5 * time.Second)
		}, func(w *world) { w.serve(always(200)) }, "of class other"},
		{"fresh ones that are young", func(w *world, _ string) {
			w.post("fresh0", "s2")
			w.pass(3 * time.Second)
		}, nil, ""},
		{"held ones do not count", func(w *world, _ string) {
			w.terms("s2", func(tm *schedule.Terms) { tm.Paused = true })
			w.post("fresh0", "s2")
			w.pass(time.Minute)
		}, nil, ""},
		{"its own lane does not count", func(w *world, _ string) {
			w.step()
			w.pass(time.Minute)
		}, nil, ""},
		{
			"slots stay busy", func(w *world, _ string) {
				w.report.InUse = map[string]int{"fast/fresh": 60, "slow/retry": 31}
				for range 8 {
					w.step()
				}
			},
			func(w *world) { w.report.InUse = nil }, "91 of 100 slots",
		},
		{"slots are well used", func(w *world, _ string) { w.report.InUse = map[string]int{"fast/fresh": 90} }, nil, ""},
		{"no dispatcher is there", func(w *world, _ string) {
			w.silent = true
			w.pass(16 * time.Second)
		}, func(w *world) { w.silent = false }, "no dispatcher is at work"},
		{"its own fail for good", func(w *world, _ string) {
			for range 6 {
				w.step()
				w.serve(always(404))
			}
		}, nil, "are failures, above 10 %"},
		{"its own fail, and are out again", func(w *world, _ string) {
			for range 6 {
				w.step()
				w.serve(always(503))
			}
		}, nil, "are failures, above 10 %"},
		{"a few of its own fail", func(w *world, _ string) {
			n := 0
			for range 11 {
				w.step()
				w.serve(func(schedule.Leased) int {
					n++
					if n == 20 {
						return 404
					}
					return 200
				})
			}
		}, nil, ""},
		{"its subscriber goes on hold", func(w *world, _ string) {
			w.terms("s1", func(tm *schedule.Terms) { tm.Paused = true })
		}, func(w *world) { w.terms("s1", func(*schedule.Terms) {}) }, "subscriber s1 is on hold: paused"},
		{"the breaker of its subscriber opens", func(w *world, _ string) {
			w.terms("s1", func(tm *schedule.Terms) { tm.BreakerFailures = 1 })
			w.post("fresh0", "s1")
			w.retry(time.Hour)
		}, nil, "subscriber s1 is on hold: breaker"},
		{"another subscriber is on hold", func(w *world, _ string) {
			w.terms("s2", func(tm *schedule.Terms) { tm.Paused = true })
		}, nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			onRedis(t, func(t *testing.T, w *world) {
				id, _ := w.running(45, order)
				tt.do(w, id)
				if w.view(id).State == redrive.Running {
					w.step()
				}
				if tt.why == "" {
					w.want(id, redrive.Running, "")
					return
				}
				v := w.want(id, redrive.Paused, tt.why)
				if v.StoppedBy != redrive.Guard || v.StoppedAt.IsZero() {
					t.Errorf("%+v", v.Cohort)
				}
				released := v.Tally.Released
				w.step()
				if v := w.view(id); v.Tally.Released != released {
					t.Errorf("%d released while it is paused", v.Tally.Released-released)
				}
				_, err := w.svc.Resume(w.ctx, id, "it is mended")
				w.ok(err)
				if tt.undo != nil { // else it pauses again, or what failed is done with
					tt.undo(w)
					w.step()
					w.step()
					if v := w.want(id, redrive.Running, ""); v.Tally.Released > released+2 {
						t.Errorf("%d released at once", v.Tally.Released-released)
					}
				}
			})
		})
	}
}

// retry leases what is due, and has it fail so that it is retried.
func (w *world) retry(in time.Duration) {
	w.Helper()
	for _, l := range w.leased() {
		_, err := w.Settle(w.ctx, 0, []schedule.Verdict{{
			ID: l.ID, Fence: l.Fence(), Outcome: delivery.HTTP5xx, Status: 503, Attempt: []byte(`{"attempt":1}`),
			Decision: delivery.Decision{Next: delivery.Scheduled, DueAt: w.now.Add(in)},
		}})
		w.ok(err)
	}
}

// What had failed before an operator resumed it is not held against it: else nothing
// could be resumed until its retries have ended, hours later.
func TestResumedAfterFailures(t *testing.T) {
	t.Parallel()
	contract(t, func(t *testing.T, w *world) {
		id, _ := w.running(30, order)
		for w.view(id).State == redrive.Running {
			w.step()
			w.serve(always(503))
		}
		w.want(id, redrive.Paused, "failures")
		_, err := w.svc.Resume(w.ctx, id, "it is mended")
		w.ok(err)
		for range 5 {
			w.step()
			w.serve(always(200))
		}
		w.want(id, redrive.Running, "")
	})
}

// An endpoint that starts to fail after thousands of good ones stops it soon.
func TestFailsHalfWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, server(t))
	id, _ := w.running(600, redrive.Order{Reason: "a long one", MaxRate: 20})
	for w.view(id).Tally.Delivered < 300 {
		w.step()
		w.serve(always(200))
	}
	steps := 0
	for ; w.view(id).State == redrive.Running; steps++ {
		w.step()
		w.serve(always(404))
	}
	if v := w.want(id, redrive.Paused, "failures"); v.Tally.Dead > 45 || steps > 3 {
		t.Errorf("%d died in %d steps before it paused", v.Tally.Dead, steps)
	}
}

// What the dispatchers do not come to is not added to.
func TestHeldBack(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *testing.T, w *world) {
		id, _ := w.running(200, order)
		for range 40 { // nothing is sent
			w.step()
		}
		v := w.want(id, redrive.Running, "")
		if v.HeldBack == "" || v.Tally.Released > 50 {
			t.Fatalf("released %d, held back: %q", v.Tally.Released, v.HeldBack)
		}
		w.serve(always(200))
		w.step()
		w.step()
		if v := w.view(id); v.HeldBack != "" || v.Tally.Out() == 0 || v.Tally.Out() > 10 {
			t.Fatalf("out %d, held back: %q", v.Tally.Out(), v.HeldBack)
		}
		w.finish(id, always(200))
	})
}

// A preview counts what matches, says how fast it would go, and warns.
func TestPreviewAndHeadRoom(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *testing.T, w *world) {
		w.die("picked", "s1", 12)
		w.die("lost", "s2", 3)
		preview := func(o redrive.Order) redrive.Preview {
			t.Helper()
			o.Reason = "a look"
			p, err := w.svc.Preview(w.ctx, o)
			w.ok(err)
			return p
		}
		has := func(p redrive.Preview, words ...string) {
			t.Helper()
			all := strings.Join(p.Warnings, "\n")
			for _, word := range words {
				if !strings.Contains(all, word) {
					t.Errorf("no %q in %q", word, all)
				}
			}
			if len(p.Warnings) != len(words) {
				t.Errorf("warnings %q", p.Warnings)
			}
		}
		w.silent = true
		w.pass(20 * time.Second)
		p := preview(redrive.Order{})
		has(p, "No dispatcher")
		if p.Matching != 15 || p.Subscribers != 2 || p.BySubscriber["s1"] != 12 || p.ByReason[delivery.Exhausted] != 15 || p.Rate != 1 ||
			time.Duration(p.Takes) != 15*time.Second {
			t.Errorf("%+v", p)
		}
		w.silent = false
		w.pass(time.Second)
		// 100 slots at 0.1 s each carry 1000 a second.
		p = preview(redrive.Order{Filter: redrive.Filter{SubscriberID: "s2"}})
		has(p)
		if p.Matching != 3 || p.HeadRoom.Capacity != 1000 || p.Rate != 500 || p.HeadRoom.Slots != 100 {
			t.Errorf("%+v", p)
		}
		has(preview(redrive.Order{MaxRate: 600}), "above half of the head-room")
		w.terms("s1", func(tm *schedule.Terms) { tm.Paused = true })
		has(preview(redrive.Order{}), "Subscriber s1 is on hold (paused)")
		has(preview(redrive.Order{Filter: redrive.Filter{SubscriberID: "s3"}}), "No dead letter matches")
		w.report.SlotSeconds = 1000
		w.pass(time.Second)
		has(preview(redrive.Order{Filter: redrive.Filter{SubscriberID: "s2"}}), "No head-room")
		w.report.SlotSeconds = 0.1
		w.pass(time.Second)

		// What a subscriber takes bounds it, not what is released.
		w.terms("s2", func(tm *schedule.Terms) { tm.RatePerSecond, tm.Burst = 0.05, 1 })
		p = preview(redrive.Order{Filter: redrive.Filter{SubscriberID: "s2"}, Within: delivery.Duration(time.Hour)})
		has(p, "Subscriber s2 has a rate of its own, 0.05 a second: its 3 alone take 1m0s")
		if time.Duration(p.Takes) != time.Minute {
			t.Errorf("takes %s", time.Duration(p.Takes))
		}
		has(preview(redrive.Order{Filter: redrive.Filter{SubscriberID: "s2"}, Within: delivery.Duration(time.Minute)}),
			"a rate of its own", "some would expire")
		w.class["s2"] = ""
		has(preview(redrive.Order{Filter: redrive.Filter{SubscriberID: "s2"}}), "3 of them are of subscribers that are deleted")
	})
}
