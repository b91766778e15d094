//go:build cluster

package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/test/redistest"
)

// Partitions and event partitions lie evenly over the primaries, and a primary
// that is away, or hangs until the caller's deadline, costs the others nothing.
func TestPrimaryAway(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*redistest.Redis){
		"dead": (*redistest.Redis).Kill9, "hung": (*redistest.Redis).Stop,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const partitions = 48
			c := redistest.Cluster(t)
			w := newWorld(t, c.Client(), schedule.Options{Partitions: partitions})
			var lives []int // partitions on a living primary
			perNode := [3]int{}
			for p := range partitions {
				node := c.NodeOf(schedule.PartitionPrefix(w.Engine, p))
				perNode[node]++
				if node != 0 {
					lives = append(lives, p)
				}
			}
			if perNode != [3]int{16, 16, 16} {
				t.Fatalf("partitions by primary: %v", perNode)
			}
			reqs := make([]schedule.LeaseRequest, partitions)
			for p := range reqs {
				reqs[p] = schedule.LeaseRequest{Partition: p, Worker: "w", Seq: 1, Rooms: anyRoom}
			}
			away(c.Nodes[0])

			ctx, cancel := context.WithTimeout(w.ctx, 2*time.Second)
			defer cancel()
			reps, err := w.Lease(ctx, reqs)
			if !errors.Is(err, schedule.ErrUnavailable) {
				t.Fatalf("lease: %v, want that a part is unavailable", err)
			}
			for _, p := range lives {
				if reps[p].Now.IsZero() {
					t.Errorf("partition %d lives, and its answer is lost", p)
				}
			}
			if err := w.Ready(ctx); !errors.Is(err, schedule.ErrUnavailable) {
				t.Errorf("ready while a primary is away: %v", err)
			}
		})
	}
}

// WAIT goes to the primary that has the event, on the connection that wrote it:
// here only one primary has a replica.
func TestAcceptWaitsForReplicasInACluster(t *testing.T) {
	t.Parallel()
	c := redistest.Cluster(t)
	replica := c.Replica(1)
	w := newWorld(t, c.Client(), schedule.Options{Partitions: 6, WaitReplicas: 1, WaitTimeout: 200 * time.Millisecond})
	seen := [3]int{}
	var copied string // an event on the primary with the replica
	for i := range 30 {
		id := fmt.Sprint("e", i)
		node := c.NodeOf(schedule.EventPrefix(w.Engine, id))
		seen[node]++
		_, err := w.accept(id)
		if node == 1 {
			w.ok(err)
			copied = id
		} else if !errors.Is(err, schedule.ErrUnavailable) {
			t.Fatalf("%s is accepted on primary %d, which has no replica: %v", id, node, err)
		}
	}
	if slices.Contains(seen[:], 0) {
		t.Fatalf("events by primary: %v, want some on each", seen)
	}
	replica.Stop()
	w.ok(w.rdb.Set(w.ctx, schedule.EventPrefix(w.Engine, copied)+"another", "write", 0).Err())
	if a, err := w.accept(copied); !errors.Is(err, schedule.ErrUnavailable) {
		t.Fatalf("accepted while the replica hangs: %+v, %v", a, err)
	}
	replica.Cont()
	for {
		a, err := w.accept(copied)
		if errors.Is(err, schedule.ErrUnavailable) {
			continue // it waits by itself
		}
		w.ok(err)
		if !a.Duplicate {
			t.Fatalf("accepted again: %+v", a)
		}
		return
	}
}
