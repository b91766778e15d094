package plot

import (
	"math"
	"slices"
	"strconv"
)

// scale maps values to places between two edges of the frame.
type scale struct {
	lo, hi   float64 // values; exponents of 10 if log
	from, to float64 // places
	log      bool
}

func newScale(a Axis, values []float64, from, to float64) scale {
	s := scale{from: from, to: to, log: a.Log}
	if a.Log {
		values = slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return v <= 0 })
		s.lo, s.hi = -3, 0
		if len(values) > 0 {
			s.lo, s.hi = math.Floor(math.Log10(slices.Min(values))), math.Ceil(math.Log10(slices.Max(values)))
		}
		if s.hi <= s.lo { // one value, and that a power of ten
			s.hi = s.lo + 1
		}
		return s
	}
	s.hi = 1
	if len(values) > 0 {
		s.lo, s.hi = min(slices.Min(values), 0), max(slices.Max(values), 0)
	}
	s.hi = max(s.hi, a.To)
	if s.hi == s.lo {
		s.hi = s.lo + 1
	}
	return s
}

// has says whether the scale can show a value at all.
func (s scale) has(v float64) bool { return !s.log || v > 0 }

// place is where a value stands.
func (s scale) place(v float64) float64 {
	if s.log {
		v = math.Log10(v)
	}
	return s.from + (v-s.lo)/(s.hi-s.lo)*(s.to-s.from)
}

// ticks are 4 to 10 round values, or the powers of ten.
func (s scale) ticks() []float64 {
	var all []float64
	if s.log {
		for e := s.lo; e <= s.hi; e++ {
			all = append(all, math.Pow(10, e))
		}
		return all
	}
	step := math.Pow(10, math.Floor(math.Log10((s.hi-s.lo)/4)))
	for _, f := range []float64{5, 2} {
		if (s.hi-s.lo)/(step*f) >= 4 {
			step *= f
			break
		}
	}
	for i := math.Ceil(s.lo / step); i*step <= s.hi*(1+1e-9); i++ {
		all = append(all, i*step)
	}
	return all
}

// number is a tick as people write it: at most four digits that count.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e6:
		return strconv.FormatFloat(v/1e6, 'g', 4, 64) + "M"
	case a >= 1e4:
		return strconv.FormatFloat(v/1e3, 'g', 4, 64) + "k"
	default:
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
}
