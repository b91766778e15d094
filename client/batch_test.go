package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// batchStep answers each event of a batch by a function of its id.
func batchStep(of func(id string, index int) BatchItem) step {
	return func(w http.ResponseWriter, _ *http.Request, body []byte) {
		var in struct{ Events []struct{ ID string } }
		if err := json.Unmarshal(body, &in); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		var out struct {
			Results []BatchItem `json:"results"`
		}
		for i, e := range in.Events {
			item := of(e.ID, i)
			item.Index, item.ID = i, e.ID
			out.Results = append(out.Results, item)
		}
		_ = json.NewEncoder(w).Encode(out)
	}
}

func taken(string, int) BatchItem { return BatchItem{Status: 202, Deliveries: 2} }

func failed(code int, name, pointer string) BatchItem {
	return BatchItem{Status: code, Problem: &Problem{Status: code, Code: name, Detail: "No.", Errors: []FieldProblem{{Pointer: pointer, Detail: "bad"}}}}
}

// Each event has its own fate; one that could not be taken for now is sent again, by
// itself and with its id.
func TestBatchItemsHaveTheirOwnFate(t *testing.T) {
	t.Parallel()
	f := serve(
		t, cut,
		batchStep(func(id string, i int) BatchItem {
			switch id {
			case "bad":
				return failed(422, "invalid_request", fmt.Sprintf("/events/%d/type", i))
			case "taken":
				return failed(409, "event_conflict", "")
			case "later":
				return failed(503, "unavailable", "")
			case "dup":
				return BatchItem{Status: 202, Duplicate: true}
			}
			return taken(id, i)
		}),
		batchStep(taken),
	)
	unset := event("unset")
	unset.OccurredAt = time.Time{}
	r, err := fast(t, f.URL).PostBatch(t.Context(), []Event{event("ok"), unset, event("bad"), event("taken"), event("later"), event("dup"), event("")})
	if err != nil || r.Accepted != 3 || r.Duplicates != 1 || r.Refused != 3 || len(r.Results) != 7 {
		t.Fatalf("%+v, %v", r, err)
	}
	for i, want := range []int{202, 422, 422, 409, 202, 202, 202} {
		if r.Results[i].Index != i || r.Results[i].Status != want {
			t.Errorf("event %d: %+v, want %d", i, r.Results[i], want)
		}
	}
	if p := r.Results[2].Problem; p.Errors[0].Pointer != "/type" || !errors.Is(p, ErrInvalid) {
		t.Errorf("%+v", p)
	}
	all := f.requests()
	if len(all) != 3 || all[0].body != all[1].body || strings.Contains(all[0].body, "unset") || strings.Count(all[2].body, `"id":`) != 1 || !strings.Contains(all[2].body, `"later"`) {
		t.Errorf("asked %+v", all)
	}
	if id := r.Results[6].ID; !strings.HasPrefix(id, "evt_") || !strings.Contains(all[0].body, id) {
		t.Errorf("made the id %q", id)
	}
}

// Requests are cut by number and by size.
func TestBatchIsCut(t *testing.T) {
	t.Parallel()
	f := serve(t, batchStep(taken))
	c := fast(t, f.URL)
	many := make([]Event, 2500)
	for i := range many {
		many[i] = event("")
	}
	r, err := c.PostBatch(t.Context(), many)
	if err != nil || r.Accepted != 2500 {
		t.Fatalf("%d accepted, %v", r.Accepted, err)
	}
	for i, want := range []int{1000, 1000, 500} {
		if n := strings.Count(f.requests()[i].body, `"id":`); n != want {
			t.Errorf("request %d has %d events, want %d", i, n, want)
		}
	}

	f = serve(t, batchStep(taken))
	large := make([]Event, 70)
	for i := range large {
		large[i] = event("")
		large[i].Data = strings.Repeat("x", 256<<10-2)
	}
	if r, err = fast(t, f.URL).PostBatch(t.Context(), large); err != nil || r.Accepted != 70 {
		t.Fatalf("%d accepted, %v", r.Accepted, err)
	}
	if n := len(f.requests()); n != 3 {
		t.Errorf("%d requests of 70 events of 256 KiB", n)
	}
	for _, a := range f.requests() {
		if len(a.body) > maxBatchBytes {
			t.Errorf("a request of %d bytes", len(a.body))
		}
	}
	if r, err := c.PostBatch(t.Context(), nil); err != nil || len(r.Results) != 0 {
		t.Errorf("none: %+v, %v", r, err)
	}
}

// A request that fails altogether leaves what came before it good, and says which
// events are in doubt.
func TestBatchInDoubt(t *testing.T) {
	t.Parallel()
	f := serve(t, batchStep(taken), status(503, "unavailable"))
	many := make([]Event, 1500)
	for i := range many {
		many[i] = event("")
	}
	r, err := fast(t, f.URL, WithRetries(2)).PostBatch(t.Context(), many)
	if !errors.Is(err, ErrUnavailable) || r.Accepted != 1000 || r.Refused != 0 || len(f.requests()) != 4 {
		t.Fatalf("%d accepted by %d requests, %v", r.Accepted, len(f.requests()), err)
	}
	if item := r.Results[1000]; item.Status != 0 || item.ID == "" {
		t.Errorf("in doubt: %+v", item)
	}

	f = serve(t, batchStep(func(string, int) BatchItem { return failed(503, "unavailable", "") }))
	r, err = fast(t, f.URL, WithRetries(2)).PostBatch(t.Context(), many[:2])
	if !errors.Is(err, ErrUnavailable) || len(f.requests()) != 3 || r.Refused != 0 || r.Results[1].Status != 503 {
		t.Errorf("%d requests, %+v, %v", len(f.requests()), r, err)
	}

	for name, s := range map[string]step{
		"too few": text(200, `{"results":[]}`), "out of place": text(200, `{"results":[{"index":1,"status":202}]}`), "none": text(200, `x`),
	} {
		if _, err := fast(t, serve(t, s).URL).PostBatch(t.Context(), many[:1]); !errors.Is(err, ErrAnswer) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWhatTakesLongerIsGivenLonger: a batch and a redrive's preview may take the server
// longer than a post, and are not cut off for it.
func TestWhatTakesLongerIsGivenLonger(t *testing.T) {
	t.Parallel()
	const most = 100 * time.Millisecond
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-time.After(3 * most):
		case <-r.Context().Done():
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"results":[{"index":0,"status":202,"id":"e1"}]}`)
	}))
	t.Cleanup(slow.Close)
	c := fast(t, slow.URL, WithAttemptTimeout(most), WithRetries(0))
	if r, err := c.PostBatch(t.Context(), []Event{event("e1")}); err != nil || r.Accepted != 1 {
		t.Errorf("a batch: %+v, %v", r, err)
	}
	if _, err := c.PreviewRedrive(t.Context(), RedriveOrder{Reason: "it was down"}); err != nil {
		t.Errorf("a preview: %v", err)
	}
	if _, err := c.Post(t.Context(), event("e1")); !errors.Is(err, ErrUnavailable) {
		t.Errorf("a post: %v", err)
	}
}
