package redrive

import (
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// What is there at every look of a while is a queue; what is gone at one was a burst; and what
// stood before the cohort began, as for endpoints that are too slow for what they are sent,
// is none of its doing, unless it becomes longer.
func TestPressed(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for name, tt := range map[string]struct {
		waited []time.Duration // by the oldest eligible fresh delivery, at each look
		want   []bool
	}{
		"nothing waits":               {[]time.Duration{0, 0, 0, 0, 0}, []bool{false, false, false, false, false}},
		"a burst":                     {[]time.Duration{0, 500 * ms, 0, 500 * ms, 0}, []bool{false, false, false, false, false}},
		"several in a row":            {[]time.Duration{0, 90 * ms, 80 * ms, 90 * ms, 0, 50 * ms}, []bool{false, false, false, false, false, false}},
		"a queue":                     {[]time.Duration{0, 50 * ms, 80 * ms, 100 * ms, 200 * ms, 0}, []bool{false, false, false, false, true, false}},
		"a short one":                 {[]time.Duration{0, 18 * ms, 19 * ms, 20 * ms, 20 * ms, 20 * ms}, []bool{false, false, false, false, false, false}},
		"it stood before":             {[]time.Duration{4000 * ms, 4100 * ms, 5000 * ms, 5900 * ms, 5900 * ms}, []bool{false, false, false, false, false}},
		"it becomes longer":           {[]time.Duration{4000 * ms, 6100 * ms, 6200 * ms, 6200 * ms, 6300 * ms}, []bool{false, false, false, false, true}},
		"it was gone for a while":     {[]time.Duration{4000 * ms, 0, 100 * ms, 200 * ms, 200 * ms, 200 * ms}, []bool{false, false, false, false, false, true}},
		"the first look says nothing": {[]time.Duration{4000 * ms}, []bool{false}},
	} {
		s, c := Service{seen: map[string]seen{}}, Cohort{ID: "rdv_1", State: Running, Limit: 1}
		now := time.UnixMilli(1_800_000_000_000)
		for i, waited := range tt.waited {
			now = now.Add(stepEvery)
			h := health{sample: schedule.Sample{Now: now}}
			if waited > 0 {
				h.sample.Ages = []schedule.Ages{
					{Class: "standard", Lane: delivery.Fresh, Eligible: now.Add(-waited)},
					{Class: "standard", Lane: delivery.Retry, Eligible: now.Add(-time.Hour)},
					{Class: "standard", Lane: delivery.Redrive, Eligible: now.Add(-time.Hour)},
				}
			}
			s.forget([]Cohort{c})
			if why := s.pressed(&c, h); (why != "") != tt.want[i] {
				t.Errorf("%s: look %d says %q", name, i, why)
			}
		}
		s.forget(nil)
		if len(s.seen) > 0 {
			t.Errorf("%s: what has ended is remembered", name)
		}
	}
}
