package schedule_test

import (
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/test/redistest"
)

// full is a world whose Redis is over its memory from here on.
func full(w *world) {
	w.Helper()
	w.ok(w.rdb.ConfigSet(w.ctx, "maxmemory", "1").Err())
}

// A retry falls due while a fresh one of the same subscriber waits: the lease
// begins with a subscriber that stands in its place already.
func TestRetriesAreLeasedWhenFull(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Server(t).Client(), schedule.Options{})
	w.subscribe("s1", 100)
	w.post("e1", "s1")
	w.post("e2", "s1")
	w.settle(schedule.Applied, retry(w.one("w"), w.clock().Add(time.Minute)))
	w.advance(time.Hour)
	full(w)
	if got := w.lease("w", anyRoom).Leased; len(got) != 2 {
		t.Fatalf("leased %d of 2 when full", len(got))
	}
	w.audit()
}

// A 2xx comes late, for a delivery that another worker holds by now.
func TestLateSuccessIsSettledWhenFull(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Server(t).Client(), schedule.Options{})
	w.subscribe("s1", 100)
	id := w.post("e1", "s1")[0]
	first := w.one("frozen")
	w.advance(time.Hour)
	w.settle(schedule.Applied, lost(first, w.clock()))
	w.one("other")
	full(w)
	late := delivered(first)
	late.Attempt = []byte(`{"attempt":1}`) // it is not the first, so it leaves a note
	w.settle(schedule.AppliedOld, late)
	w.wantState(id, delivery.Delivered)
}
