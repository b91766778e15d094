package dispatch

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/webhook"
)

// traced runs a dispatcher whose spans are kept.
func traced(t *testing.T, sampler sdktrace.Sampler, test func(r *rig, spans *tracetest.SpanRecorder)) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans), sdktrace.WithSampler(sampler))
	run(t, Options{TracerProvider: provider}, func(r *rig) { test(r, spans) })
}

// attributes are those of a span, as text.
func attributes(s sdktrace.ReadOnlySpan) map[string]string {
	out := map[string]string{}
	for _, a := range s.Attributes() {
		out[string(a.Key)] = a.Value.String()
	}
	return out
}

func TestTrace(t *testing.T) {
	traced(t, sdktrace.AlwaysSample(), func(r *rig, spans *tracetest.SpanRecorder) {
		r.endpoint(func(context.Context, webhook.Request) webhook.Answer {
			return webhook.Answer{
				Outcome: delivery.HTTP5xx, Status: 503, Err: "the endpoint answered 503", Duration: 2 * time.Second,
				Phases: webhook.Phases{DNS: 10 * time.Millisecond, Dial: 20 * time.Millisecond, FirstByte: 1500 * time.Millisecond},
			}
		})
		id := r.enqueue("e1", "s1")
		rec := r.state(id, delivery.Scheduled)
		ended := spans.Ended()
		if len(ended) != 2 {
			t.Fatalf("%d spans, want the request's and its attempt's", len(ended))
		}
		request, root := ended[0], ended[1]
		if root.Parent().IsValid() || root.SpanKind() != trace.SpanKindConsumer || root.Name() != "attempt" {
			t.Errorf("%s: parent %v, kind %v: want a root", root.Name(), root.Parent(), root.SpanKind())
		}
		if l := root.Links(); len(l) != 1 || !strings.Contains(ingestTraceparent, l[0].SpanContext.TraceID().String()) {
			t.Errorf("links %v, want the ingest span", l)
		}
		if request.Parent().SpanID() != root.SpanContext().SpanID() || request.SpanKind() != trace.SpanKindClient {
			t.Errorf("the request: parent %v, kind %v", request.Parent().SpanID(), request.SpanKind())
		}
		wantRoot := map[string]string{
			"fanout.delivery_id": id, "fanout.subscriber_id": "s1", "fanout.event_id": "e1", "fanout.attempt": "1", "fanout.lane": "fresh",
			"fanout.outcome": "http_5xx", "fanout.next": "scheduled", "fanout.due_at": rec.DueAt.UTC().Format(time.RFC3339Nano),
		}
		if got := attributes(root); !maps.Equal(got, wantRoot) {
			t.Errorf("the attempt says\n%v, want\n%v", got, wantRoot)
		}
		wantRequest := map[string]string{
			"http.request.method": "POST", "server.address": "example.com", "url.scheme": "https",
			"http.response.status_code": "503", "error.type": "http_5xx", "fanout.outcome": "http_5xx", "fanout.connection_reused": "false",
			"fanout.phase.dns_seconds": "0.01", "fanout.phase.connect_seconds": "0.02", "fanout.phase.wait_seconds": "1.5",
		}
		if got := attributes(request); !maps.Equal(got, wantRequest) {
			t.Errorf("the request says\n%v, want\n%v", got, wantRequest)
		}
		for _, s := range ended {
			if s.Status().Code != codes.Error || s.Status().Description != "the endpoint answered 503" {
				t.Errorf("%s has status %v", s.Name(), s.Status())
			}
		}
		id16 := root.SpanContext().TraceID().String()
		if kept := evidenceOf(t, rec); kept[0].TraceID != id16 {
			t.Errorf("evidence names trace %q, want %q", kept[0].TraceID, id16)
		}
		if got := r.requestsOf(id)[0].Traceparent; got != "00-"+id16+"-"+request.SpanContext().SpanID().String()+"-01" {
			t.Errorf("the receiver got traceparent %q", got)
		}
		if strings.Contains(r.logs.String(), "hush") {
			t.Error("the log holds the URL's query")
		}
		if got := exemplars(t, r.reg)["2.5"]; got != id16 {
			t.Errorf("the exemplar of the bucket to 2.5 s is %q, want %q", got, id16)
		}
	})
}

