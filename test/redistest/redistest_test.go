package redistest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/test/redistest"
)

func TestServerKeepsItsDataOverAKill(t *testing.T) {
	t.Parallel()
	r := redistest.Server(t, redistest.AOFAlways())
	ctx := t.Context()
	if err := r.Client().Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	r.Kill9()
	if err := r.Client().Ping(ctx).Err(); err == nil {
		t.Fatal("a killed server answered")
	}
	r.Restart()
	got, err := r.Client().Get(ctx, "k").Result()
	if err != nil || got != "v" {
		t.Fatalf("after a kill and a restart k is %q, %v; want what was promised", got, err)
	}
}

func TestStoppedServerIsSilentUntilItContinues(t *testing.T) {
	t.Parallel()
	r := redistest.Server(t)
	c := r.Client()
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	r.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Ping(ctx).Err(); !errors.Is(err, context.DeadlineExceeded) && !isTimeout(err) {
		t.Fatalf("a frozen server gave %v, want a timeout", err)
	}
	r.Cont()
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatalf("after Cont: %v", err)
	}
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

func TestServerObeysItsOptions(t *testing.T) {
	t.Parallel()
	c := redistest.Server(t, redistest.AOFAlways(), redistest.Args("--maxmemory", "8mb")).Client()
	for key, want := range map[string]string{
		"appendfsync": "always", "appendonly": "yes", "save": "",
		"maxmemory": "8388608", "maxmemory-policy": "noeviction",
	} {
		got, err := c.ConfigGet(t.Context(), key).Result()
		if err != nil || got[key] != want {
			t.Errorf("%s is %q, %v; want %q", key, got[key], err, want)
		}
	}
}

func TestBothStartsEmptyAndItsOwn(t *testing.T) {
	t.Parallel()
	for range 3 { // the same key each time: a shared server would show it
		t.Run("", func(t *testing.T) {
			t.Parallel()
			redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
				n, err := rdb.Incr(t.Context(), "{fo:0}:n").Result()
				if err != nil || n != 1 {
					t.Fatalf("first increment gave %d, %v", n, err)
				}
			})
		})
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	r := redistest.Server(t)
	if !strings.HasPrefix(r.Addr(), "127.0.0.1:") || r.URL() != "redis://"+r.Addr() {
		t.Fatalf("address %q, url %q", r.Addr(), r.URL())
	}
}
