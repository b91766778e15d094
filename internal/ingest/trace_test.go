package ingest

import (
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/fanout/fanout/internal/schedule"
)

// withSpans is a service whose spans are kept.
func withSpans(t *testing.T, sampler sdktrace.Sampler) (bundle, *sdktrace.TracerProvider, *tracetest.SpanRecorder) {
	t.Helper()
	rec := tracetest.NewSpanRecorder()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(rec), sdktrace.WithSampler(sampler))
	return setup(t, 3, Options{TracerProvider: tp}), tp, rec
}

func checkAttributes(t *testing.T, span sdktrace.ReadOnlySpan, want map[attribute.Key]string) {
	t.Helper()
	attrs := attribute.NewSet(span.Attributes()...)
	for key, want := range want {
		if v, _ := attrs.Value(key); v.String() != want {
			t.Errorf("%s is %q, want %q", key, v.String(), want)
		}
	}
}

func TestTrace(t *testing.T) {
	t.Parallel()
	b, tp, rec := withSpans(t, sdktrace.AlwaysSample())
	ctx, request := tp.Tracer("test").Start(t.Context(), "POST /v1/events")
	if _, err := b.Submit(ctx, validPost()); err != nil {
		t.Fatal(err)
	}
	span := rec.Ended()[0]
	sc := span.SpanContext()
	if span.Name() != "ingest" || span.SpanKind() != trace.SpanKindProducer || span.Parent().SpanID() != request.SpanContext().SpanID() {
		t.Errorf("%s, kind %v, parent %v", span.Name(), span.SpanKind(), span.Parent().SpanID())
	}
	want := "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-01"
	if got := b.store.events["evt-1"].Traceparent; got != want {
		t.Errorf("traceparent %q, want %q", got, want)
	}
	checkAttributes(t, span, map[attribute.Key]string{
		"fanout.event_id": "evt-1", "fanout.event_type": "shipment.delivered", "fanout.deliveries": "3", "fanout.result": "accepted",
	})
}

// Each post of a batch is an event of its own, so its deliveries have a span of their
// own to be linked to.
func TestTraceOfABatch(t *testing.T) {
	t.Parallel()
	b, tp, rec := withSpans(t, sdktrace.AlwaysSample())
	ctx, request := tp.Tracer("test").Start(t.Context(), "POST /v1/events/batch")
	defer request.End()
	one, other := validPost(), validPost()
	other.ID = "evt-2"
	for _, r := range b.SubmitBatch(ctx, []Post{one, other}) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	if n := len(rec.Ended()); n != 2 || b.store.events["evt-1"].Traceparent == b.store.events["evt-2"].Traceparent {
		t.Errorf("%d spans, of both events %q", n, b.store.events["evt-1"].Traceparent)
	}
}

func TestTraceOfWhatIsRefused(t *testing.T) {
	t.Parallel()
	b, _, rec := withSpans(t, sdktrace.AlwaysSample())
	bad := validPost()
	bad.ShipmentID = ""
	_, _ = b.Submit(t.Context(), bad) // what it returns is told by the span
	b.store.setFaults(func(int, string) mishap { return mishap{before: schedule.ErrFull} })
	_, _ = b.Submit(t.Context(), validPost())
	spans := rec.Ended()
	checkAttributes(t, spans[0], map[attribute.Key]string{"fanout.result": "invalid"})
	checkAttributes(t, spans[1], map[attribute.Key]string{"fanout.result": "full"})
	if a, b := spans[0].Status().Code, spans[1].Status().Code; a != codes.Unset || b != codes.Error {
		t.Errorf("status of what was invalid %v, of what found no room %v", a, b)
	}
}

// A trace that nobody keeps is not stored; the one that a producer brings is, also
// while tracing is off here.
func TestTraceparentThatIsStored(t *testing.T) {
	t.Parallel()
	unsampled, _, _ := withSpans(t, sdktrace.NeverSample())
	off := setup(t, 1, Options{})
	brought := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, Remote: true,
	})
	for _, c := range []struct {
		name    string
		b       bundle
		brought bool
		want    string
	}{
		{"unsampled", unsampled, false, ""},
		{"off", off, false, ""},
		{"off, brought", setup(t, 1, Options{}), true, "00-01000000000000000000000000000000-0200000000000000-01"},
	} {
		ctx := t.Context()
		if c.brought {
			ctx = trace.ContextWithSpanContext(ctx, brought)
		}
		if _, err := c.b.Submit(ctx, validPost()); err != nil {
			t.Fatal(err)
		}
		if got := c.b.store.events["evt-1"].Traceparent; got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
