package redrive_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/redrive"
)

// held says what holds a cohort back while it runs.
func (w *world) held(id string) string {
	w.Helper()
	return w.want(id, redrive.Running, "").HeldBack
}

// A burst of fresh deliveries that is gone by the next look is none of the guard's
// business; a queue that stands holds the cohort back, at half of its rate, until it is
// gone.
func TestAQueueThatStands(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *testing.T, w *world) {
		id, _ := w.running(200, redrive.Order{Reason: "a queue", MaxRate: 50})
		for range 20 {
			w.step()
			w.serve(always(200))
		}
		w.post("burst", "s2")
		w.pass(50 * time.Millisecond)
		w.step()
		if why := w.held(id); why != "" {
			t.Fatalf("a burst holds it back: %s", why)
		}
		before := w.view(id)
		w.step() // it has waited for another second
		if why := w.held(id); !strings.Contains(why, "a queue stands") {
			t.Fatalf("held back by %q", why)
		}
		held := w.view(id)
		for range 2 {
			w.step()
		}
		if v := w.view(id); v.Tally.Released != held.Tally.Released || v.Rate > 0.6*before.Rate {
			t.Errorf("%d released in a queue, and the rate went from %.1f to %.1f", v.Tally.Released-held.Tally.Released, before.Rate, v.Rate)
		}
		w.serve(always(200))
		w.step()
		if why := w.held(id); why != "" {
			t.Errorf("the queue is gone, and it is held back: %s", why)
		}
		w.finish(id, always(200))
	})
}

// Slots that are all in use at one report are a burst. When they stay so nothing more is
// released, and nothing is paused before that has lasted.
func TestABurstOfSlots(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *testing.T, w *world) {
		id, _ := w.running(200, order)
		for range 3 { // each time it is over before it has lasted
			w.report.InUse = map[string]int{"fast/fresh": 100}
			for range 2 {
				w.step()
				if why := w.held(id); why != "" {
					t.Fatalf("held back by a burst: %s", why)
				}
			}
			w.step()
			if why := w.held(id); !strings.Contains(why, "100 of 100 slots") {
				t.Fatalf("held back by %q", why)
			}
			released := w.view(id).Tally.Released
			for range 3 {
				w.step()
			}
			if v := w.view(id); v.State != redrive.Running || v.Tally.Released != released {
				t.Fatalf("%d released while all slots are busy; it is %s", v.Tally.Released-released, v.State)
			}
			w.report.InUse = nil
			w.step()
			if why := w.held(id); why != "" {
				t.Fatalf("held back by %q", why)
			}
		}
		w.finish(id, always(200))
	})
}

// The guard keeps the bound that it states, at any rate: nearly all that it judges was
// good when the endpoint begins to fail.
func TestPauseBound(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{1, 5, 20, 100} {
		w := newWorld(t, server(t))
		id, _ := w.running(700, redrive.Order{Reason: "a long one", MaxRate: rate})
		quarter := func(status int) (sent int) {
			w.pass(250 * time.Millisecond)
			w.ok(w.svc.Step(w.ctx))
			return len(w.serve(always(status)))
		}
		for w.view(id).Tally.Delivered < 300 {
			w.pass(750 * time.Millisecond)
			quarter(200)
		}
		within, most := redrive.PauseBound(rate, 0)
		first, sent := time.Time{}, 0
		for w.view(id).State == redrive.Running {
			n := quarter(404)
			if sent += n; first.IsZero() && n > 0 {
				first = w.now
			}
			if sent > 10*most {
				t.Fatalf("at %g/s %d were sent, and it runs", rate, sent)
			}
		}
		v := w.want(id, redrive.Paused, "failures")
		if took := v.StoppedAt.Sub(first); took > within || sent > most {
			t.Errorf("at %g/s it paused after %s and %d; its bound is %s and %d", rate, took, sent, within, most)
		}
	}
}
