package schedule_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/test/redistest"
)

func TestOpenRefusesAnotherLayout(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		if _, err := schedule.Open(ctx, rdb, schedule.Options{Partitions: 4}); err != nil {
			t.Fatal(err)
		}
		if _, err := schedule.Open(ctx, rdb, schedule.Options{Partitions: 4}); err != nil {
			t.Fatal(err)
		}
		_, err := schedule.Open(ctx, rdb, schedule.Options{Partitions: 8})
		if !errors.Is(err, schedule.ErrLayout) || !strings.Contains(err.Error(), "--redis-partitions=4") {
			t.Fatalf("another P: %v", err)
		}
		rdb.HSet(ctx, "fo:meta", "schema", 99)
		if _, err := schedule.Open(ctx, rdb, schedule.Options{Partitions: 4}); !errors.Is(err, schedule.ErrLayout) {
			t.Fatalf("newer schema: %v", err)
		}
	})
}

func TestUnavailable(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	w := newWorld(t, srv.Client(), schedule.Options{})
	srv.Kill9()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := w.Ping(ctx); !errors.Is(err, schedule.ErrUnavailable) {
		t.Fatalf("ping: %v", err)
	}
	_, err := w.Accept(ctx, schedule.NewEvent{ID: "e1"})
	if !errors.Is(err, schedule.ErrUnavailable) {
		t.Fatalf("accept: %v", err)
	}
}

// Scripts that Redis has forgotten heal themselves, in a pipeline too.
func TestScriptFlush(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{Partitions: 4}, func(_ *testing.T, w *world) {
		for _, s := range []string{"a", "b", "c", "d", "e", "f", "g"} {
			w.subscribe(s, 10)
		}
		w.post("e1", "a", "b", "c", "d", "e", "f", "g")
		w.ok(w.rdb.ScriptFlush(w.ctx).Err())
		var reqs []schedule.LeaseRequest
		for p := range w.Partitions() {
			reqs = append(reqs, schedule.LeaseRequest{Partition: p, Worker: "w", Seq: 1, Rooms: anyRoom})
		}
		reps, err := w.Lease(w.ctx, reqs)
		w.ok(err)
		n := 0
		for _, r := range reps {
			n += len(r.Leased)
		}
		if n != 7 {
			w.Fatalf("leased %d of 7 after SCRIPT FLUSH", n)
		}
	})
}

// Over maxmemory nothing new is taken in, nothing is half done, and what was
// taken in goes on to its end.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Server(t).Client(), schedule.Options{})
	w.subscribe("s1", 100)
	w.subscribe("gone", 100)
	for i := range 6 {
		w.post(fmt.Sprint("e", i), "s1", "gone")
	}
	var ls []schedule.Leased
	for _, l := range w.lease("w", anyRoom).Leased {
		if l.SubscriberID == "s1" {
			ls = append(ls, l)
		}
	}
	if len(ls) < 4 {
		t.Fatalf("leased %d for s1", len(ls))
	}
	w.ok(w.rdb.ConfigSet(w.ctx, "maxmemory", "1").Err())
	ev := schedule.NewEvent{
		ID: "late", BodyHash: "h", Body: []byte("{}"),
		Targets: []schedule.Target{{SubscriberID: "s1", MaxAge: day}},
	}
	w.unchanged("accepting when full", func() {
		if _, err := w.Accept(w.ctx, ev); !errors.Is(err, schedule.ErrFull) {
			t.Fatalf("accept: %v", err)
		}
		err := w.Enqueue(w.ctx, "late", w.clock(), w.clock().Add(time.Hour), 0, ev.Targets)
		if !errors.Is(err, schedule.ErrFull) {
			t.Fatalf("enqueue: %v", err)
		}
	})
	w.settle(schedule.Applied, delivered(ls[0]))
	w.settle(schedule.Applied, retry(ls[1], w.clock()))
	w.settle(schedule.Applied, dead(ls[2], "{}"))
	w.ok(w.Release(w.ctx, 0, []schedule.Claim{{ID: ls[3].ID, Fence: ls[3].Fence()}}))
	if rep := w.lease("w", anyRoom); len(rep.Leased) != 2 {
		t.Fatalf("leased %d when full, want the retry and what was released", len(rep.Leased))
	}
	w.ok(w.Tombstone(w.ctx, "gone", ""))
	w.cancelAll("gone", 100)
	w.ok(w.rdb.ConfigSet(w.ctx, "maxmemory", "0").Err())
	w.audit()
}

func TestWake(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{Partitions: 4}, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(w.ctx)
		wake, err := w.Wake(ctx)
		w.ok(err)
		drain := func(n int) []int {
			var got []int
			for len(got) < n {
				select {
				case p := <-wake:
					got = append(got, p)
				case <-w.ctx.Done():
					t.Fatalf("woken by %v only", got)
				}
			}
			return got
		}
		// s1 and s2 stand in different partitions; news of the one must not push out
		// news of the other while nobody reads.
		w.subscribe("s1", 1)
		w.subscribe("s2", 1)
		if w.PartitionOf("s1") == w.PartitionOf("s2") {
			t.Fatal("choose other ids")
		}
		for i := range 10 {
			w.post(fmt.Sprint("a", i), "s1")
			w.deliverAll("s1") // so that the next one is news again
		}
		w.post("b", "s2")
		for !slices.Contains(drain(1), w.PartitionOf("s2")) {
		}
		cancel()
		for range wake {
			continue // until it is closed
		}
	})
}

// TestMain keeps the random walks short: a walk audits all of Redis after every
// step. -rapid.checks on the command line asks for more.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "25"); err != nil {
		panic(err)
	}
	m.Run()
}
