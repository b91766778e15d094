package ingest

import (
	"strings"
	"testing"
)

// benchPost is as a carrier's integration sends it.
var benchPost = Post{
	ID: "evt_1", Type: "shipment.out_for_delivery", ShipmentID: "shp_8842119", OccurredAt: "2026-03-01T09:30:00.250+01:00",
	Attributes: map[string]string{"carrier": "dhl", "country": "DE", "seller": "s-1234"},
	Data: []byte(`{"stops_left":7,"driver":{"name":"J\u00fcrgen","phone":null},"window":["14:00","16:00"],` +
		`"parcels":[{"weight_g":1200,"size":"m"},{"weight_g":350,"size":"s"}],"note":"` + strings.Repeat("leave at door ", 12) + `"}`),
}

func BenchmarkValidate(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if bad := benchPost.problems(true); len(bad) > 0 {
			b.Fatal(bad)
		}
	}
}

func BenchmarkHash(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		benchPost.hash()
	}
}

func BenchmarkMeta(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		benchPost.meta()
	}
}

// BenchmarkBody is the making of what every attempt will send.
func BenchmarkBody(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		benchPost.event().Body()
	}
}
