package schedule

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by SHA-1
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// script is one transition: the parts that it uses, then its own file.
type script struct {
	name, sha string
}

// scripts are all transitions, loaded once per engine.
type scripts struct {
	accept, strike, claimOpen, enqueue, lease, settle, release, expire, cancel,
	putConfig, tombstone, slow, expiredLeases, expiredDeliveries, trim, sample, page, retryNow,
	claim, unclaim, redrive, discard, report, history,
	inspect, inspectPlaces, inspectCounts, now script

	texts map[string]string // by SHA-1
}

// parts are the files that a script is put together from, before its own: no more
// than it uses, because Redis runs through all of them at each call.
var (
	onEvents   = []string{"clock"}
	onRecords  = []string{"clock", "record", "subscriber", "transition"}
	onVerdicts = append(slices.Clone(onRecords), "endpoint")
	onConfigs  = []string{"clock", "subscriber", "generation"}
	onReading  = []string{"clock", "record", "subscriber"}
)

// loadScripts reads the embedded files. clock is Lua put behind the clock's
// reading in clock.lua: empty but in tests.
func loadScripts(clock string) scripts {
	texts := make(map[string]string)
	load := func(name string, parts []string) script {
		var text strings.Builder
		for _, part := range append(slices.Clone(parts), name) {
			text.WriteString(strings.Replace(file(part), "--[[TEST CLOCK]]", clock, 1))
			text.WriteByte('\n')
		}
		sum := sha1.Sum([]byte(text.String())) //nolint:gosec // as above
		sha := hex.EncodeToString(sum[:])
		texts[sha] = text.String()
		return script{name: name, sha: sha}
	}
	return scripts{
		accept: load("accept", onEvents), strike: load("strike", onEvents), claimOpen: load("claim_open", onEvents),
		enqueue: load("enqueue", onRecords), lease: load("lease", onReading), settle: load("settle", onVerdicts),
		release: load("release", onRecords), expire: load("expire", onRecords), cancel: load("cancel", onRecords),
		putConfig: load("put_config", onConfigs), tombstone: load("tombstone", onConfigs), slow: load("slow", onReading),
		expiredLeases: load("expired_leases", onReading), expiredDeliveries: load("expired_deliveries", onReading),
		trim: load("trim", onRecords), sample: load("sample", onReading),
		page:     load("page", onEvents),
		retryNow: load("retry_now", onRecords),
		claim:    load("claim", onReading), unclaim: load("unclaim", onEvents),
		redrive: load("redrive", onRecords), discard: load("discard", onRecords), report: load("report", onEvents),
		history: load("history", onEvents),
		inspect: load("inspect", onReading), inspectPlaces: load("inspect_places", onReading), inspectCounts: load("inspect_counts", onReading),
		now:   load("now", onEvents),
		texts: texts,
	}
}

func file(name string) string {
	b, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic("schedule: " + err.Error()) // embedded: cannot be missing
	}
	return string(b)
}

// call is one script to run on one partition.
type call struct {
	script script
	prefix string
	args   []any
}

// run runs calls in one round trip and returns an answer for each. What also
// queues goes with them.
func (e *Engine) run(ctx context.Context, calls []call, also ...func(redis.Pipeliner)) ([]*redis.Cmd, error) {
	cmds := make([]*redis.Cmd, len(calls))
	_, err := e.pipe(ctx, func(p redis.Pipeliner) {
		for i, c := range calls {
			cmds[i] = p.EvalSha(ctx, c.script.sha, []string{c.prefix}, c.args...)
		}
		for _, queue := range also {
			queue(p)
		}
	})
	if err != nil {
		return nil, err
	}
	return cmds, nil
}

// run1 runs one script.
func (e *Engine) run1(ctx context.Context, s script, prefix string, args ...any) (any, error) {
	cmds, err := e.run(ctx, []call{{s, prefix, args}})
	if err != nil {
		return nil, err
	}
	v, err := cmds[0].Result()
	return v, classify(s.name, err)
}

// refusals are replies of a Redis that is there but cannot do the work now, and has
// not begun it: starting, failing over, read-only, stuck in another script, unable
// to persist. MISCONF speaks of the write that it refuses.
var refusals = []string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "MISCONF",
	"NOREPLICAS", "UNKILLABLE",
}

// ownErrors are the codes that our scripts reply with.
var ownErrors = map[string]error{
	"NOTFOUND": ErrNotFound, "VERSION": ErrVersion,
}

// classify turns a Redis error into one that callers can branch on. op names the
// operation.
func classify(op string, err error) error {
	if err == nil {
		return nil
	}
	if _, replied := errors.AsType[redis.Error](err); !replied {
		return fmt.Errorf("%s: %w: %w", op, ErrUnavailable, err)
	}
	for code, sentinel := range ownErrors {
		if redis.HasErrorPrefix(err, code) {
			return fmt.Errorf("%s: %w", op, sentinel)
		}
	}
	if redis.HasErrorPrefix(err, "OOM") {
		return fmt.Errorf("%s: %w", op, ErrFull)
	}
	for _, prefix := range refusals {
		if redis.HasErrorPrefix(err, prefix) {
			return fmt.Errorf("%s: %w: %w: %w", op, ErrUnavailable, ErrRefused, err)
		}
	}
	for _, prefix := range []string{"NOAUTH", "WRONGPASS", "NOPERM"} {
		if redis.HasErrorPrefix(err, prefix) {
			return fmt.Errorf("%s: redis refuses the login; see --redis-username and --redis-password-file: %w", op, err)
		}
	}
	return fmt.Errorf("%s: %w", op, err)
}
