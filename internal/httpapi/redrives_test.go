package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/access"
	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/fault"
	"github.com/fanout/fanout/internal/redrive"
	"github.com/fanout/fanout/internal/schedule"
)

var _ Redrives = (*redrive.Service)(nil)

// fakeRedrives keeps cohorts in their states, and moves none by itself.
type fakeRedrives struct {
	all    []redrive.View
	orders []redrive.Order
	err    error
}

func (f *fakeRedrives) Preview(_ context.Context, o redrive.Order) (redrive.Preview, error) {
	f.orders = append(f.orders, o)
	return redrive.Preview{
		Matching: 7, Subscribers: 2, BySubscriber: map[string]int64{"sub_1": 3, "sub_2": 4},
		ByReason: map[delivery.Outcome]int64{delivery.Exhausted: 7}, Rate: 5,
		HeadRoom: redrive.HeadRoom{Capacity: 20, Arrivals: 10, Slots: 4, Used: 1}, Takes: delivery.Duration(3 * time.Second),
	}, f.err
}

func (f *fakeRedrives) Create(_ context.Context, o redrive.Order, by string) (redrive.Cohort, error) {
	f.orders = append(f.orders, o)
	o.Budget, o.Canaries, o.Within = 2, 1, delivery.Duration(time.Hour)
	c := redrive.Cohort{
		ID: fmt.Sprintf("rdv_01J9ZC3T7R6W8Y2K5M4N0P%04d", len(f.all)), Order: o, State: redrive.Planning,
		CreatedBy: by, CreatedAt: time.UnixMilli(1764518400123),
	}
	if f.err == nil {
		f.all = append(f.all, redrive.View{Cohort: c})
	}
	return c, f.err
}

func (f *fakeRedrives) find(id string) *redrive.View {
	for i := range f.all {
		if f.all[i].ID == id {
			return &f.all[i]
		}
	}
	return nil
}

func (f *fakeRedrives) Get(_ context.Context, id string) (redrive.View, error) {
	v := f.find(id)
	if f.err != nil || v == nil {
		return redrive.View{}, errors.Join(f.err, redrive.ErrNotFound)
	}
	return *v, nil
}

func (f *fakeRedrives) List(_ context.Context, before string, limit int) ([]redrive.Cohort, error) {
	var out []redrive.Cohort
	for _, v := range slices.Backward(f.all) {
		out = append(out, v.Cohort)
	}
	if before != "" {
		at := slices.IndexFunc(out, func(c redrive.Cohort) bool { return c.ID == before })
		if at < 0 {
			return nil, redrive.ErrNotFound
		}
		out = out[at+1:]
	}
	return out[:min(limit, len(out))], f.err
}

func (f *fakeRedrives) move(id string, to redrive.State, from ...redrive.State) (redrive.Cohort, error) {
	v := f.find(id)
	if !slices.Contains(from, v.State) && v.State != to {
		return v.Cohort, fmt.Errorf("move: it is %s; look: %w", v.State, redrive.ErrState)
	}
	v.State = to
	return v.Cohort, f.err
}

func (f *fakeRedrives) Approve(_ context.Context, id, by, effect string) (redrive.Cohort, error) {
	if len(effect) < 3 {
		return redrive.Cohort{}, &fault.Invalid{Fields: []fault.Field{{Pointer: "/effect", Detail: "says more"}}}
	}
	v := f.find(id)
	v.ApprovedBy, v.Effect = by, effect
	return f.move(id, redrive.Running, redrive.Awaiting)
}

func (f *fakeRedrives) Pause(_ context.Context, id, by, why string) (redrive.Cohort, error) {
	v := f.find(id)
	v.Stopped, v.StoppedBy = why, by
	return f.move(id, redrive.Paused, redrive.Planning, redrive.Running)
}

func (f *fakeRedrives) Resume(_ context.Context, id, _ string) (redrive.Cohort, error) {
	v := f.find(id)
	v.Stopped, v.StoppedBy = "", ""
	if v.State == redrive.Running {
		return v.Cohort, fmt.Errorf("resume: it is %s; pause it: %w", v.State, redrive.ErrState)
	}
	return f.move(id, redrive.Running, redrive.Paused)
}

func (f *fakeRedrives) Abort(_ context.Context, id, by, why string) (redrive.Cohort, error) {
	v := f.find(id)
	v.Stopped, v.StoppedBy = why, by
	return f.move(id, redrive.Aborted, redrive.Planning, redrive.Awaiting, redrive.Running, redrive.Paused)
}

