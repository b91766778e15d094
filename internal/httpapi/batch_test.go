package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fanout/fanout/internal/ingest"
	"github.com/fanout/fanout/internal/schedule"
)

// item is an event of a batch.
func item(id, data string) string {
	return fmt.Sprintf(`{"id":%q,"type":"shipment.delivered","shipment_id":"shp_1","occurred_at":"2026-11-30T14:03:22+01:00","data":%s}`, id, data)
}

func batchOf(items ...string) string { return `{"events":[` + strings.Join(items, ",\n") + `]}` }

// Each event is answered as it would be alone, in its place.
func TestPostEventBatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.ingest.do = func(_ context.Context, p ingest.Post) (ingest.Receipt, error) {
		switch p.ID {
		case "evt_conflict":
			return ingest.Receipt{}, fmt.Errorf("accept: %w", schedule.ErrConflict)
		case "evt_away":
			return ingest.Receipt{}, fmt.Errorf("accept: %w", schedule.ErrUnavailable)
		case "evt_full":
			return ingest.Receipt{}, fmt.Errorf("accept: %w", schedule.ErrFull)
		case "evt_wide":
			return ingest.Receipt{}, ingest.ErrMaxFanout
		case "evt_odd":
			return ingest.Receipt{}, errors.New("WRONGTYPE of t0ps3cret")
		}
		return ingest.Receipt{ID: p.ID, Deliveries: 3, Duplicate: p.ID == "evt_again", AcceptedAt: time.UnixMilli(1764518400123)}, nil
	}
	a := r.do("POST", "/v1/events/batch", batchOf(item("evt_1", `{"b":1,"a":2, "a":3}`), item("evt_again", `1`), item("evt_conflict", `1`),
		item("evt_away", `1`), item("evt_full", `1`), item("evt_wide", `1`), item("evt_odd", `1`), item("evt_2", `null`)))
	got := into[BatchReceipt](t, a, 200)
	if got.Accepted != 2 || got.Duplicates != 1 || got.Refused != 5 || len(got.Results) != 8 {
		t.Fatalf("got %+v", got)
	}
	for i, want := range []struct {
		status int
		code   ProblemCode
	}{
		{202, ""},
		{202, ""},
		{409, ProblemCodeEventConflict},
		{503, ProblemCodeUnavailable},
		{503, ProblemCodeStorageFull},
		{422, ProblemCodeMaxFanoutExceeded},
		{500, ProblemCodeInternal},
		{202, ""},
	} {
		res := got.Results[i]
		if res.Index != i || res.Status != want.status || res.Problem.Code != want.code {
			t.Errorf("%d: got %+v", i, res)
		}
		if want.code == "" && (res.ID == "" || *res.Deliveries != 3 || *res.Duplicate != (i == 1) || res.AcceptedAt.IsZero()) {
			t.Errorf("%d: got %+v", i, res)
		}
		if want.code != "" && res.ID != []string{"", "", "evt_conflict", "evt_away", "evt_full", "evt_wide", "evt_odd"}[i] {
			t.Errorf("%d: which event it was is not told: %+v", i, res)
		}
		if want.code != "" && (res.Problem.RequestID != a.header.Get(requestIDHeader) || res.Deliveries != nil) {
			t.Errorf("%d: got %+v", i, res)
		}
	}
	if data := string(r.ingest.posts[0].Data); data != `{"b":1,"a":2, "a":3}` {
		t.Errorf("data became %s", data)
	}
	if after := a.header.Get("Retry-After"); after != "10" { // what a full Redis asks for is the longest
		t.Errorf("Retry-After: %q", after)
	}
	if strings.Contains(a.body, "Nothing was stored") || strings.Contains(a.body, "nothing was stored") || strings.Contains(a.body, "same request") {
		t.Errorf("an event's problem speaks of the whole batch: %s", a.body)
	}
	if strings.Contains(a.body, "t0ps3cret") || !strings.Contains(r.log.String(), "event of a batch not accepted") {
		t.Errorf("an inner error got out, or into no log: %s", a.body)
	}
}

