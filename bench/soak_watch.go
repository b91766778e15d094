package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// watched are the figures of a process by the name of its metric, and how much of
// each it may gain: a share of what it was, or that much if it is more.
var watched = []struct {
	metric, name string
	share, extra float64
	kind         comparison
}{
	{"go_goroutines", "goroutines", 0.10, 10, peak},
	{"process_open_fds", "fds", 0.10, 10, peak},
	{"process_resident_memory_bytes", "rss", 0.10, 8 << 20, usual},
	{"go_memstats_heap_alloc_bytes", "heap", 0.10, 8 << 20, lowest},
}

// comparison says what of the beginning is held against what of the end.
type comparison int

const (
	// usual: the median of a window against that of the last.
	usual comparison = iota
	// lowest: the lowest of both, since a heap grows between two collections.
	lowest
	// peak: the highest so far against the median of the last. Connections to endpoints
	// are kept for a while, and how many are needed at once comes and goes.
	peak
)

// look is what was seen at one moment.
type look struct {
	At        float64            `json:"at_s"`
	Processes map[string]float64 `json:"processes"` // "api goroutines" and so on
	Redis     map[string]float64 `json:"redis"`
	Accepted  int64              `json:"accepted"`
	Pending   int64              `json:"pending"`
}

// census is how many keys of a kind there are, and how long collections are.
type census struct {
	At   float64          `json:"at_s"`
	Keys map[string]int64 `json:"keys"`
}

// startObserved starts the dispatcher and notes where both tell their metrics.
func (s *stack) startObserved(ctx context.Context) (string, error) {
	var err error
	s.dispatcher, s.dispatcherPort, err = s.product(ctx, "dispatcher", "--slots="+strconv.Itoa(s.b.o.slots))
	return strings.TrimPrefix(s.base, "http://127.0.0.1:"), err
}

// watch looks until ctx ends. A look that fails ends the run: a process is gone.
func (k *soak) watch(ctx context.Context) error {
	start := time.Now()
	for i := 0; rest(ctx, time.Until(start.Add(time.Duration(i)*k.o.every))) == nil; i++ {
		if i%12 == 0 {
			c, err := k.s.redis.census(ctx)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
			c.At = time.Since(start).Seconds()
			k.keys = append(k.keys, c)
		}
		l, err := k.look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		l.At = time.Since(start).Seconds()
		k.looks = append(k.looks, l)
		if i%12 == 0 {
			k.b.say("%4.0f s  %d accepted, %d pending; API %.0f goroutines %.0f MB; dispatcher %.0f goroutines %.0f MB; Redis %.0f MB", l.At, l.Accepted, l.Pending,
				l.Processes["api goroutines"], l.Processes["api rss"]/1e6, l.Processes["dispatcher goroutines"], l.Processes["dispatcher rss"]/1e6, l.Redis["memory"]/1e6)
		}
	}
	return nil
}

func (k *soak) look(ctx context.Context) (look, error) {
	l := look{Processes: map[string]float64{}, Redis: map[string]float64{}}
	for name, port := range map[string]string{"api": k.s.apiPort, "dispatcher": k.s.dispatcherPort} {
		got, err := k.s.metrics(ctx, port)
		if err != nil {
			return l, fmt.Errorf("%s: %w", name, err)
		}
		for _, w := range watched {
			l.Processes[name+" "+w.name] = got[w.metric]
		}
	}
	sample, err := k.s.engine.Sample(ctx, nil)
	if err != nil {
		return l, err
	}
	l.Accepted, l.Pending = sample.Ledger.Accepted, sample.Ledger.Pending
	if l.Redis["memory"], err = k.s.redis.used(ctx); err != nil {
		return l, err
	}
	// Hash tables double at once, and not with each key: their share is apart.
	stats, err := k.s.redis.rdb.Do(ctx, "MEMORY", "STATS").Result()
	if err != nil {
		return l, err
	}
	l.Redis["tables"] = tables(stats)
	info, err := k.s.redis.rdb.InfoMap(ctx, "clients").Result()
	if err == nil {
		l.Redis["clients"], err = strconv.ParseFloat(info["Clients"]["connected_clients"], 64)
	}
	return l, err
}

// tables reads from MEMORY STATS what the hash tables of keys and of expiries take.
func tables(stats any) (sum float64) {
	of := func(v any, name string) any {
		switch v := v.(type) {
		case map[any]any:
			return v[name]
		case []any:
			for i := 0; i+1 < len(v); i += 2 {
				if v[i] == name {
					return v[i+1]
				}
			}
		}
		return nil
	}
	for _, name := range []string{"overhead.hashtable.main", "overhead.hashtable.expires"} {
		if n, ok := of(of(stats, "db.0"), name).(int64); ok {
			sum += float64(n)
		}
	}
	return sum
}

// metrics reads the plain figures that a process tells; those with labels are not
// wanted.
func (s *stack) metrics(ctx context.Context, port string) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+port+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	res, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close() //nolint:errcheck // read below
	all := map[string]float64{}
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), " "); ok && !strings.ContainsAny(name, "#{") {
			all[name], _ = strconv.ParseFloat(value, 64)
		}
	}
	if _, ok := all["go_goroutines"]; !ok {
		return nil, errors.New("/metrics tells no go_goroutines")
	}
	return all, lines.Err()
}

// census counts keys by kind: what is between prefix and the next colon.
func (s *store) census(ctx context.Context) (census, error) {
	c := census{Keys: map[string]int64{}}
	for cursor, more := uint64(0), true; more; more = cursor != 0 {
		keys, next, err := s.rdb.Scan(ctx, cursor, "*", 5000).Result()
		if err != nil {
			return c, err
		}
		cursor = next
		for _, key := range keys {
			c.Keys[kindOf(key)]++
		}
	}
	// Of these there is one per partition, and it is their members that may grow.
	for _, name := range []string{"leases", "expiry", "held", "open", "late", "dead"} {
		err := s.members(ctx, name, &c)
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

func (s *store) members(ctx context.Context, name string, c *census) error {
	keys, err := s.rdb.Keys(ctx, "{fo:*}:"+name).Result()
	for _, key := range keys {
		n, failed := s.rdb.ZCard(ctx, key).Result()
		if failed != nil && !redis.HasErrorPrefix(failed, "WRONGTYPE") {
			return failed
		}
		c.Keys["members of "+name] += n
	}
	return err
}

func kindOf(key string) string {
	tag, name, ok := strings.Cut(key, "}:")
	if !ok {
		return key
	}
	kind, _, _ := strings.Cut(name, ":")
	if strings.HasPrefix(tag, "{fo:e") {
		return "event " + kind
	}
	return kind
}
