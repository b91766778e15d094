package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/access"
	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/test/redistest"
)

const bootstrap = "correct-horse-battery-staple-0123456789"

// keyed is the rig behind real keys, with one key of each role. Those of the role
// subscriber are of acc_1; what is another's is of acc_2.
type keyed struct {
	*rig
	store *access.Store
	keys  map[access.Role]string // tokens
	ids   map[access.Role]string
	// mine and others are subscribers of the two accounts, each with a scheduled
	// delivery of an event of its own.
	mine, others               SubscriberCreated
	myDelivery, othersDelivery string
	redrives                   fakeRedrives
}

func newKeyed(t *testing.T, change ...func(*Deps)) *keyed {
	t.Helper()
	k := &keyed{keys: map[access.Role]string{}, ids: map[access.Role]string{}}
	mini := redistest.Mini(t)
	store, err := access.Open(redistest.Client(t, mini.Addr()), access.Options{Bootstrap: bootstrap})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	k.store = store
	k.rig = newRig(t, append([]func(*Deps){func(d *Deps) {
		d.Gate, d.Keys, d.Audit, d.Redrives = store.Gate, store.Keys, store.Audit, &k.redrives
	}}, change...)...)
	k.key = bootstrap
	for _, role := range access.Roles() {
		account := ""
		if role == access.Subscriber {
			account = "acc_1"
		}
		k.ids[role], k.keys[role] = k.makeKey(access.NewKey{Name: "a " + string(role), Role: role, Account: account})
	}
	k.mine, k.myDelivery = k.prepare("acc_1", "evt_mine")
	k.others, k.othersDelivery = k.prepare("acc_2", "evt_others")
	return k
}

func (k *keyed) makeKey(n access.NewKey) (id, token string) {
	k.t.Helper()
	key, token, err := k.store.Keys.Create(k.t.Context(), n, "bootstrap")
	if err != nil {
		k.t.Fatal(err)
	}
	return key.ID, token
}

// prepare makes a subscriber of an account, with an event that goes to it alone.
func (k *keyed) prepare(account, event string) (SubscriberCreated, string) {
	k.t.Helper()
	sub := k.create(fmt.Sprintf(`{"account":%q,"url":"https://hooks.example.com/in?token=t0ps3cret","headers":{"X-Token":"h3aders3cret"}}`, account))
	at := time.UnixMilli(1764518400123)
	d := delivery.New(event, sub.ID, at, time.Hour)
	k.views.deliveries[d.ID] = schedule.Evidence{Delivery: d}
	k.views.events[event] = schedule.Event{
		ID: event, Meta: []byte(`{"type":"a.b","shipment_id":"s","occurred_at":"2026-11-30T14:03:22Z"}`),
		AcceptedAt: at, Deliveries: 1, SubscriberIDs: []string{sub.ID},
	}
	return sub, d.ID
}

// as does a request with the key of a role.
func (k *keyed) as(role access.Role, method, path, body string, headers ...string) answer {
	k.t.Helper()
	return k.do(method, path, body, append([]string{"Authorization: Bearer " + k.keys[role]}, headers...)...)
}

// paths fills in the parameters of a path with what belongs to an account.
func (k *keyed) paths(sub SubscriberCreated, event, deliveryID string) *strings.Replacer {
	return strings.NewReplacer("{event_id}", event, "{delivery_id}", deliveryID, "{subscriber_id}", sub.ID,
		"{key_id}", k.ids[access.Viewer], "{file}", "oncall.css", "{redrive_id}", "rdv_01J9ZC3T7R6W8Y2K5M4N0P1QXV")
}

// bodies are what the operations with a required body take.
var bodies = map[string]string{
	"postEvent":        `{"type":"a.b","shipment_id":"s","occurred_at":"2026-11-30T14:03:22+01:00","data":1}`,
	"postEventBatch":   `{"events":[{"type":"a.b","shipment_id":"s","occurred_at":"2026-11-30T14:03:22+01:00","data":1}]}`,
	"createSubscriber": minimal,
	"patchSubscriber":  `{"name":"renamed"}`,
	"rotateSecret":     `{}`,
	"cancelDelivery":   `{"reason":"not wanted any more"}`,

	"discardDeadLetters": `{"ids":["dlv_3f9a7k2m4n6p8q0r1s3t5v70"],"reason":"not wanted any more"}`,
	"createRedrive":      `{"filter":{},"reason":"it was down"}`,
	"approveRedrive":     `{"effect":"shown once"}`,
	"pauseRedrive":       `{"reason":"wait"}`,
	"abortRedrive":       `{"reason":"no more"}`,
	"createKey":          `{"name":"made by a test","role":"viewer"}`,
}

