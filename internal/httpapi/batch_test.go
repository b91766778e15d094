package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

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
		if want.code != "" && (res.Problem.RequestID != a.header.Get(requestIDHeader) || res.Deliveries != nil) {
			t.Errorf("%d: got %+v", i, res)
		}
	}
	if data := string(r.ingest.posts[0].Data); data != `{"b":1,"a":2, "a":3}` {
		t.Errorf("data became %s", data)
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
		{"too deep", item("e", strings.Repeat("[", 65)+strings.Repeat("]", 65)), ProblemCodeInvalidJSON, nil},
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
