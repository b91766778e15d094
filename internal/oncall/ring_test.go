package oncall

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/test/redistest"
)

// A process that begins has the last hour of those before it, and of those beside it there
// is one point a period.
func TestPastOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := overRedis(t, rdb, 0)
		w.put("sub_1", func(tm *schedule.Terms) { tm.Paused = true })
		w.post("evt_1", "sub_1")
		beside := newOnCall(t, w, Options{Classes: map[string]time.Duration{"standard": time.Minute}, Rings: w})
		for range 40 {
			w.advance(2500 * time.Millisecond)
			w.o.sample(t.Context())
			beside.sample(t.Context())
		}
		was := w.o.Past()
		if n := len(was.Fine); n < 19 || n > 22 {
			t.Errorf("%d fine points in 100 s", n)
		}
		if n := len(was.Coarse); n < 2 || n > 3 {
			t.Errorf("%d coarse points in 100 s", n)
		}
		next := newOnCall(t, w, Options{Classes: map[string]time.Duration{"standard": time.Minute}, Rings: w})
		next.sample(t.Context())
		is := next.Past()
		if len(is.Fine) < len(was.Fine) || len(is.Coarse) < len(was.Coarse) {
			t.Fatalf("%d and %d points, before %d and %d", len(is.Fine), len(is.Coarse), len(was.Fine), len(was.Coarse))
		}
		last := is.Fine[len(was.Fine)-1]
		if last.Pending != 1 || last.Class("standard").Held < time.Minute || last.At.IsZero() {
			t.Errorf("the last point is %+v", last)
		}
	})
}

// What is kept of a point is all of it, but for what is finer than a millisecond.
func TestPointsComeBack(t *testing.T) {
	t.Parallel()
	p := Point{
		At:       redisNow,
		Classes:  []PointClass{{"express", time.Second, 2 * time.Second, 3 * time.Second, 4, 5}, {"standard", 6, 7, 8, 9, 10}},
		Accepted: 11, Delivered: 12, Dead: 13, Pending: 14, Held: 15, DeadLetters: 16, Attempts: 17, Failures: 18, Slots: 19, Used: 20, RetryUsed: 21,
	}
	b, err := encodePoint(p)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodePoint(b, []string{"express", "gone", "standard"})
	if err != nil {
		t.Fatal(err)
	}
	p.Classes[1].Eligible, p.Classes[1].Limited, p.Classes[1].Held = 0, 0, 0
	if diff := cmp.Diff(p, got); diff != "" {
		t.Error(diff)
	}
	if len(b) > 400 {
		t.Errorf("a point takes %d bytes: docs/redis.md says 0.3 KB", len(b))
	}
}
