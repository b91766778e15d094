package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// answered is a status and a body.
type answered struct {
	status int
	body   []byte
}

// postAtOnce posts bodies at the same moment.
func (s *service) postAtOnce(bodies []string) []answered {
	s.Helper()
	out := make([]answered, len(bodies))
	errs := make([]error, len(bodies))
	begin := make(chan struct{})
	var wg sync.WaitGroup
	for i, body := range bodies {
		wg.Go(func() {
			<-begin
			out[i].status, out[i].body, errs[i] = s.try("POST", "/v1/events", body)
		})
	}
	close(begin)
	wg.Wait()
	for _, err := range errs {
		s.ok(err)
	}
	return out
}

// One event id posted 50 times at once is one event: one delivery per subscriber,
// and the same answer to all.
func TestSameEventPostedAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	var all []*endpoint
	for range 3 {
		e := s.endpoint(always(http.StatusOK))
		all = append(all, e)
		s.subscribe(e.URL, "same", quick)
	}
	bodies := make([]string, 50)
	for i := range bodies {
		bodies[i] = event("same", "same", `{"n":1}`)
	}
	firsts := 0
	var one receipt
	for i, a := range s.postAtOnce(bodies) {
		var r receipt
		s.ok(json.Unmarshal(a.body, &r))
		if !r.Duplicate {
			firsts++
		}
		r.Duplicate = false
		if i == 0 {
			one = r
		}
		if a.status != http.StatusAccepted || r != one || r.Deliveries != 3 {
			t.Errorf("answered %d: %s, and another time %+v", a.status, a.body, one)
		}
	}
	if firsts != 1 {
		t.Errorf("%d posts were told that they were the first", firsts)
	}
	if l := s.balanced(); l.Accepted != 3 || l.Delivered != 3 {
		t.Errorf("ledger %+v, want 3 delivered", l)
	}
	for _, e := range all {
		s.saw(e, 1)
	}
}

// The same id with another body is a conflict, and the first one is untouched:
// afterwards, in the middle of things, and in a race.
func TestSameIDOtherBody(t *testing.T) {
	t.Parallel()
	s := start(t)
	open := make(gate)
	e := s.endpoint(held(open, always(http.StatusOK)))
	s.subscribe(e.URL, "conflict", quick)
	conflict := func(a answered) bool {
		return a.status == http.StatusConflict && bytes.Contains(a.body, []byte(`"event_conflict"`))
	}
	other := func(id, data string) {
		t.Helper()
		status, body := s.do("POST", "/v1/events", event(id, "conflict", data))
		if !conflict(answered{status, body}) {
			t.Errorf("%s with %s was answered %d: %s", id, data, status, body)
		}
	}
	s.post("first", "conflict", `{"n":1}`)
	s.await(e, 1) // its request is out
	other("first", `{"n":2}`)
	other("first", `{"n": 1}`) // it is the bytes that count
	status, body := s.do("POST", "/v1/events", strings.Replace(event("first", "conflict", `{"n":1}`), "shp_1", "shp_2", 1))
	if !conflict(answered{status, body}) {
		t.Errorf("another shipment was answered %d: %s", status, body)
	}
	close(open)
	s.delivery("first", "delivered")
	other("first", `{"n":2}`)
	if r := s.post("first", "conflict", `{"n":1}`); !r.Duplicate || r.Deliveries != 1 {
		t.Errorf("the first post again: %+v", r)
	}

	bodies := make([]string, 50)
	for i := range bodies {
		bodies[i] = event("race", "conflict", fmt.Sprintf(`{"side":%d}`, i%2))
	}
	won, lost := map[int]int{}, map[int]int{}
	for i, a := range s.postAtOnce(bodies) {
		switch {
		case a.status == http.StatusAccepted:
			won[i%2]++
		case conflict(a):
			lost[i%2]++
		default:
			t.Errorf("answered %d: %s", a.status, a.body)
		}
	}
	winner := 0
	if won[1] > 0 {
		winner = 1
	}
	if won[winner] != 25 || lost[1-winner] != 25 {
		t.Errorf("accepted %v, refused %v: want all of one body and none of the other", won, lost)
	}
	s.delivery("race", "delivered")
	log := s.saw(e, 2)
	for i, want := range []string{`"data":{"n":1}}`, fmt.Sprintf(`"data":{"side":%d}}`, winner)} {
		if !bytes.HasSuffix(log[i].body, []byte(want)) {
			t.Errorf("received %s, want %s", log[i].body, want)
		}
	}
	s.balanced()
}

