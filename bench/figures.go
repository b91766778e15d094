package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// measured is what the runs have left in a folder.
type measured struct {
	bench   results
	cluster struct {
		Line    string                 `json:"line"`
		Machine map[string]any         `json:"machine"`
		TookAt  string                 `json:"took_at"`
		Layouts map[string][]spreadOut `json:"layouts"`
	}
	scale struct {
		Backlog []point `json:"over_backlog"`
		Crowd   []point `json:"over_subscribers"`
		Fork    float64 `json:"fork_ms"`
		Rewrite float64 `json:"rewrite_ms"`
	}
	soak struct {
		Verdict []growth `json:"verdict"`
	}
}

// figuresMain writes the tables of docs/capacity.md anew from what the runs have left.
func figuresMain(args []string) error {
	fs := flag.NewFlagSet("figures", flag.ExitOnError)
	from := fs.String("from", "results", "folder of what the runs left: cluster.json, scale.json, soak.json and results.json, if that is there")
	page := fs.String("page", "../docs/capacity.md", "the page whose tables are written anew")
	_ = fs.Parse(args) // it exits by itself
	var m measured
	var rounds struct {
		Rounds []round `json:"rounds"`
	}
	for name, into := range map[string]any{"results.json": &rounds, "cluster.json": &m.cluster, "scale.json": &m.scale, "soak.json": &m.soak} {
		text, err := os.ReadFile(filepath.Join(*from, name))
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		optional := name == "results.json" || name == "soak.json" // they take long, and say least here
		if err != nil && !(optional && errors.Is(err, os.ErrNotExist)) {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	m.bench.rounds = rounds.Rounds
	if len(m.scale.Backlog) == 0 || len(m.scale.Crowd) == 0 {
		return errors.New("scale.json: nothing was measured")
	}
	text, err := os.ReadFile(*page)
	if err != nil {
		return err
	}
	plan, err := m.plan()
	if err != nil {
		return err
	}
	out := string(text)
	for name, table := range map[string]string{"figures": m.table(), "plan": plan} {
		if out, err = between(out, name, table); err != nil {
			return fmt.Errorf("%s: %w", *page, err)
		}
	}
	return os.WriteFile(*page, []byte(out), 0o644) //nolint:gosec // a page for everybody
}

// between replaces what stands between two comments that name a table.
func between(text, name, table string) (string, error) {
	first, last := "<!-- "+name+": begin -->\n", "<!-- "+name+": end -->"
	head, rest, ok := strings.Cut(text, first)
	_, tail, closed := strings.Cut(rest, last)
	if !ok || !closed {
		return "", fmt.Errorf("no place marked %q", name)
	}
	return head + first + table + last + tail, nil
}

// of a layout, the median over rounds.
func (m measured) of(key string, f func(spreadOut) float64) float64 {
	var values []float64
	for _, one := range m.cluster.Layouts[key] {
		values = append(values, f(one))
	}
	return quantile(values, 0.5)
}

func (m measured) redisUS(key string) float64 {
	return m.of(key, func(o spreadOut) float64 { return o.RedisUS })
}

// The layouts that are quoted: two partitions for each primary, and too many.
const oneRedis, threePrimaries, manyParts = "one_p1", "cluster_p6", "cluster_p48"

// busy is how much of a core is planned for: the rest is for fsync, rewrites of the
// file, and what comes in bursts.
const busy = 0.7

// table is all figures, lettered, with what measures them.
func (m measured) table() string {
	var t strings.Builder
	t.WriteString("| | figure | value | by |\n|---|---|---|---|\n")
	letter := 'A'
	add := func(name, value, by string) {
		fmt.Fprintf(&t, "| %c | %s | %s | %s |\n", letter, name, value, by)
		letter++
	}
	us := func(v float64) string { return fmt.Sprintf("%.0f us", v) }
	rate := func(us float64) string { return fmt.Sprintf("%.0f/s", math.Round(busy*1e6/us/100)*100) }
	api := 1000 * m.of(oneRedis, func(o spreadOut) float64 { return o.APIMS })
	worker := 1000 * m.of(oneRedis, func(o spreadOut) float64 { return o.WorkerMS })
	one, many := m.redisUS(oneRedis), m.redisUS(threePrimaries)
	bytes := func(kind string) string {
		return fmt.Sprintf("%.0f B", m.of(oneRedis, func(o spreadOut) float64 { return o.Bytes[kind] }))
	}
	add("Redis CPU per delivery, 480 subscribers, events for 10 each", us(one), "`bench-cluster`")
	add("the same on three primaries with 6 partitions, all together", us(many), "`bench-cluster`")
	add("busiest of the three over an even share, in deliveries", fmt.Sprintf("%.2f", m.of(threePrimaries, func(o spreadOut) float64 {
		return o.uneven(func(n node) float64 { return float64(n.Deliveries) })
	})), "`bench-cluster`")
	add("as B, but with 48 partitions", us(m.redisUS(manyParts)), "`bench-cluster`")
	add("dispatcher CPU per delivery", us(worker), "`bench-cluster`")
	add("API CPU per delivery", us(api), "`bench-cluster`")
	add("a Redis core, 70 % busy, carries", rate(one), "from A")
	add("a primary's core in a cluster, 70 % busy", rate(many), "from B")
	add("a dispatcher's core, 70 % busy", rate(worker), "from E")
	add("an API core, 70 % busy", rate(api), "from F")
	last := m.scale.Backlog[len(m.scale.Backlog)-1]
	add("a delivery that waits: record and places", fmt.Sprintf("%.0f B", last.Bytes), "`bench-scale`")
	add("a delivery that was delivered, for 24 h", bytes("record"), "`bench-cluster`")
	add("an event's record, plan of 10 included, for `max_age` and 26 h", bytes("event"), "`bench-cluster`")
	add("its payload of 512 B, for `max_age` and 2 h", bytes("payload"), "`bench-cluster`")
	add("written to the append-only file per delivery, its share of the event included", fmt.Sprintf("%.0f B", m.of(oneRedis, func(o spreadOut) float64 { return o.FileBytes })), "`bench-cluster`")
	add(fmt.Sprintf("lease and settle 32 of %s waiting, p50 and p99", thousands(float64(last.Pending))), fmt.Sprintf("%.1f ms, %.1f ms", last.RoundP50, last.RoundP99), "`bench-scale`")
	base := hundredth(m.scale.Backlog, last.Pending, func(p point) int64 { return p.Pending })
	add(fmt.Sprintf("Redis CPU for them, over that with %s waiting", thousands(float64(base.Pending))), fmt.Sprintf("%.2f (a logarithm: %.2f)", last.RoundUS/base.RoundUS, byLogarithm(base.Pending, last.Pending)), "`bench-scale`")
	crowd := m.scale.Crowd[:len(m.scale.Crowd)-1]
	most := crowd[len(crowd)-1]
	base = hundredth(crowd, int64(most.WithWork), func(p point) int64 { return int64(p.WithWork) })
	add(fmt.Sprintf("the same with %s subscribers waiting, over %s", thousands(float64(most.WithWork)), thousands(float64(base.WithWork))), fmt.Sprintf("%.2f (a logarithm: %.2f)", most.RoundUS/base.RoundUS, byLogarithm(int64(base.WithWork), int64(most.WithWork))), "`bench-scale`")
	add("one sample for the gauges, Redis CPU", fmt.Sprintf("%.0f us", last.LookUS), "`bench-scale`")
	add("fork of Redis over that backlog, in which it answers nobody", fmt.Sprintf("%.0f ms", m.scale.Fork), "`bench-scale`")
	for _, g := range m.soak.Verdict {
		switch g.Name {
		case "dispatcher rss":
			add("memory of a dispatcher with 128 slots, its cache of payloads full", fmt.Sprintf("%.0f MB", g.After/1e6), "`soak`")
		case "api rss":
			add("memory of the API with few subscribers; 1 KB more for each", fmt.Sprintf("%.0f MB", g.After/1e6), "`soak`")
		}
	}
	if best := m.bench.of("fanout-everysec", func(s sample) float64 { return 1000 * s.CPU["redis"] }); len(best) > 0 {
		add("as A, but 10 subscribers who get every event", us(quantile(best, 0.5)), "`bench`")
	}
	if ingest := m.bench.figures("ingest_per_s"); len(ingest) > 0 {
		add("accepted on this machine with nobody sending, at a fan-out of 50", thousands(quantile(ingest, 0.5))+"/s", "`bench`")
	}
	fmt.Fprintf(&t, "\nAppend-only file every second, bodies of 512 B; others used %.0f %% of the machine meanwhile. %v, %v cores, %v; %s.\n",
		m.of(oneRedis, func(o spreadOut) float64 { return o.Foreign }), m.cluster.Machine["cpu"], m.cluster.Machine["cores"], m.cluster.Machine["go"], m.cluster.TookAt[:min(10, len(m.cluster.TookAt))])
	return t.String()
}

func thousands(v float64) string {
	text := fmt.Sprintf("%.0f", v)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
