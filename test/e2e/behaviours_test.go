package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// behaviour is an endpoint that answers in some way, and what that must lead to.
type behaviour struct {
	name     string
	answer   answer
	policy   string
	reason   string   // of the dead letter; "" for one that is delivered
	outcomes []string // of the attempts in the evidence, the last one included
	requests int
}

func behaviours() []behaviour {
	var all []behaviour
	add := func(b behaviour) { all = append(all, b) }
	for _, status := range []int{200, 201, 202, 204} {
		add(behaviour{name: fmt.Sprint("answers ", status), answer: always(status), requests: 1})
	}
	// Terminal at once.
	for status, outcome := range map[int]string{
		400: "http_400", 401: "http_401", 403: "http_403", 404: "http_404", 422: "http_422", 410: "gone",
	} {
		add(behaviour{
			name: fmt.Sprint("answers ", status), answer: always(status),
			reason: outcome, outcomes: []string{outcome}, requests: 1,
		})
	}
	// Transient: over and over, until the attempts are used up; once, and then well.
	transient := map[int]string{
		408: "http_408", 425: "http_425", 429: "http_429",
		500: "http_5xx", 502: "http_5xx", 503: "http_5xx", 504: "http_5xx",
	}
	for status, outcome := range transient {
		add(behaviour{
			name: fmt.Sprint("always answers ", status), answer: always(status),
			reason: "exhausted", outcomes: []string{outcome, outcome, outcome}, requests: 3,
		})
		add(behaviour{
			name: fmt.Sprint("answers ", status, " once"), answer: first(always(status)),
			outcomes: []string{outcome, "delivered"}, requests: 2,
		})
	}
	add(behaviour{name: "closes without answering", answer: first(cut), outcomes: []string{"reset", "delivered"}, requests: 2})
	add(behaviour{name: "resets", answer: first(reset), outcomes: []string{"reset", "delivered"}, requests: 2})
	add(behaviour{
		name: "always resets", answer: reset, reason: "exhausted",
		outcomes: []string{"reset", "reset", "reset"}, requests: 3,
	})
	add(behaviour{
		name: "never answers", answer: hang, policy: hasty, reason: "exhausted",
		outcomes: []string{"timeout", "timeout"}, requests: 2,
	})
	return all
}

func TestBehaviours(t *testing.T) {
	t.Parallel()
	s := start(t)
	for i, b := range behaviours() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			s := s.in(t)
			e := s.endpoint(b.answer)
			name := fmt.Sprint("behaviour.", i)
			s.subscribe(e.URL, name, b.policy)
			s.post(name, name, `{"n":1}`)
			var v view
			if b.reason == "" {
				v = s.delivery(name, "delivered")
			} else {
				v = s.dead(name, b.reason)
			}
			s.expect(v, b.outcomes...)
			if v.Attempts != b.requests || v.DeliveryCount != b.requests {
				s.Errorf("%d attempts, delivery_count %d, want %d", v.Attempts, v.DeliveryCount, b.requests)
			}
			for n, r := range s.saw(e, b.requests) {
				if r.id() != v.ID || r.header.Get("Fanout-Attempt") != fmt.Sprint(n+1) {
					s.Errorf("request %d is %s, attempt %s", n+1, r.id(), r.header.Get("Fanout-Attempt"))
				}
			}
		})
	}
}

// A redirect is not followed, whatever its kind: the other address sees nothing.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	s := start(t)
	other := s.endpoint(always(http.StatusOK))
	for _, status := range []int{301, 302, 303, 307, 308} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			s := s.in(t)
			e := s.endpoint(func(_ int, w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", other.URL+"/elsewhere")
				w.WriteHeader(status)
			})
			name := fmt.Sprint("redirect.", status)
			s.subscribe(e.URL, name, "")
			s.post(name, name, `{}`)
			s.expect(s.dead(name, "http_3xx"), "http_3xx")
			s.saw(e, 1)
		})
	}
	t.Cleanup(func() { s.saw(other, 0) })
}

// The delivery is not tried earlier than the endpoint asked for, in seconds or by
// a date, nor later than the policy allows to ask.
func TestRetryAfterIsObeyed(t *testing.T) {
	t.Parallel()
	s := start(t)
	const asked = time.Second
	for i, c := range []struct {
		name, policy string
		status       int
		header       func() string
	}{
		{"429 in seconds", quick, 429, func() string { return "1" }},
		{"503 in seconds", quick, 503, func() string { return "1" }},
		// A date has whole seconds: the next but one is at least one away.
		{"503 by a date", quick, 503, func() string { return time.Now().Add(2 * time.Second).UTC().Format(http.TimeFormat) }},
		{"429 for too long", strings.Replace(quick, "{", `{"retry_after_cap":"1s",`, 1), 429, func() string { return "99999999999999999999" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := s.in(t)
			e := s.endpoint(first(func(_ int, w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", c.header())
				w.WriteHeader(c.status)
			}))
			name := fmt.Sprint("later.", i)
			s.subscribe(e.URL, name, c.policy)
			s.post(name, name, `{}`)
			s.delivery(name, "delivered")
			log := s.saw(e, 2)
			// Redis keeps whole milliseconds.
			if waited := log[1].at.Sub(log[0].at); waited < asked-2*time.Millisecond {
				s.Errorf("tried again after %s, asked for %s", waited, asked)
			}
		})
	}
}

// The retry is drawn from the whole window: each one is due exactly at its own
// draw, which half of a window or a fixed delay would miss.
func TestRetriesAreFullJitter(t *testing.T) {
	t.Parallel()
	s := start(t)
	e := s.endpoint(always(http.StatusInternalServerError))
	sub := s.subscribe(e.URL, "jitter", `{"max_attempts":20,"breaker_failures":19,"backoff_base":"10h","backoff_cap":"10h","max_age":"48h"}`)
	for _, id := range s.postMany(12, "jitter-", "jitter") {
		var v view
		s.until("the first attempt of "+id+" has failed", func() bool {
			v = s.look(id)
			return v.State == "scheduled" && v.Attempts == 1
		})
		want := delivery.Backoff(sub.Policy, v.ID, 1)
		if got := v.NextAttemptAt.Sub(v.LastAttemptAt); got < want || got > want+patience {
			s.Errorf("%s is due after %s, its draw is %s", id, got, want)
		}
	}
	s.saw(e, 12)
}
