package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// sample is one contender in one round. CPU is ms per delivery, by process.
type sample struct {
	Rate     float64 `json:"deliveries_per_s"`
	Drain    float64 `json:"drain_per_s,omitempty"`
	CPU      usage   `json:"cpu_ms_per_delivery"`
	ScriptUS float64 `json:"redis_script_us_per_delivery,omitempty"`
	Trips    float64 `json:"redis_reads_per_delivery,omitempty"`
	// Commands of Redis, per delivery.
	Commands map[string]command `json:"redis_commands_per_delivery,omitempty"`
	// Ceiling is the mean of the ceilings just before and just after.
	Ceiling float64 `json:"ceiling_per_s,omitempty"`
	// Foreign is the share of the machine that no process of this run used, in %.
	Foreign float64 `json:"foreign_cpu_percent"`
	// Disturbed says that it was too much, here or in one of the two ceilings.
	Disturbed bool `json:"disturbed,omitempty"`
	Repeated  int  `json:"delivered_again"`
}

// all is the CPU of every process, loader and sink included.
func (s sample) all() (sum float64) {
	for _, ms := range s.CPU {
		sum += ms
	}
	return sum
}

// own leaves out what is there whatever is measured: who posts and who receives.
func (s sample) own() float64 { return s.all() - s.CPU["loader"] - s.CPU["sink"] }

// round is what was taken in one round.
type round struct {
	Contenders map[string]sample  `json:"contenders"`
	Figures    map[string]float64 `json:"figures"`
}

// results of all rounds.
type results struct{ rounds []round }

func (r *results) begin() {
	r.rounds = append(r.rounds, round{map[string]sample{}, map[string]float64{}})
}
func (r *results) now() round                    { return r.rounds[len(r.rounds)-1] }
func (r *results) add(name string, s sample)     { r.now().Contenders[name] = s }
func (r *results) figure(name string, v float64) { r.now().Figures[name] = v }
func (r *results) amend(name string, f func(*sample)) {
	s := r.now().Contenders[name]
	f(&s)
	r.now().Contenders[name] = s
}

// tooForeign is the share of the machine, in %, above which what somebody else ran
// has spoilt a measurement.
const tooForeign = 10

// over gives a value of every round that has it. Rounds in which one of the named
// contenders was disturbed are left out, unless all were.
func (r *results) over(f func(round) (float64, bool), names ...string) []float64 {
	var all, clean []float64
	for _, one := range r.rounds {
		v, ok := f(one)
		if !ok {
			continue
		}
		all = append(all, v)
		if !slices.ContainsFunc(names, func(n string) bool { return one.Contenders[n].Disturbed }) {
			clean = append(clean, v)
		}
	}
	if len(clean) > 0 {
		return clean
	}
	return all
}

// disturbed is how many measurements others spoilt.
func (r *results) disturbed() (n int) {
	for _, one := range r.rounds {
		for _, s := range one.Contenders {
			if s.Disturbed {
				n++
			}
		}
	}
	return n
}

// of gives a value of one contender, by round; of the ceiling, the mean of a round's.
func (r *results) of(name string, f func(sample) float64) []float64 {
	return r.over(func(one round) (float64, bool) {
		if name != "ceiling" {
			s, ok := one.Contenders[name]
			return f(s), ok
		}
		n, sum, all := 0, 0.0, one.ceilings()
		for _, s := range all {
			if !s.Disturbed {
				n, sum = n+1, sum+f(s)
			}
		}
		if n == 0 && len(all) > 0 {
			n, sum = 1, f(all[0])
		}
		return sum / float64(max(1, n)), n > 0
	}, name)
}

// ceilings of the current round, in their order.
func (r *results) ceilings() []sample { return r.now().ceilings() }

func (one round) ceilings() (all []sample) {
	for i := 1; ; i++ {
		s, ok := one.Contenders[fmt.Sprintf("ceiling-%d", i)]
		if !ok {
			return all
		}
		all = append(all, s)
	}
}

// share of the ceiling, by round.
func (r *results) share(name string) []float64 {
	return r.over(func(one round) (float64, bool) {
		s := one.Contenders[name]
		return s.Rate / s.Ceiling, s.Ceiling > 0
	}, name)
}

// thrift is the CPU of the ceiling's deliveries over the contender's, by round: its
// share of the ceiling if it kept every core as busy. It is the steadier of the two
// on a machine that others use too.
func (r *results) thrift(name string) []float64 {
	return r.over(func(one round) (float64, bool) {
		sum, s := 0.0, one.Contenders[name]
		for _, c := range one.ceilings() {
			sum += c.all() / float64(len(one.ceilings()))
		}
		return sum / s.all(), sum > 0 && s.all() > 0
	}, name)
}

// ratio of two contenders, by round: of their shares of the ceiling, where there is
// one, since they ran a while apart.
func (r *results) ratio(a, b string) []float64 {
	return r.over(func(one round) (float64, bool) {
		x, okA := one.Contenders[a]
		y, okB := one.Contenders[b]
		if x.Ceiling > 0 && y.Ceiling > 0 {
			x.Rate, y.Rate = x.Rate/x.Ceiling, y.Rate/y.Ceiling
		}
		return x.Rate / y.Rate, okA && okB
	}, a, b)
}

func (r *results) figures(name string) []float64 {
	return r.over(func(one round) (float64, bool) { v, ok := one.Figures[name]; return v, ok })
}

// keys of the samples of contenders.
var keys = map[string]string{
	"fanout": "fanout-everysec", "always": "fanout-always", "noaof": "fanout-none", "asynq": "asynq-everysec",
}

