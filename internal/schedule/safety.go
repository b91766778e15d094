package schedule

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrUnsafe is a Redis that works, and is set up so that it may lose what was
// accepted.
var ErrUnsafe = errors.New("redis is not set up to keep what it accepts")

// oldestRedis is the oldest version that the scripts are tested on.
const oldestRedis = 7

// Ready says whether Redis answers, holds this layout, takes what is written to
// it, and is set up to keep that: nil, or ErrUnavailable, ErrLayout, ErrFull or
// ErrUnsafe with a sentence for each thing to set. In a cluster every primary is
// asked. Options.AllowUnsafe leaves the last of them out.
func (e *Engine) Ready(ctx context.Context) error {
	// Again, although it was checked: somebody may have emptied Redis since, and
	// another process claimed it for another layout.
	if err := e.checkLayout(ctx); err != nil {
		return err
	}
	return errors.Join(e.unsafe(ctx), e.writable(ctx), e.replicated(ctx))
}

// writable writes to each partition what changes nothing. A Redis that is full,
// read-only, without the replicas that it was told to have, or without a disk
// answers reads and pings all the same, and only a write tells.
func (e *Engine) writable(ctx context.Context) error {
	err := e.read(ctx, "try to write", func(p redis.Pipeliner) {
		for _, prefix := range e.parts {
			p.HIncrBy(ctx, prefix+"ledger", "pending", 0)
		}
	})
	if errors.Is(err, ErrFull) {
		return fmt.Errorf("%w, so new events are refused; raise maxmemory (CONFIG SET maxmemory), or free some", err)
	}
	return err
}

// replicated says whether Accept can find the replicas that it has to wait for. In a
// cluster each primary has its own, and only accepting tells.
func (e *Engine) replicated(ctx context.Context) error {
	if _, cluster := e.rdb.(*redis.ClusterClient); cluster || e.opts.WaitReplicas == 0 {
		return nil
	}
	text, err := e.rdb.Info(ctx, "replication").Result()
	if err != nil {
		return classify("info", err)
	}
	if n, err := strconv.Atoi(parseInfo(text)["connected_slaves"]); err != nil || n < e.opts.WaitReplicas {
		return fmt.Errorf("%w: %w: %d replicas are connected and an event has to wait for %d (--redis-wait-replicas), so events are refused",
			ErrUnavailable, ErrRefused, n, e.opts.WaitReplicas)
	}
	return nil
}

// unsafe asks every node how it is set up.
func (e *Engine) unsafe(ctx context.Context) error {
	if e.opts.AllowUnsafe {
		return nil
	}
	if c, ok := e.rdb.(*redis.ClusterClient); ok {
		return c.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return safe(ctx, node)
		})
	}
	return safe(ctx, e.rdb)
}

// safe asks one node.
func safe(ctx context.Context, node redis.Cmdable) error {
	text, err := node.Info(ctx, "everything").Result()
	if err != nil {
		return classify("info", err)
	}
	info := parseInfo(text)
	var wrong []error
	say := func(format string, a ...any) {
		wrong = append(wrong, fmt.Errorf("%w: "+format, append([]any{ErrUnsafe}, a...)...))
	}
	if v := info["redis_version"]; major(v) < oldestRedis {
		say("it is version %s; %d.0 is the oldest that is supported", v, oldestRedis)
	}
	if p := info["maxmemory_policy"]; p != "noeviction" {
		say("maxmemory-policy is %s, which throws deliveries away when memory is short; "+
			"set it to noeviction (CONFIG SET maxmemory-policy noeviction)", p)
	}
	if info["aof_enabled"] != "1" {
		say("appendonly is off, so a restart loses what was accepted since the last snapshot; " +
			"set it to yes (CONFIG SET appendonly yes)")
	} else if s := info["aof_last_write_status"]; s != "ok" {
		say("the last write to the append-only file failed (%s); look at its disk", s)
	}
	if r := info["role"]; r != "master" {
		say("it is a %s; point redis-addr at the primary", r)
	}
	return errors.Join(wrong...)
}

// parseInfo reads the answer to INFO: "name:value" lines.
func parseInfo(text string) map[string]string {
	info := make(map[string]string)
	for line := range strings.SplitSeq(text, "\n") {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}

// major is the first number of a version, 0 if there is none.
func major(version string) int {
	first, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(first)
	if err != nil {
		return 0
	}
	return n
}
