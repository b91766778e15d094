package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fanout/fanout/internal/plot"
)

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
