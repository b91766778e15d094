//go:build cluster

package schedule_test

import (
	"context"
	"errors"
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
