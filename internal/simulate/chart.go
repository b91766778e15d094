package simulate

import (
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/fanout/fanout/internal/plot"
)

// Save draws the report into a folder and returns the files: cost.svg and slots.svg, what
// latency costs by policy, and age-GROUP.svg, how it went over time.
func (r *Report) Save(dir string) (files []string, err error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("save the charts: %w", err)
	}
	charts := map[string]plot.Chart{"cost": r.costChart(), "slots": r.slotsChart()}
	names := []string{"cost", "slots"}
	for i, g := range r.Scenario.Groups {
		names = append(names, "age-"+g.Name)
		charts["age-"+g.Name] = r.ageChart(i)
	}
	for _, name := range names {
		path := filepath.Join(dir, name+".svg")
		if err := draw(path, charts[name]); err != nil {
			return files, fmt.Errorf("save the charts: %w", err)
		}
		files = append(files, path)
	}
	return files, nil
}

func draw(path string, c plot.Chart) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := c.WriteSVG(f); err != nil {
		_ = f.Close() // the first error says more
		return err
	}
	return f.Close()
}

// costChart is latency against requests. Those that deliver are the same under every
// policy, so what is shown is the rest.
func (r *Report) costChart() plot.Chart {
	return r.against(plot.Axis{Label: "requests that delivered nothing, for each 1,000 deliveries"}, func(res Result) float64 {
		all := res.All()
		return float64(all.Requests-all.Delivered) * 1000 / max(float64(all.Posted), 1)
	})
}

func (r *Report) slotsChart() plot.Chart {
	return r.against(plot.Axis{Label: "slots in use at p99"}, func(res Result) float64 { return float64(res.All().SlotsP99) })
}

// against puts each policy where its cost and its p99 age are. A point is drawn as a
// cross, for a line of one point cannot be seen.
func (r *Report) against(x plot.Axis, cost func(Result) float64) plot.Chart {
	c := plot.Chart{
		Title: r.Scenario.Name + ": p99 age against cost, by policy", X: x, Y: plot.Axis{Label: "age at p99", Unit: "s", Log: true},
		Desc: "Each policy is a cross; the nearer to the lower left the better.",
	}
	widest := 1.0
	for _, res := range r.Results {
		widest = max(widest, cost(res))
	}
	arm, tall := widest/50, 1.25
	for _, res := range r.Results {
		at, p99 := cost(res), max(res.All().P99/1000, 0.001)
		c.Series = append(c.Series, plot.Series{Name: res.Policy, Points: []plot.Point{
			{X: max(at-arm, 0), Y: p99},
			{X: at + arm, Y: p99},
			{X: math.NaN(), Y: math.NaN()},
			{X: at, Y: p99 / tall},
			{X: at, Y: p99 * tall},
		}})
	}
	return c
}

// ageChart is a group's p99 age by when the event was accepted, a line for each policy. Of
// what did not arrive it says nothing.
func (r *Report) ageChart(group int) plot.Chart {
	g := r.Scenario.Groups[group]
	c := plot.Chart{
		Title: fmt.Sprintf("%s: p99 age of deliveries to %s, by when they were accepted", r.Scenario.Name, g.Name),
		X:     plot.Axis{Label: "time", Unit: "s"}, Y: plot.Axis{Label: "age", Unit: "s", Log: true},
	}
	width := seconds(usOf(r.Scenario.Duration)) / bins
	for _, res := range r.Results {
		s := plot.Series{Name: res.Policy}
		for i := range res.Groups[group].ages {
			p := plot.Point{X: (float64(i) + 0.5) * width, Y: math.NaN()}
			if h := &res.Groups[group].ages[i]; h.n > 0 {
				p.Y = max(seconds(h.percentile(99)), 0.001)
			}
			s.Points = append(s.Points, p)
		}
		c.Series = append(c.Series, s)
	}
	for _, o := range g.Outages {
		c.Marks = append(c.Marks,
			plot.Mark{X: seconds(usOf(o.From)), Label: string(o.Does)},
			plot.Mark{X: seconds(usOf(o.From) + usOf(o.For)), Label: "recovery"})
	}
	return c
}
