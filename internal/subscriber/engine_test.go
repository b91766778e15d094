package subscriber_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber/subtest"
	"github.com/fanout/fanout/test/redistest"
)

// TestContractOverEngine runs the suite where subscribers live in earnest. Tests
// of the suite share a server, each in a database of its own.
func TestContractOverEngine(t *testing.T) {
	t.Parallel()
	for name, addr := range map[string]func(t *testing.T) string{
		"redis": func(t *testing.T) string {
			t.Helper()
			return redistest.Server(t, redistest.Args("--databases", "64")).Addr()
		},
		"miniredis": func(t *testing.T) string { t.Helper(); return redistest.Mini(t).Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := addr(t)
			var db atomic.Int64
			subtest.Run(t, func(t testing.TB) subtest.Rig {
				t.Helper()
				rdb := redis.NewClient(&redis.Options{
					Addr: at, DB: int(db.Add(1)), MaxRetries: -1, ContextTimeoutEnabled: true,
				})
				t.Cleanup(func() { _ = rdb.Close() })
				return engineRig(t, rdb)
			})
		})
	}
}

// oneSlot is room for one delivery, whosever it is.
var oneSlot = schedule.Rooms{Total: 1, Fresh: 1, Retry: 1, Redrive: 1, Slow: 1}

func engineRig(t testing.TB, rdb redis.UniversalClient) subtest.Rig {
	t.Helper()
	e, err := schedule.Open(t.Context(), rdb, schedule.Options{Partitions: 4})
	if err != nil {
		t.Fatal(err)
	}
	var seq atomic.Int64
	return subtest.Rig{
		Backend: e, Now: e.Now,
		Enqueue: func(t testing.TB, id string, n int) {
			t.Helper()
			now, err := e.Now(t.Context())
			for i := 0; i < n && err == nil; i++ {
				err = e.Enqueue(t.Context(), fmt.Sprintf("evt_%s_%d", id, i), now, now.Add(time.Hour), e.PartitionOf(id),
					[]schedule.Target{{SubscriberID: id, MaxAge: time.Hour}})
			}
			if err != nil {
				t.Fatal(err)
			}
		},
		Lease: func(t testing.TB, id string) func() {
			t.Helper()
			p := e.PartitionOf(id)
			replies, err := e.Lease(t.Context(), []schedule.LeaseRequest{{
				Partition: p, Worker: "w", Seq: seq.Add(1), Rooms: oneSlot,
			}})
			if err != nil || len(replies[0].Leased) != 1 || replies[0].Leased[0].SubscriberID != id {
				t.Fatalf("leased %+v, %v", replies, err)
			}
			l := replies[0].Leased[0]
			return func() {
				if err := e.Release(t.Context(), p, []schedule.Claim{{ID: l.ID, Fence: l.Fence()}}); err != nil {
					t.Error(err)
				}
			}
		},
	}
}
