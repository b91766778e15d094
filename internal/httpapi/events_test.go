package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/ingest"
	"github.com/fanout/fanout/internal/schedule"
)

// post is a body around data.
func post(data string) string {
	return `{"type":"shipment.delivered","shipment_id":"shp_1","occurred_at":"2026-11-30T14:03:22+01:00","data":` + data + `}`
}

func TestPostEvent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.do("POST", "/v1/events", `{"id":"evt:1.a","type":"shipment.delivered","shipment_id":"shp_1",
		"occurred_at":"2026-11-30T14:03:22+01:00","attributes":{"carrier":"dhl"},"data":{"a":1}}`)
	got := into[EventReceipt](t, a, http.StatusAccepted)
	want := EventReceipt{ID: "evt:1.a", Deliveries: 2, AcceptedAt: time.UnixMilli(1764518400123).UTC()}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if loc := a.header.Get("Location"); loc != "/v1/events/evt:1.a" {
		t.Errorf("Location is %q", loc)
	}
	p := r.ingest.last(t)
	if p.ID != "evt:1.a" || p.Type != "shipment.delivered" || p.ShipmentID != "shp_1" ||
		p.OccurredAt != "2026-11-30T14:03:22+01:00" || p.Attributes["carrier"] != "dhl" {
		t.Errorf("submitted %+v", p)
	}
	if !strings.Contains(r.log.String(), `"event_id":"evt:1.a"`) {
		t.Errorf("the log does not name the event: %s", r.log)
	}
}

// Absent attributes are not empty ones: ingest tells the two apart.
func TestPostEventKeepsAbsenceApart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.do("POST", "/v1/events", post(`1`))
	if p := r.ingest.last(t); p.Attributes != nil || p.ID != "" {
		t.Errorf("absent fields became %#v, %q", p.Attributes, p.ID)
	}
	r.do("POST", "/v1/events", `{"attributes":{},`+post(`1`)[1:])
	if p := r.ingest.last(t); p.Attributes == nil {
		t.Error("empty attributes became absent")
	}
}

func TestDataIsKeptByteForByte(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for name, data := range map[string]string{
		"key order":       `{"z":1,"a":2,"m":{"y":0,"b":0}}`,
		"repeated keys":   `{"a":1,"a":2,"a":{"a":1,"a":1}}`,
		"2^64":            `{"n":18446744073709551616}`,
		"309 digits":      strings.Repeat("9", 309),
		"400 digits":      `[-` + strings.Repeat("9", 400) + `.5e-400]`,
		"1.0":             `[1.0,1.00,-0,-0.0,1e0,1E+2]`,
		"escapes":         `"\u00e9\/\u003c\n\ud83d\ude00<&>\u2028"`,
		"blanks within":   "{ \"a\" :\t[ 1 ,\r\n 2 ] }",
		"null":            `null`,
		"nulls within":    `{"a":null,"b":[null]}`,
		"false":           `false`,
		"empty string":    `""`,
		"empty object":    `{ }`,
		"not ASCII":       `{"ключ":"値 \u0000 😀"}`,
		"data in data":    `{"data":{"data":1,"data":2}}`,
		"64 deep":         strings.Repeat("[", 64) + strings.Repeat("]", 64),
		"brackets quoted": `"` + strings.Repeat("[", 200) + `\"{"`,
	} {
		a := r.do("POST", "/v1/events", post("\n  "+data+" \t"))
		if a.status != http.StatusAccepted {
			t.Errorf("%s: status %d: %s", name, a.status, a.body)
			continue
		}
		if got := string(r.ingest.last(t).Data); got != data {
			t.Errorf("%s:\n got %.200s\nwant %.200s", name, got, data)
		}
	}
}

