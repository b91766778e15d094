package httpapi

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fanout/fanout/internal/access"
	"github.com/fanout/fanout/internal/delivery"
)

// Whatever takes a body takes it strictly, each operation alike: one table of what is
// wrong, over all of them.
func TestEveryBodyIsReadStrictly(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	fill := k.paths(k.mine, "evt_mine", k.myDelivery)
	tried := 0
	for name, op := range operations(t) {
		if op.RequestBody == nil {
			continue
		}
		tried++
		method, path, _ := strings.Cut(name, " ")
		path = fill.Replace(path)
		optional := op.RequestBody.Required == nil || !*op.RequestBody.Required
		limit := DefaultMaxBody
		if op.OperationId == "postEventBatch" {
			limit = maxBatchBody
		}
		for what, c := range map[string]struct {
			body, contentType string
			code              ProblemCode
			pointer           string
		}{
			"unknown field":  {`{"no_such_field":1}`, "application/json", ProblemCodeInvalidField, "/no_such_field"},
			"not JSON":       {`{`, "application/json", ProblemCodeInvalidJSON, ""},
			"a list":         {`[]`, "application/json", ProblemCodeInvalidJSON, ""},
			"null":           {`null`, "application/json", ProblemCodeInvalidJSON, ""},
			"two":            {`{}{}`, "application/json", ProblemCodeInvalidJSON, ""},
			"bad UTF-8":      {"{\"\xff\":1}", "application/json", ProblemCodeInvalidUTF8, ""},
			"a byte order":   {"\xef\xbb\xbf{}", "application/json", ProblemCodeInvalidJSON, ""},
			"too large":      {`{"a":"` + strings.Repeat("x", limit) + `"}`, "application/json", ProblemCodeBodyTooLarge, ""},
			"a form":         {"a=1", "application/x-www-form-urlencoded", ProblemCodeUnsupportedMediaType, ""},
			"another set":    {"{}", "application/json; charset=latin1", ProblemCodeUnsupportedMediaType, ""},
			"no type at all": {"{}", "", ProblemCodeUnsupportedMediaType, ""},
		} {
			p := wantProblem(t, k.do(method, path, c.body, "Content-Type: "+c.contentType), c.code)
			if c.pointer != "" {
				wantFirst(t, p, c.pointer)
			}
			if p.Detail == "" || len(p.Errors) > 0 && p.Errors[0].Detail == "" {
				t.Errorf("%s, %s: nothing that a person could act on: %+v", name, what, p)
			}
		}
		if !optional {
			wantProblem(t, k.do(method, path, "", "Content-Type: application/json"), ProblemCodeInvalidJSON)
		}
		// Strictness is no way around the roles: the body is not even read.
		wantProblem(t, k.as(access.Viewer, method, path, `{"no_such_field":1}`), ProblemCodeForbidden)
	}
	if tried < 8 {
		t.Errorf("only %d operations take a body", tried)
	}
}

// A field of the wrong type is named, with what belongs there and what was sent.
func TestWrongTypesAreNamed(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	sub, dlv := "/v1/subscribers/"+k.mine.ID, "/v1/deliveries/"+k.myDelivery
	for _, c := range [][5]string{
		{"POST", "/v1/events", `{"type":1}`, "/type", "must be a string, is a number"},
		{"POST", "/v1/subscribers", `{"url":{}}`, "/url", "must be a string, is an object"},
		{"POST", "/v1/subscribers", `{"paused":"no"}`, "/paused", "must be true or false, is a string"},
		{"POST", "/v1/subscribers", `{"headers":[]}`, "/headers", "must be an object, is an array"},
		{"POST", "/v1/subscribers", `{"headers":{"X":1}}`, "/headers/X", "must be a string, is a number"},
		{"PATCH", sub, `{"policy":{"max_attempts":"5"}}`, "/policy/max_attempts", "must be a whole number"},
		{"PATCH", sub, `{"policy":{"max_age":5}}`, "/policy/max_age", "must be a duration"},
		{"POST", sub + "/secrets", `{"overlap":24}`, "/overlap", `must be a duration such as "10s"`},
		{"POST", sub + "/secrets", `{"overlap":"a day"}`, "/overlap", `must be a duration such as "10s"`},
		{"POST", sub + "/secrets", `{"secret":[]}`, "/secret", "must be a string, is an array"},
		{"POST", sub + "/test", `{"type":[]}`, "/type", "must be a string, is an array"},
		{"POST", dlv + "/retry", `{"reason":1}`, "/reason", "must be a string, is a number"},
		{"POST", dlv + "/cancel", `{"reason":{}}`, "/reason", "must be a string, is an object"},
		{"POST", "/v1/keys", `{"name":1}`, "/name", "must be a string, is a number"},
	} {
		p := wantProblem(t, k.do(c[0], c[1], c[2]), ProblemCodeInvalidField)
		wantFirst(t, p, c[3])
		if !strings.Contains(p.Errors[0].Detail, c[4]) {
			t.Errorf("%s %s %s: %q, want %q", c[0], c[1], c[2], p.Errors[0].Detail, c[4])
		}
	}
}