// exemplars are those of the attempts' duration, by the end of their buckets.
func exemplars(t *testing.T, reg *prometheus.Registry) map[string]string {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range families {
		if f.GetName() != "fanout_attempt_duration_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, b := range m.GetHistogram().GetBucket() {
				if e := b.GetExemplar(); e != nil {
					end := attribute.Float64("le", b.GetUpperBound()).Value.String()
					out[end] = e.GetLabel()[0].GetValue()
				}
			}
		}
	}
	return out
}

// Each attempt is a trace of its own, linked to the same ingest span, and says what
// followed from it.
func TestEachAttemptIsATrace(t *testing.T) {
	traced(t, sdktrace.AlwaysSample(), func(r *rig, spans *tracetest.SpanRecorder) {
		r.endpoint(answer(delivery.HTTP5xx, 503))
		id := r.enqueue("e1", "s1")
		r.state(id, delivery.Scheduled)
		r.endpoint(answer(delivery.HTTP404, 404))
		after(time.Minute)
		r.state(id, delivery.Dead)
		ended := spans.Ended()
		if len(ended) != 4 {
			t.Fatalf("%d spans", len(ended))
		}
		if a, b := ended[1].SpanContext().TraceID(), ended[3].SpanContext().TraceID(); a == b {
			t.Error("two attempts in one trace")
		}
		last := attributes(ended[3])
		if last["fanout.attempt"] != "2" || last["fanout.next"] != "dead" || last["fanout.reason"] != "http_404" || len(ended[3].Links()) != 1 {
			t.Errorf("the last says %v", last)
		}
	})
}

// What is not sampled leaves no exemplar, and the receiver is told so.
func TestUnsampledTrace(t *testing.T) {
	traced(t, sdktrace.NeverSample(), func(r *rig, spans *tracetest.SpanRecorder) {
		id := r.enqueue("e1", "s1")
		r.state(id, delivery.Delivered)
		if n := len(spans.Ended()); n != 0 {
			t.Errorf("%d spans were kept", n)
		}
		if got := exemplars(t, r.reg); len(got) != 0 {
			t.Errorf("exemplars of traces that nobody has: %v", got)
		}
		if got := r.requestsOf(id)[0].Traceparent; !strings.HasSuffix(got, "-00") {
			t.Errorf("the receiver got traceparent %q", got)
		}
	})
}

// An attempt whose lease goes back, and one that panics, end their spans too.
func TestTraceOfWhatIsNotSent(t *testing.T) {
	traced(t, sdktrace.AlwaysSample(), func(r *rig, spans *tracetest.SpanRecorder) {
		r.mu.Lock()
		r.subs["s1"] = nil // deleted
		r.mu.Unlock()
		r.enqueue("e1", "s1")
		after(time.Second)
		ended := spans.Ended()
		if len(ended) == 0 || attributes(ended[0])["fanout.released"] != "gone" {
			t.Fatalf("%d spans, want one that says that the lease was handed back", len(ended))
		}
		before := len(ended)
		r.endpoint(func(context.Context, webhook.Request) webhook.Answer { panic("a defect") })
		r.enqueue("e2", "s2")
		after(10 * time.Millisecond)
		var panicked sdktrace.ReadOnlySpan
		for _, s := range spans.Ended()[before:] {
			if attributes(s)["fanout.subscriber_id"] == "s2" {
				panicked = s
			}
		}
		if panicked == nil || attributes(panicked)["fanout.outcome"] != string(delivery.Unknown) {
			t.Errorf("the attempt that panicked: %v", panicked)
		}
	})
}

// With tracing off none of it may allocate: every attempt pays for it.
func TestNoTraceCostsNothing(t *testing.T) { //nolint:paralleltest // it counts allocations
	d := New(newFake(1), nil, nil, Options{Classes: []string{"standard"}})
	tr := &trial{lease: &lease{}, answer: webhook.Answer{Outcome: delivery.OK, Status: 200, Duration: time.Millisecond}}
	series := d.metrics.class("standard").duration
	ctx := t.Context()
	n := testing.AllocsPerRun(100, func() {
		d.startSpan(ctx, tr)
		ctx, span := d.startRequest(ctx, tr)
		tr.traceID = traceID(span)
		_ = traceparent(ctx, ingestTraceparent)
		endRequest(span, tr.answer)
		tr.clocked(series)
		tr.conclude(delivery.Decision{Next: delivery.Delivered})
		tr.unsaid()
	})
	if n != 0 {
		t.Errorf("%v allocations for a trace that nobody takes", n)
	}
}
