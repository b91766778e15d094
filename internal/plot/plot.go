// Package plot answers: how did it go, at a glance?
//
// It draws line and step charts as SVG that stands alone: no script, no font, no
// dependency. Colours follow the reader's light or dark setting and can be told
// apart by colour-blind eyes (after the palette of Okabe and Ito, 2008); each
// series has a dash pattern too, so that a chart survives a black-and-white
// printer. Title and description are there for screen readers.
package plot

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strings"
)

// Chart is one picture. Its extent is that of its points; a scale begins at 0
// unless it is logarithmic or has points below.
type Chart struct {
	Title string
	// Desc is what a screen reader says after the title; by default the axes and
	// the greatest value of each series.
	Desc   string
	X, Y   Axis
	Series []Series
	Marks  []Mark
}

// Axis is one scale. Label and Unit stand beside it: "age (s)".
type Axis struct {
	Label, Unit string
	// Log makes it logarithmic, to base 10; points at 0 or below are left out.
	Log bool
	// To is up to where a linear scale reaches at least: that of another chart, which it
	// is to be compared with.
	To float64
}

// Series is one line. There are colours for eight; a ninth begins again.
type Series struct {
	Name string
	// Points by rising X. One whose X or Y is NaN or infinite is a gap.
	Points []Point
	// Step holds each value until the next point, as a gauge that was sampled.
	Step bool
}

// Point is one value.
type Point struct{ X, Y float64 }

// Mark is a moment, drawn as an upright line with its label.
type Mark struct {
	X     float64
	Label string
}

// The frame, in SVG units.
const (
	width, height = 860, 380
	left, right   = 76, 20
	top, bottom   = 64, 84
)

// WriteSVG draws the chart. It returns the error of w, and no other.
func (c Chart) WriteSVG(w io.Writer) error {
	b := bufio.NewWriter(w)
	c.draw(pen{b}, "", "", style())
	return b.Flush() // bufio keeps the first error for it
}

// WriteStack draws charts one above the other, for those that share a time: give their
// X the same To. It returns the error of w, and no other.
func WriteStack(w io.Writer, charts ...Chart) error {
	b := bufio.NewWriter(w)
	p := pen{b}
	p.sayf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d">`, width, height*len(charts))
	p.sayf("<style>%s</style>", style())
	for i, c := range charts {
		c.draw(p, fmt.Sprint(i), fmt.Sprintf(` y="%d" width="%d" height="%d"`, i*height, width, height), "")
	}
	p.sayf("</svg>")
	return b.Flush()
}

// draw draws it. The suffix keeps its ids apart from those of others in the same file.
func (c Chart) draw(p pen, suffix, place, css string) {
	x := newScale(c.X, c.values(func(p Point) float64 { return p.X }), left, width-right)
	y := newScale(c.Y, c.values(func(p Point) float64 { return p.Y }), height-bottom, top)
	p.sayf(`<svg xmlns="http://www.w3.org/2000/svg"%s viewBox="0 0 %d %d" role="img" aria-labelledby="t%s d%s">`,
		place, width, height, suffix, suffix)
	p.sayf(`<title id="t%s">%s</title><desc id="d%s">%s</desc>`, suffix, escape(c.Title), suffix, escape(c.describe()))
	if css != "" {
		p.sayf("<style>%s</style>", css)
	}
	p.sayf(`<rect class="bg" width="%d" height="%d"/>`, width, height)
	p.sayf(`<text class="title" x="%d" y="24">%s</text>`, left, escape(c.Title))
	c.axes(p, x, y)
	c.marks(p, x)
	for i, s := range c.Series {
		if d := s.path(x, y); d != "" {
			p.sayf(`<path class="s s%d" d="%s"><title>%s</title></path>`, i%colours, d, escape(s.Name))
		}
	}
	c.legend(p)
	p.sayf("</svg>")
}

// values are the coordinates of all points that are drawn.
func (c Chart) values(of func(Point) float64) []float64 {
	var all []float64
	for _, s := range c.Series {
		for _, p := range s.Points {
			if p.finite() {
				all = append(all, of(p))
			}
		}
	}
	return all
}

func (p Point) finite() bool {
	return !math.IsNaN(p.X+p.Y) && !math.IsInf(p.X, 0) && !math.IsInf(p.Y, 0)
}

// describe says in words what the picture shows.
func (c Chart) describe() string {
	if c.Desc != "" {
		return c.Desc
	}
	var parts []string
	for _, s := range c.Series {
		most := math.Inf(-1)
		for _, p := range s.Points {
			if p.finite() {
				most = max(most, p.Y)
			}
		}
		if math.IsInf(most, -1) {
			parts = append(parts, s.Name+" has no values")
		} else {
			parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s reaches %s %s", s.Name, number(most), c.Y.Unit)))
		}
	}
	return fmt.Sprintf("%s over %s: %s.", c.Y.title(), c.X.title(), strings.Join(parts, "; "))
}

func (a Axis) title() string {
	if a.Unit == "" {
		return a.Label
	}
	return a.Label + " (" + a.Unit + ")"
}