// TestAllThatIsWrongIsToldAtOnce: a field that cannot be read hides neither the others
// that cannot nor the rules that are broken, and nothing is made up about its neighbours.
func TestAllThatIsWrongIsToldAtOnce(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	sub := "/v1/subscribers/" + k.mine.ID
	for _, c := range []struct {
		method, path, body string
		code               ProblemCode
		pointers           []string
	}{
		{
			"POST", "/v1/events", `{"id":7,"type":"Bad Type","shipment_id":{},"occurred_at":"yesterday","colour":1,"data":1}`, ProblemCodeInvalidField,
			[]string{"/id", "/shipment_id", "/colour", "/type", "/occurred_at"},
		},
		{
			"POST", "/v1/events", `{"shipment_id":null,"attributes":{"a":1,"b":"x","c":[]},"occurred_at":"\ud800"}`, ProblemCodeInvalidField,
			[]string{"/shipment_id", "/occurred_at", "/attributes/a", "/attributes/c", "/type", "/data"},
		},
		{
			"POST", "/v1/events", `{"id":"","type":"a.b","shipment_id":"","occurred_at":"2026-11-30T14:03:22Z","data":1}`, ProblemCodeInvalidField,
			[]string{"/id", "/shipment_id"},
		},
		{
			"POST", "/v1/subscribers", `{"url":1,"account":"a b","filter":{"types":7,"colour":1},"policy":{"max_age":5,"burst":"x","max_attempts":9999}}`, ProblemCodeInvalidField,
			[]string{"/url", "/filter/types", "/filter/colour", "/policy/max_age", "/policy/burst", "/account", "/policy/max_attempts"},
		},
		{
			"POST", "/v1/subscribers", `{"url":"https://h.example/","policy":{"max_age":5,"burst":9,"max_attempts":0,"colour":1,"attempt_timeout":"2h"},"filter":{"types":[7],"attributes":{"":["x"]}}}`, ProblemCodeInvalidField,
			[]string{"/policy/max_age", "/policy/colour", "/filter/types/0", "/filter/attributes/", "/policy/burst", "/policy/max_attempts"},
		},
		{ // of what one that could not be read decides nothing is said
			"PATCH", sub, `{"policy":{"rate_per_second":"x","burst":9,"max_attempts":"x","breaker_failures":50,"backoff_cap":1,"backoff_base":"2h"}}`, ProblemCodeInvalidField,
			[]string{"/policy/rate_per_second", "/policy/max_attempts", "/policy/backoff_cap"},
		},
		{"PATCH", sub, `{"name":1,"class":"none","secret":"x"}`, ProblemCodeInvalidField, []string{"/name", "/class", "/secret"}},
		{"PATCH", sub, `{"url":"https://h.example/?***","class":"none"}`, ProblemCodeInvalidRequest, []string{"/url", "/class"}},
		{"POST", sub + "/secrets", `{"overlap":7,"secret":"short"}`, ProblemCodeInvalidField, []string{"/overlap", "/secret"}},
		{"POST", "/v1/keys", `{"name":1,"role":"king","rate_per_second":-1}`, ProblemCodeInvalidField, []string{"/name", "/rate_per_second", "/role"}},
		{"POST", "/v1/keys", `{"name":"a key","role":1,"account":"acc_1"}`, ProblemCodeInvalidField, []string{"/role"}},
		{"POST", "/v1/dead-letters/discard", `{}`, ProblemCodeInvalidRequest, []string{"/reason", "/ids"}},
		{"POST", "/v1/dead-letters/discard", `{"reason":1,"ids":["x"]}`, ProblemCodeInvalidField, []string{"/reason", "/ids/0"}},
		{"POST", "/v1/redrives", `{"ids":7,"max_rate":-1}`, ProblemCodeInvalidField, []string{"/ids", "/max_rate", "/reason"}},
		{"POST", "/v1/redrives", `{"max_rate":-1}`, ProblemCodeInvalidRequest, []string{"/filter", "/max_rate", "/reason"}},
	} {
		p := wantProblem(t, k.do(c.method, c.path, c.body), c.code)
		var got []string
		for _, e := range p.Errors {
			got = append(got, *e.Pointer)
		}
		if !slices.Equal(got, c.pointers) {
			t.Errorf("%s %s %s: %q, want %q", c.method, c.path, c.body, got, c.pointers)
		}
	}
	// Of another's subscriber its types alone are judged: its rules would tell of it.
	p := wantProblem(t, k.as(access.Subscriber, "PATCH", "/v1/subscribers/"+k.others.ID, `{"name":1,"class":"none"}`), ProblemCodeInvalidField)
	wantPointers(t, p, "/name")
	batch := into[BatchReceipt](t, k.do("POST", "/v1/events/batch", `{"events":[{"id":7,"type":"fanout.test","shipment_id":"s","occurred_at":"2026-11-30t14:03:22Z","data":1}]}`), 200)
	if got := fmt.Sprint(len(batch.Results[0].Problem.Errors)); got != "3" {
		t.Errorf("in a batch: %+v", batch.Results[0].Problem.Errors)
	}
}

