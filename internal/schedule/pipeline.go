package schedule

import (
	"context"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// pipelined sends commands in one round trip, and to a cluster in one per primary,
// all at the same time. Each command has its own error.
//
// go-redis would split a cluster's pipeline by itself. But when a primary hangs, it
// retries until the deadline, and then writes that one's error into every command,
// over the answers of the others: one broken shard would be an outage of all. So
// each primary gets a pipeline of its own, and scripts that it lacks in its own time.
func (e *Engine) pipelined(ctx context.Context, queue func(redis.Pipeliner)) []redis.Cmder {
	all := e.rdb.Pipeline()
	queue(all)
	cmds := all.Cmds()
	cluster, ok := e.rdb.(*redis.ClusterClient)
	if !ok {
		e.exec(ctx, cmds)
		return cmds
	}
	var trips sync.WaitGroup
	for _, group := range byPrimary(ctx, cluster, cmds) {
		trips.Go(func() { e.exec(ctx, group) })
	}
	trips.Wait()
	return cmds
}

// exec runs commands of one primary. A script that it does not know (first use,
// restart, SCRIPT FLUSH) is sent in full in a second round trip: NOSCRIPT changed
// nothing, so only those calls are repeated. go-redis' own Script.Run cannot do
// that inside a pipeline.
func (e *Engine) exec(ctx context.Context, cmds []redis.Cmder) {
	send := func(cmds []redis.Cmder) {
		p := e.rdb.Pipeline()
		_ = p.BatchProcess(ctx, cmds...) // queues
		_, _ = p.Exec(ctx)               // its error is that of the first failed command
	}
	send(cmds)
	var unknown []*redis.Cmd
	var again []redis.Cmder
	for _, cmd := range cmds {
		call, ok := cmd.(*redis.Cmd)
		if ok && redis.HasErrorPrefix(call.Err(), "NOSCRIPT") {
			args := call.Args()                       // evalsha, sha, number of keys, key, ...
			text := e.scripts.texts[args[1].(string)] //nolint:forcetypeassert,errcheck // run puts it there
			unknown = append(unknown, call)
			again = append(again, redis.NewCmd(ctx, append([]any{"eval", text}, args[2:]...)...))
		}
	}
	if len(again) == 0 {
		return
	}
	send(again)
	for i, call := range unknown {
		answer := again[i].(*redis.Cmd) //nolint:forcetypeassert,errcheck // as made above
		call.SetVal(answer.Val())
		call.SetErr(answer.Err())
	}
}

// byPrimary groups commands by who serves their key. Those for which nobody is
// known share a group, and fail together.
func byPrimary(ctx context.Context, c *redis.ClusterClient, cmds []redis.Cmder) map[*redis.Client][]redis.Cmder {
	groups := make(map[*redis.Client][]redis.Cmder)
	serves := make(map[string]*redis.Client) // by hash tag
	for _, cmd := range cmds {
		tag := tagOf(cmd)
		node, known := serves[tag]
		if !known {
			node, _ = c.MasterForKey(ctx, tag) // the command's own try says why
			serves[tag] = node
		}
		groups[node] = append(groups[node], cmd)
	}
	return groups
}

// tagOf is the hash tag of a command's first key, such as "{fo:3.7}".
func tagOf(cmd redis.Cmder) string {
	for _, arg := range cmd.Args() {
		if s, ok := arg.(string); ok && strings.HasPrefix(s, "{fo:") {
			tag, _, _ := strings.Cut(s, "}")
			return tag + "}"
		}
	}
	return ""
}
