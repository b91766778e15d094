package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/webhook"
)

// evidenceOf reads the attempts kept with a delivery.
func evidenceOf(t *testing.T, rec record) []delivery.Attempt {
	t.Helper()
	out := make([]delivery.Attempt, len(rec.evidence))
	for i, b := range rec.evidence {
		if err := json.Unmarshal(b, &out[i]); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestRequestAndEvidence(t *testing.T) {
	run(t, Options{}, func(r *rig) {
		at := r.now()
		own := sub("s1")
		own.Headers = subscriber.Headers{"X-Token": "hunter2"}
		r.mu.Lock()
		r.subs["s1"] = own
		r.mu.Unlock()
		r.endpoint(answer(delivery.HTTP5xx, 503))
		id := r.enqueue("e1", "s1")
		r.state(id, delivery.Scheduled)
		r.endpoint(answer(delivery.OK, 200))
		after(time.Minute)
		rec := r.state(id, delivery.Delivered)

		got := r.requestsOf(id)
		if len(got) != 2 {
			t.Fatalf("%d requests", len(got))
		}
		first, second := got[0], got[1]
		if first.Attempt != 1 || first.DeliveryCount != 1 || second.Attempt != 2 || second.DeliveryCount != 2 {
			t.Errorf("attempts %d/%d and %d/%d", first.Attempt, first.DeliveryCount, second.Attempt, second.DeliveryCount)
		}
		if !first.Timestamp.Equal(at) || !second.Timestamp.Equal(second.at) {
			t.Errorf("timestamps %v and %v, want Redis' clock at the request", first.Timestamp, second.Timestamp)
		}
		if string(first.Body) != `{"event":"e1"}` || first.Traceparent != ingestTraceparent {
			t.Errorf("body %s, traceparent %s", first.Body, first.Traceparent)
		}
		if second.Headers["X-Token"] != "hunter2" || strings.Contains(r.logs.String(), "hunter2") {
			t.Errorf("headers %v, logs %s", second.Headers, r.logs)
		}
		if first.Timeout != 10*time.Second || first.RetryAfterCap != time.Hour {
			t.Errorf("timeout %v, cap %v", first.Timeout, first.RetryAfterCap)
		}
		kept := evidenceOf(t, rec)
		if len(kept) != 2 || kept[0].Outcome != delivery.HTTP5xx || kept[1].Outcome != delivery.OK {
			t.Fatalf("evidence %+v, want the failure and the success after it", kept)
		}
		if a := kept[0]; a.Number != 1 || a.Fence != 1 || a.StartedAt != at.UnixMilli() || a.Status != 503 ||
			a.Error == "" || a.Excerpt != "sorry" || a.Worker != "w1" || a.Version != "v1" {
			t.Errorf("evidence %+v", a)
		}
		if rec.pinned != nil {
			t.Error("the payload of a delivered one is pinned")
		}
		if n := r.metric("fanout_retries_scheduled_total", "http_5xx"); n != 1 {
			t.Errorf("%v retries counted", n)
		}
	})
}

func TestSuccessAtOnceLeavesNoEvidence(t *testing.T) {
	run(t, Options{}, func(r *rig) {
		id := r.enqueue("e1", "s1")
		if rec := r.state(id, delivery.Delivered); len(rec.evidence) != 0 {
			t.Errorf("evidence %s", rec.evidence)
		}
		if r.metric("fanout_delivery_age_seconds", "standard") != 1 || r.metric("fanout_attempt_duration_seconds", "standard") != 1 {
			t.Error("age and duration were not observed")
		}
	})
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		outcome delivery.Outcome
		edit    func(*record)
		missing bool // the payload
		reason  delivery.Outcome
		sent    int
	}{
		{name: "terminal answer", outcome: delivery.HTTP404, reason: delivery.HTTP404, sent: 1},
		{
			name: "last attempt", outcome: delivery.Timeout, reason: delivery.Exhausted, sent: 1,
			edit: func(d *record) { d.Attempts, d.DeliveryCount, d.Lane = 14, 14, delivery.Retry },
		},
		{
			name: "next would be too late", outcome: delivery.Timeout, reason: delivery.Expired, sent: 1,
			edit: func(d *record) { d.ExpiresAt = d.AcceptedAt.Add(time.Millisecond) },
		},
		{name: "payload missing", missing: true, reason: delivery.PayloadMissing},
		{
			name: "impossible record", outcome: delivery.Timeout, reason: delivery.BadRequest, sent: 1,
			edit: func(d *record) { d.LeaseLosses = 2 },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, Options{ReapEvery: never}, func(r *rig) {
				r.endpoint(answer(c.outcome, 0))
				r.set(func() { r.noLease = true })
				edit := c.edit
				if edit == nil {
					edit = func(*record) {}
				}
				id := r.enqueue("e1", "s1", edit)
				r.set(func() {
					if c.missing {
						delete(r.bodies, "e1")
					}
					r.noLease = false
					r.announce(r.PartitionOf("s1"))
				})
				rec := r.state(id, delivery.Dead)
				if rec.reason != c.reason {
					t.Errorf("reason %q, want %q", rec.reason, c.reason)
				}
				if pinned := rec.pinned != nil && string(rec.pinned.Bytes) == `{"event":"e1"}`; pinned == c.missing {
					t.Errorf("payload pinned: %v", pinned)
				}
				if n := len(r.requestsOf(id)); n != c.sent {
					t.Errorf("%d requests, want %d", n, c.sent)
				}
				if got := lastAttempt(t, rec).Terms; got == nil || got.Origin != "https://example.com" || got.Class != "standard" || got.Policy.MaxAttempts == 0 {
					t.Errorf("its terms: %+v", got)
				}
				if len(rec.evidence) != 1 {
					t.Errorf("%d attempts kept", len(rec.evidence))
				}
				if n := r.metric("fanout_dead_letters_total", string(c.reason)); n != 1 {
					t.Errorf("%v counted", n)
				}
			})
		})
	}
}