// TestEmptyIsNotMissing: each is told as what it is.
func TestEmptyIsNotMissing(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	for body, says := range map[string]string{`{"events":[]}`: "is empty", `{}`: "is missing"} {
		p := wantProblem(t, k.do("POST", "/v1/events/batch", body), ProblemCodeInvalidRequest)
		if !strings.HasPrefix(p.Errors[0].Detail, says) {
			t.Errorf("%s: %q", body, p.Errors[0].Detail)
		}
	}
}

// TestTwoKeysAreNone: whichever was taken, the answer would be about the other.
func TestTwoKeysAreNone(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	for _, second := range []string{"Bearer nonsense", "Bearer " + bootstrap, "Basic Og=="} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, k.url+"/v1/subscribers", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header["Authorization"] = []string{"Bearer " + bootstrap, second}
		resp, err := k.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if _ = resp.Body.Close(); err != nil || resp.StatusCode != http.StatusUnauthorized || !strings.Contains(string(b), "more than one header Authorization") {
			t.Errorf("%s: %d %s", second, resp.StatusCode, b)
		}
	}
	into[Health](t, k.do("GET", "/healthz", ""), 200)
}

// What was deleted is gone, for every operation on it.
func TestGone(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	into[SubscriberDeleted](t, k.do("DELETE", "/v1/subscribers/"+k.mine.ID, ""), 200)
	for name, op := range operations(t) {
		method, path, _ := strings.Cut(name, " ")
		if !strings.Contains(path, "{subscriber_id}") || op.OperationId == "deleteSubscriber" {
			continue
		}
		path = strings.ReplaceAll(path, "{subscriber_id}", k.mine.ID)
		p := wantProblem(t, k.do(method, path, bodies[op.OperationId]), ProblemCodeNotFound)
		if !strings.Contains(p.Detail, "deleted") {
			t.Errorf("%s: %q", name, p.Detail)
		}
	}
	// An admin may finish it, and so may its owner.
	into[SubscriberDeleted](t, k.do("DELETE", "/v1/subscribers/"+k.mine.ID, ""), 200)
	into[SubscriberDeleted](t, k.as(access.Subscriber, "DELETE", "/v1/subscribers/"+k.mine.ID, ""), 200)
	into[SubscriberDeleted](t, k.as(access.Subscriber, "DELETE", "/v1/subscribers/"+k.mine.ID+"?wait=0", "", `If-Match: "1"`), 202)
}