// An event that cannot be read is refused by itself, with pointers into the batch.
func TestBatchRefusesByEvent(t *testing.T) {
	t.Parallel()
	svc := ingest.New(nil, nil, ingest.Options{}) // only what it refuses without its store is asked
	r := newRig(t, func(d *Deps) { d.Ingest = svc })
	for _, c := range []struct {
		name, event string
		code        ProblemCode
		pointers    []string
	}{
		{"unknown", `{"shipment":1,` + item("e", `1`)[1:], ProblemCodeInvalidField, []string{"/events/1/shipment"}},
		{"wrong type", `{"shipment_id":7}`, ProblemCodeInvalidField, []string{"/events/1/shipment_id"}},
		{"twice", `{"type":"a.b",` + item("e", `1`)[1:], ProblemCodeInvalidField, []string{"/events/1/type"}},
		{"null field", `{"attributes":{"a":null}}`, ProblemCodeInvalidField, []string{"/events/1/attributes/a"}},
		{"empty id", item("", `1`), ProblemCodeInvalidField, []string{"/events/1/id"}},
		{"no object", `[1]`, ProblemCodeInvalidField, []string{"/events/1"}},
		{"null", `null`, ProblemCodeInvalidField, []string{"/events/1"}},
		{"half a pair", `{"shipment_id":"\ud800"}`, ProblemCodeInvalidField, []string{"/events/1/shipment_id"}},
		{"too deep", item("e", strings.Repeat("[", 65)+strings.Repeat("]", 65)), ProblemCodeInvalidField, []string{"/events/1/data"}},
		{"half a pair in data", item("e", `"\udfff"`), ProblemCodeInvalidField, []string{"/events/1/data"}},
		{"missing", `{}`, ProblemCodeInvalidRequest, []string{"/events/1/type", "/events/1/shipment_id", "/events/1/occurred_at", "/events/1/data"}},
		{"too long", strings.Replace(item("e", `1`), "shp_1", strings.Repeat("s", 129), 1), ProblemCodeInvalidRequest, []string{"/events/1/shipment_id"}},
		{"data too large", item("e", `"`+strings.Repeat("d", 256<<10)+`"`), ProblemCodeInvalidRequest, []string{"/events/1/data"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := into[BatchReceipt](t, r.do("POST", "/v1/events/batch", batchOf(`{}`, c.event)), 200)
			if got.Refused != 2 || got.Accepted != 0 || got.Results[0].Status != 422 {
				t.Fatalf("got %+v", got)
			}
			p := got.Results[1].Problem
			if p.Code != c.code || got.Results[1].Status != kinds[c.code].status || p.Detail == "" {
				t.Errorf("got %+v", got.Results[1])
			}
			wantFirst(t, p, c.pointers...)
		})
	}
}

// The contract's example shows what is really answered.
func TestBatchExampleIsReal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.ingest.do = func(_ context.Context, p ingest.Post) (ingest.Receipt, error) {
		if err := p.Check(); err != nil {
			return ingest.Receipt{}, fmt.Errorf("post: %w", err)
		}
		return ingest.Receipt{ID: p.ID, Deliveries: 3, AcceptedAt: time.UnixMilli(1796043802481)}, nil
	}
	schemas := readContract().Components.Schemas
	var shown []any
	if err := schemas.values["BatchReceipt"].Properties.values["results"].Examples[0].Decode(&shown); err != nil {
		t.Fatal(err)
	}
	a := r.do("POST", "/v1/events/batch", batchOf(item("evt_dhl_00340434161094042557_delivered", "1"),
		strings.Replace(item("evt_ups_1Z999AA10123456784_exception", "1"), `"shipment_id":"shp_1",`, "", 1)))
	id := into[BatchReceipt](t, a, 200).Results[1].Problem.RequestID
	want, err := json.Marshal(map[string]any{"accepted": 1, "duplicates": 0, "refused": 1, "results": shown})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(jsonOf(t, string(want)), jsonOf(t, strings.ReplaceAll(a.body, id, "req_5F3KQZ7RC2T4N6"))); diff != "" {
		t.Error(diff)
	}
}

