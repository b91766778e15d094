package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// outstanding is how many deliveries may be accepted and not yet arrived while
// posting and sending go on at the same time: enough that the dispatcher never
// waits for the producer, few enough that the two are in balance.
func (o options) outstanding() int64 { return int64(20 * o.slots) }

// pollEvery is how often a producer looks whether it may go on. Looked at each 0.2 ms,
// the waiting of 32 of them cost 5 us of CPU per delivery.
const pollEvery = 5 * time.Millisecond

// posters is how many producers post at the same time.
const posters = 32

// event is a post whose delivery is bodySize bytes long on the wire. The id has a
// fixed length, so all of them have.
func event(kind, id string) []byte {
	envelope := len(`{"type":"","timestamp":"2026-03-01T09:30:00Z","event_id":"","shipment_id":"shp_1","attributes":{},"data":""}`)
	data := strings.Repeat("x", bodySize-envelope-len(kind)-len(id))
	return fmt.Appendf(nil, `{"id":%q,"type":%q,"shipment_id":"shp_1","occurred_at":"2026-03-01T09:30:00Z","data":"%s"}`, id, kind, data)
}

// post sends n events of a type that fans out to all endpoints, with at most the
// given number of deliveries not yet arrived.
func (s *stack) post(ctx context.Context, n int, most int64) error {
	var taken, accepted atomic.Int64
	arrived := s.b.board.count.Load()
	tag := time.Now().UnixNano()
	return inParallel(posters, func() error {
		for i := taken.Add(1); i <= int64(n); i = taken.Add(1) {
			for accepted.Load()*endpoints-(s.b.board.count.Load()-arrived) > most {
				if err := rest(ctx, pollEvery); err != nil {
					return err
				}
			}
			id := fmt.Sprintf("evt_%019d%07d", tag, i)
			if err := s.call(ctx, "/v1/events", event(s.kinds[int(i)%len(s.kinds)], id), 202); err != nil {
				return err
			}
			accepted.Add(1)
		}
		return nil
	})
}

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// arrive waits until the sink has seen n since the last reset.
func (s *stack) arrive(ctx context.Context, n int) error {
	last, since := int64(0), time.Now()
	for got := int64(0); got < int64(n); {
		if err := rest(ctx, time.Millisecond); err != nil {
			return err
		}
		if got = s.b.board.count.Load(); got != last {
			last, since = got, time.Now()
		}
		if time.Since(since) > 20*time.Second {
			return fmt.Errorf("%d of %d deliveries arrived, and none for 20 s: %s", got, n, s.dispatcher.lastWords())
		}
	}
	return nil
}

// fanout measures the product end to end: producers post while the dispatcher
// sends. Then, with the same Redis, how fast a backlog drains, and how soon a lone
// event arrives.
func (b *bench) fanout(ctx context.Context, fsync string) error {
	s, err := b.startStack(ctx, fsync)
	if err != nil {
		return err
	}
	defer s.stop()
	if err := s.startDispatcher(ctx); err != nil {
		return err
	}
	if err := s.register(ctx, endpoints, "bench.ten"); err != nil {
		return err
	}
	b.board.reset()
	if err := s.endToEnd(ctx, b.o.warm); err != nil {
		return err
	}

	n := b.o.events * endpoints
	b.board.reset()
	before, err := s.redis.counters(ctx)
	if err != nil {
		return err
	}
	profiled := s.profile(ctx)
	used, foreign, err := b.meter(func() error { return s.endToEnd(ctx, b.o.events) },
		map[string]*child{"redis": s.redis.child, "api": s.api, "dispatcher": s.dispatcher})
	if err := errors.Join(err, profiled()); err != nil {
		return err
	}
	after, err := s.redis.counters(ctx)
	if err != nil {
		return err
	}
	err = b.arrivals("fanout-"+fsync, n, used, foreign, func(sm *sample) { sm.spent(before, after, n) })
	if err != nil {
		return err
	}
	if fsync != "everysec" {
		return nil
	}
	if err := s.idle(ctx); err != nil {
		return err
	}
	return s.drain(ctx)
}

// endToEnd posts n events and returns when all is delivered and settled.
func (s *stack) endToEnd(ctx context.Context, n int) error {
	if err := s.post(ctx, n, s.b.o.outstanding()); err != nil {
		return err
	}
	if err := s.arrive(ctx, n*endpoints); err != nil {
		return err
	}
	return s.settled(ctx)
}

