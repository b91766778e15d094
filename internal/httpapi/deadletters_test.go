package httpapi

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/access"
	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

func TestGetDeadLetter(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	bury := func(event, sub string) string {
		e := evidence(event, delivery.Dead)
		e.SubscriberID, e.ID = sub, delivery.NewID(event, sub)
		last := &e.History[1]
		last.Phases = &delivery.Phases{Dial: 1.5, Reused: true}
		last.Terms = &delivery.Terms{
			Origin: "https://hooks.example.com", Headers: map[string]string{"X-Token": "***"}, Class: "standard", Version: 1, Policy: delivery.DefaultPolicy(),
		}
		k.views.deliveries[e.ID] = e
		return e.ID
	}
	for _, role := range []access.Role{access.Subscriber, access.Viewer, access.Operator} {
		a := k.as(role, "GET", "/v1/dead-letters/"+bury("evt_1", k.mine.ID), "")
		got := into[DeadLetterEvidence](t, a, 200)
		last := got.Delivery.Evidence[1]
		if got.Reason != delivery.Exhausted || got.Delivery.Reason != delivery.Exhausted || last.Phases.Dial != 1.5 || last.Terms.Headers["X-Token"] != "***" ||
			last.Terms.Policy.MaxAttempts != 15 || got.Event.Type != "shipment.delivered" || got.Event.OccurredAt != "2026-11-30T14:03:22+01:00" ||
			got.Payload.Encoding != PayloadUTF8 || got.Payload.Bytes != len(got.Payload.Content) || !strings.HasSuffix(got.Payload.Content, `{"n":1}}`) ||
			got.Subscriber.ID != k.mine.ID || got.Traceparent == "" || got.RedriveID != "" {
			t.Errorf("%s: got %s", role, a.body)
		}
		if strings.Contains(a.body, "s3cret") {
			t.Errorf("it tells a secret: %s", a.body)
		}
	}
	claimed := into[DeadLetterEvidence](t, k.do("GET", "/v1/dead-letters/"+bury("evt_claimed", "sub_deleted"), ""), 200)
	if claimed.RedriveID == "" || claimed.Subscriber.ID != "" {
		t.Errorf("got %+v", claimed)
	}
	if a := k.do("GET", "/v1/dead-letters/"+bury("evt_gone", k.mine.ID), ""); strings.Contains(a.body, "payload\":{") || strings.Contains(a.body, `"event":`) {
		t.Errorf("got %s", a.body)
	}
	for _, id := range []string{k.myDelivery, delivery.NewID("evt_x", "sub_1"), "dlv_short"} {
		wantProblem(t, k.do("GET", "/v1/dead-letters/"+id, ""), ProblemCodeNotFound)
	}
	wantProblem(t, k.as(access.Subscriber, "GET", "/v1/dead-letters/"+bury("evt_1", k.others.ID), ""), ProblemCodeNotFound)
	wantProblem(t, k.do("PUT", "/v1/dead-letters/discard", "{}"), ProblemCodeMethodNotAllowed)
}

func TestPayloadView(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", maxPayload/2) + "é"
	for name, c := range map[string]struct {
		in   string
		want SentPayload
	}{
		"text":   {`{"a":"é"}`, SentPayload{Encoding: PayloadUTF8, Content: `{"a":"é"}`, Bytes: 10}},
		"bytes":  {"\xff\x00", SentPayload{Encoding: PayloadBase64, Content: base64.StdEncoding.EncodeToString([]byte("\xff\x00")), Bytes: 2}},
		"cut":    {long, SentPayload{Encoding: PayloadUTF8, Content: long[:maxPayload], Bytes: len(long), Truncated: true}},
		"cut in": {"x" + long, SentPayload{Encoding: PayloadUTF8, Content: "x" + long[:maxPayload-2], Bytes: len(long) + 1, Truncated: true}},
	} {
		if got := payloadView([]byte(c.in)); got != c.want {
			t.Errorf("%s: got %s of %d, %d bytes, %v", name, got.Encoding, len(got.Content), got.Bytes, got.Truncated)
		}
	}
}

