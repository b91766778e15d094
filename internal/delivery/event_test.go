package delivery

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestBodyKeepsData: every byte of data, whatever another encoder would do to it.
func TestBodyKeepsData(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]string{
		"odd key order":  `{"z":1,"a":2,"m":3}`,
		"duplicate keys": `{"a":1,"a":2,"a":{"a":1,"a":2}}`,
		"2^64":           `{"n":18446744073709551616,"m":-9223372036854775809}`,
		"309 digits":     `[` + strings.Repeat("9", 309) + `]`,
		"1.0":            `[1.0,1.10,1e0,1E+00,-0,-0.0]`,
		"escapes":        `{"s":"\u00e9\/\u003c\ud83d\ude00\u0000\n","é":"<>&\u2028"}`,
		"raw separators": "\"\u2028\u2029\"",
		"whitespace":     " {\t\"a\" :\r\n [ 1 , 2 ] } \n",
		"scalar":         `null`,
		"string":         `"just words"`,
		"deep":           strings.Repeat("[", 200) + strings.Repeat("]", 200),
		"lone surrogate": `"\ud800"`,
	} {
		e := Event{ID: "evt_1", Type: "shipment.delivered", ShipmentID: "s1", OccurredAt: "2026-11-30T12:00:00+01:00", Data: []byte(data)}
		body := e.Body()
		want := `{"type":"shipment.delivered","timestamp":"2026-11-30T12:00:00+01:00","event_id":"evt_1",` +
			`"shipment_id":"s1","attributes":{},"data":` + data + `}`
		if string(body) != want {
			t.Errorf("%s:\n got %s\nwant %s", name, body, want)
		}
		if !json.Valid(body) {
			t.Errorf("%s: not JSON", name)
		}
	}
}

// TestBodyFields come back as they were, however odd.
func TestBodyFields(t *testing.T) {
	t.Parallel()
	e := Event{
		ID: `e"1\`, Type: "a<b>&c", ShipmentID: "é\u2028\n", OccurredAt: "2026-11-30T12:00:00.000-08:00",
		Attributes: map[string]string{"b": "2", "a": `"`, "": "", "ключ": "😀"}, Data: []byte(`{}`),
	}
	var got struct {
		Type       string            `json:"type"`
		Timestamp  string            `json:"timestamp"`
		EventID    string            `json:"event_id"`
		ShipmentID string            `json:"shipment_id"`
		Attributes map[string]string `json:"attributes"`
		Data       json.RawMessage   `json:"data"`
	}
	d := json.NewDecoder(bytes.NewReader(e.Body()))
	d.DisallowUnknownFields()
	if err := d.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.Type != e.Type || got.Timestamp != e.OccurredAt || got.EventID != e.ID || got.ShipmentID != e.ShipmentID || string(got.Data) != "{}" {
		t.Errorf("%+v", got)
	}
	if diff := cmp.Diff(e.Attributes, got.Attributes); diff != "" {
		t.Error(diff)
	}
	for range 20 { // a map's order must not reach the signature
		if !bytes.Equal(e.Body(), e.Body()) {
			t.Fatal("two bodies of one event differ")
		}
	}
}

// TestBodyIsItsOwn: it shares no memory with the event's data.
func TestBodyIsItsOwn(t *testing.T) {
	t.Parallel()
	e := Event{ID: "e", Data: []byte(`{"a":1}`)}
	body := e.Body()
	e.Data[2] = 'X'
	if !bytes.Contains(body, []byte(`{"a":1}`)) {
		t.Errorf("%s", body)
	}
}

func TestNewDelivery(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	got := New("evt_1", "sub_1", at, 24*time.Hour)
	want := Delivery{
		ID: NewID("evt_1", "sub_1"), EventID: "evt_1", SubscriberID: "sub_1", State: Scheduled, Lane: Fresh,
		DueAt: at, AcceptedAt: at, ExpiresAt: at.Add(24 * time.Hour),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAttemptLimit(t *testing.T) {
	t.Parallel()
	p := DefaultPolicy()
	for _, c := range []struct{ base, budget, want int }{
		{0, 0, 15}, {15, 0, 30}, {15, 1, 16}, {0, 3, 3}, {math.MaxInt32, 2, math.MaxInt32 + 2},
	} {
		if got := (Delivery{BudgetBase: c.base, Budget: c.budget}).AttemptLimit(p); got != c.want {
			t.Errorf("base %d, budget %d: %d, want %d", c.base, c.budget, got, c.want)
		}
	}
}
