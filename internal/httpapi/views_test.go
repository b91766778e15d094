package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// evidence is a delivery in the given state, with a past.
func evidence(event string, state delivery.State) schedule.Evidence {
	at := time.UnixMilli(1764518400123)
	d := delivery.New(event, "sub_1", at, time.Hour)
	d.State, d.Lane, d.Attempts, d.DeliveryCount, d.LeaseLosses = state, delivery.Retry, 2, 3, 1
	d.FirstAttemptAt, d.LastAttemptAt = at.Add(time.Second), at.Add(2*time.Second)
	d.DueAt = at.Add(time.Minute)
	d.LastOutcome, d.LastStatus = delivery.HTTP5xx, 503
	e := schedule.Evidence{Delivery: d, History: []delivery.Attempt{
		{Number: 1, Fence: 1, StartedAt: at.UnixMilli(), Duration: 1500, Outcome: delivery.Connect, Error: "connection refused"},
		{
			Number: 2, Fence: 3, StartedAt: at.UnixMilli() + 2000, Duration: 0, Outcome: delivery.HTTP5xx, Status: 503,
			Excerpt: "bad bytes: \xff\x00 <b>", RetryAfter: 30_000,
			Worker: "w1", Version: "v1", TraceID: "4bf92f3577b34da6a3ce929d0e0e4736",
		},
	}}
	if state == delivery.Dead {
		e.EndedAt, e.Reason = at.Add(3*time.Second), delivery.Exhausted
	}
	return e
}

func TestGetDelivery(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, state := range []delivery.State{
		delivery.Scheduled, delivery.Leased, delivery.Delivered, delivery.Dead, delivery.Cancelled,
	} {
		e := evidence("evt_"+string(state), state)
		r.views.deliveries[e.ID] = e
		a := r.do("GET", "/v1/deliveries/"+e.ID, "")
		got := into[Delivery](t, a, http.StatusOK)
		if got.ID != e.ID || got.State != state || got.Attempts != 2 || got.DeliveryCount != 3 || got.LeaseLosses != 1 ||
			!got.AcceptedAt.Equal(e.AcceptedAt) || len(got.Evidence) != 2 || got.LastStatus != 503 {
			t.Errorf("%s: got %+v", state, got)
		}
		if waits := !got.NextAttemptAt.IsZero(); waits != (state == delivery.Scheduled) {
			t.Errorf("%s: next_attempt_at %v", state, got.NextAttemptAt)
		}
		if ended := strings.Contains(a.body, "ended_at"); ended != (state == delivery.Dead) {
			t.Errorf("%s: ended_at in %s", state, a.body)
		}
		second := got.Evidence[1]
		if second.RetryAfter != delivery.Duration(30*time.Second) || second.DeliveryCount != 3 || second.Worker != "w1" {
			t.Errorf("%s: evidence %+v", state, second)
		}
	}
	// A fresh one has nothing behind it.
	fresh := delivery.New("evt_new", "sub_1", time.UnixMilli(1764518400123), time.Hour)
	r.views.deliveries[fresh.ID] = schedule.Evidence{Delivery: fresh}
	a := r.do("GET", "/v1/deliveries/"+fresh.ID, "")
	into[Delivery](t, a, 200)
	if strings.Contains(a.body, "last_") || !strings.Contains(a.body, `"evidence":[]`) {
		t.Errorf("a fresh delivery is %s", a.body)
	}

	if strings.Contains(a.body, "waits_for") {
		t.Errorf("its subscriber is on no hold: %s", a.body)
	}
	r.views.standings = map[string]schedule.Standing{"sub_1": {SubscriberID: "sub_1", Holds: []schedule.Hold{schedule.Paused}}}
	a = r.do("GET", "/v1/deliveries/"+fresh.ID, "")
	if got := into[Delivery](t, a, 200); got.WaitsFor != WaitsForHold || strings.Contains(a.body, "paused") {
		t.Errorf("on hold: %s", a.body)
	}
	ended := fresh
	ended.State = delivery.Delivered
	r.views.deliveries[fresh.ID] = schedule.Evidence{Delivery: ended}
	if got := into[Delivery](t, r.do("GET", "/v1/deliveries/"+fresh.ID, ""), 200); got.WaitsFor != "" {
		t.Errorf("what has ended waits for %s", got.WaitsFor)
	}

	for _, id := range []string{delivery.NewID("evt_x", "sub_1"), "dlv_short", "evt_1", strings.Repeat("d", 5000)} {
		wantProblem(t, r.do("GET", "/v1/deliveries/"+id, ""), ProblemCodeNotFound)
	}
	r.views.err = fmt.Errorf("delivery: %w", schedule.ErrUnavailable)
	wantProblem(t, r.do("GET", "/v1/deliveries/"+delivery.NewID("evt_x", "sub_1"), ""), ProblemCodeUnavailable)
}

func TestListDeadLetters(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if a := r.do("GET", "/v1/dead-letters", ""); a.body != `{"data":[],"next_cursor":null}`+"\n" {
		t.Errorf("an empty list is %s", a.body)
	}
	for i := range 60 {
		e := evidence(fmt.Sprintf("evt_%02d", i), delivery.Dead)
		r.views.deliveries[e.ID] = e
	}
	for query, want := range map[string]int{"": 50, "?limit=1": 1, "?limit=200": 60} {
		got := into[DeadLetterList](t, r.do("GET", "/v1/dead-letters"+query, ""), 200)
		if len(got.Data) != want || got.Data[0].Delivery.EventID != "evt_00" || got.Data[0].Reason != delivery.Exhausted {
			t.Errorf("%q: %d dead letters, want %d", query, len(got.Data), want)
		}
	}
	for _, query := range []string{"?limit=0", "?limit=201", "?limit=-1", "?limit=1e1", "?limit="} {
		wantPointers(t, wantProblem(t, r.do("GET", "/v1/dead-letters"+query, ""), ProblemCodeInvalidParameter), "?limit")
	}
	r.views.err = fmt.Errorf("dead letters: %w", schedule.ErrUnavailable)
	wantProblem(t, r.do("GET", "/v1/dead-letters", ""), ProblemCodeUnavailable)
}