// One that is redriven after its event is forgotten is sent the payload that it kept.
func TestRedrivenPayload(t *testing.T) {
	run(t, Options{ReapEvery: never}, func(r *rig) {
		r.set(func() { r.noLease = true })
		id := r.enqueue("e1", "s1", func(d *record) {
			d.Lane, d.RedriveGeneration, d.BudgetBase, d.Budget, d.Attempts, d.DeliveryCount = delivery.Redrive, 1, 15, 2, 15, 15
			d.pinned = &schedule.Body{Bytes: []byte(`{"event":"e1"}`)}
		})
		r.set(func() {
			delete(r.bodies, "e1")
			r.noLease = false
			r.announce(r.PartitionOf("s1"))
		})
		r.state(id, delivery.Delivered)
		if got := r.requestsOf(id); len(got) != 1 || string(got[0].Body) != `{"event":"e1"}` {
			t.Errorf("sent %+v", got)
		}
	})
}

func lastAttempt(t *testing.T, rec record) (a delivery.Attempt) {
	t.Helper()
	if n := len(rec.evidence); n > 0 {
		if err := json.Unmarshal(rec.evidence[n-1], &a); err != nil {
			t.Error(err)
		}
	}
	return a
}

// A success is a fact, whatever the counters say.
func TestImpossibleRecordThatWasDelivered(t *testing.T) {
	run(t, Options{}, func(r *rig) {
		id := r.enqueue("e1", "s1", func(d *record) { d.LeaseLosses = 2 })
		r.state(id, delivery.Delivered)
		if n := r.metric("fanout_dispatch_faults_total", faultImpossible); n != 1 {
			t.Errorf("%v faults counted", n)
		}
	})
}

func TestPanicIsAnOutcome(t *testing.T) {
	run(t, Options{Slots: 1}, func(r *rig) {
		r.endpoint(func(context.Context, webhook.Request) webhook.Answer { panic("boom") })
		id := r.enqueue("e1", "s1")
		rec := r.state(id, delivery.Scheduled)
		if rec.LastOutcome != delivery.Unknown || rec.Attempts != 1 {
			t.Errorf("outcome %q after %d attempts", rec.LastOutcome, rec.Attempts)
		}
		if !strings.Contains(r.logs.String(), "attempt panicked") || !strings.Contains(r.logs.String(), id) {
			t.Error("the log does not name the delivery")
		}
		r.endpoint(answer(delivery.OK, 200))
		after(time.Minute) // and its only slot is free again
		r.state(id, delivery.Delivered)
	})
}

