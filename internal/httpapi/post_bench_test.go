package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/ingest"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
)

// benchStore answers at once and keeps nothing: what is left is what this process
// spends on a post before it talks to Redis.
type benchStore struct{ at time.Time }

func (benchStore) Partitions() int           { return 4 }
func (benchStore) PartitionOf(id string) int { return int(delivery.Hash16(id)) % 4 }
func (benchStore) Plan(context.Context, string) (schedule.Plan, error) {
	return schedule.Plan{}, nil
}
func (benchStore) Strike(context.Context, string, ...int) (bool, error) { return false, nil }
func (benchStore) ClaimOpen(context.Context, int, int, time.Duration) ([]schedule.Plan, error) {
	return nil, nil
}

func (s benchStore) Accept(_ context.Context, e schedule.NewEvent) (schedule.Accepted, error) {
	return schedule.Accepted{At: s.at, Deliveries: len(e.Targets), Open: true}, nil
}

func (benchStore) Event(context.Context, string) (schedule.Event, error) {
	return schedule.Event{}, schedule.ErrNotFound
}

func (benchStore) Enqueue(context.Context, string, time.Time, time.Time, int, []schedule.Target) error {
	return nil
}

// benchDirectory is ten subscribers who want everything.
type benchDirectory []*subscriber.Subscriber

func (benchDirectory) Refresh(context.Context) error                   { return nil }
func (d benchDirectory) Match(delivery.Event) []*subscriber.Subscriber { return d }

// benchPosts are the shapes of a post: as small as it gets, and as a carrier's
// integration sends it.
var benchPosts = map[string]string{
	"plain": `{"id":"evt_1","type":"shipment.delivered","shipment_id":"shp_1","occurred_at":"2026-03-01T09:30:00Z","data":"` +
		strings.Repeat("x", 360) + `"}`,
	"full": `{"id":"evt_1","type":"shipment.out_for_delivery","shipment_id":"shp_8842119",` +
		`"occurred_at":"2026-03-01T09:30:00.250+01:00","attributes":{"carrier":"dhl","country":"DE","seller":"s-1234"},` +
		`"data":{"stops_left":7,"driver":{"name":"J\u00fcrgen","phone":null},"window":["14:00","16:00"],` +
		`"parcels":[{"weight_g":1200,"size":"m"},{"weight_g":350,"size":"s"}],"note":"` + strings.Repeat("leave at door ", 12) + `"}}`,
}

// BenchmarkPost is one POST /v1/events at a fan-out of 10 through every middleware,
// over a store that answers at once: no socket, no Redis.
func BenchmarkPost(b *testing.B) {
	dir := make(benchDirectory, 10)
	for i := range dir {
		dir[i] = &subscriber.Subscriber{ID: fmt.Sprintf("sub_%026d", i), Policy: delivery.DefaultPolicy()}
	}
	quiet := slog.New(slog.DiscardHandler)
	for name, post := range benchPosts {
		b.Run(name, func(b *testing.B) {
			in := ingest.New(benchStore{time.Now()}, dir, ingest.Options{Logger: quiet})
			h := New(Deps{Ingest: in, Logger: quiet})
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest(http.MethodPost, "/v1/events", strings.NewReader(post))
				r.Host = "127.0.0.1:8080"
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code != http.StatusAccepted {
					b.Fatalf("status %d: %s", w.Code, w.Body)
				}
			}
		})
	}
}

// BenchmarkPostSetup is what BenchmarkPost spends on the request and the recorder
// themselves: take it off.
func BenchmarkPostSetup(b *testing.B) {
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, "/v1/events", strings.NewReader(benchPosts["plain"]))
		r.Host = "127.0.0.1:8080"
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
}

// BenchmarkDecode is the strict reading of a post's body.
func BenchmarkDecode(b *testing.B) {
	for name, post := range benchPosts {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodPost, "/v1/events", http.NoBody)
			r.Header.Set("Content-Type", "application/json")
			b.SetBytes(int64(len(post)))
			b.ReportAllocs()
			for b.Loop() {
				r.Body = io.NopCloser(bytes.NewReader([]byte(post)))
				var in EventInput
				if err := decode(r, &in, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
