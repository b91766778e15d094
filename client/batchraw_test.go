package client

import (
	"encoding/json"
	"net/http"
	"testing"
)

// A raw event arrives as it was written, and one that cannot be sent keeps no other.
func TestBatchRawIsByteForByte(t *testing.T) {
	t.Parallel()
	const odd = `{ "id":"a",  "occurred_at":"2026-03-01T09:30:00.500+00:00", "data": {"z":1.0,"a":"\u003c"}}`
	var got []json.RawMessage
	f := serve(t, cut, func(w http.ResponseWriter, r *http.Request, body []byte) {
		var in struct{ Events []json.RawMessage }
		if err := json.Unmarshal(body, &in); err != nil {
			t.Errorf("%v: %s", err, body)
		}
		got = in.Events
		batchStep(func(_ string, i int) BatchItem {
			if i > 0 {
				return failed(400, "invalid_field", "/events/1/id")
			}
			return BatchItem{Status: 202}
		})(w, r, []byte(`{"events":[{"id":"a"},{"id":""}]}`))
	})
	r, err := fast(t, f.URL).PostBatchRaw(t.Context(), []json.RawMessage{
		json.RawMessage(`{"type":"a.b"}`), json.RawMessage(odd), json.RawMessage(`not JSON`), json.RawMessage(`{"id":7}`),
		json.RawMessage("{\"id\":\"b\",\"data\":\"\xff\"}"), // alone it would spoil the request
	})
	if err != nil || r.Accepted != 1 || r.Refused != 4 {
		t.Fatalf("%v, %+v", err, r)
	}
	if len(got) != 2 || string(got[0]) != odd || string(got[1]) != `{"id":7}` {
		t.Errorf("sent %s", got)
	}
	if p := r.Results[0].Problem; p == nil || p.Errors[0].Pointer != "/id" {
		t.Errorf("without an id: %+v", r.Results[0])
	}
	if p := r.Results[4].Problem; p == nil || p.Errors[0].Detail != notUTF8 {
		t.Errorf("not UTF-8: %+v", r.Results[4])
	}
	if r.Results[1].ID != "a" || r.Results[3].Index != 3 || r.Results[3].Problem.Errors[0].Pointer != "/id" {
		t.Errorf("%+v", r.Results)
	}
}
