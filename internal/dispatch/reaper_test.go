package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// A delivery whose workers all die ends after max_attempts + MaxLeaseLosses
// leases; the first losses spend nothing.
func TestLeaseLostByDeadWorkers(t *testing.T) {
	run(t, Options{}, func(r *rig) {
		frail := sub("s1")
		frail.Policy.MaxAttempts = 1
		r.mu.Lock()
		r.subs["s1"] = frail
		r.mu.Unlock()
		r.set(func() { r.noLease = true })
		id := r.enqueue("e1", "s1")
		for n := 1; n <= 3; n++ {
			r.set(func() { r.charge(r.recs[id]) }) // a worker leases it, and dies
			after(24 * time.Second)
			if got := r.get(id); got.State != delivery.Leased {
				t.Fatalf("loss %d: reclaimed while its lease is alive", n)
			}
			after(3 * time.Second)
			rec := r.state(id, delivery.Scheduled)
			if rec.Attempts != 0 || rec.LeaseLosses != n || rec.LastOutcome != delivery.LeaseLost || rec.Settled != 0 {
				t.Errorf("loss %d: attempts %d, losses %d, outcome %s", n, rec.Attempts, rec.LeaseLosses, rec.LastOutcome)
			}
		}
		r.set(func() { r.charge(r.recs[id]) })
		after(27 * time.Second)
		rec := r.state(id, delivery.Dead)
		if rec.reason != delivery.Exhausted || rec.Attempts != 1 || rec.DeliveryCount != 4 || rec.pinned == nil {
			t.Errorf("reason %s, attempts %d, delivery_count %d, payload pinned %v",
				rec.reason, rec.Attempts, rec.DeliveryCount, rec.pinned != nil)
		}
		if kept := evidenceOf(t, rec); len(kept) != 4 || kept[0].Outcome != delivery.LeaseLost || kept[0].Worker != "" {
			t.Errorf("evidence %+v", kept)
		}
		if n := r.metric("fanout_leases_lost_total"); n != 4 {
			t.Errorf("%v lost leases counted", n)
		}
		if n := len(r.requestsOf(id)); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}

// A reclaimed delivery is sent by this worker when it falls due, without a poll.
func TestReclaimedIsSentAgain(t *testing.T) {
	run(t, Options{SafetyPoll: never}, func(r *rig) {
		id := r.enqueue("e1", "s1", func(d *record) { r.charge(d) })
		after(2 * time.Minute)
		if rec := r.state(id, delivery.Delivered); rec.LeaseLosses != 1 || rec.DeliveryCount != 2 {
			t.Errorf("losses %d, delivery_count %d", rec.LeaseLosses, rec.DeliveryCount)
		}
	})
}

func TestReclaimOfDeletedSubscribers(t *testing.T) {
	run(t, Options{}, func(r *rig) {
		r.mu.Lock()
		r.subs["s1"] = nil
		r.mu.Unlock()
		r.set(func() { r.noLease = true })
		cancelled := r.enqueue("e1", "s1", func(d *record) { r.charge(d); d.State = delivery.Cancelled })
		notYet := r.enqueue("e2", "s1", func(d *record) { r.charge(d) })
		after(30 * time.Second)
		if rec := r.state(cancelled, delivery.Cancelled); rec.leased {
			t.Error("the lease of a cancelled delivery is open")
		}
		r.state(notYet, delivery.Scheduled) // for the cancelling to find
	})
}

// A page that is full is followed at once, and one config that cannot be read
// holds up no other.
func TestReaperDrains(t *testing.T) {
	run(t, Options{ReapEvery: 10 * time.Minute}, func(r *rig) {
		r.set(func() { r.noLease = true })
		after(time.Second)
		for i := range 3*reapLimit + 10 {
			r.enqueue(fmt.Sprint("e", i), fmt.Sprint("s", i%50), func(d *record) { r.charge(d) })
		}
		after(10 * time.Minute)
		if left := r.openLeases(); len(left) != 0 {
			t.Errorf("%d expired leases left after one look", len(left))
		}
	})
}

func TestWaitingDeliveriesExpire(t *testing.T) {
	run(t, Options{}, func(r *rig) {
		r.set(func() { r.noLease = true })
		id := r.enqueue("e1", "s1", func(d *record) { d.ExpiresAt = d.AcceptedAt.Add(10 * time.Second) })
		bare := r.enqueue("e2", "s1", func(d *record) { d.ExpiresAt = d.AcceptedAt.Add(10 * time.Second) })
		r.set(func() { delete(r.bodies, "e2") })
		after(9 * time.Second)
		r.state(id, delivery.Scheduled)
		after(2 * time.Second)
		if rec := r.state(id, delivery.Dead); rec.reason != delivery.Expired || rec.pinned == nil {
			t.Errorf("reason %s, pinned %v", rec.reason, rec.pinned != nil)
		}
		if rec := r.state(bare, delivery.Dead); rec.pinned != nil {
			t.Error("a payload came from nowhere")
		}
		if n := r.metric("fanout_dead_letters_total", "expired"); n != 2 {
			t.Errorf("%v counted", n)
		}
	})
}

// Several dispatchers' reapers may see the same lease; one wins.
func TestReapersDoNotDisturbEachOther(t *testing.T) {
	run(t, Options{}, func(r *rig) {
		r.set(func() { r.noLease = true })
		id := r.enqueue("e1", "s1", func(d *record) { r.charge(d) })
		after(20 * time.Second)
		r.set(func() { r.lose["settle"] = 1 }) // this one's reply is lost: it will try again
		after(20 * time.Second)
		if rec := r.state(id, delivery.Scheduled); rec.LeaseLosses != 1 {
			t.Errorf("%d losses for one lease", rec.LeaseLosses)
		}
		if n := r.metric("fanout_settles_total", string(schedule.NotExpired)); n != 0 {
			t.Errorf("%v reclaims of leases that are alive", n)
		}
	})
}
