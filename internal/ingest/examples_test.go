package ingest

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

// The example events that the demo posts: real enough, all acceptable, and with
// the traits that a receiver must cope with.
func TestExampleEvents(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("../../examples/shipments.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSuffix(file, []byte("\n")), []byte("\n"))
	b := setup(t, 2, Options{})
	var (
		types, carriers, offsets, shipments = map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
		latest                              = map[string]time.Time{}
		duplicates, late                    int
	)
	for i, line := range lines {
		var in struct {
			ID         string            `json:"id"`
			Type       string            `json:"type"`
			ShipmentID string            `json:"shipment_id"`
			OccurredAt string            `json:"occurred_at"`
			Attributes map[string]string `json:"attributes"`
			Data       json.RawMessage   `json:"data"`
		}
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&in); err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
		r, err := b.Submit(t.Context(), Post(in))
		if err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
		at, err := time.Parse(time.RFC3339, in.OccurredAt)
		if err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
		switch {
		case r.Duplicate:
			duplicates++
		case at.Before(latest[in.ShipmentID]):
			late++
		default:
			latest[in.ShipmentID] = at
		}
		types[in.Type], carriers[in.Attributes["carrier"]], shipments[in.ShipmentID] = true, true, true
		offsets[in.OccurredAt[max(0, len(in.OccurredAt)-6):]] = true
		if strings.HasSuffix(in.OccurredAt, "Z") {
			offsets["Z"] = true
		}
		for _, key := range []string{"carrier", "seller_id", "country", "service"} {
			if in.Attributes[key] == "" {
				t.Errorf("line %d has no %s", i+1, key)
			}
		}
	}
	if len(lines) < 60 || duplicates != 1 || late < 5 {
		t.Errorf("%d lines, %d repeats, %d out of order", len(lines), duplicates, late)
	}
	if len(types) != 9 || len(carriers) < 4 || len(shipments) != 12 {
		t.Errorf("types %v, carriers %v, %d shipments", types, carriers, len(shipments))
	}
	for _, offset := range []string{"Z", "+01:00", "+09:00"} {
		if !offsets[offset] {
			t.Errorf("no event by a clock at %s", offset)
		}
	}
}
