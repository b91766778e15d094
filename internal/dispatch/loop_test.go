package dispatch

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/webhook"
)

func TestWokenWithoutPolling(t *testing.T) {
	run(t, Options{SafetyPoll: never, ReapEvery: never}, func(r *rig) {
		after(time.Minute)
		before := r.count("lease")
		id := r.enqueue("e1", "s1")
		r.state(id, delivery.Delivered) // no time has passed
		if n := r.count("lease") - before; n != 1 {
			t.Errorf("%d lease calls for one delivery, want 1", n)
		}
	})
}

func TestMissedWakeIsPolledFor(t *testing.T) {
	run(t, Options{}, func(r *rig) {
		r.set(func() { r.mute = true })
		id := r.enqueue("e1", "s1")
		after(time.Second)
		r.state(id, delivery.Delivered)
	})
}

// What was announced while nobody listened is found when somebody does again.
func TestListensAgain(t *testing.T) {
	run(t, Options{SafetyPoll: never, ReapEvery: never}, func(r *rig) {
		r.set(func() { r.slow["wake"] = time.Second })
		for _, ch := range r.hearing() {
			r.deafen(ch)
		}
		synctest.Wait()
		id := r.enqueue("e1", "s1")
		after(2 * time.Second)
		r.state(id, delivery.Delivered)
		id = r.enqueue("e2", "s1")
		r.state(id, delivery.Delivered)
	})
}

func TestIdleCalls(t *testing.T) {
	run(t, Options{}, func(r *rig) {
		r.enqueue("far", "s1", func(d *record) { d.DueAt = d.DueAt.Add(30 * time.Minute) })
		after(time.Second)
		before := r.count("")
		after(time.Minute)
		if n := r.count("") - before; n > 5*60 || n < 60 {
			t.Errorf("%d calls in an idle minute, want 60 to 300", n)
		}
	})
}

func TestSaturatedAsksNothing(t *testing.T) {
	run(t, Options{Slots: 3}, func(r *rig) {
		r.endpoint(hang(9 * time.Second))
		for i := range 10 {
			r.enqueue(fmt.Sprint("e", i), fmt.Sprint("s", i))
		}
		after(time.Second)
		before := r.count("lease")
		for range 7 {
			after(time.Second)
			r.enqueue("more", fmt.Sprint("s", before)) // a wake is no reason either
		}
		if n := r.count("lease") - before; n != 0 {
			t.Errorf("%d lease calls with no slot free", n)
		}
		after(time.Minute)
		if n := r.metric("fanout_attempts_total", "delivered"); n != 11 {
			t.Errorf("%v delivered, want 11", n)
		}
	})
}

func TestRetryIsWokenAtItsDueTime(t *testing.T) {
	run(t, Options{SafetyPoll: never, ReapEvery: never}, func(r *rig) {
		r.endpoint(answer(delivery.HTTP5xx, 500))
		id := r.enqueue("e1", "s1")
		due := r.state(id, delivery.Scheduled).DueAt
		r.endpoint(answer(delivery.OK, 200))
		before := r.count("lease")
		after(10 * time.Minute)
		r.state(id, delivery.Delivered)
		got := r.requestsOf(id)
		if len(got) != 2 || got[1].at.Before(due) || got[1].at.After(due.Add(time.Millisecond)) {
			t.Errorf("second request at %v, due at %v", got[len(got)-1].at, due)
		}
		if n := r.count("lease") - before; n > 3 {
			t.Errorf("%d lease calls to wait for one retry", n)
		}
	})
}

// What others scheduled is known from a reply, and woken for without a poll.
func TestNextDueOfAReply(t *testing.T) {
	run(t, Options{SafetyPoll: never, ReapEvery: never}, func(r *rig) {
		id := r.enqueue("e1", "s1", func(d *record) { d.DueAt = d.DueAt.Add(10 * time.Second) })
		after(10*time.Second - time.Millisecond)
		r.state(id, delivery.Scheduled)
		after(time.Millisecond)
		r.state(id, delivery.Delivered)
	})
}

