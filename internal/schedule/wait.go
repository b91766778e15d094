package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxWaitTimeout keeps a WAIT below the client's read timeout, which would take
// the connection for dead.
const maxWaitTimeout = 2 * time.Second

func (o *Options) checkWait() error {
	if o.WaitTimeout == 0 {
		o.WaitTimeout = time.Second
	}
	if o.WaitReplicas < 0 {
		return fmt.Errorf("wait_replicas: must not be negative, is %d", o.WaitReplicas)
	}
	if o.WaitTimeout < time.Millisecond || o.WaitTimeout > maxWaitTimeout {
		return fmt.Errorf("wait_timeout: must be from 1ms to %s, is %s", maxWaitTimeout, o.WaitTimeout)
	}
	return nil
}

// run1Copied runs one script, and returns when WaitReplicas replicas have what it
// did. WAIT speaks of what its own connection did last, a script that changed
// nothing included, so both go in one pipeline to one node: a cluster's client
// would send WAIT, which has no key, anywhere.
//
// ErrUnavailable may mean that the script did its work and too few replicas know.
// Running it again then waits for the first run's effect, as that is in the
// primary's stream before.
func (e *Engine) run1Copied(ctx context.Context, s script, prefix string, args ...any) (any, error) {
	if e.opts.WaitReplicas == 0 {
		return e.run1(ctx, s, prefix, args...)
	}
	if err := e.layout(ctx); err != nil {
		return nil, err
	}
	node, err := e.primary(ctx, prefix)
	if err != nil {
		return nil, classify(s.name, err)
	}
	keys := []string{prefix}
	done, copies := e.thenWait(ctx, node, func(p redis.Pipeliner) *redis.Cmd { return p.EvalSha(ctx, s.sha, keys, args...) })
	if redis.HasErrorPrefix(done.Err(), "NOSCRIPT") {
		text := e.scripts.texts[s.sha]
		done, copies = e.thenWait(ctx, node, func(p redis.Pipeliner) *redis.Cmd { return p.Eval(ctx, text, keys, args...) })
	}
	if cluster, ok := e.rdb.(*redis.ClusterClient); ok && redis.HasErrorPrefix(done.Err(), "MOVED") {
		cluster.ReloadState(ctx) // the next try goes to the right one
	}
	v, err := done.Result()
	n, failed := copies.Int64()
	if err := errors.Join(classify(s.name, err), classify("wait", failed)); err != nil {
		return nil, err
	}
	if n < int64(e.opts.WaitReplicas) {
		return nil, fmt.Errorf("%s: %w: %d replicas of %d have it after %s",
			s.name, ErrUnavailable, n, e.opts.WaitReplicas, e.opts.WaitTimeout)
	}
	return v, nil
}

// thenWait sends a script and a WAIT.
func (e *Engine) thenWait(
	ctx context.Context, node redis.UniversalClient, script func(redis.Pipeliner) *redis.Cmd,
) (done, copies *redis.Cmd) {
	p := node.Pipeline()
	done = script(p)
	copies = p.Do(ctx, "wait", e.opts.WaitReplicas, e.opts.WaitTimeout.Milliseconds())
	_, _ = p.Exec(ctx) // its error is that of the first failed command
	return done, copies
}

// primary is the node that serves a key.
func (e *Engine) primary(ctx context.Context, key string) (redis.UniversalClient, error) {
	cluster, ok := e.rdb.(*redis.ClusterClient)
	if !ok {
		return e.rdb, nil
	}
	return cluster.MasterForKey(ctx, key) //nolint:wrapcheck // the caller classifies it
}
