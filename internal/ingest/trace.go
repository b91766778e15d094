package ingest

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// tracerOf is nil if nobody takes spans: what is nil is asked for nothing.
func tracerOf(p trace.TracerProvider) trace.Tracer {
	if p == nil {
		return nil
	}
	if _, off := p.(noop.TracerProvider); off {
		return nil
	}
	return p.Tracer("github.com/fanout/fanout/internal/ingest")
}

var spanOptions = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindProducer)}

// startSpan begins the ingest span, which every attempt of the event's deliveries is
// linked to. It is one for each post: a batch is one request of many. It is nil while
// tracing is off; the trace that the producer brought, if any, is then in ctx already.
func (s *Service) startSpan(ctx context.Context, p Post) (context.Context, trace.Span) {
	if s.tracer == nil {
		return ctx, nil
	}
	ctx, span := s.tracer.Start(ctx, "ingest", spanOptions...)
	if span.IsRecording() {
		span.SetAttributes(attribute.String("fanout.event_type", p.Type))
	}
	return ctx, span
}

// endSpan says what became of the post. An invalid one is the producer's mistake and no
// error of this span; what it says of the body stays out of the trace.
func endSpan(span trace.Span, r Receipt, err error) {
	if span == nil {
		return
	}
	defer span.End()
	if !span.IsRecording() {
		return
	}
	result := resultOf(r, err)
	span.SetAttributes(attribute.String("fanout.result", result))
	switch result {
	case resultAccepted, resultDuplicate:
		span.SetAttributes(attribute.String("fanout.event_id", r.ID), attribute.Int("fanout.deliveries", r.Deliveries))
	case resultUnavailable, resultFull, resultError:
		span.SetStatus(codes.Error, result)
	default:
	}
}

// traceparent is the W3C header of the current span, or "" if there is none or
// it is not sampled: a link to a trace that was never kept helps nobody.
func traceparent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	c := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, c)
	return c.Get("traceparent")
}
