//go:build !cluster

package e2e

import (
	"encoding/json"
	"net/http"
	"testing"
)

// With a replica to wait for, a post is not answered 202 before the replica has
// the event: while it hangs, producers are told to come again, and are told of
// their own event as a duplicate once it is back.
func TestPostWaitsForTheReplica(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *setup) { c.copies = 1 })
	e := s.endpoint(always(http.StatusOK))
	s.subscribe(e.URL, "copied", quick)
	status, b := s.do("POST", "/v1/events", event("copied", "copied", `{}`))
	if status != http.StatusServiceUnavailable {
		t.Fatalf("post without a replica: %d, want 503: %s", status, b)
	}
	replica := s.one.Replica("")
	s.post("well", "copied", `{}`)
	replica.Stop()
	status, b = s.do("POST", "/v1/events", event("hangs", "copied", `{}`))
	if status != http.StatusServiceUnavailable {
		t.Fatalf("post while the replica hangs: %d, want 503: %s", status, b)
	}
	replica.Cont()
	for _, id := range []string{"copied", "hangs"} {
		var r receipt
		s.until("the event is accepted", func() bool {
			status, b := s.do("POST", "/v1/events", event(id, "copied", `{}`))
			if status == http.StatusAccepted {
				s.ok(json.Unmarshal(b, &r))
			}
			return status == http.StatusAccepted
		})
		if !r.Duplicate {
			t.Errorf("%s: %+v, want a duplicate", id, r)
		}
	}
	for _, id := range []string{"copied", "well", "hangs"} {
		s.delivery(id, "delivered")
	}
	s.saw(e, 3)
}
