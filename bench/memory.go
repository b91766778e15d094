package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// memory measures what Redis needs for a delivery that waits.
//
// Method: used_memory, less the buffers of clients and of the append-only file, is
// read before and after many deliveries are enqueued at a fan-out of 50. From the
// difference is taken what the events cost, payload and record and plan, by MEMORY
// USAGE of a sample of their keys; the rest, divided by the deliveries, is the
// figure. It holds everything that grows with the deliveries, hash tables included.
// It is deterministic, so the first round alone takes it.
func (b *bench) memory(ctx context.Context) error {
	if len(b.took.rounds) > 1 {
		return nil
	}
	s, err := b.startStack(ctx, "none")
	if err != nil {
		return err
	}
	defer s.stop()
	if err := s.register(ctx, fifty, "bench.ten"); err != nil {
		return err
	}
	events := 4000
	if b.o.short {
		events = 1000
	}
	before, err := s.redis.used(ctx)
	if err != nil {
		return err
	}
	if err := s.post(ctx, events, 1<<40); err != nil {
		return err
	}
	after, err := s.redis.used(ctx)
	if err != nil {
		return err
	}
	pending, err := s.pending(ctx)
	if err != nil {
		return err
	}
	if pending != int64(events*fifty) {
		return fmt.Errorf("%d deliveries are pending, want %d", pending, events*fifty)
	}
	shares, err := s.redis.eventBytes(ctx)
	if err != nil {
		return err
	}
	b.took.figure("bytes_per_event", shares/float64(events))
	b.took.figure("bytes_per_delivery", (after-before-shares)/float64(pending))
	return nil
}

// used is Redis' memory in bytes, without what comes and goes.
func (s *store) used(ctx context.Context) (float64, error) {
	all, err := s.rdb.InfoMap(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for name, sign := range map[string]float64{"used_memory": 1, "mem_clients_normal": -1, "mem_aof_buffer": -1} {
		v, err := strconv.ParseFloat(all["Memory"][name], 64)
		if err != nil {
			return 0, fmt.Errorf("INFO memory: %s: %w", name, err)
		}
		sum += sign * v
	}
	return sum, nil
}

// eventBytes is what all keys of events use, by one in eight of them.
func (s *store) eventBytes(ctx context.Context) (float64, error) {
	const oneIn = 8
	seen, sum := 0, 0.0
	for cursor, more := uint64(0), true; more; more = cursor != 0 {
		keys, next, err := s.rdb.Scan(ctx, cursor, "{fo:e*", 10_000).Result()
		if err != nil {
			return 0, err
		}
		cursor = next
		var asked []*redis.IntCmd
		_, err = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, key := range keys {
				// The few that are not per event are no part of the sample.
				if name := key[strings.IndexByte(key, '}')+1:]; !strings.Contains(name[1:], ":") {
					continue
				}
				if seen++; seen%oneIn == 0 {
					asked = append(asked, p.MemoryUsage(ctx, key, 0))
				}
			}
			return nil
		})
		if err != nil && len(asked) > 0 {
			return 0, err
		}
		for _, a := range asked {
			sum += float64(a.Val())
		}
	}
	return sum * oneIn, nil
}
