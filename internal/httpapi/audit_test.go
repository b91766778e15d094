package httpapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fanout/fanout/internal/access"
	"github.com/fanout/fanout/internal/delivery"
)

// Each operation that changes something leaves one entry: who, what, why, and what it
// was and is, and nothing in it opens a door.
func TestEveryChangeIsAudited(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	path := "/v1/subscribers/" + k.mine.ID
	_, spare := k.prepare("acc_1", "evt_spare")
	secret := "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDAAAAAAAA"
	type expected struct{ before, after string }
	said := map[string]bool{"postEvent": true, "postEventBatch": true} // they are records of their own
	var tokens []string
	for _, c := range []struct {
		action, method, path, body, target string
		role                               access.Role
		want                               expected
	}{
		{"createSubscriber", "POST", "/v1/subscribers", `{"url":"https://h.example/x?token=t0ps3cret","headers":{"X-Key":"h3aders3cret"},"secret":"` + secret + `"}`, "", access.Subscriber, expected{"", `"url":"https://h.example/***"`}},
		{"patchSubscriber", "PATCH", path, `{"url":"https://hooks.example.com/in?token=0thers3cret"}`, k.mine.ID, access.Subscriber, expected{`"url":"https://hooks.example.com/***"`, `"url":"https://hooks.example.com/***"`}},
		{"patchSubscriber", "PATCH", path, `{"headers":{"X-Token":"0thers3cret","X-New":"0thers3cret"},"policy":{"max_attempts":9}}`, k.mine.ID, access.Subscriber, expected{`"headers":["X-Token"]`, `"headers":["X-New","X-Token"]`}},
		{"pauseSubscriber", "POST", path + "/pause", "", k.mine.ID, access.Operator, expected{`{"paused":false}`, `{"paused":true}`}},
		{"resumeSubscriber", "POST", path + "/resume", "", k.mine.ID, access.Subscriber, expected{`{"paused":true}`, `{"paused":false}`}},
		{"rotateSecret", "POST", path + "/secrets", `{"secret":"` + secret + `"}`, k.mine.ID, access.Subscriber, expected{`"secrets":["sec_`, ` until `}},
		{"testSubscriber", "POST", path + "/test", "", k.mine.ID, access.Subscriber, expected{"", `"type":"fanout.test"`}},
		{"retryDelivery", "POST", "/v1/deliveries/" + spare + "/retry", "", spare, access.Operator, expected{`"state":"scheduled"`, `"next_attempt_at":"`}},
		{"cancelDelivery", "POST", "/v1/deliveries/" + spare + "/cancel", `{"reason":"from the body"}`, spare, access.Subscriber, expected{`"state":"scheduled"`, `"state":"cancelled"`}},
		{"discardDeadLetters", "POST", "/v1/dead-letters/discard", `{"ids":["` + k.bury("evt_buried") + `"],"reason":"from the body"}`, delivery.NewID("evt_buried", "sub_1"), access.Operator, expected{`"dead_letters":1`, ""}},
		{"createRedrive", "POST", "/v1/redrives", `{"filter":{"reason":"exhausted"},"reason":"from the body"}`, "", access.Operator, expected{"", `"filter":{"reason":"exhausted"}`}},
		{"approveRedrive", "POST", k.waiting() + "/approve", `{"effect":"from the body"}`, k.lastRedrive(), access.Operator, expected{`"awaiting_approval"`, `"effect":"from the body"`}},
		{"pauseRedrive", "POST", "/v1/redrives/" + k.lastRedrive() + "/pause", `{"reason":"from the body"}`, k.lastRedrive(), access.Operator, expected{`"running"`, `"paused"`}},
		{"resumeRedrive", "POST", "/v1/redrives/" + k.lastRedrive() + "/resume", `{"reason":"from the body"}`, k.lastRedrive(), access.Operator, expected{`"paused"`, `"running"`}},
		{"abortRedrive", "POST", "/v1/redrives/" + k.lastRedrive() + "/abort", `{"reason":"from the body"}`, k.lastRedrive(), access.Operator, expected{`"running"`, `"aborted"`}},
		{"createKey", "POST", "/v1/keys", `{"name":"n","role":"producer","rate_per_second":5}`, "", access.Admin, expected{"", `"rate_per_second":5`}},
		{"revokeKey", "DELETE", "/v1/keys/" + k.ids[access.Viewer], "", k.ids[access.Viewer], access.Admin, expected{`"role":"viewer"`, `"revoked_at":"`}},
		{"deleteSubscriber", "DELETE", path, "", k.mine.ID, access.Subscriber, expected{`"account":"acc_1"`, ""}},
	} {
		said[c.action] = true
		a := k.as(c.role, c.method, c.path, c.body, "Fanout-Reason: because of 4711")
		if a.status >= 300 {
			t.Fatalf("%s: %d %s", c.action, a.status, a.body)
		}
		if c.action == "createKey" {
			tokens = append(tokens, into[KeyCreated](t, a, 201).Key)
		}
		e := k.newest()
		wantReason := "because of 4711"
		if strings.Contains(c.body, "from the body") {
			wantReason = "from the body"
		}
		if e.Action != c.action || e.Actor.ID != k.ids[c.role] || e.Actor.Role != Role(c.role) || e.Reason != wantReason ||
			e.RequestID != a.header.Get(requestIDHeader) || c.target != "" && e.Target != c.target || e.Target == "" {
			t.Errorf("%s: got %+v", c.action, e)
		}
		if !strings.Contains(string(e.Before), c.want.before) || !strings.Contains(string(e.After), c.want.after) ||
			(c.want.before == "") != (e.Before == nil) || (c.want.after == "") != (e.After == nil) {
			t.Errorf("%s: before %s, after %s", c.action, e.Before, e.After)
		}
	}
	all := k.do("GET", "/v1/audit?limit=200", "").body + k.log.String()
	for _, secret := range append(tokens, "t0ps3cret", "h3aders3cret", "0thers3cret", secret, bootstrap, k.mine.Secret) {
		if strings.Contains(all, secret) {
			t.Errorf("the audit or the log tells %q", secret)
		}
	}
	for name, op := range operations(t) {
		if !strings.HasPrefix(name, "GET ") && !said[op.OperationId] {
			t.Errorf("nothing is known of the audit of %s", name)
		}
	}
}