func jsonOf(t *testing.T, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// A refused event is told by its id, wherever that stands and whatever else is wrong.
func TestBatchNamesTheRefused(t *testing.T) {
	t.Parallel()
	svc := ingest.New(nil, nil, ingest.Options{})
	r := newRig(t, func(d *Deps) { d.Ingest = svc })
	for event, want := range map[string]string{
		`{"id":"evt_1"}`: "evt_1",
		`{"type":7,"x":{"id":"no"},"id":"evt_1"}`: "evt_1",
		`{"i\u0064":"evt\u005f1"}`:                "evt_1",
		`{"data":{"id":"no"}}`:                    "",
		`{"id":7}`:                                "",
		`{"id":"a b"}`:                            "",
		`{"id":".."}`:                             "",
		`{"id":"\ud800"}`:                         "",
		`{"id":"a","id":"b"}`:                     "",
		`{"id":null}`:                             "",
		`["id","evt_1"]`:                          "",
	} {
		got := into[BatchReceipt](t, r.do("POST", "/v1/events/batch", batchOf(event)), 200)
		if res := got.Results[0]; res.ID != want || res.Status/100 != 4 {
			t.Errorf("%s: got %+v, want the id %q", event, res, want)
		}
	}
	a := r.do("POST", "/v1/events/batch", batchOf(`{"id":"evt_1"}`))
	if got := into[BatchReceipt](t, a, 200).Results[0].Problem.Detail; got != "This event was not stored; errors says what to correct." {
		t.Errorf("got %q", got)
	}
	if after := a.header.Get("Retry-After"); after != "" {
		t.Errorf("Retry-After: %q for what will never be taken", after)
	}
}

// A batch of which no event found a Redis is a 503 as a whole: whoever looks at the
// status alone sends it again.
func TestBatchAllAway(t *testing.T) {
	t.Parallel()
	refused := fmt.Errorf("%w: %w", schedule.ErrUnavailable, schedule.ErrRefused)
	for _, c := range []struct {
		name  string
		errs  []error
		code  ProblemCode // none: a 200
		after string
		says  string
	}{
		{"in doubt", []error{schedule.ErrUnavailable, schedule.ErrUnavailable}, ProblemCodeUnavailable, "2", "is not known"},
		{"full", []error{schedule.ErrFull, schedule.ErrFull}, ProblemCodeStorageFull, "10", "None of them was stored"},
		{"refused", []error{refused, refused}, ProblemCodeUnavailable, "2", "None of them was stored"},
		{"full, then in doubt", []error{schedule.ErrFull, schedule.ErrUnavailable}, ProblemCodeUnavailable, "10", "is not known"},
		{"one accepted", []error{schedule.ErrUnavailable, nil}, "", "2", ""},
		{"one in conflict", []error{schedule.ErrUnavailable, schedule.ErrConflict}, "", "2", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.ingest.do = func(_ context.Context, p ingest.Post) (ingest.Receipt, error) {
				if err := c.errs[p.ID[0]-'0']; err != nil {
					return ingest.Receipt{}, fmt.Errorf("accept: %w", err)
				}
				return ingest.Receipt{ID: p.ID}, nil
			}
			a := r.do("POST", "/v1/events/batch", batchOf(item("0", "1"), item("1", "1")))
			if after := a.header.Get("Retry-After"); after != c.after {
				t.Errorf("Retry-After: %q, want %q", after, c.after)
			}
			if c.code == "" {
				into[BatchReceipt](t, a, 200)
				return
			}
			if p := wantProblem(t, a, c.code); !strings.Contains(p.Detail, c.says) {
				t.Errorf("got %q", p.Detail)
			}
		})
	}
}

