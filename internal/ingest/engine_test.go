package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/ingest"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/subscriber/subtest"
	"github.com/fanout/fanout/test/redistest"
)

// cutEngine is an engine whose caller dies at its nth writing call: the reply of
// that call is lost, or it never arrives, and no later one does.
type cutEngine struct {
	*schedule.Engine
	at   int
	lost bool

	mu    sync.Mutex
	calls int
}

var errCut = fmt.Errorf("the process died: %w", schedule.ErrUnavailable)

func (c *cutEngine) call(do func() error) error {
	c.mu.Lock()
	c.calls++
	n := c.calls
	c.mu.Unlock()
	switch {
	case n < c.at:
		return do()
	case n == c.at && c.lost:
		return errors.Join(errCut, do())
	}
	return errCut
}

func (c *cutEngine) Accept(ctx context.Context, e schedule.NewEvent) (a schedule.Accepted, err error) {
	err = c.call(func() (err error) { a, err = c.Engine.Accept(ctx, e); return err })
	return a, err
}

func (c *cutEngine) Enqueue(ctx context.Context, id string, at, by time.Time, part int, targets []schedule.Target) error {
	return c.call(func() error { return c.Engine.Enqueue(ctx, id, at, by, part, targets) })
}

func (c *cutEngine) Strike(ctx context.Context, id string, parts ...int) (open bool, err error) {
	err = c.call(func() (err error) { open, err = c.Engine.Strike(ctx, id, parts...); return err })
	return open, err
}

// A process that dies between any two calls to the real engine, or right after one
// whose reply is lost, leaves what another one finishes: every target gets its
// delivery, exactly once.
func TestEngineCrashAnywhereIsResumed(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		e, err := schedule.Open(ctx, rdb, schedule.Options{Partitions: 4})
		if err != nil {
			t.Fatal(err)
		}
		dir := subscriber.NewDirectory(e)
		subs := subscribers(t, e, 20)
		opts := ingest.Options{Logger: slog.New(slog.DiscardHandler)}

		var stored []string
		for _, lost := range []bool{false, true} {
			for n := 1; ; n++ {
				id := fmt.Sprintf("evt-%d-%v", n, lost)
				cut := &cutEngine{Engine: e, at: n, lost: lost}
				in := ingest.New(cut, dir, opts)
				_, err := in.Submit(ctx, post(id))
				strikeNow(t, in)
				if err == nil || lost {
					stored = append(stored, id)
				}
				if (err == nil) != (n > 1) {
					t.Errorf("%s: an event that is stored and answered for must be answered so: %v", id, err)
				}
				if cut.calls < n { // nothing was cut: it got through
					break
				}
			}
		}
		partitions := map[int]bool{}
		for _, id := range subs {
			partitions[e.PartitionOf(id)] = true
		}
		// Accept, the partitions and a strike are cut in both ways, each way ends with
		// one event that got through, and one accept never arrived.
		if want := 2*(1+len(partitions)+1) + 2 - 1; len(stored) != want {
			t.Errorf("%d events stored, want %d", len(stored), want)
		}

		opts.ResumeAfter = time.Second // of those that stand open longer
		run(t, ingest.New(e, dir, opts))
		waitFor(t, "no event is open", func() bool {
			s, err := e.Sample(ctx, nil)
			return err == nil && s.OpenEvents == 0
		})

		s, err := e.Sample(ctx, nil)
		want := schedule.Ledger{Accepted: int64(len(stored) * len(subs)), Pending: int64(len(stored) * len(subs))}
		if err != nil || s.Ledger != want {
			t.Errorf("ledger %+v, %v, want %+v", s.Ledger, err, want)
		}
		for _, id := range stored {
			expanded(t, e, id, subs)
		}
	})
}

// strikeNow strikes what a service has finished. It claims nothing: Run sees that it
// is to stop.
func strikeNow(t *testing.T, s *ingest.Service) {
	t.Helper()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := s.Run(stopped); err != nil {
		t.Error(err)
	}
}

// expanded checks that an event has a delivery for each subscriber, unattempted.
func expanded(t *testing.T, e *schedule.Engine, id string, subs []string) {
	t.Helper()
	ids := make([]string, len(subs))
	for i, sub := range subs {
		ids[i] = delivery.NewID(id, sub)
	}
	ds, err := e.Deliveries(t.Context(), ids)
	if err != nil || len(ds) != len(subs) {
		t.Errorf("%s has %d deliveries, want %d: %v", id, len(ds), len(subs), err)
	}
	for _, d := range ds {
		if d.State != delivery.Scheduled || d.Attempts != 0 || d.EventID != id {
			t.Errorf("%s: %+v", id, d)
		}
	}
}

func subscribers(t *testing.T, e *schedule.Engine, n int) []string {
	t.Helper()
	store := subscriber.New(e, subtest.AnyURL{}, nil, e.Now)
	ids := make([]string, n)
	for i := range ids {
		s, err := store.Create(t.Context(), subscriber.Draft{URL: new("https://example.com/hook")})
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = s.ID
	}
	return ids
}

func post(id string) ingest.Post {
	return ingest.Post{
		ID: id, Type: "shipment.delivered", ShipmentID: "shp_1",
		OccurredAt: "2026-11-30T12:00:00+01:00", Data: []byte(`{"n":1}`),
	}
}

// run runs a service until the test ends.
func run(t *testing.T, s *ingest.Service) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-deadline:
			t.Fatalf("gave up waiting until %s", what)
		case <-tick.C:
		}
	}
}
