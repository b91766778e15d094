package loadtest

import (
	"maps"
	"slices"
	"time"

	"github.com/fanout/fanout/internal/plot"
)

// chart is a plot and the file that it goes to.
type chart struct {
	name string
	plot.Chart
}

// points is about how many a line has, however long the play was.
const points = 120

// charts draws what happened.
func (r *run) charts(events []event) []chart {
	samples := r.all()
	all := []chart{
		{"age", r.ageChart(events)},
		{"requests", r.requestChart()},
		{"slots", slotChart(samples)},
		{"retries", rateChart("Retries scheduled", "retries", samples, func(s sample) float64 { return s.retries })},
		{"dead-letters", rateChart("Dead letters arriving", "dead letters", samples, func(s sample) float64 { return s.dead })},
		{"dead-letter-age", deadAgeChart(samples)},
	}
	for i := range all {
		all[i].Title = r.name + ": " + all[i].Title
		all[i].X = plot.Axis{Label: "time", Unit: "s"}
		for _, m := range r.marks {
			all[i].Marks = append(all[i].Marks, plot.Mark{X: m.at.Seconds(), Label: m.label})
		}
	}
	return all
}

// ageChart is the p99 age of what was accepted in each bin of time. What has not
// arrived counts as old as it was at the end.
func (r *run) ageChart(events []event) plot.Chart {
	c := plot.Chart{Title: "Age of deliveries at p99, by when they were accepted", Y: plot.Axis{Label: "age", Unit: "s", Log: true}}
	width := max(r.cut/points, bucket)
	for _, g := range r.groups {
		bins := map[int][]time.Duration{}
		for _, a := range ages(events, g, 0, r.cut, r.cut) {
			i := int(a.accepted / width)
			bins[i] = append(bins[i], a.age)
		}
		s := plot.Series{Name: g.name}
		for _, i := range slices.Sorted(maps.Keys(bins)) {
			slices.Sort(bins[i])
			s.Points = append(s.Points, plot.Point{
				X: (time.Duration(i)*width + width/2).Seconds(),
				// Arrivals are finer than accept times, which are whole milliseconds.
				Y: max(percentile(bins[i], 99), time.Millisecond).Seconds(),
			})
		}
		c.Series = append(c.Series, s)
	}
	return c
}

// requestChart is the requests that arrived at each group.
func (r *run) requestChart() plot.Chart {
	c := plot.Chart{Title: "Requests arriving", Y: plot.Axis{Label: "requests", Unit: "1/s"}}
	per := max(int(r.cut/points/bucket), 1)
	for _, g := range r.groups {
		s := plot.Series{Name: g.name, Step: true}
		for i := 0; i+per <= int(r.cut/bucket); i += per {
			var n int64
			for k := range per {
				n += g.requests[i+k].Load()
			}
			wide := time.Duration(per) * bucket
			s.Points = append(s.Points, plot.Point{X: (time.Duration(i) * bucket).Seconds(), Y: float64(n) / wide.Seconds()})
		}
		c.Series = append(c.Series, s)
	}
	return c
}

// slotChart is the slots in use, by pool and lane, and their sum.
func slotChart(samples []sample) plot.Chart {
	c := plot.Chart{Title: "Slots in use, by pool and lane", Y: plot.Axis{Label: "slots"}}
	names := map[string]bool{}
	for _, s := range samples {
		for k := range s.slots {
			names[k] = true
		}
	}
	series := func(name string, of func(sample) float64) {
		line := plot.Series{Name: name, Step: true}
		for _, s := range samples {
			line.Points = append(line.Points, plot.Point{X: s.at.Seconds(), Y: of(s)})
		}
		c.Series = append(c.Series, line)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		series(name, func(s sample) float64 { return s.slots[name] })
	}
	series("all", func(s sample) float64 { return sum(s.slots) })
	return c
}

// rateChart is how fast a total grew.
func rateChart(title, label string, samples []sample, of func(sample) float64) plot.Chart {
	line := plot.Series{Name: label, Step: true}
	every := max(len(samples)/points, 1)
	for i := every; i < len(samples); i += every {
		a, b := samples[i-every], samples[i]
		line.Points = append(line.Points, plot.Point{X: a.at.Seconds(), Y: (of(b) - of(a)) / (b.at - a.at).Seconds()})
	}
	return plot.Chart{Title: title, Y: plot.Axis{Label: label, Unit: "1/s"}, Series: []plot.Series{line}}
}

// deadAgeChart is the age of the oldest dead letter: nobody takes one away during
// a play, so it is the time since the first.
func deadAgeChart(samples []sample) plot.Chart {
	line := plot.Series{Name: "oldest dead letter"}
	first := time.Duration(-1)
	for _, s := range samples {
		if s.dead > 0 && first < 0 {
			first = s.at
		}
		y := 0.0
		if first >= 0 {
			y = (s.at - first).Seconds()
		}
		line.Points = append(line.Points, plot.Point{X: s.at.Seconds(), Y: y})
	}
	return plot.Chart{Title: "Age of the oldest dead letter", Y: plot.Axis{Label: "age", Unit: "s"}, Series: []plot.Series{line}}
}
