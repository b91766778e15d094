package redistest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// primaries is the size of a cluster: the least that Redis calls one.
	primaries = 3
	// hashSlots of any Redis Cluster.
	hashSlots = 16384
	// clusterTimeout bounds every wait for the nodes to agree. They take about 3 s:
	// a node that starts is not writable for its first two.
	clusterTimeout = 60 * time.Second
	// askEvery is the pause between two looks at nodes that do not agree yet.
	askEvery = 50 * time.Millisecond
)

// RedisCluster is three primaries, each with a third of the slots and without a
// replica, that end with their test.
type RedisCluster struct {
	t     testing.TB
	Nodes []*Redis
}

// Cluster starts a Redis Cluster on loopback and returns when all of it takes
// writes. A node that is away takes its own slots with it and no others
// (cluster-require-full-coverage no), as the service wants it.
func Cluster(t testing.TB, opts ...Option) *RedisCluster {
	t.Helper()
	c := &RedisCluster{t: t, Nodes: make([]*Redis, primaries)}
	for i := range c.Nodes {
		c.Nodes[i] = Server(t, append([]Option{clusterNode()}, opts...)...)
	}
	ctx, cancel := context.WithTimeout(t.Context(), clusterTimeout)
	defer cancel()
	for i, n := range c.Nodes {
		node := n.Client()
		first, last := i*hashSlots/primaries, (i+1)*hashSlots/primaries-1
		c.do(node.ClusterAddSlotsRange(ctx, first, last).Err())
		if i > 0 {
			c.do(c.Nodes[0].Client().Do(ctx, "CLUSTER", "MEET", "127.0.0.1", n.port, n.bus).Err())
		}
	}
	c.Await()
	return c
}

func (c *RedisCluster) do(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("redistest: make a cluster: %v", err)
	}
}

// clusterNode makes a server one node of a cluster.
func clusterNode() Option {
	return func(r *Redis) { r.clustered = true }
}

// clusterArgs are what a node needs beside a server's own arguments. Its bus has
// a port of its own choice: the usual one, 10,000 above, may be beyond the last.
func (r *Redis) clusterArgs() []string {
	if !r.clustered {
		return nil
	}
	return []string{
		"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(r.bus), "--cluster-config-file", "nodes.conf",
		"--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no",
	}
}

// Await returns when every node sees all three, and all slots served: after the
// start, or after nodes were away.
func (c *RedisCluster) Await() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), clusterTimeout)
	defer cancel()
	for _, n := range c.Nodes {
		node := redis.NewClient(n.options())
		for {
			why := whole(ctx, node)
			if why == nil {
				break
			}
			select {
			case <-ctx.Done():
				c.t.Fatalf("redistest: the cluster is not whole after %s: %s: %v", clusterTimeout, n.Addr(), why)
			case <-time.After(askEvery):
			}
		}
		_ = node.Close()
	}
}

// whole says what a node still misses.
func whole(ctx context.Context, node *redis.Client) error {
	info, err := node.ClusterInfo(ctx).Result()
	if err != nil {
		return fmt.Errorf("cluster info: %w", err)
	}
	for _, want := range []string{
		"cluster_state:ok", "cluster_known_nodes:" + strconv.Itoa(primaries), "cluster_size:" + strconv.Itoa(primaries),
		"cluster_slots_ok:" + strconv.Itoa(hashSlots),
	} {
		if !strings.Contains(info, want+"\r\n") {
			return fmt.Errorf("it does not say %s:\n%s", want, info)
		}
	}
	return nil
}

// Replica adds a replica of a node, and returns when it has all that the node has.
// Await is for a cluster without one.
func (c *RedisCluster) Replica(i int) *Redis {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), clusterTimeout)
	defer cancel()
	primary := c.Nodes[i].Client()
	c.do(primary.ConfigSet(ctx, "repl-diskless-sync-delay", "0").Err())
	id, err := primary.ClusterMyID(ctx).Result()
	c.do(err)
	replica := Server(c.t, clusterNode())
	node := replica.Client()
	c.do(node.Do(ctx, "CLUSTER", "MEET", "127.0.0.1", c.Nodes[i].port, c.Nodes[i].bus).Err())
	joined := false
	for {
		if !joined {
			joined = node.ClusterReplicate(ctx, id).Err() == nil // once it knows of the primary
		}
		info, err := node.Info(ctx, "replication").Result()
		if joined && err == nil && strings.Contains(info, "master_link_status:up") {
			return replica
		}
		select {
		case <-ctx.Done():
			c.t.Fatalf("redistest: the cluster has no replica after %s: %v\n%s", clusterTimeout, err, info)
		case <-time.After(askEvery):
		}
	}
}

// Addrs are the nodes' host:port, as seeds for a client.
func (c *RedisCluster) Addrs() []string {
	out := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		out[i] = n.Addr()
	}
	return out
}

// NodeOf is the index of the node that serves a key.
func (c *RedisCluster) NodeOf(key string) int {
	c.t.Helper()
	slot, err := c.Nodes[0].Client().ClusterKeySlot(c.t.Context(), key).Result()
	if err != nil {
		c.t.Fatalf("redistest: slot of %q: %v", key, err)
	}
	for i := range c.Nodes {
		if int(slot) < (i+1)*hashSlots/primaries {
			return i
		}
	}
	c.t.Fatalf("redistest: slot %d of %q is beyond the last", slot, key)
	return -1
}

// Client returns a new client with the settings of the service's own, closed when
// the test ends.
func (c *RedisCluster) Client() *redis.ClusterClient {
	c.t.Helper()
	o := c.Nodes[0].options()
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: c.Addrs(), Password: o.Password, MaxRetries: o.MaxRetries,
		ContextTimeoutEnabled: o.ContextTimeoutEnabled, DialerRetries: o.DialerRetries,
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
	})
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

// Keys lists the keys of a Redis, or of all primaries of a cluster, that match a
// pattern.
func Keys(ctx context.Context, rdb redis.UniversalClient, pattern string) ([]string, error) {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return rdb.Keys(ctx, pattern).Result() //nolint:wrapcheck // a test's own call
	}
	var mu sync.Mutex
	var all []string
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		keys, err := node.Keys(ctx, pattern).Result()
		mu.Lock()
		defer mu.Unlock()
		all = append(all, keys...)
		return err //nolint:wrapcheck // as above
	})
	return all, err //nolint:wrapcheck // as above
}

// Flush empties a Redis, or all primaries of a cluster.
func Flush(ctx context.Context, rdb redis.UniversalClient) error {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return rdb.FlushAll(ctx).Err() //nolint:wrapcheck // as above
	}
	return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { //nolint:wrapcheck // as above
		return node.FlushAll(ctx).Err() //nolint:wrapcheck // as above
	})
}