// A retry settled while a lease call is out is not in its reply, and yet must not
// be forgotten with it.
func TestDueHintSurvivesAReplyUnderWay(t *testing.T) {
	t.Parallel()
	p := partition{}
	soon := time.Now().Add(time.Second)
	p.dueBy(soon)
	p.learn(schedule.LeaseReply{Now: time.Now(), NextDue: time.Now().Add(time.Hour)}, time.Now())
	if !p.dueAt.Equal(soon) {
		t.Errorf("due at %v, want %v", p.dueAt, soon)
	}
	p.learn(schedule.LeaseReply{Now: time.Now()}, time.Now())
	if !p.dueAt.Equal(soon) {
		t.Errorf("due at %v after a reply that knows of none, want %v", p.dueAt, soon)
	}
}

func TestDueNowThatGivesNothingIsNotAskedAtOnce(t *testing.T) {
	t.Parallel()
	p, now := partition{}, time.Now()
	p.learn(schedule.LeaseReply{Now: now, NextDue: now}, now)
	if p.hasWork(now, true) || !p.hasWork(now.Add(minGap), true) {
		t.Errorf("asked again at %v, want after %v", p.dueAt.Sub(now), minGap)
	}
}

// A partition that names a due time and then gives nothing is not asked in a
// tight loop, nor one whose ready subscribers cannot be served.
func TestNoTightLoop(t *testing.T) {
	run(t, Options{SafetyPoll: never, ReapEvery: never}, func(r *rig) {
		r.set(func() { r.noLease = true })
		r.enqueue("e1", "s1")
		r.enqueue("e2", "s2", func(d *record) { d.DueAt = d.DueAt.Add(time.Second) })
		before := r.count("lease")
		after(10 * time.Second)
		if n := r.count("lease") - before; n > 4 {
			t.Errorf("%d lease calls", n)
		}
		r.set(func() { r.noLease = false; r.announce(0); r.announce(1); r.announce(2); r.announce(3) })
		after(0)
	})
}

func TestLostLeaseReply(t *testing.T) {
	run(t, Options{SafetyPoll: never}, func(r *rig) {
		r.set(func() { r.lose["lease"] = 3; r.requests = nil })
		id := r.enqueue("e1", "s1")
		synctest.Wait()
		if got := r.openLeases(); len(got) != 1 {
			t.Fatalf("leased %v, want one whose reply was lost", got)
		}
		if r.d.Ready() == nil {
			t.Error("ready though the lease call fails")
		}
		after(10 * time.Second) // well before the lease expires
		rec := r.state(id, delivery.Delivered)
		if rec.DeliveryCount != 1 || rec.LeaseLosses != 0 {
			t.Errorf("delivery_count %d, lease losses %d: the lease was not got back", rec.DeliveryCount, rec.LeaseLosses)
		}
		for _, q := range r.asked()[1:4] {
			if diff := cmp.Diff(r.asked()[0], q); diff != "" {
				t.Errorf("asked again for something else: %s", diff)
			}
		}
		if err := r.d.Ready(); err != nil {
			t.Error(err)
		}
	})
}

// A reply that never comes must not hold its partition for ever.
func TestUnreadableReplyIsLeftBehind(t *testing.T) {
	run(t, Options{}, func(r *rig) {
		r.set(func() { r.lose["lease"] = 1 << 30; r.requests = nil })
		id := r.enqueue("e1", "s1")
		after(reaskFor + 3*time.Second)
		seqs := map[int64]bool{}
		for _, q := range r.asked() {
			if q.Partition == r.PartitionOf("s1") {
				seqs[q.Seq] = true
			}
		}
		if len(seqs) != 2 {
			t.Errorf("%d seqs were used, want a second one after %v", len(seqs), reaskFor)
		}
		r.set(func() { r.lose["lease"] = 0 })
		after(time.Minute)
		r.state(id, delivery.Delivered)
	})
}

