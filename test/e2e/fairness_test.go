package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

func (s *service) pause(sub registered) {
	s.Helper()
	s.call("POST", "/v1/subscribers/"+sub.ID+"/pause", "", http.StatusOK, nil)
}

// A rate is one for all dispatchers together: in no window of time does an endpoint
// get more than the burst and what the rate gives in it. What waits for its turn
// pays nothing, and the rate is used.
func TestRateIsSharedByAllDispatchers(t *testing.T) {
	t.Parallel()
	const rate, burst, events = 50, 10, 150
	s := start(t, func(c *setup) { c.workers = 3 })
	e := s.endpoint(always(http.StatusOK))
	sub := s.subscribe(e.URL, "rate", fmt.Sprintf(`{"attempt_timeout":"30s","rate_per_second":%d,"burst":%d}`, rate, burst))
	mean := 0.0
	// The limit holds whatever happens. That the rate is used as well is seen on a
	// machine that is not busy elsewhere: the best of three says it.
	for round := 0; round < 3 && mean < 0.9*rate; round++ {
		s.pause(sub) // to have a backlog when it begins
		ids := s.postMany(events, fmt.Sprintf("rate-%d-", round), "rate")
		s.resume(sub)
		var leased []time.Time
		for _, id := range ids {
			v := s.delivery(id, "delivered")
			if v.Attempts != 1 || v.DeliveryCount != 1 {
				t.Errorf("%s: %d attempts, delivery_count %d: waiting costs none", id, v.Attempts, v.DeliveryCount)
			}
			leased = append(leased, v.FirstAttemptAt)
		}
		log := e.requests()[round*events:]
		arrived, arrivals := map[string]time.Time{}, make([]time.Time, 0, events)
		for _, r := range log {
			arrived[r.id()] = r.at
			arrivals = append(arrivals, r.at)
			if n := r.header.Get("Fanout-Attempt"); n != "1" {
				t.Errorf("a request at attempt %s, want 1", n)
			}
		}
		// Requests that were let go apart may arrive together: the one travelled
		// longer. Each delivery says when it was let go, so how long is known.
		var shortest, longest time.Duration = time.Hour, 0
		for i, id := range ids {
			d := arrived[s.look(id).ID].Sub(leased[i])
			shortest, longest = min(shortest, d), max(longest, d)
		}
		s.within("let go", leased, rate, burst, time.Millisecond) // Redis keeps whole milliseconds
		s.within("received", arrivals, rate, burst, longest-shortest+time.Millisecond)
		slices.SortFunc(arrivals, time.Time.Compare)
		mean = (events - burst) / arrivals[events-1].Sub(arrivals[0]).Seconds()
		t.Logf("mean=%.1f/s rate=%d/s burst=%d travel=%s..%s", mean, rate, burst, shortest, longest)
	}
	if mean < 0.9*rate {
		t.Errorf("%.1f requests a second, want at least 90 %% of %d", mean, rate)
	}
}

// within checks every window that begins and ends with one of the times.
func (s *service) within(what string, at []time.Time, rate, burst float64, slack time.Duration) {
	s.Helper()
	slices.SortFunc(at, time.Time.Compare)
	for i := range at {
		for j := i; j < len(at); j++ {
			window := at[j].Sub(at[i])
			if n := float64(j - i + 1); n > burst+rate*(window+slack).Seconds() {
				s.Errorf("%v requests were %s within %s (and %s), allowed are %v and %v a second",
					n, what, window, slack, burst, rate)
				return
			}
		}
	}
}

// While an endpoint is left alone for as long as it asked by Retry-After, its
// deliveries wait without an attempt, and all others are served.
func TestRetryAfterCostsNobodyElse(t *testing.T) {
	t.Parallel()
	s := start(t)
	const asked = 2 * time.Second
	for _, code := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			s := s.in(t)
			e := s.endpoint(first(func(_ int, w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", fmt.Sprint(int(asked.Seconds())))
				w.WriteHeader(code)
			}))
			well := s.endpoint(always(http.StatusOK))
			name := fmt.Sprint("held.", code)
			sub := s.subscribe(e.URL, name, quick)
			s.subscribe(well.URL, name+".well", quick)
			s.post(name, name, `{}`)
			s.await(e, 1)
			s.holds(sub, "throttled")
			ids := s.postMany(5, name+"-", name)
			for _, id := range s.postMany(5, name+"-well-", name+".well") {
				s.delivery(id, "delivered")
			}
			served := time.Now()
			for _, id := range ids {
				if v := s.delivery(id, "delivered"); v.Attempts != 1 {
					s.Errorf("%s: %d attempts, want 1: it only waited", id, v.Attempts)
				}
			}
			s.delivery(name, "delivered")
			log := s.saw(e, 7)
			if waited := log[1].at.Sub(log[0].at); waited < asked-2*time.Millisecond {
				s.Errorf("sent to again after %s, asked for %s", waited, asked)
			}
			if log[1].at.Before(served) {
				s.Errorf("the others were served only after the throttle")
			}
			s.holds(sub)
		})
	}
}