func TestPostEventRefuses(t *testing.T) {
	t.Parallel()
	svc := ingest.New(nil, nil, ingest.Options{}) // only what it refuses without its store is asked
	r := newRig(t, func(d *Deps) { d.Ingest = svc })
	ok := post(`{"a":1}`)
	for _, c := range []struct {
		name, body string
		code       ProblemCode
		pointers   []string
	}{
		{"empty", "", ProblemCodeInvalidJSON, nil},
		{"blank", "  \n", ProblemCodeInvalidJSON, nil},
		{"byte order mark", "\xef\xbb\xbf" + ok, ProblemCodeInvalidJSON, nil},
		{"UTF-16", "\xff\xfe{\x00}\x00", ProblemCodeInvalidUTF8, nil},
		{"cut", ok[:len(ok)-1], ProblemCodeInvalidJSON, nil},
		{"cut in data", ok[:len(ok)-3], ProblemCodeInvalidJSON, nil},
		{"not JSON", `{'type':1}`, ProblemCodeInvalidJSON, nil},
		{"bad data", post(`{"a":01}`), ProblemCodeInvalidJSON, nil},
		{"bad escape in data", post(`"\x"`), ProblemCodeInvalidJSON, nil},
		{"array", `[` + ok + `]`, ProblemCodeInvalidJSON, nil},
		{"string", `"x"`, ProblemCodeInvalidJSON, nil},
		{"null", `null`, ProblemCodeInvalidJSON, nil},
		{"trailing", ok + ok, ProblemCodeInvalidJSON, nil},
		{"trailing word", ok + " x", ProblemCodeInvalidJSON, nil},
		{"65 deep", post(strings.Repeat("[", 65) + strings.Repeat("]", 65)), ProblemCodeInvalidField, []string{"/data"}},
		{"60000 deep", post(strings.Repeat(`{"a":`, 60000)), ProblemCodeInvalidField, []string{"/data"}},
		{"deep, and no field of ours", `{"a/b":` + strings.Repeat("[", 65) + `}`, ProblemCodeInvalidField, []string{"/a~1b"}},
		{"deep, and no JSON before it", `{"a":01,"data":` + strings.Repeat("[", 65) + `}`, ProblemCodeInvalidJSON, nil},
		{"deep, and no object", strings.Repeat("[", 66), ProblemCodeInvalidJSON, nil},
		{"half a pair in data", post(`["\ud800"]`), ProblemCodeInvalidField, []string{"/data"}},
		{"half a pair in a name in data", post(`{"\uDC00":1}`), ProblemCodeInvalidField, []string{"/data"}},
		{"not UTF-8 in data", post("\"\xff\""), ProblemCodeInvalidUTF8, nil},
		{"not UTF-8 in a name", `{"t` + "\xc3" + `":1}`, ProblemCodeInvalidUTF8, nil},
		{"an encoded surrogate", post("\"\xed\xa0\x80\""), ProblemCodeInvalidUTF8, nil},
		{"unknown", `{"shipment":1,` + ok[1:], ProblemCodeInvalidField, []string{"/shipment"}},
		{"another case", `{"Type":"a",` + ok[1:], ProblemCodeInvalidField, []string{"/Type"}},
		{"name to escape", `{"a/b~c":1,` + ok[1:], ProblemCodeInvalidField, []string{"/a~1b~0c"}},
		{"wrong type", `{"shipment_id":7}`, ProblemCodeInvalidField, []string{"/shipment_id"}},
		{"wrong type within", `{"attributes":{"carrier":["dhl"]},` + ok[1:], ProblemCodeInvalidField, []string{"/attributes/carrier"}},
		{"attributes are a list", `{"attributes":[],` + ok[1:], ProblemCodeInvalidField, []string{"/attributes"}},
		{"null field", `{"id":null,` + ok[1:], ProblemCodeInvalidField, []string{"/id"}},
		{"null attribute", `{"attributes":{"a":null},` + ok[1:], ProblemCodeInvalidField, []string{"/attributes/a"}},
		{"empty id", `{"id":"",` + ok[1:], ProblemCodeInvalidField, []string{"/id"}},
		{"twice", `{"type":"a.b",` + ok[1:], ProblemCodeInvalidField, []string{"/type"}},
		{"data twice", `{"data":1,` + ok[1:], ProblemCodeInvalidField, []string{"/data"}},
		{"twice, one escaped", `{"\u0074ype":"a.b",` + ok[1:], ProblemCodeInvalidField, []string{"/type"}},
		{"attribute twice", `{"attributes":{"a":"1","a":"2"},` + ok[1:], ProblemCodeInvalidField, []string{"/attributes/a"}},
		{"half a pair", `{"shipment_id":"\ud800"}`, ProblemCodeInvalidField, []string{"/shipment_id"}},
		{"missing", `{}`, ProblemCodeInvalidRequest, []string{"/type", "/shipment_id", "/occurred_at", "/data"}},
		{"too long", strings.Replace(ok, "shp_1", strings.Repeat("s", 129), 1), ProblemCodeInvalidRequest, []string{"/shipment_id"}},
		{"not a time", strings.Replace(ok, "+01:00", "", 1), ProblemCodeInvalidRequest, []string{"/occurred_at"}},
		{"data too large", post(`"` + strings.Repeat("d", 256<<10) + `"`), ProblemCodeInvalidRequest, []string{"/data"}},
		{"body too large", post(`"` + strings.Repeat("d", DefaultMaxBody) + `"`), ProblemCodeBodyTooLarge, nil},
		{"long unknown", `{"` + strings.Repeat("x", 300<<10) + `":1}`, ProblemCodeInvalidField, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := r.do("POST", "/v1/events", c.body, "Content-Type: application/json")
			p := wantProblem(t, a, c.code)
			if c.pointers != nil {
				wantFirst(t, p, c.pointers...)
			}
			if len(a.body) > 4096 {
				t.Errorf("the answer has %d bytes", len(a.body))
			}
		})
	}
}