func TestRedisAwayForMinutes(t *testing.T) {
	run(t, Options{}, func(r *rig) {
		r.endpoint(hang(time.Second))
		id := r.enqueue("e1", "s1")
		synctest.Wait()
		r.set(func() { r.down = true })
		after(30 * time.Second)
		if r.d.Ready() == nil {
			t.Error("ready though Redis is away")
		}
		after(150 * time.Second)
		r.set(func() { r.down = false })
		later := r.enqueue("e2", "s2")
		after(5 * time.Second)
		if rec := r.state(id, delivery.Delivered); rec.LeaseLosses != 0 || len(r.requestsOf(id)) != 1 {
			t.Errorf("lease losses %d, %d requests: the verdict did not outlast the outage", rec.LeaseLosses, len(r.requestsOf(id)))
		}
		r.state(later, delivery.Delivered)
		after(10 * time.Second)
		if err := r.d.Ready(); err != nil {
			t.Error(err)
		}
	})
}

// A worker that outlived an outage settles its own leases, though they expired.
func TestReaperLetsTheLivingSettleFirst(t *testing.T) {
	run(t, Options{}, func(r *rig) {
		r.endpoint(hang(time.Second))
		id := r.enqueue("e1", "s1")
		synctest.Wait()
		r.set(func() { r.down = true })
		after(3 * time.Minute)
		// Redis is back, and the reaper comes by before the settler does.
		r.set(func() { r.down, r.refuse = false, func(v schedule.Verdict) bool { return !v.Reclaim } })
		for looks := r.count("expired_leases"); r.count("expired_leases") == looks; {
			after(100 * time.Millisecond)
		}
		r.state(id, delivery.Leased)
		r.set(func() { r.refuse = nil })
		after(3 * time.Second)
		if rec := r.state(id, delivery.Delivered); rec.LeaseLosses != 0 {
			t.Errorf("%d lease losses", rec.LeaseLosses)
		}
	})
}

// A hang is told while it lasts, and from then on those that hang share a part of the
// slots: the rest is free for the others, and the loop does not ask round and round for
// what it has no room for.
func TestTheSlowKeepToTheirShare(t *testing.T) {
	run(t, Options{Slots: 20}, func(r *rig) {
		r.endpoint(hang(10 * time.Second))
		for i := range 4 {
			r.enqueue(fmt.Sprint("e", i), fmt.Sprint("s", i))
		}
		after(1100 * time.Millisecond)
		for i := range 4 {
			if d := r.hung[fmt.Sprint("s", i)]; d < time.Second {
				t.Errorf("s%d: told of %s, want a second", i, d)
			}
		}
		for i := range 60 {
			r.enqueue(fmt.Sprint("more", i), fmt.Sprint("s", i%4))
		}
		after(time.Second)
		if n := r.metric("fanout_slots", "slow"); n != 12 {
			t.Errorf("%v slots for the slow, want 12 of 20", n)
		}
		calls := r.count("lease")
		after(5 * time.Second)
		if n := r.count("lease") - calls; n > 8 { // the poll of each second
			t.Errorf("%d calls for work in 5 s with room for none of it", n)
		}
		id := r.enqueue("fresh", "healthy")
		r.state(id, delivery.Leased)
	})
}

func TestLanesKeepToTheirShare(t *testing.T) {
	run(t, Options{Slots: 20}, func(r *rig) {
		r.endpoint(hang(5 * time.Second))
		for i := range 60 {
			lane := []delivery.Lane{delivery.Retry, delivery.Redrive}[i%2]
			r.enqueue(fmt.Sprint("e", i), fmt.Sprint("s", i), func(d *record) { d.Lane = lane })
		}
		after(time.Second)
		if retries, redrives := r.onWire(delivery.Retry), r.onWire(delivery.Redrive); retries != 15 || redrives != 2 {
			t.Errorf("%d and %d on the wire, want 15 retries and 2 redrives of 20", retries, redrives)
		}
		id := r.enqueue("fresh", "s-fresh")
		r.state(id, delivery.Leased)
		if n := r.metric("fanout_slots", "retry"); n != 15 {
			t.Errorf("gauge says %v retries", n)
		}
		after(2 * time.Minute)
		if retries, redrives := r.peakOf(delivery.Retry), r.peakOf(delivery.Redrive); retries > 15 || redrives > 2 {
			t.Errorf("up to %d retries and %d redrives at once", retries, redrives)
		}
		if n := r.metric("fanout_attempts_total", "delivered"); n != 61 {
			t.Errorf("%v delivered, want all 61", n)
		}
		for _, l := range delivery.Lanes {
			if n := r.metric("fanout_slots", string(l)); n != 0 {
				t.Errorf("%v slots of %s still in use", n, l)
			}
		}
	})
}

