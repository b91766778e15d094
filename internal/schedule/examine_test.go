package schedule_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/test/redistest"
)

// A look from outside finds what is there, and leaves an empty Redis as it was.
func TestExamine(t *testing.T) {
	t.Parallel()
	rdb := redistest.Server(t).Client()
	x, err := schedule.Examine(t.Context(), rdb)
	if err != nil || !x.Empty() || x.Version == "" || x.RoundTrip <= 0 || x.ClockOff > time.Second || x.ClockOff < -time.Second {
		t.Fatalf("%+v, %v", x, err)
	}
	if keys, err := redistest.Keys(t.Context(), rdb, "*"); err != nil || len(keys) > 0 {
		t.Fatalf("it wrote %v, %v", keys, err)
	}
	w := newWorld(t, rdb, schedule.Options{Partitions: 3})
	w.put("sub_a", schedule.Edited, nil)
	w.put("sub_b", schedule.Edited, func(tm *schedule.Terms) { tm.Class = "gold" })
	w.post("evt_1", "sub_a", "sub_b")
	w.ok(w.Report(w.ctx, schedule.WorkerReport{Worker: "w"}))
	x, err = schedule.Examine(t.Context(), rdb)
	if err != nil || x.Partitions != 3 || x.Schema != x.Ours || x.Subscribers != 2 || x.Ledger.Pending != 2 || len(x.Workers) != 1 ||
		!slices.Equal(x.Classes, []string{"gold", "standard"}) || x.Used == 0 {
		t.Fatalf("%+v, %v", x, err)
	}
	w.ok(rdb.ConfigSet(w.ctx, "maxmemory-policy", "allkeys-lru").Err())
	if x, err = schedule.Examine(t.Context(), rdb); err != nil || !errors.Is(x.Unsafe, schedule.ErrUnsafe) {
		t.Fatalf("%+v, %v", x, err)
	}
}
