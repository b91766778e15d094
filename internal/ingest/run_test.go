package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fanout/fanout/internal/schedule"
)

// run runs the service until the test ends. Within a synctest bubble only.
func (b bundle) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

var errDown = fmt.Errorf("dial: %w", schedule.ErrUnavailable)

// A process that dies between any two calls, or whose call number n takes
// effect and is never answered, leaves nothing that another cannot finish.
func TestCrashAnywhereIsResumed(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		n, last := 1, false
		for ; !last; n++ {
			t.Run(fmt.Sprintf("lost=%v/call=%d", lost, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { last = crashAt(t, n, lost) })
			})
			if n > 100 {
				t.Fatal("Submit never got through")
			}
		}
		if n < 12 { // accept, two chunks for each of four partitions, a strike, and the run that gets through
			t.Errorf("only %d calls were cut", n)
		}
	}
}

// crashAt lets a process die at call n, and another one finish. It returns
// whether the process got through before that.
func crashAt(t *testing.T, n int, lost bool) (through bool) {
	b := setup(t, 1200, Options{}) // two chunks in each partition
	b.store.setFaults(func(i int, _ string) mishap {
		switch {
		case i == n && lost:
			return mishap{after: errDown}
		case i >= n:
			return mishap{before: errDown}
		}
		return mishap{}
	})
	_, err := b.Submit(t.Context(), validPost())
	through = len(b.store.calls) < n
	e := b.store.events["evt-1"]
	stored, open := e != nil, e != nil && len(e.plan) > 0
	if err == nil && !stored {
		t.Fatal("answered, and not stored")
	}
	if err != nil && n > 1 {
		t.Errorf("an accepted event was answered %v", err)
	}

	b.store.setFaults(nil)
	other := b.another()
	other.run(t)
	time.Sleep(30 * time.Second)
	synctest.Wait()
	if stored {
		b.store.checkDone("evt-1")
	} else if len(b.store.deliveries) > 0 {
		t.Error("deliveries of an event that was refused")
	}
	if n := testutil.ToFloat64(other.metrics.resumed); (n == 1) != open {
		t.Errorf("%v events resumed, open was %v", n, open)
	}

	// The producer posts again and learns what is true.
	again, err := other.Submit(t.Context(), validPost())
	if err != nil || again.Duplicate != stored || again.Deliveries != 1200 {
		t.Errorf("posted again: %+v %v", again, err)
	}
	b.store.checkDone("evt-1")
	return through
}

// Several processes may resume at once; the plan is taken by one of them.
func TestRunInManyProcesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, 8, Options{})
		b.store.setFaults(func(_ int, call string) mishap {
			if call == "enqueue" {
				return mishap{before: errDown}
			}
			return mishap{}
		})
		const events = 200
		for i := range events {
			p := validPost()
			p.ID = fmt.Sprint("evt-", i)
			if _, err := b.Submit(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		b.store.setFaults(func(n int, _ string) mishap { return mishap{slow: time.Duration(n%5) * time.Millisecond} })
		var all []bundle
		for range 4 {
			other := b.another()
			other.run(t)
			all = append(all, other)
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		resumed := 0.0
		for _, other := range all {
			resumed += testutil.ToFloat64(other.metrics.resumed)
		}
		for i := range events {
			b.store.checkDone(fmt.Sprint("evt-", i))
		}
		if resumed != events {
			t.Errorf("%v plans resumed, want each of %d once", resumed, events)
		}
	})
}

func TestRunLeavesFreshPlansAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, 8, Options{})
		b.store.setFaults(func(_ int, call string) mishap {
			if call == "enqueue" {
				return mishap{slow: 4 * time.Second} // slow, not dead; within its time
			}
			return mishap{}
		})
		b.another().run(t)
		if _, err := b.Submit(t.Context(), validPost()); err != nil {
			t.Fatal(err)
		}
		b.store.checkDone("evt-1")
		if n := b.store.count("enqueue"); n > 4 {
			t.Errorf("%d enqueues for 4 partitions: somebody else was at it", n)
		}
	})
}

// Redis is away for ten minutes: Run asks on, neither too often nor too seldom,
// says that it is unready, and goes on when Redis is back.
func TestRunOutlivesRedis(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, 8, Options{})
		b.store.setFaults(func(_ int, call string) mishap {
			if call == "enqueue" || call == "claim" {
				return mishap{before: errDown}
			}
			return mishap{}
		})
		if err := b.Ready(); err != nil {
			t.Errorf("unready before anything failed: %v", err)
		}
		if _, err := b.Submit(t.Context(), validPost()); err != nil {
			t.Fatal(err)
		}
		b.run(t)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if err := b.Ready(); !errors.Is(err, schedule.ErrUnavailable) {
			t.Errorf("ready while Redis is away: %v", err)
		}
		// The mean wait at the cap is 2.5 s: about 240 sweeps of 4 claims.
		if n := b.store.count("claim") / 4; n < 150 || n > 400 {
			t.Errorf("%d sweeps in ten minutes", n)
		}
		b.store.setFaults(nil)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if err := b.Ready(); err != nil {
			t.Errorf("unready after Redis is back: %v", err)
		}
		b.store.checkDone("evt-1")
	})
}

func TestReadyWhileOnePartitionIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, 1, Options{})
		claims := 0
		b.store.setFaults(func(_ int, call string) mishap {
			claims++
			if call == "claim" && claims%4 == 0 {
				return mishap{before: errDown}
			}
			return mishap{}
		})
		b.run(t)
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := b.Ready(); err != nil {
			t.Errorf("three of four partitions answer, and yet: %v", err)
		}
	})
}

func TestRunIsQuietWhenIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, 1, Options{})
		b.run(t)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := b.store.count("claim") / 4; n < 80 || n > 180 { // a sweep every 5 s
			t.Errorf("%d sweeps in ten idle minutes", n)
		}
	})
}

// One event that can never be expanded does not hold up the others.
func TestRunPassesByWhatCannotBeExpanded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		b := setup(t, 4, Options{Logger: slog.New(slog.NewJSONHandler(&logged, nil))})
		b.store.setFaults(func(_ int, call string) mishap {
			if call == "enqueue" {
				return mishap{before: errDown}
			}
			return mishap{}
		})
		old := validPost()
		if _, err := b.Submit(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour) // nobody ran: past its expand_by
		young := validPost()
		young.ID = "evt-2"
		if _, err := b.Submit(t.Context(), young); err != nil {
			t.Fatal(err)
		}
		b.store.setFaults(nil)
		if n := testutil.ToFloat64(b.metrics.late); n != 0 {
			t.Errorf("late is %v before anybody resumed", n)
		}
		b.run(t)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		b.store.checkDone("evt-2")
		if n := testutil.ToFloat64(b.metrics.late); n < 1 {
			t.Errorf("late is %v", n)
		}
		if err := b.Ready(); err != nil {
			t.Errorf("one late event made the service unready: %v", err)
		}
		e := b.store.events["evt-1"]
		if len(e.plan) == 0 || len(b.store.deliveries) != 4 {
			t.Errorf("the late event was tampered with: %d partitions left, %d deliveries", len(e.plan), len(b.store.deliveries))
		}
		if s := logged.String(); !strings.Contains(s, `"level":"ERROR"`) || !strings.Contains(s, `"event_id":"evt-1"`) {
			t.Errorf("nothing in the log: %s", s)
		}
	})
}

// A repeated post helps an old open plan along, by the frozen plan, and keeps
// its hands off a fresh one.
func TestRepeatHelps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, 8, Options{})
		down := func(_ int, call string) mishap {
			if call == "enqueue" || call == "plan" {
				return mishap{before: errDown}
			}
			return mishap{}
		}
		b.store.setFaults(down)
		if _, err := b.Submit(t.Context(), validPost()); err != nil {
			t.Fatal(err)
		}
		post := func() {
			t.Helper()
			if r, err := b.Submit(t.Context(), validPost()); err != nil || !r.Duplicate || r.Deliveries != 8 {
				t.Errorf("got %+v %v", r, err)
			}
		}
		b.store.setFaults(nil)
		post()
		if n := len(b.store.deliveries); n > 0 {
			t.Errorf("%d deliveries: a repeat expanded a fresh plan", n)
		}
		time.Sleep(11 * time.Second)
		b.store.setFaults(down)
		post() // a plan that cannot be read does not fail the answer
		b.store.setFaults(nil)
		b.dir.set(subs(20)) // who matches today does not matter
		post()
		b.store.checkDone("evt-1")
		if n := testutil.ToFloat64(b.metrics.resumed); n != 1 {
			t.Errorf("resumed is %v", n)
		}
		post()
		if n := b.store.count("plan"); n != 2 {
			t.Errorf("%d plans read: a closed event needs no help", n)
		}
	})
}

// The producer hangs up right after accept.
func TestExpansionOutlivesTheRequest(t *testing.T) {
	t.Parallel()
	b := setup(t, 8, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	b.Service.store = cancelling{b.store, cancel}
	if _, err := b.Submit(ctx, validPost()); err != nil {
		t.Fatal(err)
	}
	b.store.checkDone("evt-1")
}

func TestBackoffIsFullJitter(t *testing.T) {
	t.Parallel()
	for failures, window := range map[int]time.Duration{
		1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 6: 3200 * time.Millisecond,
		7: 5 * time.Second, 64: 5 * time.Second, 1 << 40: 5 * time.Second,
	} {
		const draws = 4000
		var tenths [10]int
		for range draws {
			d := backoff(failures)
			if d < 0 || d > window {
				t.Fatalf("failure %d: %v outside of 0 to %v", failures, d, window)
			}
			tenths[min(9, int(10*d/(window+1)))]++
		}
		for i, n := range tenths { // 400 each; 8 sigma is 152
			if n < 248 || n > 552 {
				t.Errorf("failure %d: %d of %d draws in tenth %d", failures, n, draws, i)
			}
		}
	}
}
