package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
)

// A test event reaches a subscriber whose filter matches nothing, on the normal road,
// and nobody else.
func TestTestEventIgnoresTheFilter(t *testing.T) {
	t.Parallel()
	s := start(t)
	e, other := s.endpoint(first(always(http.StatusServiceUnavailable))), s.endpoint(always(http.StatusOK))
	sub := s.subscribe(e.URL, "matches.nothing", "")
	s.subscribe(other.URL, "*", "")
	var made struct {
		EventID    string `json:"event_id"`
		DeliveryID string `json:"delivery_id"`
	}
	s.call("POST", "/v1/subscribers/"+sub.ID+"/test", `{"data":{"hello":[1.0]}}`, http.StatusAccepted, &made)
	v := s.delivery(made.EventID, "delivered")
	s.expect(v, "http_5xx", "delivered")
	if v.ID != made.DeliveryID {
		t.Errorf("delivery %s, was told %s", v.ID, made.DeliveryID)
	}
	var body struct {
		Type string
		Data json.RawMessage
	}
	s.ok(json.Unmarshal(s.saw(e, 2)[1].body, &body))
	if body.Type != "fanout.test" || string(body.Data) != `{"hello":[1.0]}` {
		t.Errorf("came as %+v", body)
	}
	s.saw(other, 0)
}

// repair is what retry and cancel come to in one state.
type repair struct {
	retry, cancel   int
	retryC, cancelC string // codes
}

func (s *service) repairs(id string, want repair) {
	s.Helper()
	for _, c := range []struct {
		what, body, code string
		status           int
	}{
		{"retry", `{"reason":"to see"}`, want.retryC, want.retry},
		{"cancel", `{"reason":"to see"}`, want.cancelC, want.cancel},
	} {
		if c.status == 0 {
			continue
		}
		for range 2 { // again is safe
			var p struct{ Code, State string }
			status, b := s.do("POST", "/v1/deliveries/"+id+"/"+c.what, c.body)
			s.ok(json.Unmarshal(b, &p))
			if status != c.status || p.Code != c.code {
				s.Errorf("%s: %d %s, want %d %s", c.what, status, b, c.status, c.code)
			}
		}
	}
}

func TestRetryAndCancelInEveryState(t *testing.T) {
	t.Parallel()
	s := start(t)
	t.Run("leased", func(t *testing.T) {
		t.Parallel()
		s := s.in(t)
		g := make(gate)
		e := s.endpoint(held(g, always(http.StatusOK)))
		s.subscribe(e.URL, "leased", "")
		s.post("leased", "leased", `{}`)
		s.await(e, 1)
		v := s.delivery("leased", "leased")
		s.repairs(v.ID, repair{409, 200, "not_scheduled", ""})
		close(g) // its answer comes too late to change that
		s.until("the lease has ended", func() bool { return s.look("leased").State == "cancelled" && s.sample().Leases == 0 })
		s.repairs(v.ID, repair{409, 200, "not_scheduled", ""})
		s.saw(e, 1)
	})
	t.Run("delivered", func(t *testing.T) {
		t.Parallel()
		s := s.in(t)
		e := s.endpoint(always(http.StatusOK))
		s.subscribe(e.URL, "done", "")
		s.post("done", "done", `{}`)
		s.repairs(s.delivery("done", "delivered").ID, repair{409, 409, "not_scheduled", "already_final"})
		s.saw(e, 1)
	})
	t.Run("dead", func(t *testing.T) {
		t.Parallel()
		s := s.in(t)
		e := s.endpoint(always(http.StatusNotFound))
		s.subscribe(e.URL, "dead", "")
		s.post("dead", "dead", `{}`)
		s.repairs(s.dead("dead", "http_404").ID, repair{409, 409, "not_scheduled", "already_final"})
		s.saw(e, 1)
	})
	t.Run("held", func(t *testing.T) {
		t.Parallel()
		s := s.in(t)
		e := s.endpoint(always(http.StatusOK))
		sub := s.register(fmt.Sprintf(`{"url":%q,"filter":{"types":["held"]},"paused":true}`, e.URL))
		s.post("held-1", "held", `{}`)
		s.post("held-2", "held", `{}`)
		one, two := s.delivery("held-1", "scheduled"), s.delivery("held-2", "scheduled")
		s.repairs(one.ID, repair{retry: 200})
		s.repairs(two.ID, repair{200, 200, "", ""})
		s.repairs(two.ID, repair{409, 200, "not_scheduled", ""})
		if v := s.look("held-1"); v.State != "scheduled" || v.Attempts != 0 {
			t.Errorf("retried under a hold: %+v", v)
		}
		s.call("POST", "/v1/subscribers/"+sub.ID+"/resume", "", http.StatusOK, nil)
		s.delivery("held-1", "delivered")
		s.delivery("held-2", "cancelled")
		s.saw(e, 1)
	})
	t.Run("waits for its backoff", func(t *testing.T) {
		t.Parallel()
		s := s.in(t)
		e := s.endpoint(first(always(http.StatusInternalServerError)))
		s.subscribe(e.URL, "waits", `{"max_attempts":3,"backoff_base":"10h","backoff_cap":"10h","max_age":"48h"}`)
		s.post("waits", "waits", `{}`)
		s.until("the first attempt has failed", func() bool { v := s.look("waits"); return v.State == "scheduled" && v.Attempts == 1 })
		s.call("POST", "/v1/deliveries/"+s.look("waits").ID+"/retry", "", http.StatusOK, nil)
		s.expect(s.delivery("waits", "delivered"), "http_5xx", "delivered")
	})
}
