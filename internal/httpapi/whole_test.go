package httpapi

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/ingest"
	"github.com/fanout/fanout/internal/oncall"
	"github.com/fanout/fanout/internal/redrive"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/subscriber/subtest"
	"github.com/fanout/fanout/test/redistest"
)

// whole is the API over the real packages and a Redis stand-in.
func whole(t *testing.T) (r *rig, engine *schedule.Engine, stopRedis func()) {
	t.Helper()
	mini := redistest.Mini(t)
	rdb := redistest.Client(t, mini.Addr())
	engine, err := schedule.Open(t.Context(), rdb, schedule.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r = &rig{t: t, log: &syncBuffer{}}
	log := slog.New(slog.NewJSONHandler(r.log, nil))
	reg := prometheus.NewRegistry()
	look, err := oncall.New(engine, oncall.Options{
		Classes: map[string]time.Duration{"standard": time.Minute}, Every: 50 * time.Millisecond, Registerer: reg,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = look.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	subs := subscriber.New(engine, subtest.AnyURL{}, nil, engine.Now)
	redrives := redrive.New(rdb, engine, redrive.Options{
		Every: 20 * time.Millisecond, Classes: map[string]time.Duration{"standard": time.Minute},
		ClassOf: func(ctx context.Context, id string) (string, error) {
			sub, err := subs.Get(ctx, id)
			return sub.Class, err
		},
	})
	moved := make(chan struct{})
	go func() { defer close(moved); _ = redrives.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-moved })
	r.serve(New(Deps{
		Ingest:      ingest.New(engine, subscriber.NewDirectory(engine), ingest.Options{Logger: log}),
		Subscribers: subs, Redrives: redrives,
		Views: engine, Deliveries: engine,
		OnCallJSON: look.JSON(), OnCallPage: look.Page(), OnCallEvents: look.Events(),
		Metrics: promhttp.HandlerFor(reg, promhttp.HandlerOpts{EnableOpenMetrics: true}),
		Ready:   engine.Ping, Logger: log,
	}), log)
	return r, engine, mini.Close
}

// One event's way, as the API shows it, with every package behind it real.
func TestWholeRoad(t *testing.T) {
	t.Parallel()
	r, engine, stopRedis := whole(t)
	sub := r.create(`{"url":"https://a.example/","filter":{"types":["shipment.*"]},"policy":{"max_attempts":1}}`)
	body := `{"id":"evt_1",` + post(`{"b":1,"a":18446744073709551616,"b":2}`)[1:]

	first := into[EventReceipt](t, r.do("POST", "/v1/events", body), 202)
	if first.Deliveries != 1 || first.Duplicate {
		t.Errorf("accepted as %+v", first)
	}
	if again := into[EventReceipt](t, r.do("POST", "/v1/events", body), 202); !again.Duplicate || again.AcceptedAt != first.AcceptedAt {
		t.Errorf("posted again: %+v, want %+v and duplicate", again, first)
	}
	wantProblem(t, r.do("POST", "/v1/events", strings.Replace(body, `"b":2`, `"b": 2`, 1)), ProblemCodeEventConflict)

	event := into[Event](t, r.do("GET", "/v1/events/evt_1", ""), 200)
	id := delivery.NewID("evt_1", sub.ID)
	if len(event.Deliveries) != 1 || event.Deliveries[0].ID != id || event.Deliveries[0].State != delivery.Scheduled {
		t.Fatalf("got %+v", event)
	}
	settle(t, engine, sub.ID, 1, schedule.Verdict{
		Outcome: delivery.HTTP404, Status: 404, Decision: delivery.Decision{Next: delivery.Dead, Reason: delivery.HTTP404},
	})
	got := into[Delivery](t, r.do("GET", "/v1/deliveries/"+id, ""), 200)
	if got.State != delivery.Dead || got.Attempts != 1 || got.LastOutcome != delivery.HTTP404 || len(got.Evidence) != 1 {
		t.Errorf("got %+v", got)
	}
	dead := into[DeadLetterList](t, r.do("GET", "/v1/dead-letters", ""), 200)
	if len(dead.Data) != 1 || dead.Data[0].Reason != delivery.HTTP404 || dead.Data[0].Delivery.ID != id {
		t.Errorf("got %+v", dead)
	}

	var look OnCall
	for look.DeadLetters == 0 || len(look.LastFailures) == 0 { // the next samples will have it
		if a := r.do("GET", "/v1/oncall", ""); a.status == 200 {
			look = into[OnCall](t, a, 200)
		}
	}
	if !look.Ledger.Balanced || look.Ledger.Dead != 1 || look.LastFailures[0].DeliveryID != id {
		t.Errorf("on-call sees %+v", look)
	}
	for path, want := range map[string]string{
		"/oncall": "<html", "/oncall/static/oncall.css": "{", "/oncall/static/oncall.js": "EventSource", "/oncall/static/icon.svg": "<svg",
		"/metrics": "fanout_", "/readyz": "ok",
	} {
		if a := r.do("GET", path, ""); a.status != 200 || !strings.Contains(a.body, want) {
			t.Errorf("%s: %d %.200s", path, a.status, a.body)
		}
	}
	if a := r.do("GET", "/metrics", "", "Accept: application/openmetrics-text"); !strings.HasSuffix(a.body, "# EOF\n") {
		t.Error("no OpenMetrics")
	}
	if a := r.do("GET", "/oncall/static/oncall.css", "", "Range: bytes=5-1"); a.status != 200 {
		t.Errorf("an odd range: %d %s", a.status, a.body)
	}
	etag := r.do("GET", "/oncall/static/oncall.css", "").header.Get("ETag")
	if a := r.do("GET", "/oncall/static/oncall.css", "", "If-None-Match: "+etag); a.status != http.StatusNotModified {
		t.Errorf("the same file again: %d", a.status)
	}
	wantProblem(t, r.do("GET", "/oncall/static/none.css", ""), ProblemCodeNotFound)
	if got := into[SubscriberDeleted](t, r.do("DELETE", "/v1/subscribers/"+sub.ID, ""), 200); got.Leases != 0 {
		t.Errorf("deleted: %+v", got)
	}

	stopRedis()
	for _, c := range [][3]string{
		{"GET", "/readyz", ""},
		{"POST", "/v1/events", body},
		{"GET", "/v1/events/evt_1", ""},
		{"GET", "/v1/deliveries/" + id, ""},
		{"GET", "/v1/dead-letters", ""},
		{"GET", "/v1/subscribers", ""},
	} {
		if a := r.do(c[0], c[1], c[2]); wantProblem(t, a, ProblemCodeUnavailable).Code == "" || a.header.Get("Retry-After") == "" {
			t.Errorf("%s %s: no Retry-After", c[0], c[1])
		}
	}
	into[Health](t, r.do("GET", "/healthz", ""), 200)
}

// settle leases one delivery of the subscriber and settles it, as a dispatcher does.
// seq counts the calls.
func settle(t *testing.T, e *schedule.Engine, sub string, seq int64, v schedule.Verdict) {
	t.Helper()
	p := e.PartitionOf(sub)
	replies, err := e.Lease(t.Context(), []schedule.LeaseRequest{{
		Partition: p, Worker: "w", Seq: seq, Rooms: schedule.Rooms{Total: 1, Fresh: 1, Retry: 1, Redrive: 1, Slow: 1},
	}})
	if err != nil || len(replies) != 1 || len(replies[0].Leased) != 1 {
		t.Fatalf("lease: %+v, %v", replies, err)
	}
	l := replies[0].Leased[0]
	body, err := e.Body(t.Context(), l.EventID)
	if err != nil {
		t.Fatal(err)
	}
	v.ID, v.Fence, v.Took, v.Body = l.ID, l.Fence(), 12*time.Millisecond, &body
	v.Attempt = fmt.Appendf(nil, `{"attempt":1,"fence":1,"started_at_ms":1764518400123,"duration_ms":12,"outcome":%q,"status":%d}`,
		v.Outcome, v.Status)
	if v.Next == "" {
		v.Next, v.DueAt = delivery.Scheduled, l.DueAt
	}
	got, err := e.Settle(t.Context(), p, []schedule.Verdict{v})
	if err != nil || got.Results[0] != schedule.Applied {
		t.Fatalf("settle: %+v, %v", got, err)
	}
}
