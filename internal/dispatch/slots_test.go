package dispatch

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"pgregory.net/rapid"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

func TestEveryLaneHasASlot(t *testing.T) {
	t.Parallel()
	s := newSlots(Options{Slots: 1}.withDefaults())
	for _, l := range delivery.Lanes {
		if s.limit[l] != 1 {
			t.Errorf("%s has %d slots of 1", l, s.limit[l])
		}
	}
	s = newSlots(Options{}.withDefaults())
	want := schedule.Rooms{Total: 100, Fresh: 100, Retry: 75, Redrive: 10}
	if got := s.rooms(); got != want {
		t.Errorf("rooms %+v, want %+v", got, want)
	}
	s.used = map[delivery.Lane]int{delivery.Fresh: 18, delivery.Retry: 70, delivery.Redrive: 12} // over its share
	if got := s.rooms(); got != (schedule.Rooms{}) {
		t.Errorf("rooms %+v, want none", got)
	}
	s.used = map[delivery.Lane]int{delivery.Retry: 70, delivery.Redrive: 12}
	want = schedule.Rooms{Total: 18, Fresh: 18, Retry: 5}
	if got := s.rooms(); got != want {
		t.Errorf("rooms %+v, want %+v", got, want)
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(0, 200).Draw(t, "total")
		all := schedule.Rooms{
			Total: total, Fresh: total,
			Retry: rapid.IntRange(0, total).Draw(t, "retry"), Redrive: rapid.IntRange(0, total).Draw(t, "redrive"),
		}
		weights := rapid.SliceOfN(rapid.IntRange(1, 1000), 1, 48).Draw(t, "weights")
		var sum schedule.Rooms
		for i, r := range split(all, weights) {
			if r.Total < 1 && total >= len(weights) {
				t.Fatalf("partition %d gets no room of %d", i, total)
			}
			if r.Fresh > r.Total || r.Retry > r.Total || r.Redrive > r.Total || min(r.Fresh, r.Retry, r.Redrive) < 0 {
				t.Fatalf("lane beyond the total: %+v", r)
			}
			sum.Total, sum.Fresh = sum.Total+r.Total, sum.Fresh+r.Fresh
			sum.Retry, sum.Redrive = sum.Retry+r.Retry, sum.Redrive+r.Redrive
		}
		if sum.Total != total || sum.Fresh != total || sum.Retry > all.Retry || sum.Redrive > all.Redrive {
			t.Fatalf("%+v was dealt out as %+v", all, sum)
		}
	})
}

func TestShareIsInProportion(t *testing.T) {
	t.Parallel()
	got := share(100, []int{1, 3, 96})
	if got[0] != 1 || got[1] != 3 || got[2] != 96 {
		t.Errorf("%v", got)
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	for n, ms := range map[int]int{0: 50, 1: 100, 5: 1600, 6: 2000, 7: 2000, 1 << 40: 2000, -1: 50} {
		window := time.Duration(ms) * time.Millisecond
		low, high := window, time.Duration(0)
		for range 2000 {
			p := pause(n)
			low, high = min(low, p), max(high, p)
		}
		if low > window/20 || high < window*19/20 || high > window+time.Millisecond {
			t.Errorf("pause %d is from %v to %v, want all of 0 to %v", n, low, high, window)
		}
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if sleep(ctx, time.Hour) {
		t.Error("slept through")
	}
}

// Every series exists before anything happened, and promtool would not complain.
func TestMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m := newMetrics(reg, []string{"standard", "premium"}, 7)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]int{}
	for _, f := range families {
		series[f.GetName()] = len(f.GetMetric())
	}
	for name, want := range map[string]int{
		"fanout_attempts_total": 3 * len(delivery.Facts), "fanout_attempt_duration_seconds": 3,
		"fanout_delivery_age_seconds": 3, "fanout_settles_total": 7, "fanout_leases_lost_total": 1,
		"fanout_slots": 3, "fanout_slots_limit": 1, "fanout_retries_scheduled_total": len(delivery.Facts),
		"fanout_dead_letters_total": len(delivery.Facts), "fanout_lease_calls_total": 1,
		"fanout_lease_errors_total": 1, "fanout_releases_total": 5, "fanout_dispatch_faults_total": 2,
	} {
		if series[name] != want {
			t.Errorf("%s has %d series, want %d", name, series[name], want)
		}
		delete(series, name)
	}
	for name := range series {
		t.Errorf("%s is not in this test's list", name)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", err, problems)
	}
	if c := m.class("unheard of"); c != otherClass {
		t.Errorf("class label %q", c)
	}
	if o := outcomeLabel("unheard of"); o != string(delivery.Unknown) {
		t.Errorf("outcome label %q", o)
	}
}

func TestWorkerNamesDoNotRepeat(t *testing.T) {
	t.Parallel()
	a, b := workerName(), workerName()
	if a == b || strings.ContainsAny(a, " \t\n=") {
		t.Errorf("%q and %q", a, b)
	}
}
