package simulate

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fanout/fanout/internal/delivery"
)

// allGroups stands for all groups together.
const allGroups = "all"

// Progress is called now and then, by several goroutines: how far a policy's run is, of how
// much at most, and how many deliveries are pending in it.
type Progress func(policy string, at, of time.Duration, pending int64)

// Report is what came of a scenario.
type Report struct {
	Scenario *Scenario `json:"scenario"`
	// Results by policy, in their order.
	Results []Result `json:"results"`
}

// Result is what one policy came to.
type Result struct {
	Policy string `json:"policy"`
	// Slots of all dispatchers; Saturated is the share of the scenario's duration in which
	// every one was taken.
	Slots     int     `json:"slots"`
	Saturated float64 `json:"saturated"`
	// Simulated is how much time was played, with what was pending after the last event.
	Simulated float64 `json:"simulated_s"`
	// Groups in their order, and "all" last.
	Groups []GroupResult `json:"groups"`
	// Notes are what the policy's own check warns of.
	Notes []string `json:"notes,omitempty"`
}

// GroupResult is one group under one policy.
type GroupResult struct {
	Group string `json:"group"`
	// Posted = Delivered + the sum of Dead + Pending.
	Posted    int64                      `json:"posted"`
	Delivered int64                      `json:"delivered"`
	Dead      map[delivery.Outcome]int64 `json:"dead"`
	Pending   int64                      `json:"pending"`
	// Ages of what was delivered, from accept until the request that succeeded arrived.
	P50 float64 `json:"age_p50_ms"`
	P90 float64 `json:"age_p90_ms"`
	P99 float64 `json:"age_p99_ms"`
	Max float64 `json:"age_max_ms"`
	// Requests, and how many an endpoint got at most in any second of the clock.
	Requests    int64   `json:"requests"`
	PerDelivery float64 `json:"requests_per_delivery"`
	Peak        int64   `json:"peak_requests_per_second"`
	// SlotsP99 is how many slots it held at most for 99 % of the scenario's duration, and
	// SlotsMax the most at any time of it.
	SlotsP99 int `json:"slots_p99"`
	SlotsMax int `json:"slots_max"`
	// Drains are how long after the end of each outage the last delivery ended that was
	// accepted before it, s; -1 if one is pending still.
	Drains []float64 `json:"drains_s,omitempty"`

	ages [bins]histogram
}

// DeadTotal is how many died.
func (g GroupResult) DeadTotal() (n int64) {
	for _, k := range g.Dead {
		n += k
	}
	return n
}

// Share is the part that was delivered, from 0 to 1; 1 of nothing.
func (g GroupResult) Share() float64 {
	if g.Posted == 0 {
		return 1
	}
	return float64(g.Delivered) / float64(g.Posted)
}

// All is the sum of all groups.
func (r Result) All() GroupResult { return r.Groups[len(r.Groups)-1] }

// Run plays a scenario under each of its policies, as many at once as there are processors.
// It fills in the scenario's defaults. The same scenario, seed and version of the code give
// the same report. It returns ErrScenario, or the error of ctx.
func Run(ctx context.Context, sc *Scenario, say Progress) (*Report, error) {
	sc.Fill()
	if err := sc.Validate(); err != nil {
		return nil, err
	}
	rep := &Report{Scenario: sc, Results: make([]Result, len(sc.Policies))}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, p := range sc.Policies {
		group.Go(func() error {
			w := newWorld(sc, p.Policy)
			of := time.Duration(w.cut) * time.Microsecond
			err := w.run(ctx, func(at, pending int64) {
				if say != nil {
					say(p.Name, time.Duration(at)*time.Microsecond, of, pending)
				}
			})
			if err != nil {
				return err
			}
			rep.Results[i] = w.result(p)
			return rep.Results[i].balanced()
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return rep, nil
}

var errLost = errors.New("the simulation lost count of deliveries: this is a defect of it")

// balanced says whether every delivery is accounted for.
func (r Result) balanced() error {
	for _, g := range r.Groups {
		if g.Pending < 0 || g.Posted != g.Delivered+g.DeadTotal()+g.Pending {
			return fmt.Errorf("policy %s, group %s: %w", r.Policy, g.Group, errLost)
		}
	}
	return nil
}

// result sums a run up.
func (w *world) result(p Policy) Result {
	r := Result{
		Policy: p.Name, Slots: w.scene.Slots * w.scene.Dispatchers, Simulated: seconds(w.us), Notes: p.Warnings(),
	}
	w.total.move(0, w.end, w.end)
	r.Saturated = w.total.share(r.Slots)
	all := &tally{dead: map[delivery.Outcome]int64{}, slots: w.total}
	peak := int64(0)
	pending := make([]int64, len(w.groups))
	for i, name := range w.scene.names() {
		if i == len(w.tallies) {
			g := all.result(name, peak, w.pending)
			r.Groups = append(r.Groups, g)
			break
		}
		t := w.tallies[i]
		t.slots.move(0, w.end, w.end)
		most := int64(0)
		for _, s := range w.groups[i] {
			most = max(most, s.peak)
			pending[i] += int64(s.pending)
		}
		peak = max(peak, most)
		r.Groups = append(r.Groups, t.result(name, most, pending[i]))
		all.add(t)
	}
	return r
}

// add sums groups up.
func (t *tally) add(o *tally) {
	t.posted += o.posted
	t.delivered += o.delivered
	t.requests += o.requests
	for why, n := range o.dead {
		t.dead[why] += n
	}
	t.age.merge(&o.age)
	for i := range o.byTime {
		t.byTime[i].merge(&o.byTime[i])
	}
	t.drains = append(t.drains, o.drains...)
}

func (t *tally) result(name string, peak, pending int64) GroupResult {
	g := GroupResult{
		Group: name, Posted: t.posted, Delivered: t.delivered, Dead: t.dead, Pending: pending,
		P50: millis(t.age.percentile(50)), P90: millis(t.age.percentile(90)), P99: millis(t.age.percentile(99)),
		Max: millis(t.age.most), Requests: t.requests, Peak: peak, SlotsP99: t.slots.percentile(99), SlotsMax: t.slots.percentile(100), ages: t.byTime,
	}
	if t.posted > 0 {
		g.PerDelivery = float64(t.requests) / float64(t.posted)
	}
	for _, d := range t.drains {
		took := -1.0
		if d.took >= 0 {
			took = seconds(d.took)
		}
		g.Drains = append(g.Drains, took)
	}
	return g
}

func millis(us int64) float64 { return float64(us) / micros }

func seconds(us int64) float64 { return float64(us) / 1e6 }
