package redrive_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/redrive"
	"github.com/fanout/fanout/internal/schedule"
)

// A hundred thousand dead letters are planned a page at a time, in time that does not
// grow with how many there are, and other cohorts are seen to meanwhile.
func BenchmarkPlan(b *testing.B) {
	const letters = 100_000
	w := newBenchWorld(b)
	w.dieMany(letters)
	for b.Loop() {
		start := time.Now()
		c, err := w.svc.Create(w.ctx, redrive.Order{Reason: "a benchmark"}, "key_1")
		if err != nil {
			b.Fatal(err)
		}
		steps := 0
		for ; c.State == redrive.Planning; steps++ {
			if err := w.svc.PlanFor(w.ctx, &c, redrive.PlanStep); err != nil {
				b.Fatal(err)
			}
		}
		if c.Matched-c.Skipped != letters {
			b.Fatalf("%+v", c)
		}
		b.ReportMetric(time.Since(start).Seconds()*1e3/(letters/200), "ms/page")
		b.ReportMetric(float64(steps), "steps")
		if _, err := w.svc.Abort(w.ctx, c.ID, "key_1", "only planned"); err != nil {
			b.Fatal(err)
		}
		start = time.Now()
		if err := w.svc.Step(w.ctx); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(start).Seconds(), "s/abort")
	}
}

func newBenchWorld(b *testing.B) *benchWorld {
	b.Helper()
	rdb := server(b)
	e, err := schedule.Open(b.Context(), rdb, schedule.Options{InitialCap: 1000})
	if err != nil {
		b.Fatal(err)
	}
	svc := redrive.New(rdb, e, redrive.Options{ClassOf: func(_ context.Context, _ string) (string, error) { return "standard", nil }})
	return &benchWorld{B: b, Engine: e, ctx: b.Context(), svc: svc}
}

type benchWorld struct {
	*testing.B
	*schedule.Engine
	ctx context.Context
	svc *redrive.Service
}

// dieMany has so many deliveries of events that were never expanded expire at once.
func (w *benchWorld) dieMany(n int) {
	w.Helper()
	_, err := w.PutConfig(w.ctx, "s1", 0, []byte("{}"), terms, schedule.Edited)
	if err != nil {
		w.Fatal(err)
	}
	for i := range n {
		event := fmt.Sprint("e", i)
		err := w.Enqueue(w.ctx, event, time.Now().Add(-48*time.Hour), time.Now().Add(time.Hour), 0,
			[]schedule.Target{{SubscriberID: "s1", MaxAge: time.Hour}})
		if err != nil {
			w.Fatal(err)
		}
		if i%200 == 199 {
			ds, _, err := w.ExpiredDeliveries(w.ctx, 200)
			if err != nil {
				w.Fatal(err)
			}
			var vs []schedule.Verdict
			for _, d := range ds {
				vs = append(vs, schedule.Verdict{ID: d.ID, Body: &schedule.Body{Bytes: []byte(`{"type":"a"}`)}, Decision: delivery.Decision{Next: delivery.Dead}})
			}
			if _, err := w.Expire(w.ctx, 0, vs); err != nil {
				w.Fatal(err)
			}
		}
	}
}
