package access

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/test/redistest"
)

const bootstrap = "correct-horse-battery-staple-0123456789"

// clock is a time that only its test moves.
type clock struct{ ms atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.ms.Store(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixMilli())
	return c
}

func (c *clock) now() time.Time          { return time.UnixMilli(c.ms.Load()).UTC() }
func (c *clock) advance(d time.Duration) { c.ms.Add(d.Milliseconds()) }

// world is a store in the hands of one test.
type world struct {
	*testing.T
	*Store
	ctx context.Context
	rdb redis.UniversalClient
	clk *clock
}

func newWorld(t *testing.T, rdb redis.UniversalClient, o Options) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	w := &world{T: t, ctx: ctx, rdb: rdb, clk: newClock()}
	w.Store = w.open(o)
	return w
}

// open is another store over the same Redis and the same clock: another process.
func (w *world) open(o Options) *Store {
	w.Helper()
	o.Now = w.clk.now
	s, err := Open(w.rdb, o)
	w.ok(err)
	w.Cleanup(s.Close)
	return s
}

// each runs a test against a real Redis and against the stand-in.
func each(t *testing.T, o Options, test func(w *world)) {
	t.Helper()
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) { test(newWorld(t, rdb, o)) })
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) create(n NewKey) (Key, string) {
	w.Helper()
	if n.Name == "" {
		n.Name = "a test"
	}
	if n.Role == "" {
		n.Role = Operator
	}
	k, token, err := w.Keys.Create(w.ctx, n, "bootstrap")
	w.ok(err)
	return k, token
}

// wants authenticates and holds the error against the one wanted; nil means taken.
func (w *world) wants(s *Store, token string, want error) Identity {
	w.Helper()
	id, err := s.Gate.Authenticate(w.ctx, token)
	if !errors.Is(err, want) || (want == nil) != (err == nil) {
		w.Fatalf("authenticate gave %+v, %v; want %v", id, err, want)
	}
	return id
}

// limited is how long the token has to wait; 0 if it was taken.
func (w *world) limited(token string) time.Duration {
	w.Helper()
	_, err := w.Gate.Authenticate(w.ctx, token)
	if limit, ok := errors.AsType[*LimitedError](err); ok {
		return limit.RetryAfter
	}
	w.ok(err)
	return 0
}

// spy counts the commands that go to Redis by name, and can hold replies back.
type spy struct {
	commands chan string // each that was sent, if there is room
	hold     func(name string)
}

func (s *spy) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *spy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		s.saw(cmd.Name())
		return err
	}
}

func (s *spy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, c := range cmds {
			s.saw(c.Name())
		}
		return err
	}
}

func (s *spy) saw(name string) {
	if s.commands != nil {
		s.commands <- name
	}
	if s.hold != nil {
		s.hold(name)
	}
}
