package redrive_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/test/redistest"
)

// server is a real redis-server, for what the stand-in is too slow for.
func server(t testing.TB) *redis.Client {
	t.Helper()
	return redistest.Server(t).Client()
}
