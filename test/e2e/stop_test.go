package e2e

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// stopped has the dispatcher's stage come to its end, and checks that it leaves
// no lease behind.
func (s *service) stopped(p *process) {
	s.Helper()
	if err := p.wait(); err != nil {
		s.Errorf("the dispatcher did not stop well: %v", err)
	}
	if n := s.sample().Leases; n != 0 {
		s.Errorf("the dispatcher left %d leases behind", n)
	}
}

// A dispatcher that is stopped while requests are in flight sees them through,
// settles them, and takes no more. The next one goes on where it stopped: nothing
// is lost, and nothing is sent twice.
func TestGracefulStop(t *testing.T) {
	t.Parallel()
	const events, inFlight = 40, 8
	s := start(t, func(c *setup) { c.workers, c.grace, c.cap = 0, time.Minute, inFlight })
	open := make(gate)
	e := s.endpoint(held(open, always(http.StatusOK)))
	s.subscribe(e.URL, "stop", `{"attempt_timeout":"60s","max_in_flight":8}`)
	worker := s.dispatcher()
	ids := s.postMany(events, "stop-", "stop")
	s.await(e, inFlight)

	worker.stop()
	close(open)
	s.stopped(worker)
	s.saw(e, inFlight)
	if l := s.sample().Ledger; l.Delivered != inFlight || l.Pending != events-inFlight {
		t.Errorf("ledger %+v after the stop, want %d delivered and the others pending", l, inFlight)
	}

	s.dispatcher()
	if l := s.balanced(); l.Delivered != events {
		t.Errorf("ledger %+v, want %d delivered", l, events)
	}
	s.saw(e, events)
	for _, id := range ids {
		if v := s.look(id); v.Attempts != 1 || v.DeliveryCount != 1+v.Releases {
			t.Errorf("%s: %d attempts, delivery_count %d, %d releases", id, v.Attempts, v.DeliveryCount, v.Releases)
		}
	}
}

// A request that outlasts the grace is cut off. That is no fault of the endpoint
// and costs the delivery no attempt: the next dispatcher has the whole budget.
func TestStopCutsWhatOutlastsTheGrace(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *setup) { c.workers, c.grace = 0, 200*time.Millisecond })
	for _, c := range []struct {
		name, state string
		then        answer
		outcomes    []string
	}{
		{"then-well", "delivered", always(http.StatusOK), []string{"lease_lost", "delivered"}},
		{"then-bad", "dead", always(http.StatusServiceUnavailable), []string{"lease_lost", "http_5xx", "http_5xx"}},
	} {
		e := s.endpoint(func(n int, w http.ResponseWriter, r *http.Request) {
			if n == 1 {
				hang(n, w, r)
				return
			}
			c.then(n, w, r)
		})
		s.subscribe(e.URL, c.name, `{"attempt_timeout":"60s","max_attempts":2,"backoff_base":"20ms","backoff_cap":"40ms"}`)
		worker := s.dispatcher()
		s.post(c.name, c.name, `{}`)
		s.await(e, 1)
		worker.stop()
		s.stopped(worker)

		next := s.dispatcher()
		v := s.delivery(c.name, c.state)
		s.expect(v, c.outcomes...)
		if v.LeaseLosses != 1 || v.Attempts != len(c.outcomes)-1 {
			t.Errorf("%s: %d lease losses, %d attempts", c.name, v.LeaseLosses, v.Attempts)
		}
		s.saw(e, len(c.outcomes))
		next.stop()
		s.stopped(next)
	}
}

// Two dispatchers at once share the work, and no delivery is sent twice, be it at
// its first attempt or later.
func TestTwoDispatchers(t *testing.T) {
	t.Parallel()
	// A subscriber may hold as many slots of a dispatcher as are free: half of them.
	const slots, most, events = 10, 5, 150
	s := start(t, func(c *setup) { c.workers, c.slots, c.cap = 2, slots, 100 })
	open := make(gate)
	well := s.endpoint(held(open, always(http.StatusOK)))
	var failed atomic.Int64
	flaky := s.endpoint(func(_ int, w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Fanout-Attempt") == "1" {
			failed.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	s.subscribe(well.URL, "two", `{"attempt_timeout":"60s","max_in_flight":100}`)
	s.postMany(events, "two-", "two")
	s.await(well, 2*most) // more than one of them could have out
	// All first attempts may fail before any second one is made: no reason to rest.
	s.subscribe(flaky.URL, "flaky", tireless)
	s.postMany(events, "flaky-", "flaky")
	close(open)
	if l := s.balanced(); l.Delivered != 2*events {
		t.Errorf("ledger %+v, want %d delivered", l, 2*events)
	}
	for e, each := range map[*endpoint]int{well: 1, flaky: 2} {
		times := map[string]int{}
		for _, r := range e.requests() {
			times[r.id()]++
		}
		if len(times) != events {
			t.Errorf("%d deliveries arrived, want %d", len(times), events)
		}
		for id, n := range times {
			if n != each {
				t.Errorf("%s was sent %d times, want %d", id, n, each)
			}
		}
	}
	if n := failed.Load(); n != events {
		t.Errorf("%d first attempts, want %d", n, events)
	}
}