// newest is the newest entry.
func (k *keyed) newest() AuditEntry {
	k.t.Helper()
	list := into[AuditList](k.t, k.do("GET", "/v1/audit?limit=1", ""), 200)
	if len(list.Data) == 0 {
		k.t.Fatal("the audit is empty")
	}
	return list.Data[0]
}

// What changes nothing is not told as a change, nor is what was refused.
func TestNoChangeIsNotAudited(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	path := "/v1/subscribers/" + k.mine.ID
	k.do("POST", path+"/pause", "")
	k.do("POST", "/v1/deliveries/"+k.myDelivery+"/cancel", bodies["cancelDelivery"])
	k.do("DELETE", "/v1/keys/"+k.ids[access.Viewer], "")
	k.do("DELETE", "/v1/subscribers/"+k.others.ID, "")
	before := k.newest().ID
	for _, c := range [][3]string{
		{"POST", path + "/pause", ""},
		{"PATCH", path, `{}`},
		{"PATCH", path, `{"name":"` + strings.Repeat("x", 101) + `"}`},
		{"POST", "/v1/deliveries/" + k.myDelivery + "/cancel", bodies["cancelDelivery"]},
		{"POST", "/v1/deliveries/" + k.myDelivery + "/retry", ""},
		{"DELETE", "/v1/keys/" + k.ids[access.Viewer], ""},
		{"DELETE", "/v1/subscribers/" + k.others.ID, ""},
		{"DELETE", "/v1/subscribers/sub_none", ""},
		{"POST", "/v1/keys", `{}`},
		{"POST", "/v1/events", post(`1`)},
		{"GET", path, ""},
	} {
		k.do(c[0], c[1], c[2])
		if e := k.newest(); e.ID != before {
			t.Errorf("%s %s is in the audit: %+v", c[0], c[1], e)
			before = e.ID
		}
	}
}

// deaf is an audit that takes nothing.
type deaf struct{ Audit }

func (deaf) Append(context.Context, access.Entry) error {
	return fmt.Errorf("append: %w: dial tcp", access.ErrUnavailable)
}

// A change that cannot be written down is made all the same, counted, and in the log.
func TestAuditFails(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	k := newKeyed(t, func(d *Deps) { d.Audit, d.Registerer = deaf{d.Audit}, reg })
	a := k.as(access.Operator, "POST", "/v1/subscribers/"+k.mine.ID+"/pause", "", "Fanout-Reason: 4711")
	if got := into[Subscriber](t, a, 200); !got.Paused {
		t.Errorf("got %+v", got)
	}
	// Two of them by the rig, which made two subscribers.
	const want = `
# HELP fanout_audit_failures_total Changes that the API made and could not write into the audit.
# TYPE fanout_audit_failures_total counter
fanout_audit_failures_total 3
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "fanout_audit_failures_total"); err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		`"level":"ERROR"`, "change made, but not in the audit", `"action":"pauseSubscriber"`, `"target":"` + k.mine.ID, `"reason":"4711"`,
		`"key_id":"` + k.ids[access.Operator],
	} {
		if !strings.Contains(k.log.String(), want) {
			t.Errorf("the log has no %s", want)
		}
	}
}

