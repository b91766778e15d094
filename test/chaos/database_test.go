//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// database is what is known of the Redis of a world.
type database struct {
	// changes counts what was done to it.
	changes atomic.Int64
}

// junkKeys is how many keys a restart that loads for long has to load.
const junkKeys = 700

func (w *world) hurtRedis(f fault) {
	w.db.changes.Add(1)
	switch f.Kind {
	case kill, redisLoading:
		w.killRedis()
	case freeze:
		w.redis.Stop()
	case redisFull:
		w.admin("CONFIG", "SET", "maxmemory", "1mb")
	case redisReadOnly:
		// Nobody listens there: it never syncs, and so keeps what it has.
		w.admin("REPLICAOF", "127.0.0.1", "1")
	case redisNoReplicas:
		w.admin("CONFIG", "SET", "min-replicas-to-write", "1")
	case redisSleep:
		w.adminLater("DEBUG", "SLEEP", fmt.Sprintf("%.3f", f.For.Seconds()))
	case redisSpin:
		w.adminLater("EVAL", spin, "0", fmt.Sprintf("%.3f", f.For.Seconds()))
	case redisFlush:
		w.admin("SCRIPT", "FLUSH")
	case redisClients:
		w.admin("CLIENT", "KILL", "TYPE", []string{"normal", "pubsub"}[f.Dice%2])
	default:
		panic("no such fault: " + f.Kind)
	}
}

// spin keeps Redis in one script. It writes nothing, so nothing is half done.
const spin = `local e = os.clock() + tonumber(ARGV[1]) / 2 while os.clock() < e do end return 1`

func (w *world) healRedis(f fault) {
	w.db.changes.Add(1) // before and after: a look in between counts for nothing
	switch f.Kind {
	case kill, redisLoading:
		w.redis.Restart()
		w.notef("redis is up again")
	case freeze:
		w.redis.Cont()
	case redisFull:
		w.admin("CONFIG", "SET", "maxmemory", "0")
	case redisReadOnly:
		w.admin("REPLICAOF", "NO", "ONE")
	case redisNoReplicas:
		w.admin("CONFIG", "SET", "min-replicas-to-write", "0")
	default: // over by itself
	}
	w.db.changes.Add(1)
}

func (w *world) killRedis() {
	w.mu.Lock()
	w.killed = append(w.killed, time.Now())
	w.mu.Unlock()
	w.redis.Kill9()
}

// admin runs a command on Redis itself, not through a proxy. It may take a while:
// the fault before it may not be over to the last script.
func (w *world) admin(args ...any) {
	w.Helper()
	var err error
	if !until(20*time.Second, func() bool {
		ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
		defer cancel()
		err = w.rdb.Do(ctx, args...).Err()
		return err == nil
	}) {
		w.wrong("cannot %v: %v", args, err)
	}
}

// adminLater does not wait for the answer.
func (w *world) adminLater(args ...any) {
	w.gone.Go(func() {
		ctx, cancel := context.WithTimeout(w.ctx, 20*time.Second)
		defer cancel()
		_ = w.rdb.Do(ctx, args...).Err() // what it does to others is what counts
	})
}

// slowLoading has each key of the file's base take 1 ms to load.
var slowLoading = []string{"--key-load-delay", "1000"}

// makeLoadingSlow has Redis rewrite its files with many keys in their base, each of
// which takes key-load-delay to load.
func (w *world) makeLoadingSlow() {
	w.admin("EVAL", `for i = 1, tonumber(ARGV[1]) do redis.call('SET', 'junk:' .. i, i) end return 1`, "0", junkKeys)
	w.admin("BGREWRITEAOF")
	if !until(30*time.Second, func() bool {
		info, err := w.rdb.Info(w.ctx, "persistence").Result()
		return err == nil && field(info, "aof_rewrite_in_progress") == "0" && field(info, "aof_base_size") != "0"
	}) {
		w.wrong("redis does not rewrite its file")
	}
}

// field reads one line of INFO.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