// What cannot be read is handed back: no verdict, no attempt spent.
func TestUnreadableIsReleased(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(r *rig, on bool){
		"payload": func(r *rig, on bool) {
			r.set(func() {
				r.lose["body"] = 0
				if on {
					r.lose["body"] = 1 << 30
				}
			})
		},
		"config": func(r *rig, on bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.dirErr = nil
			if on {
				r.dirErr = errors.New("redis is away")
			}
		},
		"key": func(r *rig, on bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.dirErr = nil
			if on {
				r.dirErr = fmt.Errorf("subscriber s1: %w", subscriber.ErrUnreadable)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, Options{}, func(r *rig) {
				fault(r, true)
				id := r.enqueue("e1", "s1")
				after(time.Minute)
				rec := r.get(id)
				if rec.Releases < 4 || rec.Releases > 12 || int64(rec.Attempts) != rec.DeliveryCount-int64(rec.Releases) {
					t.Errorf("%d releases, %d attempts in a minute", rec.Releases, rec.Attempts)
				}
				fault(r, false)
				after(2*unreadableFor + time.Second)
				rec = r.state(id, delivery.Delivered)
				if rec.Attempts != 1 || len(r.requestsOf(id)) != 1 || len(rec.evidence) != 0 {
					t.Errorf("%d attempts, %d requests", rec.Attempts, len(r.requestsOf(id)))
				}
				if r.metric("fanout_releases_total", string(releaseUnreadable)) == 0 {
					t.Error("releases are not counted")
				}
			})
		})
	}
}

// A key that is missing does not come by waiting: no slot is held for it. A lease
// that was lost meanwhile is settled all the same, for a policy is not sealed.
func TestMissingKeyHoldsNoSlot(t *testing.T) {
	run(t, Options{}, func(r *rig) {
		r.mu.Lock()
		r.dirErr = fmt.Errorf("subscriber s1: %w", subscriber.ErrUnreadable)
		r.mu.Unlock()
		id := r.enqueue("e1", "s1")
		synctest.Wait()
		if rec := r.get(id); rec.Releases != 1 || rec.leased || rec.Attempts != 0 {
			t.Errorf("%d releases, leased %v, %d attempts", rec.Releases, rec.leased, rec.Attempts)
		}
		r.set(func() { r.noLease = true })
		lost := r.enqueue("e2", "s1", func(d *record) { r.charge(d) })
		after(time.Minute)
		if rec := r.state(lost, delivery.Scheduled); rec.LeaseLosses != 1 || rec.Attempts != 0 {
			t.Errorf("%d losses, %d attempts", rec.LeaseLosses, rec.Attempts)
		}
		r.mu.Lock()
		r.dirErr = nil
		r.mu.Unlock()
	})
}

// A blip while preparing costs nothing, not even a release.
func TestBlipWhilePreparing(t *testing.T) {
	run(t, Options{}, func(r *rig) {
		r.set(func() { r.lose["body"] = 2 })
		id := r.enqueue("e1", "s1")
		after(time.Second)
		if rec := r.state(id, delivery.Delivered); rec.Releases != 0 {
			t.Errorf("%d releases", rec.Releases)
		}
	})
}

func TestDeletedSubscriberIsReleased(t *testing.T) {
	run(t, Options{}, func(r *rig) {
		r.mu.Lock()
		r.subs["s1"] = nil
		r.mu.Unlock()
		id := r.enqueue("e1", "s1")
		r.set(func() { r.slow["release"] = time.Second })
		r.set(func() { r.recs[id].State = delivery.Cancelled }) // by whoever deleted the subscriber
		after(2 * time.Second)
		if n := len(r.requestsOf(id)); n != 0 {
			t.Errorf("%d requests to a deleted subscriber", n)
		}
	})
}

// A lease with too little time left is not sent on: another worker may send it
// while this request is still out.
func TestLateLeaseIsReleased(t *testing.T) {
	run(t, Options{}, func(r *rig) {
		slow := sub("s1")
		slow.Policy.AttemptTimeout = delivery.Duration(time.Minute) // changed since the lease, which lasts 25s
		r.mu.Lock()
		r.subs["s1"] = slow
		r.mu.Unlock()
		id := r.enqueue("e1", "s1")
		after(3 * time.Second)
		if n := len(r.requestsOf(id)); n != 0 {
			t.Errorf("%d requests", n)
		}
		if n := r.metric("fanout_releases_total", string(releaseLate)); n == 0 || n > 3 {
			t.Errorf("%v releases in 3 s: it must be counted, and not go round", n)
		}
		r.mu.Lock()
		r.subs["s1"] = sub("s1")
		r.mu.Unlock()
		after(3 * time.Second)
		r.state(id, delivery.Delivered)
	})
}

