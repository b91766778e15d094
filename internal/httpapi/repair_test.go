package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// keep puts a delivery of each state into the rig, and returns them by state.
func (r *rig) keep(subscriberID string) map[delivery.State]string {
	ids := map[delivery.State]string{}
	for _, state := range []delivery.State{
		delivery.Scheduled, delivery.Leased, delivery.Delivered, delivery.Dead, delivery.Cancelled,
	} {
		e := evidence("evt_"+string(state), state)
		e.SubscriberID = subscriberID
		e.ID = delivery.NewID(e.EventID, subscriberID)
		r.views.deliveries[e.ID], ids[state] = e, e.ID
	}
	return ids
}

func TestRetryDelivery(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ids := r.keep("sub_1")
	path := func(id string) string { return "/v1/deliveries/" + id + "/retry" }
	before := r.views.deliveries[ids[delivery.Scheduled]].DueAt
	for _, body := range []string{"", "{}", `{"reason":"the endpoint is back"}`} {
		a := r.do("POST", path(ids[delivery.Scheduled]), body)
		got := into[Delivery](t, a, http.StatusOK)
		if got.State != delivery.Scheduled || !got.NextAttemptAt.Before(before) || strings.Contains(a.body, "evidence") {
			t.Errorf("got %s", a.body)
		}
	}
	for state, says := range map[delivery.State]string{
		delivery.Leased: "being sent", delivery.Delivered: "delivered, which is final", delivery.Dead: "dead", delivery.Cancelled: "cancelled",
	} {
		if p := wantProblem(t, r.do("POST", path(ids[state]), ""), ProblemCodeNotScheduled); !strings.Contains(p.Detail, says) {
			t.Errorf("%s: %q", state, p.Detail)
		}
	}
	for _, id := range []string{delivery.NewID("evt_x", "sub_1"), "dlv_short", "evt_1"} {
		wantProblem(t, r.do("POST", path(id), ""), ProblemCodeNotFound)
	}
}

func TestCancelDelivery(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ids := r.keep("sub_1")
	const body = `{"reason":"not wanted any more"}`
	for _, state := range []delivery.State{delivery.Scheduled, delivery.Leased, delivery.Cancelled, delivery.Scheduled} {
		got := into[Delivery](t, r.do("POST", "/v1/deliveries/"+ids[state]+"/cancel", body), http.StatusOK)
		if got.State != delivery.Cancelled || !got.NextAttemptAt.IsZero() {
			t.Errorf("%s: got %+v", state, got)
		}
	}
	for _, state := range []delivery.State{delivery.Delivered, delivery.Dead} {
		wantProblem(t, r.do("POST", "/v1/deliveries/"+ids[state]+"/cancel", body), ProblemCodeAlreadyFinal)
	}
	wantProblem(t, r.do("POST", "/v1/deliveries/"+delivery.NewID("evt_x", "sub_1")+"/cancel", body), ProblemCodeNotFound)
	r.views.err = fmt.Errorf("cancel: %w", schedule.ErrUnavailable)
	if p := wantProblem(t, r.do("POST", "/v1/deliveries/"+ids[delivery.Leased]+"/cancel", body), ProblemCodeUnavailable); !strings.Contains(p.Detail, "safe to send the same one again") {
		t.Errorf("%q", p.Detail)
	}
}

func TestListDeliveriesOfSubscriber(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ids := r.keep("sub_1")
	r.keep("sub_2")
	for query, want := range map[string][]delivery.State{
		"":                 {delivery.Leased, delivery.Scheduled},
		"&state=pending":   {delivery.Leased, delivery.Scheduled},
		"&state=scheduled": {delivery.Scheduled},
		"&state=leased":    {delivery.Leased},
		"&state=dead":      {delivery.Dead},
	} {
		a := r.do("GET", "/v1/deliveries?subscriber_id=sub_1"+query, "")
		got := into[DeliveryList](t, a, http.StatusOK)
		var states []delivery.State
		for _, d := range got.Data {
			states = append(states, d.State)
		}
		if fmt.Sprint(states) != fmt.Sprint(want) || got.NextCursor != nil || strings.Contains(a.body, "evidence") {
			t.Errorf("%q: got %s", query, a.body)
		}
	}
	first := into[DeliveryList](t, r.do("GET", "/v1/deliveries?subscriber_id=sub_1&limit=1", ""), 200)
	if first.NextCursor == nil || first.Data[0].ID != ids[delivery.Leased] {
		t.Fatalf("got %+v", first)
	}
	second := into[DeliveryList](t, r.do("GET", "/v1/deliveries?subscriber_id=sub_1&limit=1&cursor="+*first.NextCursor, ""), 200)
	if second.NextCursor != nil || second.Data[0].ID != ids[delivery.Scheduled] {
		t.Errorf("got %+v", second)
	}
	if got := into[DeliveryList](t, r.do("GET", "/v1/deliveries?subscriber_id=sub_none", ""), 200); got.Data == nil || len(got.Data) != 0 {
		t.Errorf("got %+v", got)
	}
}

