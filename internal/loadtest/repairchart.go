package loadtest

import (
	"slices"
	"time"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/plot"
)

// stackRedrive draws a redrive over one time: how old fresh deliveries became, what was
// released, and what the guard said. It begins with the calm phase.
func (r *run) stackRedrive(events []event) []plot.Chart {
	p := r.repair
	all := []plot.Chart{r.freshChart(events), r.releaseChart(), p.guardChart()}
	for i := range all {
		c := &all[i]
		c.X = plot.Axis{Label: "time", Unit: "s", To: (r.cut - p.begin).Seconds()}
		for j := range c.Series {
			c.Series[j].Points = since(c.Series[j].Points, p.begin)
		}
		for _, m := range r.marks {
			if m.at >= p.begin {
				c.Marks = append(c.Marks, plot.Mark{X: (m.at - p.begin).Seconds(), Label: m.label})
			}
		}
	}
	all[0].Title = r.name + ": " + all[0].Title
	return all
}

// since shifts points to another origin, and leaves out what came before it.
func since(points []plot.Point, origin time.Duration) []plot.Point {
	var out []plot.Point
	for _, p := range points {
		if p.X -= origin.Seconds(); p.X >= 0 {
			out = append(out, p)
		}
	}
	return out
}

// freshChart is p50 and p99 of the fresh deliveries accepted in each second.
func (r *run) freshChart(events []event) plot.Chart {
	bins := make([][]time.Duration, int(r.cut/time.Second)+1)
	for _, g := range r.groups {
		for _, a := range ages(events, g, r.repair.begin, r.cut, r.cut) {
			bins[a.accepted/time.Second] = append(bins[a.accepted/time.Second], a.age)
		}
	}
	p50, p99 := plot.Series{Name: "p50"}, plot.Series{Name: "p99"}
	for i, bin := range bins {
		if len(bin) == 0 {
			continue
		}
		slices.Sort(bin)
		x := float64(i) + 0.5
		p50.Points = append(p50.Points, plot.Point{X: x, Y: ms(percentile(bin, 50))})
		p99.Points = append(p99.Points, plot.Point{X: x, Y: ms(percentile(bin, 99))})
	}
	return plot.Chart{
		Title:  "age of fresh deliveries, by the second in which they were accepted",
		Y:      plot.Axis{Label: "age", Unit: "ms"},
		Series: []plot.Series{p50, p99},
	}
}

// releaseChart is what of the redrive arrived a second, and what its pace allows.
func (r *run) releaseChart() plot.Chart {
	arrived := plot.Series{Name: "arrived", Step: true}
	refused := plot.Series{Name: "of which refused", Step: true}
	for at := time.Duration(0); at+time.Second <= r.cut; at += time.Second {
		n, bad := 0, 0
		for _, g := range r.groups {
			all, no := g.redrivenIn(at, at+time.Second)
			n, bad = n+all, bad+no
		}
		arrived.Points = append(arrived.Points, plot.Point{X: at.Seconds(), Y: float64(n)})
		refused.Points = append(refused.Points, plot.Point{X: at.Seconds(), Y: float64(bad)})
	}
	allowed := plot.Series{Name: "allowed", Step: true}
	for _, l := range r.repair.looks {
		y := 0.0
		if l.state == client.RedriveRunning && !l.held {
			y = l.rate
		}
		allowed.Points = append(allowed.Points, plot.Point{X: l.at.Seconds(), Y: y})
	}
	return plot.Chart{
		Title: "The redrive's requests", Y: plot.Axis{Label: "requests", Unit: "1/s"},
		Series: []plot.Series{arrived, allowed, refused},
	}
}

// The guard's words, as heights.
const (
	guardPaused = iota
	guardWaits  // for the canary, or for an operator
	guardHolds
	guardReleases
)

// guardChart is what the guard said.
func (p *Repair) guardChart() plot.Chart {
	line := plot.Series{Name: "0 paused, 1 before the approval or after the end, 2 held back, 3 released", Step: true}
	for _, l := range p.looks {
		y := guardWaits
		switch {
		case l.state == client.RedrivePaused:
			y = guardPaused
		case l.state == client.RedriveRunning && l.held:
			y = guardHolds
		case l.state == client.RedriveRunning:
			y = guardReleases
		}
		line.Points = append(line.Points, plot.Point{X: l.at.Seconds(), Y: float64(y)})
	}
	return plot.Chart{Title: "The guard", Y: plot.Axis{Label: "state"}, Series: []plot.Series{line}}
}
