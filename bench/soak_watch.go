package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/plot"
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

// growth is one figure in the window after the settling time and in the last one.
type growth struct {
	Name   string  `json:"name"`
	Before float64 `json:"before"`
	After  float64 `json:"after"`
	Bound  float64 `json:"bound"`
}

func (g growth) bad() bool { return g.After > g.Bound }

// compare gives the growth of everything that should not grow.
func (k *soak) compare() (all []growth) {
	for _, process := range []string{"api", "dispatcher"} {
		for _, w := range watched {
			before, after := k.windows(func(l look) float64 { return l.Processes[process+" "+w.name] }, w.kind)
			all = append(all, growth{process + " " + w.name, before, after, before + max(w.share*before, w.extra)})
		}
	}
	// A connection to an endpoint has two goroutines. Without them what is left hardly
	// moves.
	before, after := k.windows(func(l look) float64 {
		return l.Processes["dispatcher goroutines"] - 2*l.Processes["dispatcher fds"]
	}, usual)
	all = append(all, growth{"dispatcher goroutines, less 2 for each fd", before, after, before + 20})
	before, after = k.windows(func(l look) float64 { return l.Redis["clients"] }, usual)
	all = append(all, growth{"redis connections", before, after, max(before+10, 2*redisPool)})
	before, after = k.windows(func(l look) float64 { return float64(l.Pending) }, usual)
	all = append(all, growth{"pending deliveries", before, after, before + max(before/2, 1000)})
	first, second := k.halves()
	all = append(all, growth{"redis bytes per delivery accepted", first, second, first * 1.1})
	return append(all, k.strays()...)
}

// redisPool is how many connections to Redis a process may have: it opens as many as
// it needs at once, and keeps them.
const redisPool = 32 + 2

// windows are the figures of the beginning, which is up to a window after the settling
// time, and of the last window.
func (k *soak) windows(of func(look) float64, kind comparison) (before, after float64) {
	w, from, end := k.o.window().Seconds(), k.o.settle.Seconds(), k.looks[len(k.looks)-1].At
	if kind == peak {
		from, w = 0, from+w
	}
	var a, b []float64
	for _, l := range k.looks {
		if l.At >= from && l.At < from+w {
			a = append(a, of(l))
		}
		if l.At > end-k.o.window().Seconds() {
			b = append(b, of(l))
		}
	}
	switch kind {
	case lowest:
		return slices.Min(a), slices.Min(b)
	case peak:
		return slices.Max(a), quantile(b, 0.5)
	default:
		return quantile(a, 0.5), quantile(b, 0.5)
	}
}

// halves are the bytes that Redis gained for each delivery accepted, in the first and
// in the second half of what is after the settling time. Records, events and payloads
// are kept for a day and more, so it gains; if it gains no more for the later ones,
// nothing else grows.
func (k *soak) halves() (first, second float64) {
	var after []look
	for _, l := range k.looks {
		if l.At >= k.o.settle.Seconds() {
			after = append(after, l)
		}
	}
	each := func(a, b look) float64 {
		return (b.Redis["memory"] - b.Redis["tables"] - a.Redis["memory"] + a.Redis["tables"]) / float64(max(1, b.Accepted-a.Accepted))
	}
	middle := after[len(after)/2]
	return each(after[0], middle), each(middle, after[len(after)-1])
}

// kept are the kinds of keys that are there for a day and more, by number of events
// or deliveries.
var kept = []string{"d", "att", "pin", "pins", "event ev", "event body", "members of dead"}

// strays are the kinds of keys that are not, and yet become more.
func (k *soak) strays() (all []growth) {
	if len(k.keys) < 2 {
		return nil
	}
	first, last := k.keys[min(len(k.keys)-2, int(k.o.settle/(12*k.o.every)))], k.keys[len(k.keys)-1]
	for _, kind := range slices.Sorted(maps.Keys(last.Keys)) {
		if slices.Contains(kept, kind) {
			continue
		}
		before, after := float64(first.Keys[kind]), float64(last.Keys[kind])
		all = append(all, growth{"redis keys: " + kind, before, after, before + max(before/2, 300)})
	}
	return all
}