// x-roles in the contract and the table in Go are one, and what asks for no key says
// so there.
func TestRolesAreTheContracts(t *testing.T) {
	t.Parallel()
	inContract := map[string]bool{}
	for name, op := range operations(t) {
		inContract[op.OperationId] = true
		may, known := roles[op.OperationId]
		if !known {
			t.Errorf("%s: %s is not in the table of roles", name, op.OperationId)
			continue
		}
		node, listed := op.Extensions.Get("x-roles")
		if may == nil {
			if listed || op.Security == nil || len(op.Security) != 0 {
				t.Errorf("%s asks for no key, and the contract says otherwise", name)
			}
			continue
		}
		if !listed || op.Security != nil {
			t.Errorf("%s: the contract has no x-roles, or a security of its own", name)
			continue
		}
		var got []access.Role
		if err := node.Decode(&got); err != nil {
			t.Fatal(err)
		}
		for _, role := range access.Roles() {
			inGo := role == access.Admin || strings.Contains(fmt.Sprint(may), string(role))
			if strings.Contains(fmt.Sprint(got), string(role)) != inGo {
				t.Errorf("%s: role %s is %v in Go, the contract has %v", name, role, inGo, got)
			}
		}
	}
	for id := range roles {
		if !inContract[id] {
			t.Errorf("%s has roles and is not in the contract", id)
		}
	}
}

// Every operation is tried with every role, and without a good key.
func TestEveryOperationAsksWho(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	revoked, token := k.makeKey(access.NewKey{Name: "old", Role: access.Admin})
	if _, err := k.store.Keys.Revoke(t.Context(), revoked); err != nil {
		t.Fatal(err)
	}
	k.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	nobody := map[string]string{
		"no key": "", "another scheme": "Digest x", "an empty one": "Bearer ", "a wrong one": "Bearer " + token[:len(token)-4] + "AAAA",
		"a long one": "Bearer " + strings.Repeat("x", 8000), "a revoked one": "Bearer " + token, "bootstrap, cut": "Bearer " + bootstrap[1:],
		"basic, wrong": "Basic eDp5",
	}
	for name, op := range operations(t) {
		method, path, _ := strings.Cut(name, " ")
		path = k.paths(k.others, "evt_others", k.othersDelivery).Replace(path)
		may := roles[op.OperationId]
		if may == nil {
			if a := k.do(method, path, "", "Authorization: "); a.status == http.StatusUnauthorized || a.status == http.StatusForbidden {
				t.Errorf("%s asks for a key: %d %s", name, a.status, a.body)
			}
			continue
		}
		for what, header := range nobody {
			a := k.do(method, path+"?never=read", "not read", "Authorization: "+header)
			wantProblem(t, a, ProblemCodeUnauthenticated)
			if got := a.header.Values("WWW-Authenticate"); len(got) != 2 || got[0] != `Basic realm="fanout"` || got[1] != `Bearer realm="fanout"` {
				t.Errorf("%s with %s: WWW-Authenticate %q", name, what, got)
			}
		}
		for _, role := range access.Roles() {
			if role == access.Admin || strings.Contains(fmt.Sprint(may), string(role)) {
				continue // that they may is tested with what they do
			}
			p := wantProblem(t, k.as(role, method, path+"?limit=x", "not read"), ProblemCodeForbidden)
			if !strings.Contains(p.Detail, string(role)) || !strings.Contains(p.Detail, "admin") {
				t.Errorf("%s as %s: %q does not say who may", name, role, p.Detail)
			}
		}
	}
	for _, path := range []string{"/nowhere", "/v1/events/a/b"} {
		wantProblem(t, k.do("GET", path, "", "Authorization: "), ProblemCodeUnauthenticated)
		wantProblem(t, k.as(access.Viewer, "GET", path, ""), ProblemCodeNotFound)
	}
	wantProblem(t, k.as(access.Viewer, "PUT", "/v1/events", ""), ProblemCodeMethodNotAllowed)
}

// What belongs to another account is not there for a bound key: the answer is the
// very one that an unknown id gets.
func TestAccountsAreApart(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	others := k.paths(k.others, "evt_others", k.othersDelivery)
	unknown := k.paths(SubscriberCreated{ID: "sub_unknown"}, "evt_unknown", delivery.NewID("evt_unknown", "sub_x"))
	tried := 0
	for name, op := range operations(t) {
		method, path, _ := strings.Cut(name, " ")
		if !strings.Contains(fmt.Sprint(roles[op.OperationId]), "subscriber") || !strings.Contains(path, "_id}") {
			continue
		}
		tried++
		body := bodies[op.OperationId]
		got := wantProblem(t, k.as(access.Subscriber, method, others.Replace(path), body), ProblemCodeNotFound)
		want := wantProblem(t, k.as(access.Subscriber, method, unknown.Replace(path), body), ProblemCodeNotFound)
		if got.Detail != want.Detail {
			t.Errorf("%s: another's gives %q, an unknown one %q", name, got.Detail, want.Detail)
		}
		if method != http.MethodGet || op.OperationId == "getDeadLetter" {
			continue // what they do to its own, and its dead letters, have tests of their own
		}
		if a := k.as(access.Subscriber, method, k.paths(k.mine, "evt_mine", k.myDelivery).Replace(path), ""); a.status != 200 {
			t.Errorf("%s of its own: %d %s", name, a.status, a.body)
		}
	}
	if tried < 10 {
		t.Errorf("only %d operations were tried", tried)
	}
	for _, path := range []string{
		"/v1/deliveries?subscriber_id=" + k.others.ID, "/v1/deliveries?event_id=evt_others", "/v1/dead-letters?subscriber_id=" + k.others.ID,
	} {
		wantProblem(t, k.as(access.Subscriber, "GET", path, ""), ProblemCodeNotFound)
	}
}

