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

// The sparkline's own units; the page stretches it.
const (
	sparkWidth  = 300.0
	sparkHeight = 40.0
)

// spark is the last five minutes of one class's oldest eligible age.
type spark struct {
	Line string  // an SVG path; empty when there is nothing to draw
	SLO  float64 // height of the SLO's line
	Max  time.Duration
}

// sparkOf draws the points up to now. Where samples are missing for longer than
// gap the line is broken: a time when nobody looked is not a time when all was
// well.
func sparkOf(points []point, class int, slo time.Duration, now time.Time, gap time.Duration) spark {
	var s spark
	for _, p := range points {
		s.Max = max(s.Max, p.ages[class])
	}
	// Room above the higher of the two, so that neither hides in the edge.
	top := 1.15 * math.Max(slo.Seconds(), s.Max.Seconds())
	y := func(age time.Duration) float64 { return round1(sparkHeight * (1 - age.Seconds()/top)) }
	s.SLO = y(slo)
	var path strings.Builder
	var last time.Time
	for _, p := range points {
		x := round1(sparkWidth * (1 - now.Sub(p.at).Seconds()/window.Seconds()))
		x = math.Max(0, math.Min(sparkWidth, x))
		if last.IsZero() || p.at.Sub(last) > gap {
			// A round-capped line of no length: a lone point is seen too.
			fmt.Fprintf(&path, "M%g %gh0", x, y(p.ages[class]))
		} else {
			fmt.Fprintf(&path, "L%g %g", x, y(p.ages[class]))
		}
		last = p.at
	}
	s.Line = path.String()
	return s
}

func round1(f float64) float64 { return math.Round(10*f) / 10 }