// TestDeletedIsStillItsOwners: what a deleted subscriber leaves is shown to its account
// as to an operator, and to no other account.
func TestDeletedIsStillItsOwners(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	for _, id := range []string{k.myDelivery, k.othersDelivery} {
		d := k.views.deliveries[id]
		d.State, d.Reason, d.EndedAt = delivery.Dead, delivery.Exhausted, d.AcceptedAt
		k.views.deliveries[id] = d
	}
	event := k.views.events["evt_mine"]
	event.SubscriberIDs = append(event.SubscriberIDs, k.others.ID)
	k.views.events["evt_mine"] = event
	for _, sub := range []string{k.mine.ID, k.others.ID} {
		into[SubscriberDeleted](t, k.do("DELETE", "/v1/subscribers/"+sub, ""), 200)
	}
	sees := func(path string) string {
		t.Helper()
		mine, operators := k.as(access.Subscriber, "GET", path, ""), k.as(access.Operator, "GET", path, "")
		if mine.status != operators.status || mine.status != 200 {
			t.Errorf("%s: %d to its owner, %d to an operator", path, mine.status, operators.status)
		}
		return mine.body
	}
	for _, path := range []string{
		"/v1/dead-letters?subscriber_id=" + k.mine.ID, "/v1/deliveries?state=dead&subscriber_id=" + k.mine.ID,
		"/v1/dead-letters/" + k.myDelivery, "/v1/deliveries/" + k.myDelivery,
		"/v1/deliveries?event_id=evt_mine", "/v1/events/evt_mine",
	} {
		if body := sees(path); !strings.Contains(body, k.myDelivery) || strings.Contains(body, k.others.ID) {
			t.Errorf("%s: %s", path, body)
		}
	}
	for path, code := range map[string]ProblemCode{
		"/v1/dead-letters?subscriber_id=" + k.others.ID: ProblemCodeNotFound,
		"/v1/deliveries?subscriber_id=" + k.others.ID:   ProblemCodeNotFound,
		"/v1/dead-letters/" + k.othersDelivery:          ProblemCodeNotFound,
		"/v1/deliveries/" + k.othersDelivery:            ProblemCodeNotFound,
		"/v1/events/evt_others":                         ProblemCodeNotFound,
		"/v1/subscribers/" + k.mine.ID:                  ProblemCodeNotFound,
	} {
		wantProblem(t, k.as(access.Subscriber, "GET", path, ""), code)
	}
	// Another account learns no more of it than of an id that never was.
	foreign := wantProblem(t, k.as(access.Subscriber, "DELETE", "/v1/subscribers/"+k.others.ID, ""), ProblemCodeNotFound)
	never := wantProblem(t, k.as(access.Subscriber, "DELETE", "/v1/subscribers/sub_01J9ZC3T7R6W8Y2K5M4N0P1QXV", ""), ProblemCodeNotFound)
	if foreign.Detail != never.Detail {
		t.Errorf("%q tells it from %q", foreign.Detail, never.Detail)
	}
}

func TestReferencePage(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	a := k.as(access.Producer, "GET", "/docs", "")
	if a.status != 200 || a.header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Fatalf("%d %s", a.status, a.header.Get("Content-Type"))
	}
	policy := a.header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "style-src 'sha256-", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy is %q", policy)
		}
	}
	for _, never := range []string{"<script", "http://", "src=", "style=", "onclick", "ZgotmplZ", "<nil>"} {
		if strings.Contains(strings.ReplaceAll(a.body, "http://127.0.0.1", ""), never) {
			t.Errorf("the page has %q", never)
		}
	}
	c, err := theContract()
	if err != nil {
		t.Fatal(err)
	}
	for name, op := range operations(t) {
		_, path, _ := strings.Cut(name, " ")
		for _, want := range []string{fmt.Sprintf(`id="%s"`, op.OperationId), fmt.Sprintf(`href="#%s"`, op.OperationId), path} {
			if !strings.Contains(a.body, want) {
				t.Errorf("%s: the page has no %s", name, want)
			}
		}
	}
	for name := range c.model.Components.Schemas.FromOldest() {
		if !strings.Contains(a.body, `id="schema-`+name+`"`) {
			t.Errorf("the page has no schema %s", name)
		}
	}
	for _, link := range strings.Split(a.body, `href="#`)[1:] {
		target, _, _ := strings.Cut(link, `"`)
		if !strings.Contains(a.body, `id="`+target+`"`) {
			t.Errorf("a link leads to #%s, which is not there", target)
		}
	}
	for _, want := range []string{
		"For producer, admin.", "Needs no key.", "evt_dhl_00340434161094042557_delivered", "1 to 200, default 50", "one of producer, subscriber, viewer",
		"receiveShipmentEvent", "whsec_", "at most 1000",
	} {
		if !strings.Contains(a.body, want) {
			t.Errorf("the page has no %q", want)
		}
	}
}

// A body that is no object is told what it is, whatever it begins with.
func TestWhatIsNoObjectIsNamed(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	for body, want := range map[string]string{
		"x":            "The body is not JSON: ",
		"}":            "The body is not JSON: ",
		"-x":           "The body is not JSON: ",
		"-":            "The body ends in the middle of the JSON.",
		"tru":          "The body ends in the middle of the JSON.",
		"\r\n":         "The body is blank. Send a JSON object",
		"-1":           "The body is a number. Send a JSON object",
		"[]":           "The body is an array. Send a JSON object",
		`{"events":x}`: "The body is not JSON: ",
	} {
		for _, path := range []string{"/v1/events", "/v1/events/batch"} {
			p := wantProblem(t, k.do("POST", path, body, "Content-Type: application/json"), ProblemCodeInvalidJSON)
			if !strings.HasPrefix(p.Detail, want) {
				t.Errorf("%s of %q: %q, want %q", path, body, p.Detail, want)
			}
		}
	}
}
