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
	const slo = 10 * time.Second
	p := func(before, age time.Duration) point { return point{ago(before), []time.Duration{0, age}} }
	for _, c := range []struct {
		name   string
		points []point
		want   spark
	}{
		{"nothing yet", nil, spark{"", 5.2, 0}},
		{"one sample", []point{p(0, 0)}, spark{"M300 40h0", 5.2, 0}},
		{
			"a line",
			[]point{p(2*time.Second, 0), p(time.Second, 5*time.Second), p(0, slo)},
			spark{"M298 40h0L299 22.6L300 5.2", 5.2, slo},
		},
		{"past the SLO", []point{p(0, 20*time.Second)}, spark{"M300 5.2h0", 22.6, 20 * time.Second}},
		{
			"nobody looked for a minute",
			[]point{p(time.Minute, 0), p(0, 0)},
			spark{"M240 40h0M300 40h0", 5.2, 0},
		},
		{"a clock that went back", []point{p(-time.Hour, 0)}, spark{"M300 40h0", 5.2, 0}},
	} {
		if got := sparkOf(c.points, 1, slo, redisNow, 3*time.Second); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}
