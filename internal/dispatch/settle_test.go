package dispatch

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

func TestLostSettleReply(t *testing.T) {
	run(t, Options{Slots: 1}, func(r *rig) {
		r.set(func() { r.lose["settle"] = 2 })
		r.endpoint(answer(delivery.HTTP5xx, 500))
		id := r.enqueue("e1", "s1")
		after(4 * time.Second)
		r.endpoint(answer(delivery.OK, 200))
		after(time.Minute)
		rec := r.state(id, delivery.Delivered)
		n := len(r.requestsOf(id))
		if rec.Attempts != n || len(rec.evidence) != n {
			t.Errorf("%d attempts, %d kept, for %d requests: a verdict had a second effect", rec.Attempts, len(rec.evidence), n)
		}
		if r.metric("fanout_settles_total", string(schedule.Already)) != 1 {
			t.Error("the repeat was not counted as already")
		}
	})
}

// The retry is known of even when the reply that says so was a repeat's.
func TestRetryIsWokenAfterALostSettleReply(t *testing.T) {
	run(t, Options{SafetyPoll: never, ReapEvery: never}, func(r *rig) {
		r.set(func() { r.lose["settle"] = 1 })
		r.endpoint(answer(delivery.HTTP5xx, 500))
		id := r.enqueue("e1", "s1")
		synctest.Wait()
		r.endpoint(answer(delivery.OK, 200))
		after(time.Minute)
		r.state(id, delivery.Delivered)
	})
}

func TestVerdictsGatherWhileACallIsOut(t *testing.T) {
	run(t, Options{}, func(r *rig) {
		r.set(func() { r.slow["settle"] = 10 * time.Millisecond })
		s := idsIn(r.fake, 1)[0]
		for i := range 30 {
			r.enqueue(fmt.Sprint("e", i), s)
		}
		after(25 * time.Millisecond)
		if n := r.count("settle"); n > 2 {
			t.Errorf("%d calls for 30 verdicts, want a first one and one with all the rest at most", n)
		}
		if n := r.metric("fanout_settles_total", string(schedule.Applied)); n != 30 {
			t.Errorf("%v applied", n)
		}
	})
}

// While Redis takes no verdicts nothing is leased beyond the slots.
func TestSlotsAreHeldUntilSettled(t *testing.T) {
	run(t, Options{Slots: 5}, func(r *rig) {
		r.set(func() { r.refuse = func(schedule.Verdict) bool { return true } })
		for i := range 50 {
			r.enqueue(fmt.Sprint("e", i), fmt.Sprint("s", i))
		}
		after(10 * time.Second)
		if n := len(r.requestsOf("")); n != 5 {
			t.Errorf("%d requests whose verdicts have nowhere to go, want 5", n)
		}
		if r.d.Ready() == nil {
			t.Error("ready though nothing can be settled")
		}
		r.set(func() { r.refuse = nil })
		after(10 * time.Second)
		if n := r.metric("fanout_attempts_total", "delivered"); n != 50 {
			t.Errorf("%v delivered", n)
		}
	})
}

// One verdict that Redis refuses holds back no other, and is given up in the end.
func TestOneRefusedVerdict(t *testing.T) {
	run(t, Options{ReapEvery: never}, func(r *rig) {
		s := idsIn(r.fake, 2)[0]
		r.set(func() { r.slow["settle"] = time.Millisecond })
		poison := r.enqueue("poison", s)
		r.set(func() { r.refuse = func(v schedule.Verdict) bool { return v.ID == poison } })
		var others []string
		for i := range 40 {
			others = append(others, r.enqueue(fmt.Sprint("e", i), s))
		}
		after(5 * time.Second)
		for _, id := range others {
			r.state(id, delivery.Delivered)
		}
		r.state(poison, delivery.Leased)
		after(settleFor + time.Minute)
		if r.metric("fanout_settles_total", resultDropped) != 1 || !strings.Contains(r.logs.String(), "verdict dropped") {
			t.Error("the drop was not told")
		}
		if n := r.metric("fanout_slots", "fresh"); n != 0 {
			t.Errorf("%v slots still in use", n)
		}
		r.set(func() { delete(r.recs, poison) })
	})
}

func TestStaleVerdictIsCounted(t *testing.T) {
	run(t, Options{ReapEvery: never}, func(r *rig) {
		r.endpoint(hang(time.Hour))
		id := r.enqueue("e1", "s1")
		synctest.Wait()
		r.set(func() { // another worker leased it meanwhile
			r.recs[id].State = delivery.Scheduled
			r.charge(r.recs[id])
		})
		after(15 * time.Second)
		if r.metric("fanout_settles_total", string(schedule.Stale)) != 1 {
			t.Error("not counted")
		}
		if n := r.metric("fanout_retries_scheduled_total", "timeout"); n != 0 {
			t.Error("a stale verdict was counted as a retry")
		}
		r.set(func() { r.recs[id].leased = false })
	})
}
