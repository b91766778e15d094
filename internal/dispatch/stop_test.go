package dispatch

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

func TestStopWhenIdle(t *testing.T) {
	run(t, Options{}, func(r *rig) {
		begun := time.Now()
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("an idle dispatcher took %v to stop", took)
		}
		if err := r.d.Ready(); !errors.Is(err, errStopping) {
			t.Errorf("ready says %v", err)
		}
		if err := r.d.Run(t.Context()); err == nil {
			t.Error("it ran a second time")
		}
	})
}

func TestStopInEachPhase(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		slow  string // the operation that is under way when the stop comes
		lose  bool   // and its reply is lost
		sent  int
		state delivery.State
	}{
		{name: "while a lease call is out", slow: "lease", state: delivery.Scheduled},
		{name: "while a lease call is out whose reply is lost", slow: "lease", lose: true, state: delivery.Scheduled},
		{name: "while the payload is read", slow: "body", state: delivery.Scheduled},
		{name: "while the verdict is settled", slow: "settle", sent: 1, state: delivery.Delivered},
		{name: "while a verdict's reply is lost", slow: "settle", lose: true, sent: 1, state: delivery.Delivered},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, Options{SafetyPoll: never, ReapEvery: never}, func(r *rig) {
				if c.slow != "body" { // it is in memory: nothing but the stop is in a request's way
					r.state(r.enqueue("e1", "s0"), delivery.Delivered)
				}
				r.set(func() {
					r.slow[c.slow] = time.Second
					if c.lose {
						r.lose[c.slow] = 1
					}
				})
				id := r.enqueue("e1", "s1")
				after(500 * time.Millisecond)
				begun := time.Now()
				if err := r.stop(); err != nil {
					t.Error(err)
				}
				if took := time.Since(begun); took > 4*time.Second {
					t.Errorf("it took %v to stop", took)
				}
				rec := r.state(id, c.state)
				if n := len(r.requestsOf(id)); n != c.sent || rec.Attempts != c.sent {
					t.Errorf("%d requests, %d attempts, want %d", n, rec.Attempts, c.sent)
				}
				if rec.LeaseLosses != 0 {
					t.Error("a lease was lost by an orderly stop")
				}
			})
		})
	}
}

func TestStopLetsRequestsFinish(t *testing.T) {
	run(t, Options{Grace: 20 * time.Second}, func(r *rig) {
		r.endpoint(hang(8 * time.Second))
		id := r.enqueue("e1", "s1")
		synctest.Wait()
		begun := time.Now()
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		r.state(id, delivery.Delivered)
		if took := time.Since(begun); took != 8*time.Second {
			t.Errorf("it took %v, want until the answer came", took)
		}
		late := r.enqueue("e2", "s2")
		r.state(late, delivery.Scheduled)
	})
}

func TestStopCutsOffAfterTheGrace(t *testing.T) {
	run(t, Options{Grace: 3 * time.Second}, func(r *rig) {
		r.endpoint(hang(8 * time.Second))
		id := r.enqueue("e1", "s1")
		synctest.Wait()
		begun := time.Now()
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took != 3*time.Second {
			t.Errorf("it took %v", took)
		}
		rec := r.state(id, delivery.Scheduled)
		if rec.LastOutcome != delivery.LeaseLost || rec.LeaseLosses != 1 || rec.Attempts != 0 {
			t.Errorf("outcome %s, losses %d, attempts %d", rec.LastOutcome, rec.LeaseLosses, rec.Attempts)
		}
	})
}

// With Redis away a stop still ends, and says what it leaves behind.
func TestStopWithoutRedis(t *testing.T) {
	run(t, Options{Grace: 3 * time.Second}, func(r *rig) {
		r.endpoint(hang(time.Second))
		id := r.enqueue("e1", "s1")
		synctest.Wait()
		r.set(func() { r.down = true })
		begun := time.Now()
		err := r.stop()
		if !errors.Is(err, ErrUnsettled) {
			t.Errorf("stop said %v", err)
		}
		if took := time.Since(begun); took > 3*time.Second+settleGrace+callTimeout {
			t.Errorf("it took %v to stop", took)
		}
		r.state(id, delivery.Leased)
		r.stop = func() error { return nil } // it was said
	})
}
