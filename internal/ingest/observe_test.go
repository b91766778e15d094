package ingest

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fanout/fanout/internal/schedule"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	b := setup(t, 3, Options{MaxFanout: 3})
	if n, err := testutil.GatherAndCount(b.reg, "fanout_ingest_total"); err != nil || n != len(results) {
		t.Errorf("%d labels before the first post, want %d (%v)", n, len(results), err)
	}
	if problems, err := testutil.GatherAndLint(b.reg); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
	post := func(edit func(*Post)) {
		p := validPost()
		edit(&p)
		_, _ = b.Submit(t.Context(), p) // what it returns is told by the metric
	}
	fail := func(err error) {
		b.store.setFaults(func(int, string) mishap { return mishap{before: err} })
		post(func(p *Post) { p.ID = "" })
		b.store.setFaults(nil)
	}
	post(func(*Post) {})
	post(func(*Post) {})
	post(func(p *Post) { p.ShipmentID = "other" })
	post(func(p *Post) { p.ShipmentID = "" })
	fail(schedule.ErrUnavailable)
	fail(schedule.ErrFull)
	b.dir.set(subs(4))
	post(func(p *Post) { p.ID = "" })
	for _, r := range results {
		if n := testutil.ToFloat64(b.metrics.total.WithLabelValues(r)); n != 1 {
			t.Errorf("%s is %v, want 1", r, n)
		}
	}
	const want = "fanout_ingest_duration_seconds_count 7"
	text, err := testutil.CollectAndFormat(b.metrics.duration, expfmt.TypeTextPlain, "fanout_ingest_duration_seconds")
	if err != nil || !strings.Contains(string(text), want) {
		t.Errorf("no %q in %s (%v)", want, text, err)
	}
}

func TestTrace(t *testing.T) {
	t.Parallel()
	for _, sampled := range []bool{true, false} {
		rec := tracetest.NewSpanRecorder()
		sampler := sdktrace.NeverSample()
		if sampled {
			sampler = sdktrace.AlwaysSample()
		}
		tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(rec), sdktrace.WithSampler(sampler))
		ctx, span := tp.Tracer("test").Start(t.Context(), "POST /v1/events")
		b := setup(t, 3, Options{})
		if _, err := b.Submit(ctx, validPost()); err != nil {
			t.Fatal(err)
		}
		span.End()
		got := b.store.events["evt-1"].Traceparent
		if !sampled {
			if got != "" {
				t.Errorf("an unsampled span left %q", got)
			}
			continue
		}
		sc := span.SpanContext()
		if want := "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-01"; got != want {
			t.Errorf("traceparent %q, want %q", got, want)
		}
		attrs := attribute.NewSet(rec.Ended()[0].Attributes()...)
		for key, want := range map[attribute.Key]string{
			"fanout.event_id": "evt-1", "fanout.event_type": "shipment.delivered", "fanout.deliveries": "3",
		} {
			if v, _ := attrs.Value(key); v.String() != want {
				t.Errorf("%s is %q, want %q", key, v.String(), want)
			}
		}
	}

	b := setup(t, 1, Options{})
	if _, err := b.Submit(t.Context(), validPost()); err != nil || b.store.events["evt-1"].Traceparent != "" {
		t.Errorf("without a span: %v, %q", err, b.store.events["evt-1"].Traceparent)
	}
}
