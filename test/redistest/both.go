package redistest

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Mini starts an in-memory stand-in that ends with the test. It runs the
// service's scripts 10 to 30 times slower than Redis, and accepts commands that
// Redis 7.0 rejects: what passes here alone is not proved.
func Mini(t testing.TB) *miniredis.Miniredis {
	t.Helper()
	m := miniredis.NewMiniRedis()
	if err := m.StartAddr("127.0.0.1:0"); err != nil {
		t.Fatalf("redistest: start miniredis: %v", err)
	}
	t.Cleanup(m.Close)
	return m
}

// Both runs the test against a real redis-server and against the stand-in, in
// parallel, each empty and its own; with the build tag `cluster`, against a Redis
// Cluster and nothing else.
func Both(t *testing.T, test func(t *testing.T, rdb redis.UniversalClient)) {
	t.Helper()
	if OnCluster {
		t.Run("cluster", func(t *testing.T) {
			t.Parallel()
			test(t, Cluster(t).Client())
		})
		return
	}
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, Server(t).Client())
	})
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		test(t, Client(t, Mini(t).Addr()))
	})
}
