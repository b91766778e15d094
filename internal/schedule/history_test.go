package schedule_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fanout/fanout/internal/schedule"
)

// Of several that keep the point of one period the first does, and a ring never holds
// more than its places: none that is older than it is long, whatever was left out.
func TestHistory(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		ring := schedule.Ring{Name: "fine", Every: 5 * time.Second, Places: 4}
		start := time.UnixMilli(1_800_000_000_000)
		keep := func(after time.Duration, point string) {
			w.Helper()
			w.ok(w.KeepPoint(w.ctx, ring, start.Add(after), []byte(point)))
		}
		want := func(points ...string) {
			w.Helper()
			got, err := w.Points(w.ctx, ring)
			w.ok(err)
			texts := make([]string, 0, len(got))
			for _, p := range got {
				texts = append(texts, string(p))
			}
			if diff := cmp.Diff(points, texts); diff != "" {
				w.Fatal(diff)
			}
		}
		w.twice("history", func() { keep(0, `{"a 1":0}`) })
		keep(2*time.Second, "too late")
		keep(5*time.Second, "1")
		want(`{"a 1":0}`, "1")
		keep(15*time.Second, "3")
		keep(10*time.Second, "2") // from one that was held up
		want(`{"a 1":0}`, "1", "2", "3")
		keep(20*time.Second, "4")
		want("1", "2", "3", "4")
		keep(45*time.Second, "9") // after a time when nobody looked
		want("9")
		keep(25*time.Second, "long ago")
		want("9")
		if n, err := w.rdb.HLen(w.ctx, "{fo:oncall}:fine").Result(); err != nil || n != 4 {
			w.Fatalf("%d places, %v", n, err)
		}
		if err := w.KeepPoint(w.ctx, ring, start, make([]byte, 9<<10)); err == nil {
			w.Fatal("a point of 9 KiB was kept")
		}
		if ttl, err := w.rdb.PTTL(w.ctx, "{fo:oncall}:fine").Result(); err != nil || ttl <= 0 {
			w.Fatalf("it stays for ever: %v, %v", ttl, err)
		}
	})
}

// Two that keep at the same time keep one point, of either.
func TestHistoryBySeveral(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(t *testing.T, w *world) {
		ring := schedule.Ring{Name: "coarse", Every: time.Minute, Places: 10}
		done := make(chan error)
		for i := range 8 {
			go func() {
				done <- w.KeepPoint(w.ctx, ring, time.UnixMilli(1_800_000_000_000+int64(i)), fmt.Append(nil, i))
			}()
		}
		for range 8 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if got, err := w.Points(w.ctx, ring); err != nil || len(got) != 1 {
			t.Errorf("%q, %v", got, err)
		}
	})
}
