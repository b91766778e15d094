package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
)

// asynqMain does the same job on hibiken/asynq: one process that enqueues a task per
// event and subscriber and whose handler signs and posts. It is given every
// advantage that takes no new code: a Redis of its own, no HTTP API before the
// queue, 32 goroutines that enqueue, as many workers as fanout has slots, a pool of
// connections to match, a poll that never makes it wait, and nothing retained.
//
// Args: sink's URLs, Redis address, workers. Lines: "start", "stop", "run N M" posts
// N events with at most M tasks not yet handled and waits for all of them, "enqueue
// N" does not wait.
func asynqMain(args []string) error {
	workers, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	p, err := newPoster(args[0], workers)
	if err != nil {
		return err
	}
	a := &asynqJob{
		poster: p, workers: workers, redis: asynq.RedisClientOpt{Addr: args[1], PoolSize: workers},
		body: []byte(strings.Repeat("x", bodySize)),
	}
	a.client = asynq.NewClient(a.redis)
	return listen(a.answer)
}

type asynqJob struct {
	poster  *poster
	workers int
	redis   asynq.RedisClientOpt
	client  *asynq.Client
	server  *asynq.Server
	body    []byte
	events  atomic.Int64 // ids given
	queued  atomic.Int64
	handled atomic.Int64
}

func (a *asynqJob) answer(line string) (string, error) {
	words := strings.Fields(line)
	n, most := int64(0), int64(1<<40)
	if len(words) > 1 {
		n, _ = strconv.ParseInt(words[1], 10, 64)
	}
	if len(words) > 2 {
		most, _ = strconv.ParseInt(words[2], 10, 64)
	}
	switch words[0] {
	case "start":
		a.server = asynq.NewServer(a.redis, asynq.Config{
			Concurrency: a.workers, Queues: map[string]int{"default": 1}, LogLevel: asynq.ErrorLevel,
			TaskCheckInterval: time.Millisecond,
		})
		return "done", a.server.Start(asynq.HandlerFunc(a.handle))
	case "stop":
		a.server.Shutdown()
		return "done", nil
	case "enqueue":
		return "done", a.enqueue(n, most)
	case "run":
		if err := a.enqueue(n, most); err != nil {
			return "", err
		}
		for a.handled.Load() < a.queued.Load() {
			time.Sleep(time.Millisecond)
		}
		return "done", nil
	}
	return "", fmt.Errorf("no command %q", line)
}

// enqueue makes a task for each of n events and each subscriber.
func (a *asynqJob) enqueue(n, most int64) error {
	var taken atomic.Int64
	return inParallel(32, func() error {
		for taken.Add(1) <= n {
			event := a.events.Add(1)
			for a.queued.Load()-a.handled.Load() > most {
				time.Sleep(pollEvery)
			}
			for sub := range endpoints {
				payload := make([]byte, 10, 10+len(a.body))
				binary.BigEndian.PutUint64(payload, uint64(event))
				binary.BigEndian.PutUint16(payload[8:], uint16(sub))
				if _, err := a.client.Enqueue(asynq.NewTask("deliver", append(payload, a.body...))); err != nil {
					return err
				}
				a.queued.Add(1)
			}
		}
		return nil
	})
}

func (a *asynqJob) handle(ctx context.Context, t *asynq.Task) error {
	b := t.Payload()
	sub := int(binary.BigEndian.Uint16(b[8:]))
	id := fmt.Sprintf("dlv_%04d%020d", sub, binary.BigEndian.Uint64(b))
	if err := a.poster.post(ctx, sub, id, b[10:]); err != nil {
		return err
	}
	a.handled.Add(1)
	return nil
}
