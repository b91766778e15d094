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

// redriven is a redrive as the API shows it.
type redriven struct {
	ID, State, Stopped string
	StoppedBy          string    `json:"stopped_by"`
	StoppedAt          time.Time `json:"stopped_at"`
	HeldBack           string    `json:"held_back"`
	Matched, Skipped   int
	EndedAt            time.Time `json:"ended_at"`
	CanaryIDs          []string  `json:"canary_ids"`
	CanaryDeliveries   []view    `json:"canary_deliveries"`
	Tally              struct{ Claimed, Waiting, Released, Out, Delivered, Dead int }
}

// redrive makes one of an order in JSON.
func (s *service) redrive(order string) redriven {
	s.Helper()
	var r redriven
	s.call("POST", "/v1/redrives", order, http.StatusCreated, &r)
	return r
}

// becomes waits until a redrive is in a state, and returns it.
func (s *service) becomes(id, state string) redriven {
	s.Helper()
	var r redriven
	s.until("the redrive is "+state, func() bool {
		s.call("GET", "/v1/redrives/"+id, "", http.StatusOK, &r)
		if r.State != state && (r.State == "paused" || !r.EndedAt.IsZero()) {
			s.Fatalf("the redrive is %s (%s: %s), want %s", r.State, r.StoppedBy, r.Stopped, state)
		}
		return r.State == state
	})
	return r
}

// steer is an operator's word on a redrive.
func (s *service) steer(id, how, body string) {
	s.Helper()
	s.call("POST", "/v1/redrives/"+id+"/"+how, body, http.StatusOK, nil)
}

// told is an entry of the audit.
type told struct {
	Action, Target, Reason string
	Actor                  struct{ ID string }
}

func (s *service) told(target string) (all []told) {
	s.Helper()
	var list struct{ Data []told }
	s.call("GET", "/v1/audit?limit=200&target="+target, "", http.StatusOK, &list)
	slices.Reverse(list.Data)
	return list.Data
}