// A conflict points at what differs, in a batch too.
func TestConflictPoints(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.ingest.do = func(context.Context, ingest.Post) (ingest.Receipt, error) {
		return ingest.Receipt{}, fmt.Errorf("accept: %w", &ingest.ConflictError{Fields: []string{"type", "occurred_at"}})
	}
	wantFirst(t, wantProblem(t, r.do("POST", "/v1/events", item("e", "1")), ProblemCodeEventConflict), "/type", "/occurred_at")
	got := into[BatchReceipt](t, r.do("POST", "/v1/events/batch", batchOf(item("e", "1"))), 200)
	wantFirst(t, got.Results[0].Problem, "/events/0/type", "/events/0/occurred_at")
}

// What is no list of events is refused whole.
func TestBatchRefusedWhole(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ok := item("e", `1`)
	for _, c := range []struct {
		name, body string
		code       ProblemCode
		pointers   []string
	}{
		{"empty", "", ProblemCodeInvalidJSON, nil},
		{"array", "[" + ok + "]", ProblemCodeInvalidJSON, nil},
		{"an event", ok, ProblemCodeInvalidField, []string{"/id"}},
		{"cut", `{"events":[` + ok, ProblemCodeInvalidJSON, nil},
		{"cut in the object", `{"events":[` + ok + `]`, ProblemCodeInvalidJSON, nil},
		{"trailing", batchOf(ok) + "x", ProblemCodeInvalidJSON, nil},
		{"two of them", batchOf(ok) + batchOf(ok), ProblemCodeInvalidJSON, nil},
		{"not JSON", `{events:[]}`, ProblemCodeInvalidJSON, nil},
		{"bad within", batchOf(ok, `{"a":01}`), ProblemCodeInvalidJSON, nil},
		{"not UTF-8", batchOf(item("e", "\"\xff\"")), ProblemCodeInvalidUTF8, nil},
		{"byte order mark", "\xef\xbb\xbf" + batchOf(ok), ProblemCodeInvalidJSON, nil},
		{"68 deep", batchOf(strings.Repeat("[", 66)), ProblemCodeInvalidJSON, nil},
		{"no list", `{"events":{}}`, ProblemCodeInvalidField, []string{"/events"}},
		{"null", `{"events":null}`, ProblemCodeInvalidField, []string{"/events"}},
		{"another name", `{"Events":[]}`, ProblemCodeInvalidField, []string{"/Events"}},
		{"twice", `{"events":[],"events":[]}`, ProblemCodeInvalidField, []string{"/events"}},
		{"nothing", `{}`, ProblemCodeInvalidRequest, []string{"/events"}},
		{"none", batchOf(), ProblemCodeInvalidRequest, []string{"/events"}},
		{"1001", batchOf(strings.Split(strings.Repeat("{} ", 1001), " ")[:1001]...), ProblemCodeInvalidRequest, []string{"/events"}},
		{"too large", `{"events":["` + strings.Repeat("x", maxBatchBody) + `"]}`, ProblemCodeBodyTooLarge, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := wantProblem(t, r.do("POST", "/v1/events/batch", c.body, "Content-Type: application/json"), c.code)
			wantFirst(t, p, c.pointers...)
		})
	}
	wantProblem(t, r.do("POST", "/v1/events/batch", batchOf(ok), "Content-Type: text/plain"), ProblemCodeUnsupportedMediaType)
	if len(r.ingest.posts) != 0 {
		t.Errorf("%d events were submitted", len(r.ingest.posts))
	}
}

// A thousand events, and a body well above what a single post may have.
func TestLargeBatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	items := make([]string, maxBatchEvents)
	data, err := json.Marshal(strings.Repeat("d", 4000))
	if err != nil {
		t.Fatal(err)
	}
	for i := range items {
		items[i] = item(fmt.Sprintf("evt_%d", i), string(data))
	}
	got := into[BatchReceipt](t, r.do("POST", "/v1/events/batch", batchOf(items...)), 200)
	if got.Accepted != maxBatchEvents || got.Results[999].ID != "evt_999" {
		t.Errorf("accepted %d, the last is %+v", got.Accepted, got.Results[999])
	}
}