func TestListAudit(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	for range 3 {
		k.as(access.Operator, "POST", "/v1/subscribers/"+k.mine.ID+"/pause", "")
		k.as(access.Admin, "POST", "/v1/subscribers/"+k.mine.ID+"/resume", "")
	}
	var ids []string
	for cursor := ""; ; {
		page := into[AuditList](t, k.as(access.Viewer, "GET", "/v1/audit?limit=3&target="+k.mine.ID+cursor, ""), 200)
		for _, e := range page.Data {
			ids = append(ids, e.ID)
		}
		if page.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + *page.NextCursor
	}
	if len(ids) != 7 || !slices.IsSortedFunc(ids, func(a, b string) int { return strings.Compare(b, a) }) {
		t.Errorf("%d entries, want 7, newest first: %v", len(ids), ids)
	}
	for query, want := range map[string]int{
		"action=pauseSubscriber": 3, "key_id=" + k.ids[access.Operator]: 3, "action=resumeSubscriber&key_id=" + k.ids[access.Operator]: 0,
		"target=" + k.others.ID: 1, "target=none": 0,
	} {
		if got := into[AuditList](t, k.as(access.Operator, "GET", "/v1/audit?"+query, ""), 200); len(got.Data) != want {
			t.Errorf("%s: %d entries, want %d", query, len(got.Data), want)
		}
	}
	for _, cursor := range []string{"", "x", "1-1", "aud_1", "aud_1-x", strings.Repeat("a", 300)} {
		wantPointers(t, wantProblem(t, k.do("GET", "/v1/audit?cursor="+cursor, ""), ProblemCodeInvalidCursor), "?cursor")
	}
	wantPointers(t, wantProblem(t, k.do("GET", "/v1/audit?limit=0", ""), ProblemCodeInvalidParameter), "?limit")
}

// A reason that could not stand in the audit is refused before anything is done.
func TestReasons(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	path := "/v1/subscribers/" + k.mine.ID
	for _, reason := range []string{strings.Repeat("r", 201), "tab\there", "bad \xff byte", " "} {
		p := wantProblem(t, k.do("POST", path+"/pause", "", "Fanout-Reason: "+reason), ProblemCodeInvalidParameter)
		wantPointers(t, p, "?Fanout-Reason")
	}
	if got := into[Subscriber](t, k.do("GET", path, ""), 200); got.Paused {
		t.Error("refused, and paused all the same")
	}
	for _, body := range []string{`{"reason":"` + strings.Repeat("r", 201) + `"}`, `{"reason":"a\nb"}`, `{"reason":" "}`} {
		p := wantProblem(t, k.do("POST", "/v1/deliveries/"+k.myDelivery+"/retry", body), ProblemCodeInvalidRequest)
		wantPointers(t, p, "/reason")
	}
	for _, body := range []string{`{}`, `{"reason":""}`} {
		p := wantProblem(t, k.do("POST", "/v1/deliveries/"+k.myDelivery+"/cancel", body), ProblemCodeInvalidRequest)
		wantPointers(t, p, "/reason")
	}
	k.do("POST", path+"/pause", "", "Fanout-Reason: für 4711 – “später”")
	if e := k.newest(); e.Reason != "für 4711 – “später”" {
		t.Errorf("the reason is %q", e.Reason)
	}
}

// away is a gate whose store is away.
type away struct{ Gate }

func (away) Authenticate(context.Context, string) (access.Identity, error) {
	return access.Identity{}, fmt.Errorf("authenticate: %w", access.ErrUnavailable)
}

func (away) Open(context.Context) (bool, error) {
	return false, fmt.Errorf("open: %w", access.ErrUnavailable)
}

// With the keys out of reach nobody is let in, but probes.
func TestGateIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(d *Deps) { d.Gate = away{} })
	for _, path := range []string{"/v1/subscribers", "/openapi.yaml", "/metrics"} {
		a := r.do("GET", path, "", "Authorization: Bearer x")
		if p := wantProblem(t, a, ProblemCodeUnavailable); a.header.Get("Retry-After") == "" || !strings.Contains(p.Detail, "Nothing was done") {
			t.Errorf("%s: %+v", path, p)
		}
	}
	into[Health](t, r.do("GET", "/healthz", "", "Host: probe.example"), 200)
	into[Health](t, r.do("GET", "/readyz", ""), 200)
	broken := newRig(t, func(d *Deps) { d.Gate = odd{} })
	wantProblem(t, broken.do("GET", "/v1/subscribers", "", "Authorization: Bearer x"), ProblemCodeInternal)
}

// odd is a gate that fails in a way nobody knows.
type odd struct{ away }

func (odd) Open(context.Context) (bool, error) { return false, nil }

func (odd) Authenticate(context.Context, string) (access.Identity, error) {
	return access.Identity{}, errors.New("something else")
}