// Lists and events show a bound key its own, and nothing tells how much more there is.
func TestListsOfOneAccount(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	k.mine, k.myDelivery = k.prepare("acc_1", "evt_both")
	e := k.views.events["evt_both"]
	e.SubscriberIDs, e.Deliveries = append(e.SubscriberIDs, k.others.ID), 2
	k.views.events["evt_both"] = e

	event := into[Event](t, k.as(access.Subscriber, "GET", "/v1/events/evt_both", ""), 200)
	if len(event.Deliveries) != 1 || event.Deliveries[0].SubscriberID != k.mine.ID || event.DeliveriesPlanned != 1 {
		t.Errorf("got %+v", event)
	}
	if all := into[Event](t, k.as(access.Producer, "GET", "/v1/events/evt_both", ""), 200); all.DeliveriesPlanned != 2 {
		t.Errorf("a producer sees %+v", all)
	}
	list := into[DeliveryList](t, k.as(access.Subscriber, "GET", "/v1/deliveries?event_id=evt_both", ""), 200)
	if len(list.Data) != 1 || list.Data[0].ID != k.myDelivery {
		t.Errorf("got %+v", list)
	}
	subs := into[SubscriberList](t, k.as(access.Subscriber, "GET", "/v1/subscribers", ""), 200)
	for _, sub := range subs.Data {
		if sub.Account != "acc_1" {
			t.Errorf("sees %s of %s", sub.ID, sub.Account)
		}
	}
	if len(subs.Data) != 2 {
		t.Errorf("%d subscribers, want 2", len(subs.Data))
	}
	if subs := into[SubscriberList](t, k.as(access.Viewer, "GET", "/v1/subscribers?account=acc_2", ""), 200); len(subs.Data) != 1 || subs.Data[0].Account != "acc_2" {
		t.Errorf("got %+v", subs)
	}
	wantPointers(t, wantProblem(t, k.as(access.Subscriber, "GET", "/v1/subscribers?account=acc_2", ""), ProblemCodeForbidden), "?account")
	wantPointers(t, wantProblem(t, k.as(access.Subscriber, "GET", "/v1/dead-letters", ""), ProblemCodeInvalidParameter), "?subscriber_id")
	into[DeadLetterList](t, k.as(access.Subscriber, "GET", "/v1/dead-letters?subscriber_id="+k.mine.ID, ""), 200)
	wantProblem(t, k.as(access.Producer, "GET", "/v1/deliveries?subscriber_id="+k.mine.ID, ""), ProblemCodeForbidden)

	own := into[SubscriberCreated](t, k.as(access.Subscriber, "POST", "/v1/subscribers", minimal), 201)
	if own.Account != "acc_1" {
		t.Errorf("made for %s", own.Account)
	}
	p := wantProblem(t, k.as(access.Subscriber, "POST", "/v1/subscribers", `{"account":"acc_2",`+minimal[1:]), ProblemCodeForbidden)
	wantPointers(t, p, "/account")
}

// Who may not see the on-call page is led to what he may read.
func TestRootLeadsWhereTheKeyMayGo(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	k.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for role, want := range map[access.Role]string{
		access.Producer: "/docs", access.Subscriber: "/docs", access.Viewer: "/oncall", access.Operator: "/oncall", access.Admin: "/oncall",
	} {
		a := k.as(role, "GET", "/", "")
		if a.status != 307 || a.header.Get("Location") != want {
			t.Errorf("%s: %d to %q, want %q", role, a.status, a.header.Get("Location"), want)
		}
		if there := k.as(role, "GET", want, ""); want == "/docs" && there.status != 200 {
			t.Errorf("%s is not let in: %d", role, there.status)
		}
	}
	for _, header := range [][]string{nil, {"Authorization: Bearer fok_nobody"}} {
		if a := k.do("GET", "/", "", header...); a.status != 307 || a.header.Get("Location") != "/oncall" {
			t.Errorf("%v: %d to %q", header, a.status, a.header.Get("Location"))
		}
	}
}
