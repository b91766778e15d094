package loadtest

import (
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/client"
)

// fineRedrive and fineStops break nothing.
func fineRedrive() *Repair {
	return &Repair{
		Items: 100, Delivered: 100, Capacity: 1000, Fresh: 700, Ratio: 1.4,
		CalmSecond: 20, DuringSecond: 35,
	}
}

func fineStops() *Repair {
	return &Repair{Items: 100, Delivered: 90, Dead: 10, Stops: []Stop{
		{Manner: "422", Rate: 100, Seconds: 0.5, Sent: 40},
		{Why: "something else"},
		{Manner: "500", Rate: 100, Seconds: 0.3, Sent: 12},
	}}
}

// Each bound of a redrive is held to, and a repair that keeps all of them breaks none.
func TestRedriveBounds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		of    func() *Repair
		spoil func(*Repair)
		short bool
		want  string // "" for none
	}{
		{"as it should be", fineRedrive, func(*Repair) {}, false, ""},
		{"too old", fineRedrive, func(p *Repair) { p.Ratio = 1.6 }, false, "at most 1.5"},
		{"too old for a minute", fineRedrive, func(p *Repair) { p.Ratio = 1.6 }, true, ""},
		{"too old in short", fineRedrive, func(p *Repair) { p.Ratio = 3.1 }, true, "at most 3"},
		{"one is missing", fineRedrive, func(p *Repair) { p.Delivered-- }, false, "are missing"},
		{"one died", fineRedrive, func(p *Repair) { p.Delivered--; p.Dead++ }, false, "died again"},
		{"one came twice", fineRedrive, func(p *Repair) { p.Twice = 1 }, false, "came after a 2xx"},
		{"it stops in time", fineStops, func(*Repair) {}, false, ""},
		{"it stops too late", fineStops, func(p *Repair) { p.Stops[0].Seconds = 2 }, true, "2.00 s after the first 422"},
		{"it stops after too many", fineStops, func(p *Repair) { p.Stops[2].Sent = 500 }, true, "500 were sent from the first 500"},
		{"it stops once", fineStops, func(p *Repair) { p.Stops = p.Stops[:1] }, true, "1 of 2 failures"},
	} {
		p := tt.of()
		tt.spoil(p)
		r := Report{Short: tt.short, Scenarios: []Result{{
			Name: redriving, Redrive: p, Healthy: Ages{Deliveries: 1, Arrived: 1}, Ratio: 50,
		}}}
		r.judge()
		said := strings.Join(r.Broken, "\n")
		if (said == "") != (tt.want == "") || !strings.Contains(said, tt.want) || len(r.Broken) > 2 {
			t.Errorf("%s: %q", tt.name, said)
		}
	}
}

// What a redrive sent in a span of time is told from what was fresh, and the first that
// was refused is found.
func TestRedrivenRequestsAreTold(t *testing.T) {
	t.Parallel()
	const s = time.Second
	g := &group{endpoints: []*endpoint{{redriven: []again{{1 * s, true}, {2 * s, false}, {3 * s, false}}}, {redriven: []again{{4 * s, false}}}}}
	if all, refused := g.redrivenIn(1*s, 4*s); all != 3 || refused != 2 {
		t.Errorf("%d, of which %d were refused", all, refused)
	}
	if first, found := g.firstRefused(2*s + 1); !found || first != 3*s {
		t.Errorf("the first that was refused came at %s", first)
	}
	if _, found := g.firstRefused(5 * s); found {
		t.Error("one was found that never was")
	}
}

// The three pictures have one time.
func TestTheStackSharesItsTime(t *testing.T) {
	t.Parallel()
	const s = time.Second
	r := &run{name: redriving, cut: 90 * s, marks: []mark{{5 * s, "before"}, {30 * s, "approved"}}, repair: &Repair{
		begin: 10 * s, looks: []look{{30 * s, client.RedriveRunning, false, 2, client.RedriveTally{}}, {40 * s, client.RedrivePaused, false, 2, client.RedriveTally{}}},
	}}
	for _, c := range r.stackRedrive(nil) {
		if c.X.To != 80 || len(c.Marks) != 1 || c.Marks[0].X != 20 {
			t.Errorf("%s: to %g, marks %v", c.Title, c.X.To, c.Marks)
		}
		for _, line := range c.Series {
			for _, p := range line.Points {
				if p.X < 0 || p.X > 80 {
					t.Errorf("%s: a point at %g", c.Title, p.X)
				}
			}
		}
	}
}

// One bad second of many makes nothing of the median second, and half of them all.
func TestMedianSecond(t *testing.T) {
	t.Parallel()
	of := func(seconds ...time.Duration) float64 {
		var all []age
		for i, p99 := range seconds {
			for range 100 {
				all = append(all, age{accepted: time.Duration(i) * time.Second, age: time.Millisecond})
			}
			for range 2 {
				all = append(all, age{accepted: time.Duration(i)*time.Second + time.Millisecond, age: p99})
			}
		}
		return medianSecond(all)
	}
	const ms = time.Millisecond
	if got := of(20*ms, 900*ms, 25*ms, 22*ms, 24*ms); got != 24 {
		t.Errorf("one bad second: %g ms, want 24", got)
	}
	if got := of(20*ms, 90*ms, 90*ms, 90*ms, 24*ms); got != 90 {
		t.Errorf("three of five bad seconds: %g ms, want 90", got)
	}
	if got := of(); got != 0 {
		t.Errorf("of nothing %g ms", got)
	}
}
