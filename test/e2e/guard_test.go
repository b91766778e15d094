package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// looksFor is what the guard's looks at Redis, and whatever else this machine does, may
// add to the times that docs/runbook.md states.
const looksFor = 3 * time.Second

// releasing has a redrive of n dead letters that releases two a second.
func (s *service) releasing(n int) (redriven, registered, *endpoint) {
	s.Helper()
	answers, status := switchable(http.StatusUnprocessableEntity)
	e := s.endpoint(answers)
	sub := s.subscribe(e.URL, "dead", quick)
	s.postMany(n, "dead-", "dead")
	s.balanced()
	status.Store(http.StatusOK)
	r := s.redrive(fmt.Sprintf(`{"filter":{"subscriber_id":%q},"reason":"it is back","max_rate":2}`, sub.ID))
	s.becomes(r.ID, "awaiting_approval")
	s.steer(r.ID, "approve", `{"effect":"it is there once"}`)
	s.until("some are out", func() bool {
		s.call("GET", "/v1/redrives/"+r.ID, "", http.StatusOK, &r)
		return r.Tally.Released > 2
	})
	return r, sub, e
}

// stoppedFor waits until the guard has paused a redrive for a reason, and checks that this
// took no longer than stated, that the audit has it, and that nothing more is released, also
// once the cause is gone.
func (s *service) stoppedFor(id, why string, since time.Time, within time.Duration, undo func()) {
	s.Helper()
	var r redriven
	s.until("the guard has paused it", func() bool {
		s.call("GET", "/v1/redrives/"+id, "", http.StatusOK, &r)
		return r.State == "paused"
	})
	if r.StoppedBy != "guard" || !strings.Contains(r.Stopped, why) {
		s.Fatalf("paused by %s: %s; want %q", r.StoppedBy, r.Stopped, why)
	}
	if took := r.StoppedAt.Sub(since); took > within+looksFor {
		s.Errorf("%s: paused after %s, %s are stated", why, took, within)
	}
	s.until("the audit has it", func() bool {
		all := s.told(id)
		last := all[len(all)-1]
		return last.Action == "pauseRedrive" && last.Actor.ID == "guard" && last.Reason == r.Stopped
	})
	released := r.Tally.Released
	undo()
	s.until("what is out has ended", func() bool {
		s.call("GET", "/v1/redrives/"+id, "", http.StatusOK, &r)
		return r.Tally.Out == 0
	})
	s.steer(id, "abort", `{"reason":"the test is over"}`)
	s.until("it has ended", func() bool {
		s.call("GET", "/v1/redrives/"+id, "", http.StatusOK, &r)
		return !r.EndedAt.IsZero()
	})
	if r.Tally.Released != released {
		s.Errorf("%d were released after the pause", r.Tally.Released-released)
	}
	s.balanced()
}

// crowd has n endpoints that are known to be quick, and then hang until the gate opens.
func (s *service) crowd(n int) (open func()) {
	s.Helper()
	var hangs atomic.Bool
	g := make(gate)
	for i := range n {
		e := s.endpoint(func(_ int, _ http.ResponseWriter, r *http.Request) {
			if hangs.Load() {
				g.wait(r)
			}
		})
		s.subscribe(e.URL, fmt.Sprint("crowd-", i), quick)
	}
	all := func(round string) {
		for i := range n {
			s.post(fmt.Sprint(round, "-", i), fmt.Sprint("crowd-", i), `{}`)
		}
	}
	for _, round := range []string{"first", "second"} {
		all(round)
		s.balanced()
	}
	hangs.Store(true)
	all("hanging")
	s.until("all slots are taken", func() bool { return s.sample().Leases >= int64(n) })
	return func() { close(g) }
}

// A subscriber that goes on hold stops the redrive of its dead letters.
func TestGuardStopsAtAHold(t *testing.T) {
	t.Parallel()
	s := start(t)
	r, sub, _ := s.releasing(40)
	s.pause(sub)
	s.stoppedFor(r.ID, "subscriber "+sub.ID+" is on hold: paused", time.Now(), time.Second, func() { s.resume(sub) })
}

// Slots that stay in use, all of them, stop a redrive; until then it is held back.
func TestGuardStopsWhenSlotsAreTaken(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *setup) { c.slots = 4; c.cap = 4 })
	r, _, _ := s.releasing(40)
	since := time.Now()
	open := s.crowd(4)
	s.stoppedFor(r.ID, "4 of 4 slots of the dispatchers are in use", since, patience, open) // how long it took to take them is the machine's
}

// Fresh deliveries that wait for half of their SLO stop a redrive.
func TestGuardStopsForFreshOnes(t *testing.T) {
	t.Parallel()
	const slo = 2 * time.Second
	s := start(t, func(c *setup) { c.slots = 4; c.cap = 4; c.slo = slo })
	r, _, _ := s.releasing(40)
	e := s.endpoint(always(http.StatusOK))
	s.subscribe(e.URL, "waits", quick)
	open := s.crowd(4)
	accepted := s.post("waits", "waits", `{}`).AcceptedAt
	s.stoppedFor(r.ID, "the oldest eligible fresh delivery of class standard is", accepted, slo/2+250*time.Millisecond, open)
	s.saw(e, 1)
}
