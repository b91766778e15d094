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
	"pgregory.net/rapid"

	"github.com/fanout/fanout/internal/delivery"
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
		if !errors.Is(err, schedule.ErrLayout) || !strings.Contains(err.Error(), "--partitions=4") {
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
	for _, l := range w.lease("w", room(12)).Leased {
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
	if rep := w.lease("w", anyRoom); len(rep.Leased) == 0 {
		t.Fatal("nothing leased when full")
	}
	w.ok(w.Tombstone(w.ctx, "gone"))
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
		w.subscribe("s1", 10)
		w.post("e1", "s1")
		for !slices.Contains(drain(1), w.PartitionOf("s1")) {
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

// Random sequences of transitions, some run twice, keep every invariant.
func TestRandomWalk(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		rapid.Check(t, func(rt *rapid.T) {
			if err := rdb.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			walk(newWorld(t, rdb, schedule.Options{Quantum: 2}), rt)
		})
	})
}

func walk(w *world, rt *rapid.T) {
	subs := []string{"s1", "s2", "s3"}
	for i, s := range subs {
		w.subscribe(s, i+1)
	}
	var held []schedule.Leased // leases ever taken, also those long settled
	events, repeatable := 0, false
	pick := func() schedule.Leased { return rapid.SampledFrom(held).Draw(rt, "lease") }
	steps := map[string]func(){
		"post": func() {
			events++
			w.post(fmt.Sprint("e", events), rapid.SliceOfNDistinct(rapid.SampledFrom(subs), 1, 3, rapid.ID).Draw(rt, "subs")...)
		},
		"lease": func() {
			worker := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "worker")
			got := w.lease(worker, room(rapid.IntRange(1, 4).Draw(rt, "room"))).Leased
			held = append(held, got...)
			repeatable = worker == "a" && len(got) > 0 || worker != "a" && repeatable
		},
		"again": func() { // a lost lease reply
			if repeatable { // an empty answer is not remembered: there is nothing to get back
				w.unchanged("a repeated lease", func() { w.leaseAt("a", w.seq["a"], anyRoom) })
			}
		},
		"settle": func() {
			if len(held) == 0 {
				return
			}
			v := rapid.SampledFrom([]schedule.Verdict{
				delivered(pick()), retry(pick(), w.clock().Add(time.Minute)), retry(pick(), w.clock()), dead(pick(), "{}"),
				lost(pick(), w.clock()),
			}).Draw(rt, "verdict")
			n := rapid.IntRange(1, 2).Draw(rt, "times")
			for range n {
				_, err := w.Settle(w.ctx, 0, []schedule.Verdict{v})
				w.ok(err)
			}
		},
		"release": func() {
			if len(held) > 0 {
				l := pick()
				w.ok(w.Release(w.ctx, 0, []schedule.Claim{{ID: l.ID, Fence: l.Fence()}}))
			}
		},
		"pass": func() {
			w.advance(rapid.SampledFrom([]time.Duration{time.Second, time.Minute, 9 * time.Hour}).Draw(rt, "by"))
		},
		"expire": func() {
			ds, _, err := w.ExpiredDeliveries(w.ctx, 10)
			w.ok(err)
			var vs []schedule.Verdict
			for _, d := range ds {
				vs = append(vs, schedule.Verdict{ID: d.ID, Body: &schedule.Body{}})
			}
			_, err = w.Expire(w.ctx, 0, vs)
			w.ok(err)
		},
		"config": func() {
			tm := terms
			tm.MaxInFlight = rapid.IntRange(1, 3).Draw(rt, "cap")
			tm.Paused = rapid.Bool().Draw(rt, "paused")
			tm.Class = rapid.SampledFrom([]string{"standard", "gold"}).Draw(rt, "class")
			_, err := w.PutConfig(w.ctx, rapid.SampledFrom(subs).Draw(rt, "sub"), -1, []byte("{}"), tm)
			if err != nil && !errors.Is(err, schedule.ErrNotFound) {
				w.ok(err)
			}
		},
		"delete": func() {
			if rapid.IntRange(0, 9).Draw(rt, "rarely") == 0 {
				w.ok(w.Tombstone(w.ctx, "s3"))
				w.cancelAll("s3", rapid.IntRange(1, 3).Draw(rt, "limit"))
			}
		},
	}
	names := []string{"post", "lease", "again", "settle", "settle", "release", "pass", "expire", "config", "delete"}
	for range rapid.IntRange(5, 40).Draw(rt, "steps") {
		steps[rapid.SampledFrom(names).Draw(rt, "step")]()
		w.audit()
	}
	drain(w, rt)
}

// drain delivers whatever is left, to show that nothing was stranded.
func drain(w *world, rt *rapid.T) {
	for _, s := range []string{"s1", "s2", "s3"} {
		_, err := w.PutConfig(w.ctx, s, -1, []byte("{}"), terms)
		if err != nil && !errors.Is(err, schedule.ErrNotFound) {
			w.ok(err)
		}
	}
	if _, err := w.Config(w.ctx, "s3"); errors.Is(err, schedule.ErrNotFound) {
		w.cancelAll("s3", 1000)
	}
	for range 100 {
		w.advance(10 * time.Minute)
		leases, now, err := w.ExpiredLeases(w.ctx, 100)
		w.ok(err)
		for _, l := range leases {
			if l.State != delivery.Leased {
				w.ok(w.Release(w.ctx, 0, []schedule.Claim{{ID: l.ID, Fence: l.Fence()}}))
			} else {
				w.settle(schedule.Applied, lost(l, now))
			}
		}
		for _, l := range w.lease("drain", anyRoom).Leased {
			w.settle(schedule.Applied, delivered(l))
		}
		if w.ledger().Pending == 0 {
			w.audit()
			return
		}
	}
	rt.Fatalf("stranded: %+v\n%v", w.ledger(), w.dump())
}