// One delivery that can only fail shows beside others that succeed.
func TestRepeatedFailuresAreCounted(t *testing.T) {
	run(t, Options{}, func(r *rig) {
		r.endpoint(func(_ context.Context, req webhook.Request) webhook.Answer {
			if req.Attempt < 8 && strings.Contains(string(req.Body), "poison") {
				return webhook.Answer{Outcome: delivery.HTTP5xx, Status: 500, Err: "the endpoint answered 500"}
			}
			return webhook.Answer{Outcome: delivery.OK, Status: 200}
		})
		id := r.enqueue("poison", "s1")
		r.enqueue("e1", "s1")
		after(time.Hour)
		r.state(id, delivery.Delivered)
		if n := r.metric("fanout_repeated_failures_total", "standard"); n != 3 {
			t.Errorf("%v failures counted as repeated, want those of attempts 5, 6 and 7", n)
		}
	})
}

// A new event must not wait for its payload behind another's.
func TestPayloadReadsAreShared(t *testing.T) {
	run(t, Options{}, func(r *rig) {
		r.set(func() { r.slow["body"] = 100 * time.Millisecond })
		for _, s := range []string{"s1", "s2", "s3", "s4", "s5"} {
			r.enqueue("e1", s)
		}
		after(150 * time.Millisecond)
		r.enqueue("e1", "s6")
		synctest.Wait()
		if n := r.count("body"); n != 1 {
			t.Errorf("%d reads of one payload", n)
		}
		if n := len(r.requestsOf("")); n != 6 {
			t.Errorf("%d requests", n)
		}
	})
}

// A delivery is not tried again earlier than the endpoint asked for, however long
// the reply was on its way that told the worker what time it is.
func TestRetryAfterIsCountedFromTheAnswer(t *testing.T) {
	run(t, Options{}, func(r *rig) {
		const asked = 30 * time.Second // above any backoff of the first attempt
		r.set(func() { r.tardy["lease"] = 800 * time.Millisecond })
		r.endpoint(func(context.Context, webhook.Request) webhook.Answer {
			return webhook.Answer{Outcome: delivery.HTTP429, Status: 429, RetryAfter: asked}
		})
		id := r.enqueue("e1", "s1")
		after(2 * time.Second)
		r.set(func() { r.tardy["lease"] = 0 })
		r.endpoint(answer(delivery.OK, 200))
		after(time.Minute)
		r.state(id, delivery.Delivered)
		got := r.requestsOf(id)
		if waited := got[1].at.Sub(got[0].at); waited < asked {
			t.Errorf("tried again after %v, asked for %v", waited, asked)
		}
	})
}

// What a process that stood still finds when it wakes speaks of itself, not of the endpoint:
// it counts as a lost lease, and the attempt is given back.
func TestFrozenWorkerBlamesItself(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		late   time.Duration // that the beat is
		answer webhook.Answer
		want   delivery.Outcome
	}{
		"in time":          {0, webhook.Answer{Outcome: delivery.Timeout}, delivery.Timeout},
		"a little late":    {skipped, webhook.Answer{Outcome: delivery.Timeout}, delivery.Timeout},
		"frozen":           {skipped + time.Second, webhook.Answer{Outcome: delivery.Timeout}, delivery.LeaseLost},
		"frozen and reset": {skipped + time.Second, webhook.Answer{Outcome: delivery.Reset}, delivery.LeaseLost},
		"but answered":     {skipped + time.Second, webhook.Answer{Outcome: delivery.HTTP5xx, Status: 500}, delivery.HTTP5xx},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, Options{}, func(r *rig) {
				r.endpoint(func(_ context.Context, _ webhook.Request) webhook.Answer {
					time.Sleep(time.Second)
					r.d.loop.pulse.last.Add(-int64(c.late)) // as if it had not beaten for so long
					return c.answer
				})
				id := r.enqueue("e1", "s1")
				after(1100 * time.Millisecond)
				d := r.get(id)
				if d.LastOutcome != c.want || (d.LeaseLosses == 1) != (c.want == delivery.LeaseLost) {
					t.Errorf("%s, %d lease losses; want %s", d.LastOutcome, d.LeaseLosses, c.want)
				}
				r.endpoint(hang(0))
				after(time.Minute)
				r.state(id, delivery.Delivered)
			})
		})
	}
}

func TestPulse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPulse()
		began := time.Now()
		time.Sleep(hangAfter / 4)
		p.beat()
		if p.stoodStillSince(began) {
			t.Error("it beats in time")
		}
		time.Sleep(5 * time.Second)
		if !p.stoodStillSince(began) {
			t.Error("it has not beaten for 5 s, and has not yet noticed")
		}
		p.beat()
		if !p.stoodStillSince(began) {
			t.Error("it had not beaten for 5 s")
		}
		time.Sleep(time.Millisecond)
		if p.stoodStillSince(time.Now()) {
			t.Error("what began since is not touched by it")
		}
	})
}
