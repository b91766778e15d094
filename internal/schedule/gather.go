package schedule

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Group commit. Calls of one script on one partition that come while a round trip is
// out go together in the next one, as one call: a script costs Redis about 30 us before
// it has done anything, and a round trip both sides as much again. A lone call waits
// for nobody.
//
// There is one queue a Redis, and in a cluster one a partition: a primary that hangs
// must not keep the calls to another.

// gatherFor bounds a round trip: it speaks for many, and so by none's deadline. It is
// above what the client itself allows a call.
const gatherFor = 10 * time.Second

// ask is one caller's share of a call. Its answer is width elements of the list that
// the script returns.
type ask struct {
	script script
	prefix string
	common []any // arguments that stand once before those of all asks; alike for one script
	args   []any
	width  int
	weight int  // bounds what goes together: maxWeight
	copies bool // wait for Options.WaitReplicas

	done   chan struct{}
	answer []any
	err    error
}

// maxWeight is how much goes into one call: a delivery weighs 1, and so does a KiB of
// payload. It bounds how long a script keeps Redis from others, to about 5 ms, and how
// much a script unpacks at once.
const maxWeight = 200

// gatherer is the queue of one Redis, or of one partition.
type gatherer struct {
	engine *Engine

	mu      sync.Mutex
	waiting []*ask
	sending bool
}

// gather runs one ask together with others, and returns its part of the answer. If ctx
// ends first the call may happen all the same.
func (e *Engine) gather(ctx context.Context, a *ask) ([]any, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", a.script.name, ErrUnavailable, err)
	}
	a.done = make(chan struct{})
	g := e.gathererOf(a)
	g.mu.Lock()
	g.waiting = append(g.waiting, a)
	first := !g.sending
	g.sending = true
	g.mu.Unlock()
	if first {
		go g.send(context.WithoutCancel(ctx))
	}
	select {
	case <-a.done:
		return a.answer, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w: %w", a.script.name, ErrUnavailable, ctx.Err())
	}
}

// gathererOf finds the queue for an ask. What waits for replicas has its own, so that
// nothing else waits for them.
func (e *Engine) gathererOf(a *ask) *gatherer {
	type key struct {
		prefix string
		copies bool
	}
	k := key{copies: a.copies && e.opts.WaitReplicas > 0}
	if _, cluster := e.rdb.(*redis.ClusterClient); cluster {
		k.prefix = a.prefix
	}
	g, ok := e.gatherers.Load(k)
	if !ok {
		g, _ = e.gatherers.LoadOrStore(k, &gatherer{engine: e})
	}
	return g.(*gatherer) //nolint:forcetypeassert,errcheck // nothing else is put there
}

// send makes round trips until nothing waits.
func (g *gatherer) send(ctx context.Context) {
	for {
		g.mu.Lock()
		asks := g.waiting
		g.waiting = nil
		g.sending = len(asks) > 0
		g.mu.Unlock()
		if len(asks) == 0 {
			return
		}
		trip, cancel := context.WithTimeout(ctx, gatherFor)
		g.engine.trip(trip, asks)
		cancel()
	}
}

// trip makes one round trip for all asks, and answers each.
func (e *Engine) trip(ctx context.Context, asks []*ask) {
	var groups [][]*ask
	open := map[string]int{} // script and prefix: the group that may take more
	weight := map[int]int{}
	for _, a := range asks {
		key := a.script.sha + a.prefix
		i, ok := open[key]
		if !ok || weight[i]+a.weight > maxWeight {
			i = len(groups)
			groups = append(groups, nil)
			open[key] = i
		}
		groups[i] = append(groups[i], a)
		weight[i] += a.weight
	}
	calls := make([]call, len(groups))
	for i, group := range groups {
		args := append([]any(nil), group[0].common...)
		for _, a := range group {
			args = append(args, a.args...)
		}
		calls[i] = call{group[0].script, group[0].prefix, args}
	}
	for i, v := range e.callAll(ctx, calls, groups[0][0].copies) {
		if len(groups[i]) > 1 && v.err != nil && !passing(v.err) {
			// One of them may be what Redis does not like: the others are not to suffer.
			for _, a := range groups[i] {
				e.trip(ctx, []*ask{a})
			}
			continue
		}
		settleGroup(groups[i], v.val, v.err)
	}
}

// passing says that an error is no fault of what was asked.
func passing(err error) bool { return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrFull) }

// outcome is what a call came to.
type outcome struct {
	val any
	err error
}

// callAll runs calls in one round trip, or, where replicas must have what they did,
// each with its own WAIT, all at the same time.
func (e *Engine) callAll(ctx context.Context, calls []call, copied bool) []outcome {
	out := make([]outcome, len(calls))
	if copied && e.opts.WaitReplicas > 0 {
		var all sync.WaitGroup
		for i, c := range calls {
			all.Go(func() { out[i].val, out[i].err = e.run1Copied(ctx, c.script, c.prefix, c.args...) })
		}
		all.Wait()
		return out
	}
	cmds, err := e.run(ctx, calls)
	for i, c := range calls {
		if out[i].err = err; err == nil {
			v, err := cmds[i].Result()
			out[i] = outcome{v, classify(c.script.name, err)}
		}
	}
	return out
}

// settleGroup hands each ask of a call its part of the answer.
func settleGroup(group []*ask, v any, err error) {
	list, _ := v.([]any)
	want := 0
	for _, a := range group {
		want += a.width
	}
	if err == nil && len(list) != want {
		err = fmt.Errorf("%s: script returned %d words for %d", group[0].script.name, len(list), want)
	}
	for _, a := range group {
		if a.err = err; err == nil {
			a.answer, list = list[:a.width], list[a.width:]
		}
		close(a.done)
	}
}
