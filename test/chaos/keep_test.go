//go:build chaos

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// keep saves what a person needs to understand a round, and says where it is.
func (w *world) keep(faults []fault) string {
	dir := filepath.Join(flags.out, w.name+"-"+time.Now().Format("150405"))
	if err := os.RemoveAll(dir); err != nil {
		return err.Error()
	}
	if err := os.CopyFS(dir, os.DirFS(w.dir)); err != nil {
		return err.Error()
	}
	save := func(name string, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			w.Logf("keep %s: %v", name, err)
		}
	}
	if log, err := os.ReadFile(filepath.Join(w.redis.Dir(), "redis.log")); err == nil {
		save("redis.log", log)
	}
	var plan strings.Builder
	for _, f := range faults {
		fmt.Fprintln(&plan, f)
	}
	save("faults-drawn.txt", []byte(plan.String()))
	w.mu.Lock()
	save("what-happened.txt", []byte(lines(w.notes)+"\n"))
	save("violations.txt", []byte(lines(w.wrongs)+"\n"))
	w.mu.Unlock()
	save("truth.json", w.truth.dump())
	save("requests.jsonl", w.dumpRequests())
	save("redis.txt", w.dumpRedis())
	return dir
}

func (w *world) dumpRequests() []byte {
	var all []request
	for _, rs := range w.receivers.requests() {
		all = append(all, rs...)
	}
	slices.SortFunc(all, func(a, b request) int { return a.At.Compare(b.At) })
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	for _, r := range all {
		if err := enc.Encode(r); err != nil {
			fmt.Fprintln(&out, err)
		}
	}
	return out.Bytes()
}

// dumpRedis lists every key with its value.
func (w *world) dumpRedis() []byte {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), 30*time.Second)
	defer cancel()
	var out bytes.Buffer
	keys, err := w.rdb.Keys(ctx, "*fo:*").Result()
	if err != nil {
		fmt.Fprintln(&out, err)
	}
	slices.Sort(keys)
	for _, k := range keys {
		var v any
		switch w.rdb.Type(ctx, k).Val() {
		case "string":
			v = w.rdb.Get(ctx, k).Val()
		case "hash":
			v = w.rdb.HGetAll(ctx, k).Val()
		case "zset":
			v = w.rdb.ZRangeWithScores(ctx, k, 0, -1).Val()
		case "list":
			v = w.rdb.LRange(ctx, k, 0, -1).Val()
		case "set":
			v = w.rdb.SMembers(ctx, k).Val()
		}
		fmt.Fprintf(&out, "%s = %.4000v\n", k, v)
	}
	return out.Bytes()
}
