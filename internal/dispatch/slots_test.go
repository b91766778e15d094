package dispatch

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"pgregory.net/rapid"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

func testSlots(o Options) *slots {
	return newSlots(o.withDefaults(), newMetrics(prometheus.NewRegistry(), nil, 1))
}

func of(sub string, lane delivery.Lane, slow bool) schedule.Leased {
	return schedule.Leased{Delivery: delivery.Delivery{SubscriberID: sub, Lane: lane}, Slow: slow}
}

func TestEveryLaneHasASlot(t *testing.T) {
	t.Parallel()
	s := testSlots(Options{Slots: 1})
	for _, l := range delivery.Lanes {
		if n := s.limit[laneIndex(l)]; n != 1 {
			t.Errorf("%s has %d slots of 1", l, n)
		}
	}
	if r := s.rooms(); r.Slow != 1 {
		t.Errorf("the slow have %d slots of 1", r.Slow)
	}
}

func TestRooms(t *testing.T) {
	t.Parallel()
	s := testSlots(Options{})
	want := schedule.Rooms{Total: 100, Fresh: 100, Retry: 75, Redrive: 10, Slow: 60}
	if got := s.rooms(); got != want {
		t.Errorf("rooms %+v, want %+v", got, want)
	}
	var taken []*slot
	take := func(n int, lane delivery.Lane, slow bool) {
		for range n {
			taken = append(taken, s.take(0, of(fmt.Sprint(lane, slow), lane, slow), time.Now()))
		}
	}
	take(70, delivery.Retry, false)
	take(12, delivery.Redrive, true) // over its share
	want = schedule.Rooms{Total: 18, Fresh: 18, Retry: 5, Slow: 18}
	if got := s.rooms(); got != want {
		t.Errorf("rooms %+v, want %+v", got, want)
	}
	take(18, delivery.Fresh, true)
	if got := s.rooms(); got != (schedule.Rooms{}) {
		t.Errorf("rooms %+v, want none", got)
	}
	if s.take(0, of("one more", delivery.Fresh, false), time.Now()) != nil {
		t.Error("a slot beyond all")
	}
	for _, x := range taken {
		s.release(x)
	}
	want = schedule.Rooms{Total: 100, Fresh: 100, Retry: 75, Redrive: 10, Slow: 60}
	if got := s.rooms(); got != want || len(s.holders) != 0 || s.out.Len() != 0 {
		t.Errorf("all is free: rooms %+v, want %+v; %d holders, %d out", got, want, len(s.holders), s.out.Len())
	}
}

// A hang is told at 1 s, 2 s, 4 s, and takes the subscriber's slots to the slow at
// once; when the request is over they go back, whatever became of its verdict.
func TestHangs(t *testing.T) {
	t.Parallel()
	s := testSlots(Options{Slots: 10})
	start := time.Now()
	hung := s.take(3, of("a", delivery.Fresh, false), start)
	s.take(3, of("a", delivery.Retry, false), start.Add(800*time.Millisecond))
	s.take(1, of("b", delivery.Fresh, false), start.Add(900*time.Millisecond))
	for _, c := range []struct {
		after time.Duration
		told  bool
	}{
		{999 * time.Millisecond, false},
		{time.Second, true},
		{1500 * time.Millisecond, false},
	} {
		found := s.hangs(start.Add(c.after))
		if got := found[3]["a"] == c.after; got != c.told || len(found[1]) > 0 {
			t.Errorf("after %s: %v, told should be %v", c.after, found, c.told)
		}
	}
	if r := s.rooms(); r.Slow != 4 || r.Total != 7 {
		t.Errorf("both slots of a count as slow: %+v", r)
	}
	s.landed(hung)
	if r := s.rooms(); r.Slow != 6 {
		t.Errorf("landed: %+v", r)
	}
	if found := s.hangs(start.Add(1850 * time.Millisecond)); found[3]["a"] != 1050*time.Millisecond {
		t.Errorf("the other request of a hangs too: %v", found)
	}
	if found := s.hangs(start.Add(3 * time.Second)); found[3]["a"] != 2200*time.Millisecond || found[1]["b"] == 0 {
		t.Errorf("told again after twice the time: %v", found)
	}
}

// The scheduler is told what each holds, of the partition that is asked.
func TestHolds(t *testing.T) {
	t.Parallel()
	s := testSlots(Options{Slots: 20})
	for range 8 {
		s.take(0, of("hog", delivery.Fresh, false), time.Now())
	}
	small := s.take(0, of("small", delivery.Fresh, false), time.Now())
	s.take(1, of("elsewhere", delivery.Fresh, false), time.Now())
	told := func() map[string]int {
		m := map[string]int{}
		for _, h := range s.holds(0) {
			m[h.SubscriberID] = h.Slots
		}
		return m
	}
	if got := told(); !maps.Equal(got, map[string]int{"hog": 8, "small": 1}) {
		t.Errorf("told %v", got)
	}
	s.release(small)
	if got := told(); !maps.Equal(got, map[string]int{"hog": 8}) {
		t.Errorf("told %v", got)
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(0, 200).Draw(t, "total")
		all := schedule.Rooms{
			Total: total, Fresh: total,
			Retry: rapid.IntRange(0, total).Draw(t, "retry"), Redrive: rapid.IntRange(0, total).Draw(t, "redrive"),
			Slow: rapid.IntRange(0, total).Draw(t, "slow"),
		}
		weights := rapid.SliceOfN(rapid.IntRange(1, 1000), 1, 48).Draw(t, "weights")
		var sum schedule.Rooms
		for i, r := range split(all, weights) {
			if r.Total < 1 && total >= len(weights) {
				t.Fatalf("partition %d gets no room of %d", i, total)
			}
			if r.Fresh > r.Total || r.Retry > r.Total || r.Redrive > r.Total || r.Slow > r.Total || min(r.Fresh, r.Retry, r.Redrive, r.Slow) < 0 {
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

// A few calls go at once, many keep a beat, and a pause gives the few back.
func TestRhythm(t *testing.T) {
	t.Parallel()
	var r rhythm
	now := time.Now()
	for i := range atHand {
		if wait := r.take(now); wait > 0 {
			t.Errorf("call %d waits %s", i, wait)
		}
	}
	for range 5 {
		wait := r.take(now)
		if wait <= 0 || wait > beat {
			t.Errorf("waits %s, want up to %s", wait, beat)
		}
		now = now.Add(wait)
		if wait := r.take(now); wait > 0 {
			t.Errorf("and %s more", wait)
		}
	}
	if wait := r.take(now.Add(time.Hour)); wait > 0 {
		t.Errorf("after an hour: %s", wait)
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
		"fanout_delivery_age_seconds": 3, "fanout_settles_total": 7, "fanout_leases_lost_total": 1, "fanout_repeated_failures_total": 3,
		"fanout_slots": 6, "fanout_slots_limit": 1, "fanout_retries_scheduled_total": len(delivery.Facts),
		"fanout_dead_letters_total": len(delivery.Facts), "fanout_lease_calls_total": 1,
		"fanout_lease_errors_total": 1, "fanout_releases_total": 5, "fanout_dispatch_faults_total": 2,
		"fanout_redis_call_duration_seconds": 1,
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
	if c := m.class("unheard of"); c != m.byClass[otherClass] {
		t.Error("a class that nobody configured is not counted as other")
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
