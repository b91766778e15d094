package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// spread is a policy whose retries may be drawn more than a second apart.
const spread = `{"attempt_timeout":"30s","max_attempts":3,"backoff_base":"3s","backoff_cap":"3s"}`

// drawn finds an event id for which each of the first n retries to the subscriber
// is drawn from lo to hi. The draw depends on the delivery's id alone, so a test
// may choose it.
func (s *service) drawn(sub registered, n int, lo, hi time.Duration) string {
	s.Helper()
	for i := range 1_000_000 {
		id := fmt.Sprint("drawn-", i)
		fits := true
		for attempt := 1; attempt <= n && fits; attempt++ {
			d := delivery.Backoff(sub.Policy, delivery.NewID(id, sub.ID), attempt)
			fits = d >= lo && d <= hi
		}
		if fits {
			return id
		}
	}
	s.Fatalf("no event id draws %d retries from %s to %s", n, lo, hi)
	return ""
}

// apart makes the timestamps of two attempts differ, which have whole seconds.
const apart = time.Second + 5*time.Millisecond

// An endpoint that always fails gets exactly max_attempts requests: one id, a
// fresh timestamp each, and each signature verified by the official library. Then
// there is one dead letter, with the evidence of all of them.
func TestAlwaysFailing(t *testing.T) {
	t.Parallel()
	s := start(t)
	e := s.endpoint(func(n int, w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = fmt.Fprintf(w, "no room, %d", n)
	})
	sub := s.subscribe(e.URL, "failing", spread)
	id := s.drawn(sub, 2, apart, apart+200*time.Millisecond)
	s.post(id, "failing", `{"n":1}`)
	v := s.dead(id, "exhausted")

	s.expect(v, "http_5xx", "http_5xx", "http_5xx")
	for i, a := range v.Evidence {
		if a.Attempt != i+1 || a.Status != 500 || a.Excerpt != fmt.Sprintf("no room, %d", i+1) || a.Worker == "" {
			t.Errorf("evidence %d: %+v", i, a)
		}
	}
	log := s.saw(e, 3)
	for i, r := range log {
		if r.id() != v.ID || !bytes.Equal(r.body, log[0].body) {
			t.Errorf("request %d is %s: %s", i, r.id(), r.body)
		}
		if i > 0 && r.timestamp() <= log[i-1].timestamp() {
			t.Errorf("request %d has timestamp %d after %d", i, r.timestamp(), log[i-1].timestamp())
		}
		if err := r.verify(sub.Secret); err != nil {
			t.Errorf("request %d: %v", i, err)
		}
	}
	if l := s.balanced(); l.Dead != 1 || l.Accepted != 1 {
		t.Errorf("ledger %+v, want one dead", l)
	}
}

// The endpoint took the event, but its reply was lost. The second request can be
// told for the same, and is as good as the first.
func TestReplyLost(t *testing.T) {
	t.Parallel()
	s := start(t)
	e := s.endpoint(first(cut)) // once the whole body was read
	sub := s.subscribe(e.URL, "lost", spread)
	id := s.drawn(sub, 1, apart, apart+100*time.Millisecond)
	s.post(id, "lost", `{"n":1}`)
	s.expect(s.delivery(id, "delivered"), "reset", "delivered")
	log := s.saw(e, 2)
	one, two := log[0], log[1]
	if one.id() != two.id() || !bytes.Equal(one.body, two.body) {
		t.Errorf("not the same webhook: %s %s, %s %s", one.id(), one.body, two.id(), two.body)
	}
	if two.timestamp() <= one.timestamp() {
		t.Errorf("timestamp %d after %d", two.timestamp(), one.timestamp())
	}
	for _, r := range log {
		if err := r.verify(sub.Secret); err != nil {
			t.Error(err)
		}
	}
}

// A URL that is changed while retries are pending is where they go. The old host
// sees nothing more.
func TestURLChangesWhileRetriesArePending(t *testing.T) {
	t.Parallel()
	s := start(t)
	old, next := s.endpoint(always(http.StatusServiceUnavailable)), s.endpoint(always(http.StatusOK))
	sub := s.subscribe(old.URL+"/old", "moved", `{"max_attempts":3,"backoff_base":"4s","backoff_cap":"4s"}`)
	// Long enough for the PATCH to come in between, on any machine.
	id := s.drawn(sub, 1, 3*time.Second, 3200*time.Millisecond)
	s.post(id, "moved", `{}`)
	s.until("the retry is pending", func() bool { v := s.look(id); return v.State == "scheduled" && v.Attempts == 1 })
	s.call("PATCH", "/v1/subscribers/"+sub.ID, fmt.Sprintf(`{"url":%q}`, next.URL+"/new"), http.StatusOK, nil)
	s.expect(s.delivery(id, "delivered"), "http_5xx", "delivered")
	s.saw(old, 1)
	if log := s.saw(next, 1); log[0].path != "/new" || log[0].header.Get("Fanout-Attempt") != "2" {
		t.Errorf("the new host got %s, attempt %s", log[0].path, log[0].header.Get("Fanout-Attempt"))
	}
}

// So does one that is changed while a request is out: it ends where it was sent.
func TestURLChangesWhileARequestIsOut(t *testing.T) {
	t.Parallel()
	s := start(t)
	open := make(gate)
	old, next := s.endpoint(held(open, always(http.StatusServiceUnavailable))), s.endpoint(always(http.StatusOK))
	sub := s.subscribe(old.URL, "moved", quick)
	s.post("out", "moved", `{}`)
	s.await(old, 1)
	s.call("PATCH", "/v1/subscribers/"+sub.ID, fmt.Sprintf(`{"url":%q}`, next.URL), http.StatusOK, nil)
	close(open)
	s.delivery("out", "delivered")
	s.saw(old, 1)
	s.saw(next, 1)
}

// A policy that is changed is the one that the next failure is judged by.
func TestPolicyChangesWhileRetriesArePending(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, c := range []struct {
		name, patch, reason string
		outcomes            []string
	}{
		{"fewer-attempts", `{"policy":{"max_attempts":1}}`, "exhausted", []string{"http_5xx", "http_5xx"}},
		{"dead-at-once", `{"policy":{"classify":{"503":"dead"}}}`, "http_5xx", []string{"http_5xx", "http_5xx"}},
		{"more-attempts", `{"policy":{"max_attempts":5}}`, "exhausted", []string{"http_5xx", "http_5xx", "http_5xx", "http_5xx", "http_5xx"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := s.in(t)
			open := make(gate)
			e := s.endpoint(held(open, always(http.StatusServiceUnavailable)))
			sub := s.subscribe(e.URL, c.name, quick)
			s.post(c.name, c.name, `{}`)
			s.await(e, 1)
			// A pause keeps the retry pending until the change is made.
			s.call("POST", "/v1/subscribers/"+sub.ID+"/pause", "", http.StatusOK, nil)
			close(open)
			s.until("the retry is pending", func() bool { v := s.look(c.name); return v.State == "scheduled" && v.Attempts == 1 })
			s.call("PATCH", "/v1/subscribers/"+sub.ID, c.patch, http.StatusOK, nil)
			s.call("POST", "/v1/subscribers/"+sub.ID+"/resume", "", http.StatusOK, nil)
			s.expect(s.dead(c.name, c.reason), c.outcomes...)
			s.saw(e, len(c.outcomes))
		})
	}
}
