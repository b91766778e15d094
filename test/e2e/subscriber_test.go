package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
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
	const pending, onTheWire = 1000, 4
	s := start(t, func(c *setup) { c.cap = onTheWire })
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

// status is how a subscriber is served, as the API shows it.
type status struct {
	Holds []struct {
		Reason, Note, Probe string
		Until               time.Time
	}
	OnHoldSince  time.Time `json:"on_hold_since"`
	InFlight     int       `json:"in_flight"`
	InFlightCap  int       `json:"in_flight_cap"`
	Failures     int       `json:"consecutive_failures"`
	Pending      int64
	Waiting      map[string]int64
	LatencyMilli int64 `json:"latency_ms"`
}

func (st status) reasons() (all []string) {
	for _, h := range st.Holds {
		all = append(all, h.Reason)
	}
	return all
}

func (s *service) status(sub registered) status {
	s.Helper()
	var got struct{ Status status }
	s.call("GET", "/v1/subscribers/"+sub.ID, "", http.StatusOK, &got)
	return got.Status
}

// holds waits until a subscriber is on exactly these holds.
func (s *service) holds(sub registered, reasons ...string) status {
	s.Helper()
	var st status
	s.until(fmt.Sprintf("it is on hold for %v", reasons), func() bool {
		st = s.status(sub)
		return slices.Equal(st.reasons(), reasons)
	})
	for _, h := range st.Holds {
		if h.Note == "" {
			s.Errorf("hold %s has no note", h.Reason)
		}
	}
	if st.OnHoldSince.IsZero() != (len(reasons) == 0) {
		s.Errorf("on hold for %v since %v", reasons, st.OnHoldSince)
	}
	return st
}

func (s *service) resume(sub registered) {
	s.Helper()
	s.call("POST", "/v1/subscribers/"+sub.ID+"/resume", "", http.StatusOK, nil)
}

// move gives a subscriber another URL.
func (s *service) move(sub registered, url string) {
	s.Helper()
	s.call("PATCH", "/v1/subscribers/"+sub.ID, fmt.Sprintf(`{"url":%q}`, url), http.StatusOK, nil)
}

// switchable answers with a status that may be changed.
func switchable(first int) (answer, *atomic.Int64) {
	var now atomic.Int64
	now.Store(int64(first))
	return func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(now.Load())) }, &now
}

// An endpoint that answers 410 is sent nothing more, and everybody can see it; what
// comes meanwhile waits until somebody resumes it.
func TestGoneUntilResumed(t *testing.T) {
	t.Parallel()
	s := start(t)
	e := s.endpoint(first(always(http.StatusGone)))
	sub := s.subscribe(e.URL, "gone", quick)
	s.post("refused", "gone", `{}`)
	s.dead("refused", "gone")
	s.holds(sub, "disabled")
	ids := s.postMany(5, "meanwhile-", "gone")
	s.marker("gone")
	s.saw(e, 1)
	if st := s.status(sub); st.Pending != 5 || st.Waiting["fresh"] != 5 {
		t.Errorf("status %+v, want 5 waiting", st)
	}
	type look struct {
		OnHold int64 `json:"subscribers_on_hold"`
		Held   int64 `json:"deliveries_held"`
		Holds  []struct {
			SubscriberID string `json:"subscriber_id"`
			Reasons      []string
			Pending      int64
		} `json:"on_hold"`
	}
	s.until("on-call sees it", func() bool {
		var l look
		s.call("GET", "/v1/oncall", "", http.StatusOK, &l)
		return l.OnHold == 1 && l.Held == 5 && len(l.Holds) == 1 && l.Holds[0].SubscriberID == sub.ID && l.Holds[0].Pending == 5 &&
			slices.Equal(l.Holds[0].Reasons, []string{"disabled"})
	})

	s.resume(sub)
	for _, id := range ids {
		s.delivery(id, "delivered")
	}
	s.holds(sub)
	s.saw(e, 6)
	if l := s.balanced(); l.Delivered != 6 || l.Dead != 1 {
		t.Errorf("ledger %+v, want 6 delivered and 1 dead", l)
	}
}

