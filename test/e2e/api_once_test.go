package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// posted is what one of many posts at the same moment was answered.
type posted struct {
	body   int // which of the bodies
	status int
	text   string
}

// volley posts an id n times at the same moment, with bodies in turn.
func (s *service) volley(id string, n, bodies int) []posted {
	s.Helper()
	var (
		wg    sync.WaitGroup
		begin = make(chan struct{})
		out   = make([]posted, n)
		errs  = make([]error, n)
	)
	for i := range n {
		wg.Go(func() {
			<-begin
			var b []byte
			out[i].body = i % bodies
			out[i].status, b, errs[i] = s.try("POST", "/v1/events", event(id, "once", fmt.Sprintf(`{"body":%d}`, i%bodies)))
			out[i].text = string(b)
		})
	}
	close(begin)
	wg.Wait()
	for _, err := range errs {
		s.ok(err)
	}
	return out
}

// Fifty posts of one id at the same moment are one event with one set of deliveries,
// and all are answered alike, but for who was first.
func TestFiftyPostsAreOneEvent(t *testing.T) {
	t.Parallel()
	s := start(t)
	e := s.endpoint(always(http.StatusOK))
	const subscribers = 5
	for range subscribers {
		s.subscribe(e.URL, "once", "")
	}
	firsts := 0
	var first receipt
	for i, p := range s.volley("the-same", 50, 1) {
		var r receipt
		if err := json.Unmarshal([]byte(p.text), &r); err != nil || p.status != http.StatusAccepted || r.Deliveries != subscribers {
			t.Fatalf("%d %s", p.status, p.text)
		}
		if !r.Duplicate {
			firsts++
		}
		if r.Duplicate = false; i == 0 {
			first = r
		}
		if r != first {
			t.Errorf("answered %+v and %+v", first, r)
		}
	}
	if firsts != 1 {
		t.Errorf("%d were the first", firsts)
	}
	if l := s.balanced(); l.Accepted != subscribers || l.Delivered != subscribers {
		t.Errorf("ledger %+v", l)
	}
	s.saw(e, subscribers)
}

// The same id with other bodies at the same moment: one body is taken, whoever brings
// it; every other one is a conflict, the first still being in flight or not.
func TestOneBodyOfManyIsTaken(t *testing.T) {
	t.Parallel()
	s := start(t)
	e := s.endpoint(always(http.StatusOK))
	s.subscribe(e.URL, "once", "")
	const rounds, bodies = 10, 5
	for round := range rounds {
		won := -1
		all := s.volley(fmt.Sprint("contended-", round), 50, bodies)
		for _, p := range all {
			if p.status == http.StatusAccepted {
				won = p.body
			}
		}
		for _, p := range all {
			switch {
			case p.body == won && p.status != http.StatusAccepted:
				t.Errorf("body %d was taken, and again it is %d %s", won, p.status, p.text)
			case p.body != won && (p.status != http.StatusConflict || !strings.Contains(p.text, "event_conflict")):
				t.Errorf("body %d was taken, and %d is %d %s", won, p.body, p.status, p.text)
			}
		}
	}
	if l := s.balanced(); l.Accepted != rounds {
		t.Errorf("ledger %+v, want %d accepted", l, rounds)
	}
	s.saw(e, rounds)
}

// A batch of a thousand with every kind of event in it: each has the fate that it
// would have alone.
func TestBatchOfEveryKind(t *testing.T) {
	t.Parallel()
	s := start(t)
	e := s.endpoint(always(http.StatusOK))
	s.subscribe(e.URL, "batch", "")
	s.post("before", "batch", `{"n":1}`)
	kinds := []struct {
		name, item string
		status     int
		duplicate  bool
		code       string
	}{
		{"new", event("new-%d", "batch", `{"n":%d}`), 202, false, ""},
		{"new, and goes to nobody", event("alone-%d", "nobody", `{"n":%d}`), 202, false, ""},
		{"without an id", strings.Replace(event("x", "batch", `{"n":%d}`), `"id":"x",`, "", 1), 202, false, ""},
		{"posted before", event("before", "batch", `{"n":1}`), 202, true, ""},
		{"of a taken id", event("before", "batch", `{"n":2}`), 409, false, "event_conflict"},
		{"of a bad type", event("bad-%d", "Batch", `1`), 422, false, "invalid_request"},
		{"of no shipment", strings.Replace(event("none-%d", "batch", `1`), "shp_1", " ", 1), 422, false, "invalid_request"},
		{"with a field too many", `{"extra":1,` + event("extra-%d", "batch", `1`)[1:], 400, false, "invalid_field"},
		{"with a field twice", `{"type":"batch",` + event("twice-%d", "batch", `1`)[1:], 400, false, "invalid_field"},
		{"with a wrong type", strings.Replace(event("wrong-%d", "batch", `1`), `"shp_1"`, `[1]`, 1), 400, false, "invalid_field"},
		{"with half a pair", strings.Replace(event("half-%d", "batch", `1`), "shp_1", `\ud800`, 1), 400, false, "invalid_field"},
		{"no object", `[%d]`, 400, false, "invalid_field"},
		{"null", `null`, 400, false, "invalid_field"},
		{"without data", `{"id":"no-data-%d","type":"batch","shipment_id":"s","occurred_at":"2026-11-30T12:00:00Z"}`, 422, false, "invalid_request"},
	}
	const size = 1000
	items := make([]string, size)
	for i := range items {
		items[i] = strings.ReplaceAll(kinds[i%len(kinds)].item, "%d", fmt.Sprint(i))
	}
	items[size-1] = strings.ReplaceAll(kinds[0].item, "%d", "0") // the first one once more
	var got struct {
		Accepted, Duplicates, Refused int
		Results                       []struct {
			Index, Status int
			ID            string
			Duplicate     bool
			Problem       struct {
				Code   string
				Errors []struct{ Pointer string }
			}
		}
	}
	s.call("POST", "/v1/events/batch", `{"events":[`+strings.Join(items, ",")+`]}`, http.StatusOK, &got)
	counts := map[bool]int{}
	delivered, refused := 1, 0 // the one before
	for i, r := range got.Results[:size-1] {
		k := kinds[i%len(kinds)]
		if r.Index != i || r.Status != k.status || r.Duplicate != k.duplicate || r.Problem.Code != k.code {
			t.Errorf("one %s: %+v", k.name, r)
		}
		for _, e := range r.Problem.Errors {
			if !strings.HasPrefix(e.Pointer, fmt.Sprintf("/events/%d", i)) {
				t.Errorf("one %s: the pointer %s", k.name, e.Pointer)
			}
		}
		switch {
		case k.status >= 400:
			refused++
		default:
			counts[k.duplicate]++
			if i%len(kinds) == 0 || i%len(kinds) == 2 {
				delivered++
			}
		}
	}
	if last := got.Results[size-1]; last.Status != 202 || !last.Duplicate {
		t.Errorf("the first one again, within the batch: %+v", last)
	}
	if got.Accepted != counts[false] || got.Duplicates != counts[true]+1 || got.Refused != refused {
		t.Errorf("%d accepted, %d duplicates, %d refused; want %v and %d", got.Accepted, got.Duplicates, got.Refused, counts, refused)
	}
	if l := s.balanced(); int(l.Delivered) != delivered || l.Accepted != l.Delivered {
		t.Errorf("ledger %+v, want %d delivered", l, delivered)
	}
	s.saw(e, delivered)
}