// A deploy that answers 404 opens the breaker, instead of having its traffic
// dead-lettered: a few deliveries find out, the others wait and are delivered once it
// is mended. Others are served meanwhile.
func TestBadDeployCostsAFewDeliveries(t *testing.T) {
	t.Parallel()
	s := start(t)
	const deliveries, failures = 30, 3
	a, code := switchable(http.StatusNotFound)
	e, well := s.endpoint(a), s.endpoint(always(http.StatusOK))
	sub := s.subscribe(e.URL, "deploy", fmt.Sprintf(`{"attempt_timeout":"30s","breaker_failures":%d}`, failures))
	s.subscribe(well.URL, "well", quick)
	s.postMany(deliveries, "deploy-", "deploy")
	s.holds(sub, "breaker")
	for _, id := range s.postMany(10, "well-", "well") {
		s.delivery(id, "delivered")
	}
	s.await(e, failures+2) // two probes: after rests of half a second to two
	code.Store(http.StatusOK)
	s.resume(sub) // the next one may go now
	l := s.balanced()
	// One more probe may have been on its way when it was mended.
	if l.Dead < failures+2 || l.Dead > failures+3 {
		t.Errorf("ledger %+v, want %d dead or one more", l, failures+2)
	}
	s.saw(e, deliveries)
	s.holds(sub)
}

// A delivery that its endpoint can never take is a bad probe. It is not tried twice
// running while there is another, so it does not keep the breaker open.
func TestPoisonDoesNotKeepTheBreakerOpen(t *testing.T) {
	t.Parallel()
	s := start(t)
	var mended atomic.Bool
	var poison atomic.Value
	e := s.endpoint(func(_ int, w http.ResponseWriter, r *http.Request) {
		if !mended.Load() || r.Header.Get("Webhook-Id") == poison.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	sub := s.subscribe(e.URL, "poison", `{"attempt_timeout":"30s","max_attempts":20,"breaker_failures":2,"backoff_base":"20ms","backoff_cap":"40ms"}`)
	poison.Store(delivery.NewID("poison", sub.ID))
	s.post("other", "poison", `{}`)
	s.holds(sub, "breaker")
	s.pause(sub) // so that what follows comes about in one order
	s.until("no probe is out", func() bool { return s.status(sub).InFlight == 0 })
	mended.Store(true)
	s.post("poison", "poison", `{}`)
	before := len(e.requests())
	s.resume(sub)
	s.delivery("other", "delivered")
	// The poison is fresh, hence the first probe; it fails, and is not the second.
	log := e.requests()
	if len(log) < before+2 || log[before].id() != poison.Load() || log[before+1].id() == poison.Load() {
		t.Errorf("probed by %v, want the poison, then the other", sent(log[before:]))
	}
	for _, id := range s.postMany(10, "after-", "poison") {
		if v := s.delivery(id, "delivered"); v.Attempts != 1 {
			t.Errorf("%s: %d attempts, want 1", id, v.Attempts)
		}
	}
	if v := s.look("poison"); v.State == "delivered" {
		t.Error("the poison was delivered")
	}
}

func sent(log []received) (ids []string) {
	for _, r := range log {
		ids = append(ids, r.id())
	}
	return ids
}

// What waits for a hold grows old in time, held or not.
func TestExpiresWhileHeld(t *testing.T) {
	t.Parallel()
	s := start(t)
	e := s.endpoint(always(http.StatusOK))
	const age = time.Second
	sub := s.subscribe(e.URL, "old", `{"attempt_timeout":"1s","max_age":"1s","max_attempts":3}`)
	s.pause(sub)
	r := s.post("old", "old", `{}`)
	v := s.dead("old", "expired")
	if lived := v.EndedAt.Sub(r.AcceptedAt); lived < age {
		t.Errorf("expired after %s, before its max_age", lived)
	}
	if v.Attempts != 0 {
		t.Errorf("%d attempts of one that only waited", v.Attempts)
	}
	if st := s.holds(sub, "paused"); st.Pending != 0 {
		t.Errorf("%+v, want nothing pending", st)
	}
	s.resume(sub)
	s.marker("old")
	s.saw(e, 0)
}
