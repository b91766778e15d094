package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// promised is what the API is said to take, in deliveries a second. How long a 202 takes
// is measured at half of that, and at half of what this machine could do.
const promised = 20_000

// fifty is the wider fan-out of the ingest figures.
const fifty = 50

// ingest measures what the API accepts while nobody sends: deliveries a second at a
// fan-out of 50, posted as fast as they are answered, and how long a 202 for a
// fan-out of 10 takes at half load.
func (b *bench) ingest(ctx context.Context) error {
	s, err := b.startStack(ctx, "everysec")
	if err != nil {
		return err
	}
	defer s.stop()
	if err := s.register(ctx, endpoints, "bench.ten", "bench.fifty"); err != nil {
		return err
	}
	if err := s.register(ctx, fifty-endpoints, "bench.fifty"); err != nil {
		return err
	}
	limit := 3 * time.Second
	if b.o.short {
		limit = time.Second
	}
	if _, err := s.flood(ctx, "bench.fifty", limit/4); err != nil { // connections, scripts, the directory
		return err
	}
	before, err := s.pending(ctx)
	if err != nil {
		return err
	}
	used, _, err := b.meter(func() error {
		rate, err := s.flood(ctx, "bench.fifty", limit)
		b.took.figure("ingest_per_s", rate*fifty)
		return err
	}, map[string]*child{"redis": s.redis.child, "api": s.api})
	if err != nil {
		return err
	}
	after, err := s.pending(ctx)
	if err != nil {
		return err
	}
	n := float64(after - before)
	b.took.figure("ingest_api_ms", used["api"]/n)
	b.took.figure("ingest_redis_ms", used["redis"]/n)

	most, err := s.flood(ctx, "bench.ten", limit)
	if err != nil {
		return err
	}
	b.took.figure("ingest_ten_per_s", most*endpoints)
	for _, at := range []struct {
		name string
		rate float64 // posts a second
	}{{"ingest", promised / endpoints / 2}, {"ingest_half_of_most", most / 2}} {
		if err := s.redis.rested(ctx); err != nil {
			return err
		}
		took, err := s.steadily(ctx, "bench.ten", at.rate, 2*limit)
		if err != nil {
			return err
		}
		b.took.figure(at.name+"_p50_ms", quantile(took, 0.5))
		b.took.figure(at.name+"_p99_ms", quantile(took, 0.99))
	}
	return nil
}

// flood posts for so long, each producer its next event when the last is answered,
// and returns events a second. What is still out at the end is counted with the
// time that it took.
func (s *stack) flood(ctx context.Context, kind string, limit time.Duration) (float64, error) {
	var n atomic.Int64
	start := time.Now()
	err := inParallel(posters, func() error {
		for time.Since(start) < limit {
			id := fmt.Sprintf("evt_%019d%07d", start.UnixNano(), n.Add(1))
			if err := s.call(ctx, "/v1/events", event(kind, id), 202); err != nil {
				return err
			}
		}
		return nil
	})
	return float64(n.Load()) / time.Since(start).Seconds(), err
}

// steadily posts at a rate, whether or not earlier posts were answered (an open
// loop), and returns how long each took in ms from the moment at which it was due: a
// producer that had to wait for its turn has waited.
func (s *stack) steadily(ctx context.Context, kind string, perSecond float64, limit time.Duration) ([]float64, error) {
	const mostOut = 1000
	start := time.Now()
	every := time.Duration(float64(time.Second) / perSecond)
	n := int(limit / every)
	took, errs := make([]float64, n), make([]error, n)
	out := make(chan struct{}, mostOut)
	var wg sync.WaitGroup
	for i := range n {
		due := start.Add(time.Duration(i) * every)
		if err := rest(ctx, time.Until(due)); err != nil {
			return nil, err
		}
		select {
		case out <- struct{}{}:
		default:
			return nil, fmt.Errorf("%d posts are out at half load: it is not half", mostOut)
		}
		wg.Go(func() {
			id := fmt.Sprintf("evt_%019d%07d", start.UnixNano(), i)
			errs[i] = s.call(ctx, "/v1/events", event(kind, id), 202)
			took[i] = time.Since(due).Seconds() * 1000
			<-out
		})
	}
	wg.Wait()
	return took, errors.Join(errs...)
}

// rested waits until Redis rewrites no file in the background. The flood before has
// doubled the append-only file in seconds, which in a day's work takes hours: a rewrite
// that takes one of two cores for these few seconds would stand for all of them.
func (s *store) rested(ctx context.Context) error {
	for {
		info, err := s.rdb.InfoMap(ctx, "persistence").Result()
		if err != nil {
			return err
		}
		p := info["Persistence"]
		if p["aof_rewrite_in_progress"] == "0" && p["aof_rewrite_scheduled"] == "0" && p["rdb_bgsave_in_progress"] == "0" {
			return nil
		}
		if err := rest(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}
