package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
)

// marker posts an event to a subscriber of its own and sees it delivered: whatever
// was to be sent before has had its chance.
func (s *service) marker(name string) {
	s.Helper()
	e := s.endpoint(always(http.StatusOK))
	s.subscribe(e.URL, "marker."+name, quick)
	s.post("marker-"+name, "marker."+name, `{}`)
	s.delivery("marker-"+name, "delivered")
}

// A paused subscriber is sent nothing, new or pending; resumed, it gets it all.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s := start(t)
	open := make(gate)
	e := s.endpoint(func(n int, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			open.wait(r)
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	sub := s.subscribe(e.URL, "paused", quick)
	s.post("before", "paused", `{}`)
	s.await(e, 1)
	var got struct{ Paused bool }
	s.call("POST", "/v1/subscribers/"+sub.ID+"/pause", "", http.StatusOK, &got)
	if !got.Paused {
		t.Error("answered as not paused")
	}
	close(open) // what was out fails, and its retry waits too
	ids := s.postMany(20, "during-", "paused")
	s.until("the first attempt has failed", func() bool { v := s.look("before"); return v.State == "scheduled" && v.Attempts == 1 })
	s.marker("paused")
	s.saw(e, 1)
	if l := s.sample().Ledger; l.Pending != 21 {
		t.Errorf("ledger %+v, want 21 pending", l)
	}

	s.call("POST", "/v1/subscribers/"+sub.ID+"/resume", "", http.StatusOK, &got)
	if got.Paused {
		t.Error("answered as paused")
	}
	for _, id := range append(ids, "before") {
		s.delivery(id, "delivered")
	}
	s.saw(e, 22)
	if l := s.balanced(); l.Delivered != 22 {
		t.Errorf("ledger %+v, want 22 delivered", l)
	}
}

// Deleting a subscriber cancels all that is pending. Its reply waits for what is on
// the wire, and after it nothing is sent.
func TestDeleteWithAThousandPending(t *testing.T) {
	t.Parallel()
	s := start(t)
	const pending, onTheWire = 1000, 4
	open := make(gate)
	e := s.endpoint(held(open, always(http.StatusOK)))
	sub := s.subscribe(e.URL, "leaving", fmt.Sprintf(`{"attempt_timeout":"60s","max_in_flight":%d}`, onTheWire))
	s.postMany(pending, "leaving-", "leaving")
	s.await(e, onTheWire)

	type reply struct {
		status int
		body   []byte
		err    error
	}
	replied := make(chan reply, 1)
	go func() {
		var r reply
		r.status, r.body, r.err = s.try("DELETE", "/v1/subscribers/"+sub.ID, "")
		replied <- r
	}()
	s.until("all are cancelled", func() bool { return s.sample().Ledger.Cancelled == pending })
	select {
	case r := <-replied:
		t.Errorf("replied %d while requests were on the wire: %s", r.status, r.body)
	default:
	}
	close(open)
	r := <-replied
	s.ok(r.err)
	var got struct{ Cancelled, Remaining, Leases int }
	s.ok(json.Unmarshal(r.body, &got))
	if r.status != http.StatusOK || got.Cancelled != pending || got.Remaining != 0 || got.Leases != 0 {
		t.Errorf("replied %d: %s, want 200 and %d cancelled", r.status, r.body, pending)
	}
	s.saw(e, onTheWire)
	if r := s.post("too-late", "leaving", `{}`); r.Deliveries != 0 {
		t.Errorf("%d deliveries to a deleted subscriber", r.Deliveries)
	}
	s.marker("deleted")
	s.saw(e, onTheWire)
	if l := s.balanced(); l.Cancelled != pending || l.Delivered != 1 || l.Accepted != pending+1 {
		t.Errorf("ledger %+v, want %d cancelled and the marker delivered", l, pending)
	}
	s.call("GET", "/v1/subscribers/"+sub.ID, "", http.StatusNotFound, nil)
}