// brief is for the progress: what a contender just came to.
func (r *results) brief(name string) string {
	s, ok := r.now().Contenders[keys[name]]
	if name == "ceiling" {
		s, ok = r.now().Contenders["ceiling-1"]
	}
	if !ok {
		return ""
	}
	text := fmt.Sprintf("%6.0f/s  cpu %.3f ms", s.Rate, s.all())
	if s.Ceiling > 0 {
		text += fmt.Sprintf("  %.3f of the ceiling", s.Rate/s.Ceiling)
	}
	if s.Disturbed {
		text += "  disturbed"
	}
	if s.Foreign > tooForeign/2 {
		text += fmt.Sprintf("  (others used %.0f %% of the machine)", s.Foreign)
	}
	return text
}

// spread is a median with its range.
func spread(format string, values []float64) string {
	if len(values) == 0 {
		return "-"
	}
	text := fmt.Sprintf(format, quantile(values, 0.5))
	if len(values) > 1 {
		text += fmt.Sprintf(" ("+format+"-"+format+")", slices.Min(values), slices.Max(values))
	}
	return text
}

// rows of the table, in this order.
var rows = []struct{ key, title string }{
	{"ceiling", "bare client (the ceiling)"},
	{"fanout-none", "fanout, no append-only file"},
	{"fanout-everysec", "fanout, fsync every second"},
	{"fanout-always", "fanout, fsync at every write"},
	{"asynq-everysec", "asynq, fsync every second"},
}

// processes in the order of the breakdown.
var processes = []string{"client", "worker", "api", "dispatcher", "redis", "sink", "loader"}

// report writes the tables, results.json and, last, the line of figures.
func (b *bench) report(w io.Writer) error {
	r := &b.took
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\nmedian (range) of %d rounds, %d slots, %d endpoints\n\n", len(r.rounds), b.o.slots, endpoints)
	if n := r.disturbed(); n > 0 {
		fmt.Fprintf(t, "%d measurements were disturbed: somebody else used more than %d %% of the machine.\n"+
			"They are left out, but for a contender that was disturbed in every round.\n\n", n, tooForeign)
	}
	fmt.Fprintln(t, "\tdeliveries/s\tof the ceiling\tby CPU\tdrain/s\tCPU ms, all\tCPU ms, own\tscript us\tRedis reads\tothers %")
	for _, row := range rows {
		if len(r.of(row.key, sample.all)) == 0 {
			continue
		}
		drain := slices.DeleteFunc(r.of(row.key, func(s sample) float64 { return s.Drain }), func(v float64) bool { return v == 0 })
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", row.title,
			spread("%.0f", r.of(row.key, func(s sample) float64 { return s.Rate })),
			spread("%.3f", r.share(row.key)),
			spread("%.3f", r.thrift(row.key)),
			spread("%.0f", drain),
			spread("%.3f", r.of(row.key, sample.all)),
			spread("%.3f", r.of(row.key, sample.own)),
			spread("%.1f", r.of(row.key, func(s sample) float64 { return s.ScriptUS })),
			spread("%.2f", r.of(row.key, func(s sample) float64 { return s.Trips })),
			spread("%.0f", r.of(row.key, func(s sample) float64 { return s.Foreign })))
	}
	fmt.Fprintln(t, "\nCPU ms per delivery, by process (median)\n\t"+strings.Join(processes, "\t"))
	for _, row := range rows {
		if len(r.of(row.key, sample.all)) == 0 {
			continue
		}
		fmt.Fprint(t, row.title)
		for _, p := range processes {
			fmt.Fprint(t, "\t", strings.Replace(spread("%.4f", median(r.of(row.key, func(s sample) float64 { return s.CPU[p] }))), "0.0000", "-", 1))
		}
		fmt.Fprintln(t)
	}
	if s, ok := r.now().Contenders["fanout-everysec"]; ok && b.o.profile != "" {
		s.writeCommands(t)
	}
	names := map[string]bool{}
	for _, one := range r.rounds {
		for name := range one.Figures {
			names[name] = true
		}
	}
	if len(names) > 0 {
		fmt.Fprintln(t)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(t, "%s\t%s\n", name, spread("%.4g", r.figures(name)))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := errors.Join(b.save(), b.markdown(), b.charts()); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", strings.Join(b.lastLine(), " "))
	return err
}

// median, as a list that spread takes.
func median(values []float64) []float64 {
	if len(values) == 0 {
		return nil
	}
	return []float64{quantile(values, 0.5)}
}

// lastLine is key=value of medians; what was not measured is left out.
func (b *bench) lastLine() (line []string) {
	r := &b.took
	add := func(key, format string, values []float64) {
		if len(values) > 0 {
			line = append(line, key+"="+fmt.Sprintf(format, quantile(values, 0.5)))
		}
	}
	add("ratio_ceiling", "%.3f", r.share("fanout-everysec"))
	add("ratio_ceiling_noaof", "%.3f", r.share("fanout-none"))
	add("ratio_ceiling_always", "%.3f", r.share("fanout-always"))
	add("ratio_asynq", "%.2f", r.ratio("fanout-everysec", "asynq-everysec"))
	add("ingest_per_s", "%.0f", r.figures("ingest_per_s"))
	add("ingest_p99_ms", "%.2f", r.figures("ingest_p99_ms"))
	add("bytes_per_delivery", "%.0f", r.figures("bytes_per_delivery"))
	add("match_us", "%.2f", r.figures("match_us"))
	add("idle_p50_ms", "%.2f", r.figures("idle_p50_ms"))
	add("cpu_ms_per_delivery", "%.3f", r.of("fanout-everysec", sample.all))
	return line
}
