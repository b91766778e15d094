package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fanout/fanout/internal/delivery"
)

// What goes over the wire is what everybody else posts too.
func TestEventHasItsSizeOnTheWire(t *testing.T) {
	t.Parallel()
	var in struct {
		ID         string          `json:"id"`
		Type       string          `json:"type"`
		ShipmentID string          `json:"shipment_id"`
		OccurredAt string          `json:"occurred_at"`
		Data       json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(event("bench.fifty", "evt_1"), &in); err != nil {
		t.Fatal(err)
	}
	e := delivery.Event{ID: in.ID, Type: in.Type, ShipmentID: in.ShipmentID, OccurredAt: in.OccurredAt, Data: in.Data}
	if n := len(e.Body()); n != bodySize {
		t.Errorf("%d bytes, want %d", n, bodySize)
	}
}

func TestFiguresAreOfTheRoundsThatWereNotDisturbed(t *testing.T) {
	t.Parallel()
	b := bench{}
	for _, s := range []sample{
		{Rate: 40, Ceiling: 100}, {Rate: 90, Ceiling: 100, Disturbed: true}, {Rate: 50, Ceiling: 100}, {Rate: 60, Ceiling: 100},
	} {
		b.took.begin()
		s.CPU = usage{"api": 0.1, "sink": 0.05}
		b.took.add("fanout-everysec", s)
		b.took.add("asynq-everysec", sample{Rate: s.Rate / 4, Ceiling: 50})
	}
	line := strings.Join(b.lastLine(), " ")
	if want := "ratio_ceiling=0.500 ratio_asynq=2.00 cpu_ms_per_delivery=0.150"; line != want {
		t.Errorf("%s\nwant %s", line, want)
	}
	b.took = results{}
	b.took.begin()
	b.took.add("fanout-everysec", sample{Rate: 9, Ceiling: 10, Disturbed: true})
	if got := b.took.share("fanout-everysec"); len(got) != 1 {
		t.Errorf("%v: what is all there is counts", got)
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		values []float64
		q      float64
		want   float64
	}{{nil, 0.5, 0}, {[]float64{7}, 0.99, 7}, {[]float64{3, 1, 2}, 0.5, 2}, {[]float64{5, 4, 3, 2, 1}, 0.99, 5}} {
		if got := quantile(tt.values, tt.q); got != tt.want {
			t.Errorf("quantile %v of %v is %v, want %v", tt.q, tt.values, got, tt.want)
		}
	}
}