// report prints the verdict, writes soak.json and charts, and fails if something grew.
func (k *soak) report(w io.Writer) error {
	all := k.compare()
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\n\tafter %s\tat the end\tbound\n", k.o.settle)
	var grew []string
	for _, g := range all {
		note := ""
		if g.bad() {
			note = "GREW"
			grew = append(grew, g.Name)
		}
		fmt.Fprintf(t, "%s\t%.0f\t%.0f\t%.0f\t%s\n", g.Name, g.Before, g.After, g.Bound, note)
	}
	fmt.Fprintln(t, "\nkept for a day and more\tat the end")
	for _, kind := range kept {
		fmt.Fprintf(t, "%s\t%d\n", kind, k.keys[len(k.keys)-1].Keys[kind])
	}
	last := k.looks[len(k.looks)-1]
	value := map[string]growth{}
	for _, g := range all {
		value[g.Name] = g
	}
	line := fmt.Sprintf("soak_s=%.0f deliveries=%d per_s=%.0f pending=%d repeated=%d refused=%d grew=%d", last.At, last.Accepted,
		float64(last.Accepted-k.looks[0].Accepted)/(last.At-k.looks[0].At), k.left, k.repeated.Load(), k.refused.Load(), len(grew))
	for _, process := range []string{"api", "dispatcher"} {
		line += fmt.Sprintf(" %s_goroutines=%.0f->%.0f %s_rss_mb=%.1f->%.1f", process, value[process+" goroutines"].Before, value[process+" goroutines"].After,
			process, value[process+" rss"].Before/1e6, value[process+" rss"].After/1e6)
	}
	line += fmt.Sprintf(" redis_bytes_per_delivery=%.0f->%.0f", value["redis bytes per delivery accepted"].Before, value["redis bytes per delivery accepted"].After)
	text, err := json.MarshalIndent(map[string]any{
		"line": line, "machine": k.b.machine(), "took_at": time.Now().UTC().Format(time.RFC3339), "events_per_s": k.rate,
		"verdict": all, "looks": k.looks, "keys": k.keys,
	}, "", " ")
	if err == nil {
		err = os.MkdirAll(k.b.o.out, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(k.b.o.out, "soak.json"), append(text, '\n'), 0o644)
	}
	err = errors.Join(err, t.Flush(), k.charts())
	if why := k.doubt.Load(); why != nil {
		fmt.Fprintf(w, "\n%d posts were sent again, the last because of: %v\n", k.repeated.Load(), why)
	}
	_, _ = fmt.Fprintf(w, "\n%s\n", line)
	if err == nil && k.refused.Load() > 0 {
		err = fmt.Errorf("%d posts got no 202, nor when sent again", k.refused.Load())
	}
	if err == nil && len(grew) > 0 {
		err = errors.New("it grew: " + strings.Join(grew, ", "))
	}
	return err
}

func (k *soak) charts() error {
	line := func(name string, of func(look) float64) plot.Series {
		s := plot.Series{Name: name}
		for _, l := range k.looks {
			s.Points = append(s.Points, plot.Point{X: l.At, Y: of(l)})
		}
		return s
	}
	of := func(name string, unit float64) func(look) float64 {
		return func(l look) float64 { return l.Processes[name] / unit }
	}
	x := plot.Axis{Label: "time", Unit: "s"}
	return errors.Join(
		k.b.draw("soak-goroutines.svg", plot.Chart{Title: "Soak: goroutines and open files", X: x, Y: plot.Axis{Label: "number"}, Series: []plot.Series{
			line("API, goroutines", of("api goroutines", 1)), line("dispatcher, goroutines", of("dispatcher goroutines", 1)),
			line("API, open files", of("api fds", 1)), line("dispatcher, open files", of("dispatcher fds", 1)),
		}}),
		k.b.draw("soak-memory.svg", plot.Chart{Title: "Soak: memory of the processes", X: x, Y: plot.Axis{Label: "memory", Unit: "MB"}, Series: []plot.Series{
			line("API, resident", of("api rss", 1e6)), line("dispatcher, resident", of("dispatcher rss", 1e6)),
			line("API, heap", of("api heap", 1e6)), line("dispatcher, heap", of("dispatcher heap", 1e6)),
		}}),
		k.b.draw("soak-redis.svg", plot.Chart{Title: "Soak: Redis keeps records for a day", X: x, Y: plot.Axis{Label: "memory", Unit: "MB"}, Series: []plot.Series{
			line("all", func(l look) float64 { return l.Redis["memory"] / 1e6 }),
			line("of it hash tables", func(l look) float64 { return l.Redis["tables"] / 1e6 }),
		}}))
}
