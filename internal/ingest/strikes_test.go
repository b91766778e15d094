package ingest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func numbered(n int) Post {
	p := validPost()
	p.ID = fmt.Sprint("evt-", n)
	return p
}

// A producer is answered before the strike, which comes soon after, together with
// those of others.
func TestStrikeIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, 8, Options{})
		for i := range 10 {
			if _, err := b.Service.Submit(t.Context(), numbered(i)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(strikeWithin / 20)
		}
		if n := b.store.count("strike"); n != 0 {
			t.Errorf("%d strikes before their time", n)
		}
		time.Sleep(strikeWithin)
		synctest.Wait()
		for i := range 10 {
			b.store.checkDone(fmt.Sprint("evt-", i))
		}
		if n := b.store.count("strike"); n != 10 {
			t.Errorf("%d strikes of 10 plans", n)
		}
	})
}

// What waits for a strike is bounded: posts that outrun the moment take out what is
// there.
func TestWaitingStrikesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, 1, Options{})
		for i := range 3*mostStrikes - 1 {
			if _, err := b.Service.Submit(t.Context(), numbered(i)); err != nil {
				t.Fatal(err)
			}
		}
		if n := b.store.count("strike"); n != 2*mostStrikes {
			t.Errorf("%d strikes at once, want %d", n, 2*mostStrikes)
		}
		time.Sleep(strikeWithin)
		synctest.Wait()
		if n := b.store.count("strike"); n != 3*mostStrikes-1 {
			t.Errorf("%d strikes in the end", n)
		}
	})
}

// The end of Run leaves nothing unstruck, and whoever posts later waits.
func TestRunStrikesAllBeforeItEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, 8, Options{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		slow := 3 * time.Second
		b.store.setFaults(func(_ int, call string) mishap {
			if call == "strike" {
				slow -= time.Second // so that those that were out first are the last to end
				return mishap{slow: slow}
			}
			return mishap{}
		})
		for i := range 3 {
			if _, err := b.Service.Submit(t.Context(), numbered(i)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(strikeWithin * 2 / 3) // so that some are out and some wait
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for i := range 3 {
			b.store.checkDone(fmt.Sprint("evt-", i))
		}
		if _, err := b.Service.Submit(t.Context(), numbered(3)); err != nil {
			t.Fatal(err)
		}
		b.store.checkDone("evt-3")
	})
}

// A strike that fails costs the producer nothing: it is told, and Run makes it good.
func TestLostStrikeIsMadeGood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		b := setup(t, 8, Options{Logger: slog.New(slog.NewJSONHandler(&logged, nil))})
		b.store.setFaults(func(_ int, call string) mishap {
			if call == "strike" {
				return mishap{before: errDown}
			}
			return mishap{}
		})
		if _, err := b.Submit(t.Context(), validPost()); err != nil {
			t.Fatal(err)
		}
		if s := logged.String(); !strings.Contains(s, "not closed yet") || !strings.Contains(s, `"event_id":"evt-1"`) {
			t.Errorf("nothing in the log: %s", s)
		}
		b.store.setFaults(nil)
		other := b.another()
		other.run(t)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		b.store.checkDone("evt-1")
		if n := testutil.ToFloat64(other.metrics.resumed); n != 1 {
			t.Errorf("resumed is %v", n)
		}
	})
}

// Many at once, and the end among them: every plan is struck once.
func TestStrikesOfManyAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 4, Options{})
	var wg sync.WaitGroup
	for i := range 2000 {
		wg.Go(func() {
			if _, err := b.Service.Submit(t.Context(), numbered(i)); err != nil {
				t.Error(err)
			}
		})
		if i == 1000 {
			wg.Go(b.strikes.close)
		}
	}
	wg.Wait()
	b.strikes.close()
	for i := range 2000 {
		b.store.checkDone(fmt.Sprint("evt-", i))
	}
	if n := b.store.count("strike"); n != 2000 {
		t.Errorf("%d strikes of 2000 plans", n)
	}
}