// byIDs is an order that names deliveries.
func byIDs(budget int, ids ...string) string {
	text, err := json.Marshal(ids)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"ids":%s,"reason":"its endpoint is back","attempt_budget":%d}`, text, budget)
}

// A delivery whose budget is spent is redriven, dies again with its longer history, and
// is redriven and delivered: one id all the while, each redrive with a budget of its own.
func TestRedriveTwiceInSuccession(t *testing.T) {
	t.Parallel()
	s := start(t)
	var well atomic.Bool
	e := s.endpoint(func(_ int, w http.ResponseWriter, _ *http.Request) {
		if !well.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	sub := s.subscribe(e.URL, "again", quick)
	s.post("again", "again", `{"n":1}`)
	v := s.dead("again", "exhausted")

	first := s.redrive(byIDs(1, v.ID))
	// The guard pauses it; it was its only member, so there is nothing to resume and it ends.
	s.until("its canary failed", func() bool {
		s.call("GET", "/v1/redrives/"+first.ID, "", http.StatusOK, &first)
		return first.State == "done"
	})
	if first.StoppedBy != "guard" || !strings.Contains(first.Stopped, "status 500") || first.Tally.Dead != 1 {
		t.Errorf("got %+v", first)
	}
	if v = s.dead("again", "exhausted"); v.Attempts != 4 || len(v.Evidence) != 4 {
		t.Errorf("dead again after %d attempts with the evidence of %d", v.Attempts, len(v.Evidence))
	}

	well.Store(true)
	s.resume(sub) // its breaker need not rest any longer
	second := s.redrive(byIDs(2, v.ID))
	second = s.becomes(second.ID, "done")
	if second.Tally.Claimed != 1 || second.Tally.Delivered != 1 || len(second.CanaryDeliveries) != 1 {
		t.Errorf("got %+v", second)
	}
	if v = s.delivery("again", "delivered"); v.Attempts != 5 {
		t.Errorf("delivered after %d attempts, want 5", v.Attempts)
	}
	for i, r := range s.saw(e, 5) {
		generation := max(i-2, 0)
		if r.id() != v.ID || r.header.Get("Fanout-Redrive-Generation") != fmt.Sprint(generation) || r.header.Get("Fanout-Attempt") != fmt.Sprint(i+1) {
			t.Errorf("request %d is %s, generation %s, attempt %s", i, r.id(), r.header.Get("Fanout-Redrive-Generation"), r.header.Get("Fanout-Attempt"))
		}
	}
	if l := s.balanced(); l.Delivered != 1 || l.Dead != 0 {
		t.Errorf("ledger %+v", l)
	}
}

// What still has a retry before it is no dead letter: to redrive it is refused, in
// words, and to discard it leaves it.
func TestRedriveWhileARetryIsPending(t *testing.T) {
	t.Parallel()
	s := start(t)
	e := s.endpoint(always(http.StatusServiceUnavailable))
	s.subscribe(e.URL, "pending", `{"max_attempts":3,"backoff_base":"1h","backoff_cap":"1h"}`)
	s.post("pending", "pending", `{}`)
	var v view
	s.until("the retry is pending", func() bool { v = s.look("pending"); return v.State == "scheduled" && v.Attempts == 1 })
	var p struct {
		Code   string
		Errors []struct{ Pointer, Detail string }
	}
	s.call("POST", "/v1/redrives", byIDs(1, v.ID), http.StatusConflict, &p)
	if p.Code != "not_dead" || len(p.Errors) != 1 || p.Errors[0].Pointer != "/ids/0" || !strings.Contains(p.Errors[0].Detail, "still being tried") {
		t.Errorf("got %+v", p)
	}
	s.call("GET", "/v1/dead-letters/"+v.ID, "", http.StatusNotFound, nil)
	var d struct{ Results []struct{ Result string } }
	s.call("POST", "/v1/dead-letters/discard", fmt.Sprintf(`{"ids":[%q],"reason":"x"}`, v.ID), http.StatusOK, &d)
	if d.Results[0].Result != "not_dead" {
		t.Errorf("got %+v", d)
	}
	if now := s.look("pending"); now.State != "scheduled" || !now.NextAttemptAt.Equal(v.NextAttemptAt) {
		t.Errorf("it was %+v and is %+v", v, now)
	}
	s.saw(e, 1)
	s.call("POST", "/v1/deliveries/"+v.ID+"/cancel", `{"reason":"the test is over"}`, http.StatusOK, nil)
}

// One that is older than its policy lets it become has a time of its own in a redrive:
// it does not expire at once.
func TestRedriveBeyondMaxAge(t *testing.T) {
	t.Parallel()
	s := start(t)
	var well atomic.Bool
	e := s.endpoint(func(_ int, w http.ResponseWriter, _ *http.Request) {
		if !well.Load() {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	})
	s.subscribe(e.URL, "old", `{"attempt_timeout":"1s","max_age":"1s"}`)
	s.post("old", "old", `{}`)
	v := s.dead("old", "http_422")
	well.Store(true)
	over := v.EndedAt.Add(2 * time.Second)
	s.until("its time is over", func() bool { return time.Now().After(over) })
	r := s.redrive(byIDs(1, v.ID))
	s.becomes(r.ID, "done")
	if v = s.delivery("old", "delivered"); v.Attempts != 2 {
		t.Errorf("delivered after %d attempts", v.Attempts)
	}
	s.saw(e, 2)
}

// A canary that fails stops the redrive before a second item is sent.
func TestBadCanaryStopsARedrive(t *testing.T) {
	t.Parallel()
	const letters = 8
	s := start(t)
	e := s.endpoint(always(http.StatusUnprocessableEntity))
	sub := s.subscribe(e.URL, "bad", quick)
	s.postMany(letters, "bad-", "bad")
	s.balanced()
	s.saw(e, letters)
	r := s.redrive(fmt.Sprintf(`{"filter":{"subscriber_id":%q},"reason":"it seems to be back"}`, sub.ID))
	s.until("the guard has paused it", func() bool {
		s.call("GET", "/v1/redrives/"+r.ID, "", http.StatusOK, &r)
		return r.State == "paused"
	})
	if r.StoppedBy != "guard" || !strings.Contains(r.Stopped, "the canary failed") || r.Tally.Released != 1 || r.Tally.Waiting != letters-1 {
		t.Errorf("got %+v", r)
	}
	if len(r.CanaryDeliveries) != 1 || r.CanaryDeliveries[0].LastOutcome != "http_422" {
		t.Errorf("the canary is shown as %+v", r.CanaryDeliveries)
	}
	if status, _ := s.do("POST", "/v1/redrives/"+r.ID+"/approve", `{"effect":"none at all"}`); status != http.StatusConflict {
		t.Errorf("approved without a canary that was delivered: %d", status)
	}
	s.steer(r.ID, "abort", `{"reason":"it is not back"}`)
	s.until("it has ended", func() bool {
		s.call("GET", "/v1/redrives/"+r.ID, "", http.StatusOK, &r)
		return !r.EndedAt.IsZero()
	})
	s.saw(e, letters+1)
	if l := s.balanced(); l.Dead != letters {
		t.Errorf("ledger %+v, want %d dead", l, letters)
	}
}

// Every step, whoever took it, stands in the audit with its actor and the reason.
func TestRedriveIsAudited(t *testing.T) {
	t.Parallel()
	s := start(t)
	var well atomic.Bool
	e := s.endpoint(func(_ int, w http.ResponseWriter, _ *http.Request) {
		if !well.Load() {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	})
	sub := s.subscribe(e.URL, "audited", quick)
	s.postMany(3, "audited-", "audited")
	s.balanced()
	gone := s.look("audited-0").ID
	s.discarded = gone
	s.call("POST", "/v1/dead-letters/discard", fmt.Sprintf(`{"ids":[%q],"reason":"a test order"}`, gone), http.StatusOK, nil)
	if all := s.told(gone); len(all) != 1 || all[0].Action != "discardDeadLetters" || all[0].Reason != "a test order" || all[0].Actor.ID != "local" {
		t.Errorf("got %+v", all)
	}

	well.Store(true)
	r := s.redrive(fmt.Sprintf(`{"filter":{"subscriber_id":%q},"reason":"it is back"}`, sub.ID))
	s.becomes(r.ID, "awaiting_approval")
	s.steer(r.ID, "pause", `{"reason":"lunch"}`)
	s.steer(r.ID, "resume", `{"reason":"they are up again"}`)
	s.becomes(r.ID, "awaiting_approval")
	s.steer(r.ID, "approve", `{"effect":"the shop shows it once"}`)
	if r = s.becomes(r.ID, "done"); r.Tally.Delivered != 2 {
		t.Errorf("got %+v", r)
	}
	want := []told{
		{"createRedrive", r.ID, "it is back", struct{ ID string }{"local"}},
		{"awaitRedriveApproval", r.ID, "the canary was delivered", struct{ ID string }{"guard"}},
		{"pauseRedrive", r.ID, "lunch", struct{ ID string }{"local"}},
		{"resumeRedrive", r.ID, "they are up again", struct{ ID string }{"local"}},
		{"approveRedrive", r.ID, "the shop shows it once", struct{ ID string }{"local"}},
		{"endRedrive", r.ID, "2 of 2 were delivered", struct{ ID string }{"guard"}},
	}
	s.until("its end is written down", func() bool { return len(s.told(r.ID)) >= len(want) })
	if got := s.told(r.ID); !slices.Equal(got, want) {
		t.Errorf("the audit has\n%+v, want\n%+v", got, want)
	}
	s.saw(e, 5)
}
