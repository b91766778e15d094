package oncall

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// bar is an age against its SLO on one linear scale, in per cent of its width.
// The scale ends at 1.5 times the SLO, or at the age when that is more: the mark
// of the SLO then moves left, and the bar never lies about how late it is.
type bar struct {
	Within float64 // length up to the SLO
	Over   float64 // length beyond it, starting at the mark
	Mark   float64 // where the SLO is
	// LabelLeft puts the mark's label to its left, where there is more room.
	LabelLeft bool
}

func barOf(age, slo time.Duration) bar {
	scale := math.Max(1.5*slo.Seconds(), age.Seconds())
	percent := func(d time.Duration) float64 { return round1(100 * d.Seconds() / scale) }
	b := bar{Within: percent(min(age, slo)), Mark: percent(slo)}
	b.LabelLeft = b.Mark > 50
	if age > slo {
		b.Over = round1(100*age.Seconds()/scale - b.Mark)
	}
	return b
}

// A line chart's own units; the page stretches it.
const (
	sparkWidth  = 360.0
	sparkHeight = 48.0
)

// dot is one value at one time.
type dot struct {
	at    time.Time
	value float64
}

// spark is a line of what was, up to now.
type spark struct {
	Line string  // an SVG path; empty when there is nothing to draw
	Area string  // the same down to the ground
	Mark float64 // height of the line of what it is held against; below 0 without
	Max  float64
}

// sparkOf draws dots from reach before now. Where they are missing for longer than gap
// the line is broken: a time when nobody looked is not a time when all was well. mark is
// what it is held against, 0 for nothing.
func sparkOf(dots []dot, mark float64, now time.Time, reach, gap time.Duration) spark {
	s := spark{Mark: -1}
	for _, d := range dots {
		s.Max = max(s.Max, d.value)
	}
	// Room above the higher of the two, so that neither hides in the edge.
	top := 1.15 * math.Max(mark, s.Max)
	if top == 0 {
		top = 1
	}
	y := func(value float64) float64 { return round1(sparkHeight * (1 - value/top)) }
	if mark > 0 {
		s.Mark = y(mark)
	}
	var line, area strings.Builder
	var last time.Time
	var x float64
	for _, d := range dots {
		before := x
		x = round1(sparkWidth * (1 - now.Sub(d.at).Seconds()/reach.Seconds()))
		x = math.Max(0, math.Min(sparkWidth, x))
		if last.IsZero() || d.at.Sub(last) > gap {
			if !last.IsZero() {
				fmt.Fprintf(&area, "V%gH%gZ", sparkHeight, before)
			}
			// A round-capped line of no length: a lone dot is seen too.
			fmt.Fprintf(&line, "M%g %gh0", x, y(d.value))
			fmt.Fprintf(&area, "M%g %gV%g", x, sparkHeight, y(d.value))
		} else {
			fmt.Fprintf(&line, "L%g %g", x, y(d.value))
			fmt.Fprintf(&area, "L%g %g", x, y(d.value))
		}
		last = d.at
	}
	if !last.IsZero() {
		fmt.Fprintf(&area, "V%gZ", sparkHeight)
	}
	s.Line, s.Area = line.String(), area.String()
	return s
}

// column is one minute of the release curve, in per cent of the picture.
type column struct {
	X, Width float64
	// Y and Height are what the slots carry of it, OverY and Over what is beyond.
	Y, Height, OverY, Over float64
}

// curve is what falls due in each of the next minutes against what the slots can carry in
// one.
type curve struct {
	Columns []column
	Mark    float64 // height of the capacity; below 0 if it is not known, or far above
}

// curveOf draws the release curve. The scale ends above the highest minute; a capacity
// that lies far beyond it has no line, as the columns would be lost below it.
func curveOf(due []int64, perMinute float64) curve {
	highest := 0.0
	for _, n := range due {
		highest = math.Max(highest, float64(n))
	}
	c := curve{Mark: -1}
	top := 1.15 * highest
	if perMinute > 0 && perMinute < 4*highest {
		top = math.Max(top, 1.15*perMinute)
		c.Mark = round1(100 * (1 - perMinute/top))
	}
	if top == 0 {
		return c
	}
	step := 100 / float64(len(due))
	for i, n := range due {
		within, over := float64(n), 0.0
		if c.Mark >= 0 && within > perMinute {
			within, over = perMinute, float64(n)-perMinute
		}
		h, o := round1(100*within/top), round1(100*over/top)
		c.Columns = append(c.Columns, column{
			X: round1(float64(i)*step + step*0.12), Width: round1(step * 0.76),
			Y: round1(100 - h), Height: h, OverY: round1(100 - h - o), Over: o,
		})
	}
	return c
}

// part is a stretch of a bar, in per cent of its width.
type part struct {
	Name     string
	Count    string
	X, Width float64
}

// partsOf lays counts side by side on a bar that stands for all; those of 0 are left out.
func partsOf(all int64, named ...part) []part {
	var parts []part
	x := 0.0
	for _, p := range named {
		if p.Width <= 0 || all <= 0 {
			continue
		}
		p.Count, p.X = number(int64(p.Width)), round1(x)
		width := math.Min(100*p.Width/float64(all), 100-x)
		p.Width = round1(width)
		x += width
		parts = append(parts, p)
	}
	return parts
}

func round1(f float64) float64 { return math.Round(10*f) / 10 }