// A Retry-After holds the subscriber, not the one delivery, and for no longer than its
// policy says. A resume does not break what the endpoint asked for.
func TestRetryAfterThrottles(t *testing.T) {
	t.Parallel()
	s := start(t)
	busy := func(after string) answer {
		return func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", after)
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}
	short, long := s.endpoint(first(busy("1"))), s.endpoint(first(busy("86400")))
	a := s.subscribe(short.URL, "short", persistent)
	b := s.subscribe(long.URL, "long", strings.Replace(persistent, "{", `{"retry_after_cap":"30m",`, 1))
	for _, name := range []string{"short", "long"} {
		s.post("first-"+name, name, `{}`)
	}
	st := s.holds(b, "throttled")
	if left := time.Until(st.Holds[0].Until); left < 29*time.Minute || left > 30*time.Minute {
		t.Errorf("throttled for another %s, want the 30m of the policy", left)
	}
	s.await(short, 1)
	for _, name := range []string{"short", "long"} {
		s.post("second-"+name, name, `{}`)
	}
	s.resume(b)
	s.delivery("first-short", "delivered")
	s.delivery("second-short", "delivered")
	s.holds(a)
	log := s.saw(short, 3)
	for i, r := range log[1:] {
		if waited := r.at.Sub(log[0].at); waited < 990*time.Millisecond {
			t.Errorf("request %d came %s after the 429, which asked for 1 s", i+2, waited)
		}
	}
	s.marker("throttled")
	s.saw(long, 1)
	s.holds(b, "throttled")

	// Another endpoint has asked for nothing. The first delivery keeps its own time.
	elsewhere := s.endpoint(always(http.StatusOK))
	s.move(b, elsewhere.URL)
	s.delivery("second-long", "delivered")
	s.holds(b)
	s.saw(long, 1)
	s.saw(elsewhere, 1)
}

// An endpoint that fails in a row is given a rest, in which deliveries wait and spend
// no attempts but the probes'. A resume has it tried at once; a success ends it.
func TestBreaker(t *testing.T) {
	t.Parallel()
	s := start(t)
	const failures, events = 3, 30
	a, now := switchable(http.StatusInternalServerError)
	e := s.endpoint(a)
	sub := s.subscribe(e.URL, "broken", strings.Replace(persistent, "{", fmt.Sprintf(`{"breaker_failures":%d,`, failures), 1))
	ids := s.postMany(events, "broken-", "broken")
	s.await(e, failures)
	st := s.holds(sub, "breaker")
	if st.Pending != events || st.Holds[0].Until.IsZero() && st.Holds[0].Probe == "" {
		t.Errorf("status %+v, want %d pending and a probe that is out or due", st, events)
	}
	spent := len(e.requests())
	s.resume(sub)
	s.await(e, spent-failures+1)
	if n := len(e.requests()); n > failures+8 { // a slow machine has time for more
		t.Errorf("%d requests came, of which the breaker lets through %d and a probe each second or so", n, failures)
	}
	now.Store(http.StatusOK)
	s.resume(sub)
	for _, id := range ids {
		s.delivery(id, "delivered")
	}
	if st := s.holds(sub); st.Failures != 0 || st.LatencyMilli == 0 {
		t.Errorf("status after the recovery %+v", st)
	}
	if l := s.balanced(); l.Delivered != events {
		t.Errorf("ledger %+v, want %d delivered", l, events)
	}
}

// What an endpoint has earned is not the next one's: after a change of the URL all
// that waits goes there at once, and the old one sees nothing more.
func TestAnotherURLGoesAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	old, next := s.endpoint(always(http.StatusBadGateway)), s.endpoint(always(http.StatusOK))
	sub := s.subscribe(old.URL, "moving", strings.Replace(persistent, "{", `{"breaker_failures":2,`, 1))
	ids := s.postMany(20, "moving-", "moving")
	// Some probes on, the breaker rests for seconds.
	s.until("it has opened some times", func() bool { return len(old.requests()) >= 5 })
	var st status
	s.until("its probe has failed too", func() bool {
		st = s.status(sub)
		return slices.Equal(st.reasons(), []string{"breaker"}) && st.Holds[0].Probe == "" && time.Until(st.Holds[0].Until) > time.Second
	})
	s.move(sub, next.URL)
	seen := len(old.requests())
	s.holds(sub)
	for _, id := range ids {
		s.delivery(id, "delivered")
	}
	s.saw(old, seen)
	log := s.saw(next, len(ids))
	if log[0].at.After(st.Holds[0].Until) {
		t.Error("the new endpoint was first asked when the old one's rest was over")
	}
}

// A subscriber on hold takes in what its policy says and no more: the rest is dead at
// once, with a reason, instead of a backlog without end.
func TestMaxHeld(t *testing.T) {
	t.Parallel()
	s := start(t)
	e := s.endpoint(always(http.StatusOK))
	sub := s.subscribe(e.URL, "full", strings.Replace(quick, "{", `{"max_held":3,`, 1))
	s.call("POST", "/v1/subscribers/"+sub.ID+"/pause", "", http.StatusOK, nil)
	for i := range 5 {
		id := fmt.Sprint("full-", i)
		s.post(id, "full", `{}`)
		s.until("it is enqueued or dead", func() bool { return s.look(id).State != "" })
	}
	s.dead("full-3", "held_full")
	s.dead("full-4", "held_full")
	s.resume(sub)
	for i := range 3 {
		s.delivery(fmt.Sprint("full-", i), "delivered")
	}
	s.saw(e, 3)
}