func TestContentTypes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for header, want := range map[string]int{
		"Content-Type: application/json":                   202,
		"Content-Type: application/json; charset=utf-8":    202,
		"Content-Type: Application/JSON;charset=\"UTF-8\"": 202,
		"Content-Type: application/json; charset=latin1":   415,
		"Content-Type: text/plain":                         415,
		"Content-Type: application/x-www-form-urlencoded":  415,
		"Content-Type: application/cloudevents+json":       415,
		"Content-Type: ":             415,
		"Content-Type: ;;":           415,
		"Content-Encoding: gzip":     415,
		"Content-Encoding: identity": 202,
	} {
		a := r.do("POST", "/v1/events", post(`1`), header)
		if a.status != want {
			t.Errorf("%s: status %d, want %d", header, a.status, want)
		}
	}
}

func TestPostEventErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		err   error
		code  ProblemCode
		after string
	}{
		{"conflict", fmt.Errorf("accept event: %w", schedule.ErrConflict), ProblemCodeEventConflict, ""},
		{"full", fmt.Errorf("accept event: %w", schedule.ErrFull), ProblemCodeStorageFull, "10"},
		{"away", fmt.Errorf("accept: %w: dial tcp", schedule.ErrUnavailable), ProblemCodeUnavailable, "2"},
		{"too slow", context.DeadlineExceeded, ProblemCodeUnavailable, "2"},
		{"too many", ingest.ErrMaxFanout, ProblemCodeMaxFanoutExceeded, ""},
		{"unknown", errors.New("WRONGTYPE of key {fo:1}:secret-name"), ProblemCodeInternal, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.ingest.do = func(context.Context, ingest.Post) (ingest.Receipt, error) { return ingest.Receipt{}, c.err }
			a := r.do("POST", "/v1/events", post(`1`))
			p := wantProblem(t, a, c.code)
			if got := a.header.Get("Retry-After"); got != c.after {
				t.Errorf("Retry-After is %q, want %q", got, c.after)
			}
			if strings.Contains(a.body, "secret-name") {
				t.Errorf("an inner error got out: %s", a.body)
			}
			if log := r.log.String(); !strings.Contains(log, p.RequestID) || !strings.Contains(log, string(c.code)) {
				t.Errorf("the log cannot be found by what was answered: %s", log)
			}
		})
	}
}

