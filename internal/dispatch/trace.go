package dispatch

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/webhook"
)

const traceparentKey = "traceparent"

// spanOptions are those of every attempt's span.
var spanOptions = []trace.SpanStartOption{trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindClient)}

// startSpan begins the attempt's span: a root of its own, linked to the ingest
// span. An attempt may come hours after the event and hundreds may, so as
// children they would make traces that no tool shows. What it says is put together
// for a span that is kept alone: it was 2 % of the CPU of a delivery while tracing
// is off.
func (d *Dispatcher) startSpan(ctx context.Context, t *trial) (context.Context, trace.Span) {
	traced, span := d.tracer.Start(ctx, "send webhook", spanOptions...)
	if !span.SpanContext().IsValid() {
		return ctx, span
	}
	if span.IsRecording() {
		span.SetAttributes( // and no URL: its path and query may hold a token
			attribute.String("delivery_id", t.ID), attribute.String("subscriber_id", t.SubscriberID),
			attribute.String("event_id", t.EventID), attribute.Int("attempt", t.Attempts),
			attribute.String("lane", string(t.Lane)),
		)
		carrier := propagation.MapCarrier{traceparentKey: t.body.Traceparent}
		ingest := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(ctx, carrier))
		if ingest.IsValid() {
			span.AddLink(trace.Link{SpanContext: ingest})
		}
	}
	return traced, span
}

func endSpan(span trace.Span, a webhook.Answer) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String("outcome", string(a.Outcome)))
	if a.Status != 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", a.Status))
	}
	if a.Outcome != delivery.OK {
		span.SetStatus(codes.Error, a.Err)
	}
}

func traceID(span trace.Span) string {
	if sc := span.SpanContext(); sc.HasTraceID() {
		return sc.TraceID().String()
	}
	return ""
}

// traceparent is what the receiver gets: the attempt's span, or without tracing
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