// Pinned has a payload for each dead letter whose event is not called gone.
func (f *fakeViews) Pinned(_ context.Context, _, eventID string) (schedule.Body, error) {
	if strings.HasPrefix(eventID, "evt_gone") {
		return schedule.Body{}, fmt.Errorf("pinned: %w", schedule.ErrNotFound)
	}
	kind := "shipment.delivered"
	if strings.HasPrefix(eventID, "evt_other") {
		kind = "return.created"
	}
	e := delivery.Event{ID: eventID, Type: kind, ShipmentID: "shp_1", OccurredAt: "2026-11-30T14:03:22+01:00", Data: []byte(`{"n":1}`)}
	return schedule.Body{Bytes: e.Body(), Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, f.err
}

func (f *fakeViews) CohortOf(_ context.Context, id string) (string, error) {
	if f.deliveries[id].EventID == "evt_claimed" {
		return "rdv_01J9ZC3T7R6W8Y2K5M4N0P1QXV", f.err
	}
	return "", f.err
}

func (f *fakeViews) Discard(_ context.Context, ids []string) ([]schedule.ClaimResult, error) {
	out := make([]schedule.ClaimResult, len(ids))
	for i, id := range ids {
		d, there := f.deliveries[id]
		switch {
		case !there:
			out[i] = schedule.NoLetter
		case d.State != delivery.Dead:
			out[i] = schedule.NotDead
		case d.EventID == "evt_claimed":
			out[i] = schedule.Claimed
		default:
			out[i] = schedule.Discarded
			delete(f.deliveries, id)
		}
	}
	return out, f.err
}

// bury keeps a dead letter of an event, and returns its id.
func (r *rig) bury(event string) string {
	e := evidence(event, delivery.Dead)
	r.views.deliveries[e.ID] = e
	return e.ID
}

// waiting makes a redrive that awaits an approval, and returns its path.
func (k *keyed) waiting() string {
	c, err := k.redrives.Create(k.t.Context(), redrive.Order{Reason: "made by a test"}, "local")
	if err != nil {
		k.t.Fatal(err)
	}
	k.redrives.find(c.ID).State = redrive.Awaiting
	return "/v1/redrives/" + c.ID
}

func (k *keyed) lastRedrive() string { return k.redrives.all[len(k.redrives.all)-1].ID }

func TestCreateRedrive(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	id := k.bury("evt_1")
	whole := `{"filter":{"subscriber_id":"sub_1","class":"standard","outcome":"http_5xx","reason":"exhausted","type":"a.b",` +
		`"since":"2026-11-30T08:00:00Z","until":"2026-11-30T09:00:00Z"},"reason":"it was down","attempt_budget":3,"canaries":2,"max_rate":1.5,"within":"2h"}`
	a := k.as(access.Operator, "POST", "/v1/redrives", whole)
	got := into[Redrive](t, a, http.StatusCreated)
	if got.State != redrive.Planning || got.CreatedBy != k.ids[access.Operator] || got.Filter == nil || got.Filter.Type != "a.b" || a.header.Get("Location") != "/v1/redrives/"+got.ID {
		t.Errorf("got %s", a.body)
	}
	o := k.redrives.orders[0]
	if o.Filter.SubscriberID != "sub_1" || o.Filter.Class != "standard" || o.Filter.Outcome != delivery.HTTP5xx || o.Filter.Reason != delivery.Exhausted ||
		o.Filter.EventType != "a.b" || o.Filter.Since.Hour() != 8 || o.Filter.Until.Hour() != 9 ||
		o.Reason != "it was down" || o.Budget != 3 || o.Canaries != 2 || o.MaxRate != 1.5 || o.Within != delivery.Duration(2*time.Hour) {
		t.Errorf("ordered %+v", o)
	}
	named := into[Redrive](t, k.as(access.Admin, "POST", "/v1/redrives?dry_run=false", `{"ids":["`+id+`"],"reason":"it was down"}`), 201)
	if named.Filter != nil || len(named.Ids) != 1 {
		t.Errorf("got %+v", named)
	}
	before := len(k.redrives.all)
	dry := into[RedrivePreview](t, k.as(access.Operator, "POST", "/v1/redrives?dry_run=true", `{"filter":{},"reason":"it was down"}`), 200)
	if dry.Matching != 7 || dry.BySubscriber[0].SubscriberID != "sub_2" || dry.ByReason[0].DeadLetters != 7 || dry.HeadRoom.PerSecond != 10 || dry.Warnings == nil || len(k.redrives.all) != before {
		t.Errorf("got %+v", dry)
	}
	wantPointers(t, wantProblem(t, k.do("POST", "/v1/redrives?dry_run=1", `{"filter":{},"reason":"it was down"}`), ProblemCodeInvalidParameter), "?dry_run")
	wantPointers(t, wantProblem(t, k.do("POST", "/v1/redrives", `{"reason":"it was down"}`), ProblemCodeInvalidRequest), "/filter")
	wantPointers(t, wantProblem(t, k.do("POST", "/v1/redrives", `{"ids":["`+id+`"],"filter":{},"reason":"it was down"}`), ProblemCodeInvalidRequest), "/filter")
	wantPointers(t, wantProblem(t, k.do("POST", "/v1/redrives", `{"filter":{"event_type":"x"},"reason":"it was down"}`), ProblemCodeInvalidField), "/filter/event_type")
	pending, missing := k.myDelivery, delivery.NewID("evt_x", "sub_1")
	p := wantProblem(t, k.do("POST", "/v1/redrives", fmt.Sprintf(`{"ids":[%q,%q,%q],"reason":"it was down"}`, id, pending, missing)), ProblemCodeNotDead)
	wantPointers(t, p, "/ids/1", "/ids/2")
	if !strings.Contains(p.Errors[0].Detail, "still being tried") || !strings.Contains(p.Errors[1].Detail, "not there") {
		t.Errorf("got %+v", p.Errors)
	}
	for err, code := range map[error]ProblemCode{
		redrive.ErrTooMany:      ProblemCodeTooManyRedrives,
		schedule.ErrUnavailable: ProblemCodeUnavailable,
		&fault.Invalid{Fields: []fault.Field{{Pointer: "/reason", Detail: "says why"}}}: ProblemCodeInvalidRequest,
	} {
		k.redrives.err = fmt.Errorf("create: %w", err)
		p := wantProblem(t, k.do("POST", "/v1/redrives", `{"filter":{},"reason":"it was down"}`), code)
		if code == ProblemCodeUnavailable && !strings.Contains(p.Detail, "may have been made") {
			t.Errorf("%q", p.Detail)
		}
	}
}

func TestSteerRedrives(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	path := k.waiting()
	post := func(what, body string) answer { return k.as(access.Operator, "POST", path+what, body) }
	wantPointers(t, wantProblem(t, post("/approve", `{"effect":""}`), ProblemCodeInvalidRequest), "/effect")
	if p := wantProblem(t, post("/pause", `{"reason":"wait"}`), ProblemCodeRedriveState); !strings.Contains(p.Detail, "it is awaiting_approval") {
		t.Errorf("%q", p.Detail)
	}
	got := into[Redrive](t, post("/approve", `{"effect":"shown once"}`), 200)
	if got.State != redrive.Running || got.Effect != "shown once" || got.ApprovedBy != k.ids[access.Operator] {
		t.Errorf("got %+v", got)
	}
	for range 2 { // again is safe, and no second change
		into[Redrive](t, post("/pause", `{"reason":"wait"}`), 200)
	}
	if e := k.newest(); e.Action != "pauseRedrive" || e.Reason != "wait" {
		t.Errorf("got %+v", e)
	}
	into[Redrive](t, post("/resume", `{"reason":"it is mended"}`), 200)
	if e := k.newest(); e.Action != "resumeRedrive" || e.Reason != "it is mended" {
		t.Errorf("got %+v", e)
	}
	wantProblem(t, post("/resume", `{"reason":"it is mended"}`), ProblemCodeRedriveState)
	into[Redrive](t, post("/abort", `{"reason":"no more"}`), 200)
	list := into[AuditList](t, k.as(access.Viewer, "GET", "/v1/audit?target="+k.lastRedrive(), ""), 200)
	if len(list.Data) != 4 {
		t.Errorf("%d changes are in the audit, want 4: %+v", len(list.Data), list.Data)
	}
	for _, id := range []string{"rdv_01J9ZC3T7R6W8Y2K5M4N0P1QXV", "x", "a-b", strings.Repeat("r", 100)} {
		wantProblem(t, k.as(access.Viewer, "GET", "/v1/redrives/"+id, ""), ProblemCodeNotFound)
		wantProblem(t, k.as(access.Operator, "POST", "/v1/redrives/"+id+"/pause", `{"reason":"wait"}`), ProblemCodeNotFound)
	}
	for _, what := range []string{"/approve", "/pause", "/resume", "/abort"} {
		wantProblem(t, post(what, ""), ProblemCodeUnsupportedMediaType)
		wantProblem(t, post(what, `{"reason":1}`), ProblemCodeInvalidField)
	}
	k.redrives.err = schedule.ErrUnavailable
	wantProblem(t, k.as(access.Viewer, "GET", path, ""), ProblemCodeNotFound) // the fake has both
	wantProblem(t, k.as(access.Viewer, "GET", "/v1/redrives", ""), ProblemCodeUnavailable)
	none := newRig(t)
	for _, c := range [][3]string{
		{"GET", "/v1/redrives", ""}, {"GET", path, ""}, {"POST", "/v1/redrives", bodies["createRedrive"]}, {"POST", path + "/resume", `{"reason":"it is mended"}`},
	} {
		if p := wantProblem(t, none.do(c[0], c[1], c[2]), ProblemCodeUnavailable); !strings.Contains(p.Detail, "without redrives") {
			t.Errorf("%s %s: %q", c[0], c[1], p.Detail)
		}
	}
}

func TestShowRedrives(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	for range 3 {
		k.waiting()
	}
	v := k.redrives.find(k.lastRedrive())
	canary := evidence("evt_canary", delivery.Delivered)
	v.Canaries, v.CanaryIDs, v.CanaryPassed = []schedule.Evidence{canary}, []string{canary.ID}, true
	v.Tally = schedule.Tally{Claimed: 5, Released: 1, Delivered: 1}
	v.IDs = []string{canary.ID}
	got := into[Redrive](t, k.as(access.Viewer, "GET", "/v1/redrives/"+v.ID, ""), 200)
	if got.Tally == nil || got.Tally.Waiting != 4 || len(got.CanaryDeliveries) != 1 || got.CanaryDeliveries[0].Evidence[1].Excerpt == "" || len(got.Ids) != 1 {
		t.Errorf("got %+v", got)
	}
	first := into[RedriveList](t, k.as(access.Operator, "GET", "/v1/redrives?limit=2", ""), 200)
	if len(first.Data) != 2 || first.Data[0].ID != v.ID || first.Data[0].Ids != nil || first.NextCursor == nil {
		t.Fatalf("got %+v", first)
	}
	rest := into[RedriveList](t, k.do("GET", "/v1/redrives?limit=2&cursor="+*first.NextCursor, ""), 200)
	if len(rest.Data) != 1 || rest.NextCursor != nil {
		t.Errorf("got %+v", rest)
	}
	for _, cursor := range []string{"", "x", makeCursor("rdv_none")} {
		wantPointers(t, wantProblem(t, k.do("GET", "/v1/redrives?cursor="+cursor, ""), ProblemCodeInvalidCursor), "?cursor")
	}
	wantProblem(t, k.as(access.Subscriber, "GET", "/v1/redrives", ""), ProblemCodeForbidden)
}

// What redrives do by themselves is in the audit, with the guard as the actor.
func TestGuardIsAudited(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	tell := AuditRedrives(k.store.Audit)
	c := redrive.Cohort{ID: "rdv_01J9ZC3T7R6W8Y2K5M4N0P1QXV", State: redrive.Paused, Stopped: strings.Repeat("so ", 200), StoppedBy: redrive.Guard, Final: &schedule.Tally{Dead: 1}}
	for name, action := range map[string]string{
		"redrive.pause": "pauseRedrive", "redrive.await_approval": "awaitRedriveApproval", "redrive.end": "endRedrive",
	} {
		if err := tell(t.Context(), redrive.Action{Name: name, Cohort: c, By: redrive.Guard, Reason: c.Stopped}); err != nil {
			t.Fatal(err)
		}
		list := into[AuditList](t, k.as(access.Viewer, "GET", "/v1/audit?key_id=guard&action="+action, ""), 200)
		if len(list.Data) != 1 || list.Data[0].Actor.ID != "guard" || list.Data[0].Target != c.ID || !strings.HasPrefix(list.Data[0].Reason, c.Stopped[:50]) ||
			!strings.Contains(string(list.Data[0].After), `"dead":1`) {
			t.Errorf("%s: got %+v", name, list.Data)
		}
	}
	if err := AuditRedrives(deaf{})(t.Context(), redrive.Action{}); !errors.Is(err, access.ErrUnavailable) {
		t.Errorf("got %v: it would not be told again", err)
	}
}