func TestDiscard(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	path := "/v1/dead-letters/discard"
	one, two, claimed := k.bury("evt_1"), k.bury("evt_2"), k.bury("evt_claimed")
	missing := delivery.NewID("evt_x", "sub_1")
	body := fmt.Sprintf(`{"ids":[%q,%q,%q,%q,%q,%q],"reason":"test orders"}`, one, claimed, k.myDelivery, missing, two, one)
	got := into[DiscardResults](t, k.as(access.Operator, "POST", path, body), 200)
	want := []DiscardResult{{one, DiscardDone}, {claimed, DiscardInRedrive}, {k.myDelivery, DiscardNotDead}, {missing, DiscardMissing}, {two, DiscardDone}}
	if got.Discarded != 2 || !slices.Equal(got.Results, want) {
		t.Errorf("got %+v", got)
	}
	if e := k.newest(); e.Action != "discardDeadLetters" || e.Target != "sub_1" || e.Reason != "test orders" || !strings.Contains(string(e.Before), one) ||
		!strings.Contains(string(e.Before), two) || strings.Contains(string(e.Before), claimed) {
		t.Errorf("got %+v", e)
	}
	newest := k.newest().ID
	if again := into[DiscardResults](t, k.do("POST", path, body), 200); again.Discarded != 0 || again.Results[0].Result != DiscardMissing || k.newest().ID != newest {
		t.Errorf("again: %+v", again)
	}
	for body, pointer := range map[string]string{
		`{"ids":["` + one + `"]}`:                                             "/reason",
		`{"ids":["` + one + `"],"reason":" "}`:                                "/reason",
		`{"ids":["` + one + `"],"reason":"` + strings.Repeat("x", 201) + `"}`: "/reason",
		`{"reason":"x"}`:                                                 "/ids",
		`{"ids":[],"reason":"x"}`:                                        "/ids",
		`{"ids":["` + one + `","x"],"reason":"x"}`:                       "/ids/1",
		`{"ids":[` + strings.Repeat(`"x",`, 1000) + `"x"],"reason":"x"}`: "/ids",
	} {
		wantPointers(t, wantProblem(t, k.do("POST", path, body), ProblemCodeInvalidRequest), pointer)
	}
	wantProblem(t, k.as(access.Subscriber, "POST", path, body), ProblemCodeForbidden)
	wantProblem(t, k.as(access.Viewer, "POST", path, body), ProblemCodeForbidden)
	k.views.err = schedule.ErrUnavailable
	wantProblem(t, k.do("POST", path, body), ProblemCodeUnavailable)
}

// What has no list of its own is looked for: a page has as many as it may, its cursor
// leads to the very next, and what nothing can match is refused.
func TestFilterDeadLetters(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	bulk := into[SubscriberCreated](t, r.do("POST", "/v1/subscribers", `{"class":"bulk",`+minimal[1:]), 201)
	end := time.UnixMilli(1764518400123).UTC().Truncate(time.Second)
	for i := range 700 {
		name, reason := fmt.Sprintf("evt_%03d", i), delivery.Exhausted
		if i%100 == 0 {
			name, reason = fmt.Sprintf("evt_other%03d", i), delivery.Expired
		}
		e := evidence(name, delivery.Dead)
		e.Reason, e.EndedAt = reason, end.Add(-time.Duration(i)*time.Second)
		if i%70 == 3 {
			e.SubscriberID, e.LastOutcome = bulk.ID, delivery.Timeout
		}
		e.ID = delivery.NewID(e.EventID, e.SubscriberID)
		r.views.deliveries[e.ID] = e
	}
	for query, want := range map[string]int{
		"reason=expired": 7, "outcome=timeout": 10, "class=bulk": 10, "class=standard": 0, "type=return.created": 7, "type=a.b": 0,
		"since=" + end.Add(-9*time.Second).Format(time.RFC3339):                                                         10,
		"until=" + end.Add(-689*time.Second).Format(time.RFC3339):                                                       10,
		"reason=expired&until=" + end.Format(time.RFC3339) + "&since=" + end.Add(-299*time.Second).Format(time.RFC3339): 2,
		"class=bulk&outcome=http_5xx":                                                                                   0,
	} {
		for _, limit := range []int{1, 4, 200} {
			seen, pages := map[string]bool{}, 0
			for cursor := ""; ; pages++ {
				page := into[DeadLetterList](t, r.do("GET", fmt.Sprintf("/v1/dead-letters?limit=%d&%s%s", limit, query, cursor), ""), 200)
				if len(page.Data) > limit {
					t.Fatalf("%s: a page of %d", query, len(page.Data))
				}
				for _, d := range page.Data {
					if seen[d.Delivery.ID] {
						t.Errorf("%s: %s comes twice", query, d.Delivery.ID)
					}
					seen[d.Delivery.ID] = true
				}
				if page.NextCursor == nil || pages > 2*700 {
					break
				}
				cursor = "&cursor=" + *page.NextCursor
			}
			if len(seen) != want {
				t.Errorf("%s by %d: %d, want %d", query, limit, len(seen), want)
			}
		}
	}
	for query, name := range map[string]string{
		"reason=lost": "reason", "outcome=": "outcome", "type=A.b": "type", "type=a..b": "type", "type=": "type", "class=": "class", "class=a%20b": "class",
		"since=yesterday": "since", "until=2026-11-30": "until", "since=2026-11-30T14:03:22+01:00": "since",
		"since=2026-11-30T14:03:22Z&until=2026-11-30T14:03:22Z": "until", "since=": "since",
	} {
		wantPointers(t, wantProblem(t, r.do("GET", "/v1/dead-letters?"+query, ""), ProblemCodeInvalidParameter), "?"+name)
	}
	r.views.err = schedule.ErrUnavailable
	wantProblem(t, r.do("GET", "/v1/dead-letters?reason=expired", ""), ProblemCodeUnavailable)
}