func TestFreshMayUseAllSlots(t *testing.T) {
	run(t, Options{Slots: 8}, func(r *rig) {
		r.endpoint(hang(time.Second))
		for i := range 30 {
			r.enqueue(fmt.Sprint("e", i), fmt.Sprint("s", i))
		}
		after(time.Minute)
		if r.peakOf(delivery.Fresh) != 8 {
			t.Errorf("at most %d at once, want 8", r.peakOf(delivery.Fresh))
		}
	})
}

func TestOneHangingSubscriberStopsNobody(t *testing.T) {
	run(t, Options{Slots: 10, SafetyPoll: never}, func(r *rig) {
		r.endpoint(func(ctx context.Context, req webhook.Request) webhook.Answer {
			if r.get(req.DeliveryID).SubscriberID == "bad" {
				return hang(time.Hour)(ctx, req)
			}
			return webhook.Answer{Outcome: delivery.OK, Status: 200}
		})
		r.set(func() { r.caps["bad"] = 4 })
		for i := range 100 {
			r.enqueue(fmt.Sprint("e", i), "bad")
		}
		var good []string
		for i := range 200 {
			good = append(good, r.enqueue(fmt.Sprint("e", i%100), fmt.Sprint("good", i)))
		}
		after(200 * time.Millisecond) // the rhythm of 20 rounds of calls, and more
		for _, id := range good {
			r.state(id, delivery.Delivered)
		}
		if r.onWire(delivery.Fresh) != 4 {
			t.Errorf("%d hang, want 4", r.onWire(delivery.Fresh))
		}
		if n := r.count("body"); n > 104 {
			t.Errorf("%d payload reads for 100 events: they are not shared", n)
		}
	})
}

// Leases that a repeated request brings when the slots are taken are handed back.
func TestSurplusIsReleased(t *testing.T) {
	run(t, Options{Slots: 2, SafetyPoll: never}, func(r *rig) {
		r.endpoint(hang(3 * time.Second))
		a, b := idsIn(r.fake, 0), idsIn(r.fake, 1)
		r.set(func() { r.lose["lease"] = 1 })
		for i := range 2 {
			r.enqueue(fmt.Sprint("a", i), a[i])
		}
		synctest.Wait() // partition 0 has leased two, and the reply is lost
		for i := range 2 {
			r.enqueue(fmt.Sprint("b", i), b[i])
		}
		after(time.Minute)
		if n := r.metric("fanout_attempts_total", "delivered"); n != 4 {
			t.Errorf("%v delivered, want 4", n)
		}
		if n := r.metric("fanout_releases_total", string(releaseSurplus)); n != 2 {
			t.Errorf("%v released, want 2", n)
		}
		if n := r.metric("fanout_leases_lost_total"); n != 0 {
			t.Errorf("%v leases were left to expire", n)
		}
		if r.peakOf(delivery.Fresh) > 2 {
			t.Errorf("%d at once over 2 slots", r.peakOf(delivery.Fresh))
		}
	})
}

// idsIn makes subscriber ids of one partition.
func idsIn(f *fake, p int) (ids []string) {
	for i := 0; len(ids) < 4; i++ {
		if id := fmt.Sprint("sub", i); f.PartitionOf(id) == p {
			ids = append(ids, id)
		}
	}
	return ids
}
