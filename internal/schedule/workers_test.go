package schedule_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fanout/fanout/internal/schedule"
)

// Who reports is seen; who falls silent is not, and is forgotten.
func TestWorkersReport(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.freeze()
		a := schedule.WorkerReport{
			Worker: "a", Version: "v1", Slots: 100, InUse: map[string]int{"fast/fresh": 3, "slow/retry": 4},
			Attempts: 10, Delivered: 7, Failed: 3, Dead: 1, PerSecond: 2.5, SlotSeconds: 0.125, StartedAt: w.clock().UTC(),
		}
		b := schedule.WorkerReport{Worker: "b", Slots: 5}
		w.twice("report", func() { w.ok(w.Report(w.ctx, b)) })
		w.advance(10 * time.Second)
		w.ok(w.Report(w.ctx, a))
		got, err := w.Workers(w.ctx)
		w.ok(err)
		want := []schedule.WorkerReport{a, b}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(schedule.WorkerReport{}, "At")); diff != "" || got[0].Used() != 7 {
			w.Fatal(diff)
		}
		w.advance(10 * time.Second)
		if got, err = w.Workers(w.ctx); err != nil || len(got) != 1 || got[0].Worker != "a" {
			w.Fatalf("%+v, %v", got, err)
		}
		w.advance(time.Minute)
		w.ok(w.Report(w.ctx, a))
		if n := len(w.dump()); n == 0 {
			w.Fatal("nothing is there")
		}
		if n, err := w.rdb.HLen(w.ctx, "{fo:workers}:reports").Result(); err != nil || n != 1 {
			w.Fatalf("%d reports are kept, %v", n, err)
		}
	})
}
