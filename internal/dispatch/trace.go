package dispatch

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/webhook"
)

const (
	traceparentKey = "traceparent"
	// exemplarLabel is the name that Grafana looks for at an exemplar.
	exemplarLabel = "trace_id"
)

// The options of the two spans of every attempt. The attempt is a root of its own,
// linked to the ingest span: it may come hours after the event and hundreds may, so as
// children they would make traces that no tool shows. OpenTelemetry's conventions for
// messaging have it so: producer and consumer, with a link between.
var (
	attemptOptions = []trace.SpanStartOption{trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindConsumer)}
	requestOptions = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)}
)

// tracerOf is nil if nobody takes spans: what is nil is asked for nothing, and an
// attempt then costs no allocation for its trace (BenchmarkAttempt).
func tracerOf(p trace.TracerProvider) trace.Tracer {
	if _, off := p.(noop.TracerProvider); off {
		return nil
	}
	return p.Tracer("github.com/fanout/fanout/internal/dispatch")
}

// startSpan begins the attempt's span, which conclude ends.
func (d *Dispatcher) startSpan(ctx context.Context, t *trial) {
	if d.tracer == nil {
		return
	}
	_, t.span = d.tracer.Start(ctx, "attempt", attemptOptions...) //nolint:spancheck // conclude or unsaid ends it
	if t.span.IsRecording() {
		t.span.SetAttributes(
			attribute.String("fanout.delivery_id", t.ID), attribute.String("fanout.subscriber_id", t.SubscriberID),
			attribute.String("fanout.event_id", t.EventID), attribute.Int("fanout.attempt", t.Attempts),
			attribute.String("fanout.lane", string(t.Lane)),
		)
	}
}

// startRequest begins the span of the attempt's one request, whose id the receiver
// gets. It is nil where there is no trace.
func (d *Dispatcher) startRequest(ctx context.Context, t *trial) (context.Context, trace.Span) {
	if t.span == nil {
		return ctx, nil
	}
	if t.span.IsRecording() {
		carrier := propagation.MapCarrier{traceparentKey: t.body.Traceparent}
		ingest := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(ctx, carrier))
		if ingest.IsValid() {
			t.span.AddLink(trace.Link{SpanContext: ingest})
		}
	}
	ctx, span := d.tracer.Start(trace.ContextWithSpan(ctx, t.span), "POST", requestOptions...)
	if span.IsRecording() {
		span.SetAttributes(attribute.String("http.request.method", "POST"))
		span.SetAttributes(server(t.sub.URL)...)
	}
	return ctx, span
}

// server is where the request goes. Path and query are left out: they may hold a token.
func server(endpoint string) []attribute.KeyValue {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil
	}
	attrs := []attribute.KeyValue{attribute.String("server.address", u.Hostname()), attribute.String("url.scheme", u.Scheme)}
	if port, err := strconv.Atoi(u.Port()); err == nil {
		attrs = append(attrs, attribute.Int("server.port", port))
	}
	return attrs
}

// endRequest says where the time went and what came of it. span may be nil.
func endRequest(span trace.Span, a webhook.Answer) {
	if span == nil {
		return
	}
	defer span.End()
	if !span.IsRecording() || a.Outcome == "" { // the sender panicked
		return
	}
	span.SetAttributes(outcome(a), attribute.Bool("fanout.connection_reused", a.Phases.Reused))
	for _, p := range []struct {
		name string
		took time.Duration
	}{
		{"dns", a.Phases.DNS},
		{"connect", a.Phases.Dial},
		{"tls", a.Phases.TLS},
		{"wait", a.Phases.FirstByte},
		{"read", a.Phases.Body},
	} {
		if p.took > 0 { // a phase that did not happen is not one of no time
			span.SetAttributes(attribute.Float64("fanout.phase."+p.name+"_seconds", p.took.Seconds()))
		}
	}
	if a.Status != 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", a.Status))
	}
	if a.Outcome != delivery.OK {
		span.SetAttributes(attribute.String("error.type", string(a.Outcome)))
		span.SetStatus(codes.Error, a.Err)
	}
}

func outcome(a webhook.Answer) attribute.KeyValue {
	return attribute.String("fanout.outcome", string(a.Outcome))
}

// conclude ends the attempt's span with what follows from it.
func (t *trial) conclude(d delivery.Decision) {
	if t.span == nil {
		return
	}
	defer t.span.End()
	if !t.span.IsRecording() {
		return
	}
	t.span.SetAttributes(outcome(t.answer), attribute.String("fanout.next", string(d.Next)))
	switch d.Next {
	case delivery.Delivered:
	case delivery.Dead:
		t.span.SetAttributes(attribute.String("fanout.reason", string(d.Reason)))
	default:
		t.span.SetAttributes(attribute.String("fanout.due_at", d.DueAt.UTC().Format(time.RFC3339Nano)))
	}
	if t.answer.Outcome != delivery.OK {
		t.span.SetStatus(codes.Error, t.answer.Err)
	}
}

// unsaid ends the span of an attempt that never was: its lease was handed back.
func (t *trial) unsaid() {
	if t.span == nil {
		return
	}
	if t.span.IsRecording() {
		t.span.SetAttributes(attribute.String("fanout.released", string(t.unsent)))
	}
	t.span.End()
}

func traceID(span trace.Span) string {
	if span == nil {
		return ""
	}
	if sc := span.SpanContext(); sc.HasTraceID() {
		return sc.TraceID().String()
	}
	return ""
}

// clocked counts how long the request took, and names its trace beside it if that is
// kept, so that a slow bucket of a chart leads to an attempt that fell into it.
func (t *trial) clocked(series prometheus.Observer) {
	took := t.answer.Duration.Seconds()
	if t.span != nil && t.span.SpanContext().IsSampled() {
		if with, ok := series.(prometheus.ExemplarObserver); ok {
			with.ObserveWithExemplar(took, prometheus.Labels{exemplarLabel: t.traceID})
			return
		}
	}
	series.Observe(took)
}

// traceparent is what the receiver gets: the request's span, or without tracing
// the ingest's, passed through as W3C Trace Context 1, section 4.3 asks of who
// takes no part.
func traceparent(ctx context.Context, ingest string) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ingest
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[traceparentKey]
}