// An event that matches nobody is accepted, and can be seen to have matched nobody.
func TestEventMatchesNobody(t *testing.T) {
	t.Parallel()
	s := start(t)
	e := s.endpoint(always(http.StatusOK))
	s.subscribe(e.URL, "somebody", quick)
	if r := s.post("nobody", "shipment.lost", `{}`); r.Deliveries != 0 || r.Duplicate {
		t.Errorf("answered %+v, want no deliveries", r)
	}
	if r := s.post("nobody", "shipment.lost", `{}`); r.Deliveries != 0 || !r.Duplicate {
		t.Errorf("answered %+v the second time", r)
	}
	var got struct {
		ID         string `json:"id"`
		Type       string `json:"type"`
		Expanding  bool   `json:"expanding"`
		Planned    *int   `json:"deliveries_planned"`
		Deliveries *[]any `json:"deliveries"`
	}
	s.call("GET", "/v1/events/nobody", "", http.StatusOK, &got)
	if got.ID != "nobody" || got.Type != "shipment.lost" || got.Expanding ||
		got.Planned == nil || *got.Planned != 0 || got.Deliveries == nil || len(*got.Deliveries) != 0 {
		t.Errorf("seen as %+v", got)
	}
	// Nobody who comes later gets it either.
	s.subscribe(e.URL, "shipment.*", quick)
	s.marker("nobody")
	s.saw(e, 0)
	if l := s.balanced(); l.Accepted != 1 {
		t.Errorf("ledger %+v, want the marker alone", l)
	}
}

// The receiver gets the data byte for byte, whatever JSON it is, and the official
// library verifies it.
func TestDataArrivesByteForByte(t *testing.T) {
	t.Parallel()
	s := start(t)
	e := s.endpoint(always(http.StatusOK))
	sub := s.subscribe(e.URL, "bytes", quick)
	want := map[string]string{}
	for i, data := range []string{
		`{"z":1,"a":2,"m":3}`,
		`{"a":1,"a":2,"a":{"b":1,"b":1}}`,
		`18446744073709551616`,
		`[18446744073709551615,9007199254740993,-9223372036854775809]`,
		strings.Repeat("1234567890", 31)[:309],
		`-0`,
		`[1.0,1.50,1e0,1E+2,0.1000000000000000055511151231257827,1e400,-0.0]`,
		`"<script>&\u003cb\u003e \/ \u00e9 é \ud83d\ude00 😀 \u2028"`,
		"\"\u2028\u2029\u007f\"",
		`"\\ud800 is no escape"`,
		`"\u0000\b\f\n\r\t\"\\"`,
		"{ \"a\" :\t[ 1 , 2\r\n ]\n, \"b\":{ } ,\"\":[ ]}",
		`{"":"","a.b":null,"__proto__":{},"type":"x","data":{"data":1}}`,
		`null`, `true`, `""`, `[]`, `{}`, `0`,
		strings.Repeat("[", 64) + strings.Repeat("]", 64),
		`"` + strings.Repeat("é", 100_000) + `"`,
	} {
		id := fmt.Sprint("bytes-", i)
		s.post(id, "bytes", data)
		want[s.delivery(id, "delivered").ID] = data
	}
	for _, r := range s.saw(e, len(want)) {
		data := want[r.id()]
		if !bytes.HasSuffix(r.body, []byte(`,"data":`+data+`}`)) {
			t.Errorf("received %.300s, want the data %.300s", r.body, data)
		}
		var parsed struct{ Data json.RawMessage }
		if err := json.Unmarshal(r.body, &parsed); err != nil || string(parsed.Data) != data {
			t.Errorf("a receiver reads %.300s of %.300s: %v", parsed.Data, data, err)
		}
		if err := r.verify(sub.Secret); err != nil {
			t.Errorf("%.300s: %v", data, err)
		}
	}
	s.balanced()
}
