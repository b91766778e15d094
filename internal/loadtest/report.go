package loadtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/fanout/fanout/internal/boot"
	"github.com/fanout/fanout/internal/plot"
)

// Report is what a run came to.
type Report struct {
	StartedAt   time.Time `json:"started_at"`
	Version     string    `json:"version"`
	CPUs        int       `json:"cpus"`
	Short       bool      `json:"short"`
	Slots       int       `json:"slots"`
	Dispatchers int       `json:"dispatchers"`
	// Base is what ratios are over: the calm p99, but at least 25 ms, below which
	// the difference between two figures is the machine's.
	Base      float64  `json:"ratio_base_ms"`
	Scenarios []Result `json:"scenarios"`
	Broken    []string `json:"broken"` // a sentence for each bound that was not kept
}

// Result is what one scenario came to.
type Result struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"` // from the first registration to the last look
	Events  int     `json:"events"`
	// Healthy are the deliveries of the healthy subscribers, as of a second after
	// the last post; Ratio is their p99 over the report's base.
	Healthy Ages    `json:"healthy"`
	Ratio   float64 `json:"ratio"`
	// PostP99 is how long posts took at p99, from when they were to go out.
	PostP99       float64       `json:"post_p99_ms"`
	PostsRepeated int           `json:"posts_repeated"`
	Retries       int64         `json:"retries_scheduled"`
	DeadLetters   int64         `json:"dead_letters"`
	Groups        []GroupResult `json:"groups"`
	Outage        *Outage       `json:"outage,omitempty"`
	Redrive       *Repair       `json:"redrive,omitempty"`

	charts []chart
	stack  []plot.Chart
}

// GroupResult is one group of endpoints.
type GroupResult struct {
	Name      string `json:"name"`
	Endpoints int    `json:"endpoints"`
	Requests  int64  `json:"requests"`
	// MostInFlight is the most requests at once at one of its endpoints.
	MostInFlight int  `json:"most_in_flight"`
	Ages         Ages `json:"ages"`
}

// leastBase is the least that a ratio is over, ms.
const leastBase = 25

// Run plays the chosen scenarios, one after the other, and judges them. An error
// means that something could not be measured; a bound that is broken is in the
// report instead.
func Run(ctx context.Context, o Options) (Report, error) {
	o.Slots, o.Dispatchers = max(o.Slots, 1), max(o.Dispatchers, 1)
	for _, s := range o.Scenarios {
		if !slices.Contains(Names(), s) {
			return Report{}, fmt.Errorf("there is no scenario %q", s)
		}
	}
	rep := Report{
		StartedAt: time.Now().UTC(), Version: boot.Version(), CPUs: runtime.NumCPU(),
		Short: o.Short, Slots: o.Slots, Dispatchers: o.Dispatchers, Base: leastBase, Broken: []string{},
	}
	for _, s := range o.chosen() {
		res, err := play(ctx, o, s)
		if err != nil {
			return rep, err
		}
		rep.add(res)
	}
	rep.judge()
	return rep, nil
}

// add takes in a result; calm is the first.
func (r *Report) add(res Result) {
	if res.Name == calm {
		r.Base = max(res.Healthy.P99, leastBase)
	}
	res.Ratio = res.Healthy.P99 / r.Base
	r.Scenarios = append(r.Scenarios, res)
}

// result sums a play up.
func (r *run) result() (Result, error) {
	events, err := r.accepted()
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", r.name, err)
	}
	last := r.last()
	res := Result{
		Name: r.name, Seconds: r.now().Seconds(), Events: len(events),
		PostsRepeated: r.again, Retries: int64(last.retries), DeadLetters: int64(last.dead), Outage: r.outage, Redrive: r.repair,
	}
	var posts []time.Duration
	for _, e := range events {
		if e.accepted >= r.from {
			posts = append(posts, e.late)
		}
	}
	slices.Sort(posts)
	res.PostP99 = ms(percentile(posts, 99))
	var healthy []age
	for _, g := range r.groups {
		of := ages(events, g, r.from, r.until, r.cut)
		if !g.bad {
			healthy = append(healthy, of...)
		}
		res.Groups = append(res.Groups, GroupResult{
			Name: g.name, Endpoints: len(g.endpoints), Requests: g.seen(),
			MostInFlight: int(g.mostInFlight()), Ages: summarise(of),
		})
	}
	res.Healthy = summarise(healthy)
	res.charts = r.charts(events)
	if r.repair != nil {
		res.stack = r.stackRedrive(events)
	}
	return res, nil
}

// Save writes results.json and the plots, scenario-what.svg, into a folder.
func (r *Report) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("save the results: %w", err)
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("save the results: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "results.json"), append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("save the results: %w", err)
	}
	for _, s := range r.Scenarios {
		for _, c := range s.charts {
			if err := draw(filepath.Join(dir, s.Name+"-"+c.name+".svg"), c.Chart); err != nil {
				return fmt.Errorf("save a plot: %w", err)
			}
		}
		if s.stack == nil {
			continue
		}
		if err := draw(filepath.Join(dir, s.Name+"-guard.svg"), s.stack...); err != nil {
			return fmt.Errorf("save a plot: %w", err)
		}
	}
	return nil
}

func draw(path string, charts ...plot.Chart) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := write(f, charts); err != nil {
		_ = f.Close() // the first error says more
		return err
	}
	return f.Close()
}

func write(w io.Writer, charts []plot.Chart) error {
	if len(charts) == 1 {
		return charts[0].WriteSVG(w)
	}
	return plot.WriteStack(w, charts...)
}