func TestGetEvent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	meta, err := json.Marshal(ingest.Meta{Type: "shipment.delivered", ShipmentID: "shp_1", OccurredAt: "2026-11-30T14:03:22+01:00"})
	if err != nil {
		t.Fatal(err)
	}
	e := schedule.Event{ID: "evt_1", Meta: meta, AcceptedAt: time.UnixMilli(1764518400123), Deliveries: 1201, Open: true}
	for i := range 1201 {
		sub := fmt.Sprintf("sub_%04d", 1200-i)
		e.SubscriberIDs = append(e.SubscriberIDs, sub)
		if i == 600 {
			continue // not expanded yet
		}
		d := delivery.New("evt_1", sub, e.AcceptedAt, time.Hour)
		d.Attempts, d.LastOutcome = 2, delivery.HTTP5xx
		r.views.deliveries[d.ID] = schedule.Evidence{Delivery: d}
	}
	r.views.events["evt_1"] = e

	got := into[Event](t, r.do("GET", "/v1/events/evt_1", ""), http.StatusOK)
	if got.OccurredAt != "2026-11-30T14:03:22+01:00" || !got.Expanding || got.DeliveriesPlanned != 1201 || got.Attributes == nil {
		t.Errorf("got %+v", got)
	}
	if len(got.Deliveries) != 1200 || got.Deliveries[0].SubscriberID != "sub_0000" || got.Deliveries[1199].SubscriberID != "sub_1200" {
		t.Errorf("got %d deliveries, out of order or not all", len(got.Deliveries))
	}
	if d := got.Deliveries[0]; d.State != delivery.Scheduled || d.Attempts != 2 || d.LastOutcome != delivery.HTTP5xx {
		t.Errorf("got %+v", d)
	}
	for _, n := range r.views.asked {
		if n > viewChunk {
			t.Errorf("%d deliveries were read at once", n)
		}
	}
	for _, path := range []string{
		"/v1/events/evt_2", "/v1/events/" + strings.Repeat("e", 65), "/v1/events/a%20b", "/v1/events/%E2%98%83", "/v1/events/%2e%2e%2f",
	} {
		wantProblem(t, r.do("GET", path, ""), ProblemCodeNotFound)
	}
	r.views.err = fmt.Errorf("event: %w", schedule.ErrUnavailable)
	if a := r.do("GET", "/v1/events/evt_2", ""); wantProblem(t, a, ProblemCodeUnavailable).Code == "" || a.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}

func TestByteOrderMarkIsNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, mark := range []string{"\xef\xbb\xbf", "\xff\xfe", "\xfe\xff"} {
		a := r.do("POST", "/v1/events", mark+post(`1`))
		if !strings.Contains(a.body, "begins with a byte order mark") {
			t.Errorf("%x: %s", mark, a.body)
		}
	}
}

// Members are told apart by name, however many there are, and however a name is spelt.
func TestRepeatedNamesAreFound(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 15, 16, 17, 100} {
		for _, again := range []string{"a0", `\u00610`, fmt.Sprintf("a%d", n-1)} {
			var b strings.Builder
			for i := range n {
				fmt.Fprintf(&b, `"a%d":"x",`, i)
			}
			body := fmt.Sprintf(`{"attributes":{%s"%s":"y"}}`, b.String(), again)
			if bad, _, err := inspect([]byte(body), nil); err != nil || len(bad) != 1 {
				t.Errorf("%d members, and %q again: %v, %v", n, again, bad, err)
			}
			if bad, _, err := inspect([]byte(strings.Replace(body, again+`":"y"`, `b":"y"`, 1)), nil); n > 1 && (err != nil || len(bad) > 0) {
				t.Errorf("%d members of different names: %v, %v", n+1, bad, err)
			}
		}
	}
}
