package oncall

import (
	"testing"
	"time"
)

func TestBar(t *testing.T) {
	t.Parallel()
	const slo = 30 * time.Second
	for age, want := range map[time.Duration]bar{
		0:                {0, 0, 66.7, true},
		15 * time.Second: {33.3, 0, 66.7, true},
		slo:              {66.7, 0, 66.7, true},
		45 * time.Second: {66.7, 33.3, 66.7, true},
		time.Minute:      {50, 50, 50, false},
		50 * time.Minute: {1, 99, 1, false}, // one scale, so the lateness shows
	} {
		if got := barOf(age, slo); got != want {
			t.Errorf("%s: got %+v, want %+v", age, got, want)
		}
	}
}

func TestSpark(t *testing.T) {
	t.Parallel()
	const slo = 10.0
	p := func(before time.Duration, age float64) dot { return dot{ago(before), age} }
	for _, c := range []struct {
		name string
		dots []dot
		want spark
	}{
		{"nothing yet", nil, spark{"", "", 6.3, 0}},
		{"one sample", []dot{p(0, 0)}, spark{"M360 48h0", "M360 48V48V48Z", 6.3, 0}},
		{
			"a line",
			[]dot{p(2*time.Minute, 0), p(time.Minute, 5), p(0, slo)},
			spark{"M348 48h0L354 27.1L360 6.3", "M348 48V48L354 27.1L360 6.3V48Z", 6.3, slo},
		},
		{"past the SLO", []dot{p(0, 20)}, spark{"M360 6.3h0", "M360 48V6.3V48Z", 27.1, 20}},
		{
			"nobody looked for ten minutes",
			[]dot{p(10*time.Minute, 0), p(0, 0)},
			spark{"M300 48h0M360 48h0", "M300 48V48V48H300ZM360 48V48V48Z", 6.3, 0},
		},
		{"a clock that went back", []dot{p(-time.Hour, 0)}, spark{"M360 48h0", "M360 48V48V48Z", 6.3, 0}},
	} {
		if got := sparkOf(c.dots, slo, redisNow, time.Hour, 2*time.Minute); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
	if got := sparkOf(nil, 0, redisNow, time.Hour, time.Minute); got.Mark >= 0 {
		t.Errorf("a chart with nothing to hold against has a mark: %+v", got)
	}
}

func TestCurve(t *testing.T) {
	t.Parallel()
	c := curveOf([]int64{0, 50, 200, 0}, 100)
	if len(c.Columns) != 4 || c.Mark != 56.5 || c.Columns[1].Over != 0 || c.Columns[2].Over != 43.5 || c.Columns[2].Height != 43.5 {
		t.Errorf("got %+v", c)
	}
	for _, col := range c.Columns {
		if bottom := col.Y + col.Height; bottom < 99.9 || bottom > 100.1 || col.OverY < 0 || col.X+col.Width > 100 {
			t.Errorf("a column stands at %+v", col)
		}
	}
	// What the slots carry has no line where it would hide the columns, or is not known.
	for _, perMinute := range []float64{0, 100_000} {
		if c := curveOf([]int64{1, 2}, perMinute); c.Mark >= 0 || c.Columns[1].Over != 0 || c.Columns[1].Height < 80 {
			t.Errorf("at %g a minute: %+v", perMinute, c)
		}
	}
	if c := curveOf([]int64{0, 0}, 10); len(c.Columns) != 0 || c.Mark >= 0 {
		t.Errorf("nothing due: %+v", c)
	}
}

func TestParts(t *testing.T) {
	t.Parallel()
	got := partsOf(200, part{Name: "a", Width: 50}, part{Name: "none", Width: 0}, part{Name: "b", Width: 100})
	want := []part{{"a", "50", 0, 25}, {"b", "100", 25, 50}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := partsOf(10, part{Name: "a", Width: 25}); got[0].Width != 100 {
		t.Errorf("more than all: %+v", got)
	}
	if got := partsOf(0, part{Name: "a", Width: 1}); got != nil {
		t.Errorf("of nothing: %+v", got)
	}
}
