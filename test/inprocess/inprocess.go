// Package inprocess answers: against what does a client of the service test?
//
// Start runs a whole fanout in the test's own process, so that the race detector
// sees it: an API server and a dispatcher over a redis-server of the test's own.
// The tests in test/e2e have more to do with the inside, and a start of their own.
package inprocess

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/boot"
	"github.com/fanout/fanout/internal/role"
	"github.com/fanout/fanout/test/redistest"
)

// Option changes how Start starts the service.
type Option func(*options)

type options struct {
	admin string
	log   slog.Handler
}

// AdminKey is the first admin's key, of at least 32 characters: calls without a key
// are then refused.
func AdminKey(key string) Option { return func(o *options) { o.admin = key } }

// Log takes what both roles log.
func Log(h slog.Handler) Option { return func(o *options) { o.log = h } }

// Start runs the service until the test ends, and gives the address of its API. It may
// call endpoints on 127.0.0.1, by http and on any port. Without AdminKey it takes
// every call for one of its admin's. There is no limit to the rate of a key.
func Start(t testing.TB, change ...Option) string {
	t.Helper()
	o := options{log: slog.DiscardHandler}
	for _, c := range change {
		c(&o)
	}
	redis := redistest.Server(t)
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	api, last := parts(t, redis.Addr(), o.log)
	stages, err := role.API(t.Context(), api, ln, boot.Access{AdminKey: o.admin, Keyless: o.admin == ""})
	if err != nil {
		t.Fatal(err)
	}
	run(t, append(stages, last)...)
	dispatcher, last := parts(t, redis.Addr(), o.log)
	run(t, append(role.Dispatcher(dispatcher, role.Work{Slots: 20, Grace: time.Second}, nil), last)...)
	return "http://" + ln.Addr().String()
}

// parts are what a role is made of; each role has its own connection to Redis.
func parts(t testing.TB, redis string, log slog.Handler) (role.Parts, boot.Stage) {
	t.Helper()
	p, last, err := role.Assemble(t.Context(), "test", boot.Common{
		Redis:   boot.Redis{Addr: []string{redis}, Partitions: 4, PoolSize: 8},
		Classes: boot.Classes{"standard": time.Minute},
	}, role.Endpoint{
		AllowHTTP: true, AllowAnyPort: true, AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	}, slog.New(log))
	if err != nil {
		t.Fatal(err)
	}
	return p, last
}

// run runs stages until the test ends, and fails it if they did not end well.
func run(t testing.TB, stages ...boot.Stage) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- boot.Run(ctx, slog.New(slog.DiscardHandler), stages...) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("stop: %v", err)
		}
	})
}