// What a list cannot be asked for is said with what can be.
func TestListDeliveriesRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for query, want := range map[string]struct{ parameter, says string }{
		"":                                       {"subscriber_id", "event_id"},
		"state=dead":                             {"subscriber_id", "event_id"},
		"subscriber_id=sub_1&state=delivered":    {"state", "listed by event_id"},
		"subscriber_id=sub_1&state=cancelled":    {"state", "listed by event_id"},
		"subscriber_id=sub_1&state=lost":         {"state", "pending, scheduled, leased or dead"},
		"subscriber_id=sub_1&state=":             {"state", "pending"},
		"subscriber_id=a-b":                      {"subscriber_id", "is no subscriber's id"},
		"subscriber_id=":                         {"subscriber_id", "is no subscriber's id"},
		"event_id=evt_1&subscriber_id=sub_1":     {"event_id", "one or the other"},
		"event_id=evt_1&state=dead":              {"event_id", "one or the other"},
		"subscriber_id=sub_1&limit=201":          {"limit", "from 1 to 200"},
		"subscriber_id=sub_1&limit=1&limit=2":    {"limit", "more than once"},
		"subscriber_id=sub_1&page=2":             {"page", "cursor, event_id, limit, state and subscriber_id"},
		"subscriber_id=sub_1&cursor=%zz":         {"cursor", "percent-encoded"},
		"subscriber_id=sub_1&state=dead;limit=1": {"state", "semicolon"},
	} {
		p := wantProblem(t, r.do("GET", "/v1/deliveries?"+query, ""), ProblemCodeInvalidParameter)
		wantPointers(t, p, "?"+want.parameter)
		if !strings.Contains(p.Errors[0].Detail, want.says) {
			t.Errorf("%s: %q does not say %q", query, p.Errors[0].Detail, want.says)
		}
	}
	r.views.events["evt_1"] = schedule.Event{ID: "evt_1"}
	for _, query := range []string{"/v1/deliveries?subscriber_id=sub_1", "/v1/deliveries?event_id=evt_1", "/v1/dead-letters?limit=5", "/v1/subscribers?limit=5"} {
		for _, cursor := range []string{"", "x", "!", "at9999", strings.Repeat("a", 300)} {
			p := wantProblem(t, r.do("GET", query+"&cursor="+cursor, ""), ProblemCodeInvalidCursor)
			wantPointers(t, p, "?cursor")
		}
	}
	wantProblem(t, r.do("GET", "/v1/deliveries?event_id=evt_none", ""), ProblemCodeNotFound)
	wantProblem(t, r.do("GET", "/v1/deliveries?event_id=", ""), ProblemCodeNotFound)
}

// An event's deliveries come in pages by subscriber; those that are not made yet are
// left out, and stop no reader.
func TestListDeliveriesOfEvent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := schedule.Event{ID: "evt_1", Deliveries: 7}
	for _, i := range []int{4, 1, 6, 0, 3, 5, 2} {
		sub := fmt.Sprintf("sub_%d", i)
		e.SubscriberIDs = append(e.SubscriberIDs, sub)
		if i != 2 && i != 3 {
			d := evidence("evt_1", delivery.Delivered)
			d.SubscriberID, d.ID = sub, delivery.NewID("evt_1", sub)
			r.views.deliveries[d.ID] = d
		}
	}
	r.views.events["evt_1"] = e
	var seen, sizes []string
	for cursor := ""; ; {
		page := into[DeliveryList](t, r.do("GET", "/v1/deliveries?event_id=evt_1&limit=2"+cursor, ""), 200)
		sizes = append(sizes, fmt.Sprint(len(page.Data)))
		for _, d := range page.Data {
			seen = append(seen, d.SubscriberID)
		}
		if page.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + *page.NextCursor
	}
	if got := strings.Join(seen, " "); got != "sub_0 sub_1 sub_4 sub_5 sub_6" || strings.Join(sizes, " ") != "2 0 2 1" {
		t.Errorf("got %s in pages of %v", got, sizes)
	}
}

func TestDeadLettersInPages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.keep("sub_1")
	r.keep("sub_2")
	all := into[DeadLetterList](t, r.do("GET", "/v1/dead-letters", ""), 200)
	one := into[DeadLetterList](t, r.do("GET", "/v1/dead-letters?subscriber_id=sub_2", ""), 200)
	first := into[DeadLetterList](t, r.do("GET", "/v1/dead-letters?limit=1", ""), 200)
	if len(all.Data) != 2 || len(one.Data) != 1 || one.Data[0].Delivery.SubscriberID != "sub_2" || first.NextCursor == nil {
		t.Errorf("got %d, %+v, %+v", len(all.Data), one, first)
	}
	rest := into[DeadLetterList](t, r.do("GET", "/v1/dead-letters?limit=1&cursor="+*first.NextCursor, ""), 200)
	if rest.NextCursor != nil || rest.Data[0].Delivery.ID == first.Data[0].Delivery.ID {
		t.Errorf("got %+v", rest)
	}
	wantPointers(t, wantProblem(t, r.do("GET", "/v1/dead-letters?subscriber_id=", ""), ProblemCodeInvalidParameter), "?subscriber_id")
}