// drain measures the dispatcher alone, on a backlog.
func (s *stack) drain(ctx context.Context) error {
	s.dispatcher.stop()
	s.dispatcher = nil
	s.b.board.reset()
	if err := s.post(ctx, s.b.o.events, 1<<40); err != nil {
		return err
	}
	if err := s.startDispatcher(ctx); err != nil {
		return err
	}
	if err := s.arrive(ctx, s.b.o.events*endpoints); err != nil {
		return err
	}
	s.b.took.amend("fanout-"+s.fsync, func(sm *sample) {
		sm.Drain = float64(s.b.o.events*endpoints) / s.b.board.seconds()
	})
	return s.settled(ctx)
}

// idle measures one lone event at a time: from the moment its 202 was read to its
// arrival. It may arrive before, and then counts as 0.
func (s *stack) idle(ctx context.Context) error {
	if err := s.register(ctx, 1, "bench.one"); err != nil {
		return err
	}
	tries := 60
	if s.b.o.short {
		tries = 20
	}
	var answer, after, whole []float64
	for i := range tries {
		if err := rest(ctx, 20*time.Millisecond+rand.N(20*time.Millisecond)); err != nil { //nolint:gosec // jitter
			return err
		}
		s.b.board.reset()
		start := time.Now()
		if err := s.call(ctx, "/v1/events", event("bench.one", fmt.Sprintf("evt_%020d_%04d", start.UnixNano(), i)), 202); err != nil {
			return err
		}
		answered := time.Now()
		for s.b.board.count.Load() == 0 {
			if err := rest(ctx, 50*time.Microsecond); err != nil {
				return err
			}
			if time.Since(answered) > 10*time.Second {
				return errors.New("a lone event did not arrive in 10 s")
			}
		}
		at := time.Unix(0, s.b.board.first.Load())
		answer = append(answer, answered.Sub(start).Seconds()*1000)
		after = append(after, max(0, at.Sub(answered).Seconds()*1000))
		whole = append(whole, at.Sub(start).Seconds()*1000)
	}
	s.b.took.figure("idle_202_p50_ms", quantile(answer, 0.5))
	s.b.took.figure("idle_p50_ms", quantile(after, 0.5))
	s.b.took.figure("idle_p99_ms", quantile(after, 0.99))
	s.b.took.figure("idle_whole_p50_ms", quantile(whole, 0.5))
	return nil
}

// asynq measures the alternative, with a Redis of its own, everysec.
func (b *bench) asynq(ctx context.Context) error {
	b.made++
	r, err := startRedis(ctx, filepath.Join(b.dir, fmt.Sprintf("asynq-%d", b.made)), "everysec")
	defer r.stop()
	if err != nil {
		return err
	}
	c, err := spawn(b.dir, "asynq", b.self, "asynq", b.urls, r.addr, strconv.Itoa(b.o.slots))
	if err != nil {
		return err
	}
	defer c.stop()
	most := b.o.outstanding()
	for _, line := range []string{"start", fmt.Sprintf("run %d %d", b.o.warm, most)} {
		if _, err := c.say(ctx, line); err != nil {
			return err
		}
	}
	n := b.o.events * endpoints
	b.board.reset()
	before, err := r.counters(ctx)
	if err != nil {
		return err
	}
	used, foreign, err := b.meter(func() error {
		_, err := c.say(ctx, fmt.Sprintf("run %d %d", b.o.events, most))
		return err
	}, map[string]*child{"redis": r.child, "worker": c})
	if err != nil {
		return err
	}
	after, err := r.counters(ctx)
	if err != nil {
		return err
	}
	err = b.arrivals("asynq-everysec", n, used, foreign, func(sm *sample) { sm.spent(before, after, n) })
	if err != nil {
		return err
	}
	return b.asynqDrain(ctx, c, r)
}

// asynqDrain takes the drain, and on the way what a waiting task costs in memory.
func (b *bench) asynqDrain(ctx context.Context, c *child, r *store) error {
	if _, err := c.say(ctx, "stop"); err != nil {
		return err
	}
	n := b.o.events * endpoints
	before, err := r.used(ctx)
	if err != nil {
		return err
	}
	if _, err := c.say(ctx, fmt.Sprintf("enqueue %d", b.o.events)); err != nil {
		return err
	}
	after, err := r.used(ctx)
	if err != nil {
		return err
	}
	b.took.figure("asynq_bytes_per_task", (after-before)/float64(n)-bodySize)
	b.board.reset()
	if _, err := c.say(ctx, "start"); err != nil {
		return err
	}
	if _, err := c.say(ctx, "run 0"); err != nil {
		return err
	}
	b.took.amend("asynq-everysec", func(sm *sample) { sm.Drain = float64(n) / b.board.seconds() })
	return nil
}

// quantile of values, which need not be sorted; 0 for none.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
