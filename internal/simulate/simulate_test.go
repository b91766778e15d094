package simulate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fanout/fanout/internal/delivery"
)

var update = flag.Bool("update", false, "write the golden files anew")

func ms(n int) delivery.Duration { return delivery.Duration(n) * delivery.Duration(time.Millisecond) }

func play(t testing.TB, sc *Scenario) *Report {
	t.Helper()
	rep, err := Run(t.Context(), sc, nil)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// anyScenario draws one of seconds to minutes, in which everything may go wrong.
func anyScenario(rt *rapid.T) *Scenario {
	sc := &Scenario{
		Name: "any", Rate: rapid.Float64Range(0.5, 20).Draw(rt, "rate"), Steady: rapid.Bool().Draw(rt, "steady"),
		Duration: ms(rapid.IntRange(1, 60_000).Draw(rt, "duration")), RunOn: ms(rapid.SampledFrom([]int{1, 20_000, 86_400_000}).Draw(rt, "run_on")),
		Seed: rapid.Uint64Range(1, 1<<40).Draw(rt, "seed"), Slots: rapid.IntRange(1, 20).Draw(rt, "slots"),
		Dispatchers: rapid.IntRange(1, 3).Draw(rt, "dispatchers"),
	}
	for _, name := range []string{"a", "b"} {
		p50 := rapid.IntRange(1, 3000).Draw(rt, "p50")
		g := Group{
			Name: name, Endpoints: rapid.IntRange(1, 5).Draw(rt, "endpoints"),
			Latency:  Latency{ms(p50), ms(rapid.OneOf(rapid.Just(0), rapid.IntRange(p50, 12_000)).Draw(rt, "p99"))},
			Failures: Failures{rapid.SampledFrom([]float64{0, 0.1, 1}).Draw(rt, "failures"), rapid.SampledFrom([]int{500, 429, 404, 400, 410}).Draw(rt, "status")},
		}
		for range rapid.IntRange(0, 2).Draw(rt, "outages") {
			o := Outage{
				From: ms(rapid.IntRange(0, 30_000).Draw(rt, "from")), For: ms(rapid.IntRange(1, 90_000).Draw(rt, "for")),
				Does: rapid.SampledFrom(manners).Draw(rt, "does"), Share: rapid.Float64Range(0.01, 1).Draw(rt, "share"),
			}
			if o.Does == Limits {
				o.RetryAfter = ms(1000 * rapid.IntRange(0, 40).Draw(rt, "retry_after"))
			}
			g.Outages = append(g.Outages, o)
		}
		sc.Groups = append(sc.Groups, g)
	}
	p := delivery.DefaultPolicy()
	p.MaxAttempts = rapid.IntRange(2, 8).Draw(rt, "max_attempts")
	p.BreakerFailures = rapid.IntRange(1, p.MaxAttempts-1).Draw(rt, "breaker_failures")
	p.BackoffBase, p.BackoffCap = ms(rapid.IntRange(10, 5000).Draw(rt, "base")), ms(20_000)
	p.MaxAge = ms(rapid.SampledFrom([]int{10_000, 60_000, 3_600_000}).Draw(rt, "max_age"))
	p.MaxInFlight, p.MaxHeld = rapid.IntRange(1, 20).Draw(rt, "max_in_flight"), rapid.SampledFrom([]int{3, 1000}).Draw(rt, "max_held")
	p.RatePerSecond = rapid.SampledFrom([]float64{0, 0, 0.7, 5}).Draw(rt, "rate_per_second")
	sc.Policies = []Policy{{"p", p}}
	return sc
}

// Whatever is played: nothing is lost or made up, budgets, caps and rates hold, no slot is
// used twice or kept, and it comes out the same again.
func TestWhateverIsPlayed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		sc := anyScenario(rt)
		rep, err := Run(t.Context(), sc, nil)
		if err != nil {
			rt.Fatal(err)
		}
		p, res := sc.Policies[0].Policy, rep.Results[0]
		for i, g := range res.Groups {
			if g.Posted != g.Delivered+g.DeadTotal()+g.Pending || g.Pending < 0 {
				rt.Fatalf("lost count: %+v", g)
			}
			if g.Requests > g.Posted*int64(p.MaxAttempts) || g.Requests < g.Delivered {
				rt.Fatalf("%d requests for %d deliveries, %d delivered, budget %d", g.Requests, g.Posted, g.Delivered, p.MaxAttempts)
			}
			if g.P50 > g.P90 || g.P90 > g.P99 || g.P99 > g.Max || g.Max > float64(sc.Duration+sc.RunOn)/float64(time.Millisecond) {
				rt.Fatalf("no ages: %+v", g)
			}
			if g.SlotsP99 > res.Slots || (i < 2 && g.SlotsP99 > p.MaxInFlight*sc.Groups[i].Endpoints) {
				rt.Fatalf("%d slots of %d", g.SlotsP99, res.Slots)
			}
		}
		if lim := p.RatePerSecond; lim > 0 && float64(res.All().Peak) > lim+float64(p.AtOnce())+2 {
			rt.Fatalf("%d requests in a second at %v and %d at once", res.All().Peak, lim, p.AtOnce())
		}
		again, err := Run(t.Context(), sc, nil)
		if err != nil || !reflect.DeepEqual(rep.Results, again.Results) {
			rt.Fatalf("it came out another way: %v\n%+v\n%+v", err, res, again.Results[0])
		}
	})
}

// In a run that ends by itself every slot is given back, every order is empty, and no
// subscriber counts a lease.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	for _, name := range Names {
		sc := Builtin(name)
		sc.Rate, sc.Duration = 20, ms(20*60_000)
		sc.Fill()
		w := newWorld(sc, sc.Policies[0].Policy)
		if err := w.run(t.Context(), func(int64, int64) {}); err != nil {
			t.Fatal(err)
		}
		for _, d := range w.dispatchers {
			if d.used != 0 || d.pools != [2][lanes]int{} {
				t.Errorf("%s: slots in use: %+v", name, d)
			}
		}
		for _, s := range w.subs {
			if s.n != 0 || s.pending != 0 || s.probe != 0 || s.held[0] != (holder{slow: s.held[0].slow}) {
				t.Errorf("%s: left at %s: %+v", name, s.id, s)
			}
		}
		for o := range w.orders {
			if len(w.orders[o]) > 0 {
				t.Errorf("%s: order %d has %d", name, o, len(w.orders[o]))
			}
		}
	}
}

// What must follow from a scenario that is easy to reckon.
func TestWhatFollows(t *testing.T) {
	t.Parallel()
	base := func(g Group) *Scenario {
		return &Scenario{Name: "t", Rate: 10, Steady: true, Duration: ms(60_000), Overhead: Latency{P50: ms(2)}, Groups: []Group{g}}
	}
	steady := Latency{P50: ms(100)}
	all := []Outage{{For: ms(3_600_000)}}
	for name, c := range map[string]struct {
		sc   *Scenario
		set  func(*delivery.Policy)
		want func(GroupResult) bool
	}{
		"calm: each once, after the overhead, one slot": {
			base(Group{Endpoints: 1, Latency: steady}), nil,
			func(g GroupResult) bool {
				return g.Posted == 600 && g.Delivered == 600 && g.Requests == 600 && g.P50 >= 2 && g.P50 < 2.04 && g.SlotsP99 <= 2 && g.Peak <= 11
			},
		},
		"slower than its cap: it waits": {
			base(Group{Endpoints: 1, Latency: Latency{P50: ms(1000)}}), func(p *delivery.Policy) { p.MaxInFlight = 5 },
			func(g GroupResult) bool {
				return g.Delivered == 600 && g.Max > 55_000 && g.SlotsP99 == 5 && g.Requests == 600
			},
		},
		"slower than its timeout: never delivered": {
			base(Group{Endpoints: 1, Latency: Latency{P50: ms(3000)}}),
			func(p *delivery.Policy) { p.AttemptTimeout, p.MaxAge = ms(2000), ms(600_000) },
			func(g GroupResult) bool { return g.Delivered == 0 && g.DeadTotal() == 600 },
		},
		"a rate is kept": {
			base(Group{Endpoints: 1, Latency: steady}), func(p *delivery.Policy) { p.RatePerSecond = 2 },
			func(g GroupResult) bool { return g.Delivered == 600 && g.Peak <= 4 && g.Max > 200_000 },
		},
		"terminal: each dies of its first answer": {
			base(Group{Endpoints: 1, Latency: steady, Failures: Failures{Share: 1, Status: 422}}), nil,
			func(g GroupResult) bool { return g.Dead[delivery.HTTP422] == 600 && g.Requests == 600 },
		},
		"dead for good: few requests, all expire": {
			base(Group{Endpoints: 1, Latency: steady, Outages: []Outage{{For: all[0].For, Does: Refuse}}}),
			func(p *delivery.Policy) { p.MaxAge = ms(600_000) },
			func(g GroupResult) bool { return g.Dead[delivery.Expired] == 600 && g.Requests < 60 },
		},
		"budget of two, breaker at one: exhausted by probes": {
			base(Group{Endpoints: 1, Latency: steady, Outages: []Outage{{For: all[0].For, Does: Fails}}}),
			func(p *delivery.Policy) { p.MaxAttempts, p.BreakerFailures, p.MaxAge = 2, 1, ms(3_000_000) },
			func(g GroupResult) bool { return g.Dead[delivery.Exhausted] > 0 && g.Requests <= 1200 },
		},
		"held_full beyond max_held": {
			base(Group{Endpoints: 1, Latency: steady, Outages: []Outage{{For: ms(50_000), Does: Fails}}}),
			func(p *delivery.Policy) { p.MaxHeld = 100 },
			func(g GroupResult) bool { return g.Dead[delivery.HeldFull] == 500 && g.Delivered == 100 },
		},
		"429 with Retry-After: a request, then silence": {
			base(Group{Endpoints: 1, Latency: steady, Outages: []Outage{{For: ms(50_000), Does: Limits, RetryAfter: ms(20_000)}}}), nil,
			func(g GroupResult) bool {
				return g.Delivered == 600 && g.Requests <= 604 && g.Drains[0] > 9 && g.Drains[0] < 15
			},
		},
		"410 disables: nothing more is sent": {
			base(Group{Endpoints: 1, Latency: steady, Failures: Failures{Share: 1, Status: 410}}), nil,
			func(g GroupResult) bool { return g.Requests < 5 && g.Dead[delivery.Expired] > 590 },
		},
		"a share of the endpoints fails, not the others": {
			base(Group{Endpoints: 10, Fanout: 1, Latency: steady, Outages: []Outage{{For: all[0].For, Does: Fails, Share: 0.25}}}),
			func(p *delivery.Policy) { p.MaxAge = ms(120_000) },
			func(g GroupResult) bool { return g.Delivered > 350 && g.Delivered < 480 && g.P99 < 100 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.sc.Groups[0].Name = "g"
			p := Policy{"p", delivery.DefaultPolicy()}
			if c.set != nil {
				c.set(&p.Policy)
			}
			c.sc.Policies = []Policy{p}
			if g := play(t, c.sc).Results[0].Groups[0]; !c.want(g) {
				g.ages = [bins]histogram{}
				t.Errorf("%+v", g)
			}
		})
	}
}

// Half of the endpoints hang: the healthy share the dispatcher with them and wait for none.
func TestHangCostsTheOthersNothing(t *testing.T) {
	t.Parallel()
	sc := Builtin("hang")
	sc.Duration = ms(30 * 60_000)
	res := play(t, sc).Results[0]
	if healthy := res.Groups[0]; healthy.P99 > 50 || healthy.Delivered != healthy.Posted {
		t.Errorf("%v ms at p99, %d of %d", healthy.P99, healthy.Delivered, healthy.Posted)
	}
	if hanging := res.Groups[1]; hanging.Drains[0] <= 0 || hanging.Delivered != hanging.Posted || hanging.PerDelivery > 1.1 {
		t.Errorf("hanging: drained after %v, %v requests each", hanging.Drains, hanging.PerDelivery)
	}
}

// Policies meet the same events and the same answers.
func TestPoliciesMeetTheSame(t *testing.T) {
	t.Parallel()
	sc := Builtin("calm")
	sc.Duration = ms(60_000)
	sc.Policies = []Policy{{"one", delivery.DefaultPolicy()}, {"same", delivery.DefaultPolicy()}, {"other", delivery.DefaultPolicy()}}
	sc.Policies[2].BackoffBase = ms(100)
	rep := play(t, sc)
	one, same, other := rep.Results[0].All(), rep.Results[1].All(), rep.Results[2].All()
	if !reflect.DeepEqual(one, same) {
		t.Errorf("one policy came out in two ways: %+v\n%+v", one, same)
	}
	if one.Posted != other.Posted || one.Requests-one.Posted != other.Requests-other.Posted || one.Max <= other.Max {
		t.Errorf("another backoff changes when it is retried, and nothing else here: %+v\n%+v", one, other)
	}
}

// The whole of what a tiny scenario prints.
func TestGoldenTable(t *testing.T) {
	t.Parallel()
	f, err := os.Open("testdata/tiny.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sc, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	rep := play(t, sc)
	var table, doc bytes.Buffer
	if err := errors.Join(rep.WriteTable(&table), rep.WriteJSON(&doc)); err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "tiny.txt")
	if *update {
		if err := os.WriteFile(golden, table.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), table.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	var back Report
	if err := json.Unmarshal(doc.Bytes(), &back); err != nil || len(back.Results) != 2 || back.Results[1].Policy != "eager" ||
		back.Scenario.Policies[1].MaxAttempts != 4 || back.Results[0].Groups[2].Group != "all" {
		t.Errorf("%v\n%s", err, doc.String())
	}
}

// The charts are drawn, with a cross for each policy and a line in each age chart.
func TestCharts(t *testing.T) {
	t.Parallel()
	sc := Builtin("outage")
	sc.Rate = 10
	sc.Policies = []Policy{{"one", delivery.DefaultPolicy()}, {"two", delivery.DefaultPolicy()}}
	dir := filepath.Join(t.TempDir(), "charts")
	files, err := play(t, sc).Save(dir)
	if err != nil || len(files) != 5 {
		t.Fatalf("%v: %v", files, err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{`class="s s0" d="M`, `class="s s1" d="M`, "</svg>"} {
			if !strings.Contains(string(b), s) {
				t.Errorf("%s has no %s", name, s)
			}
		}
	}
}

// A signal ends a long run.
func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	sc := Builtin("calm")
	sc.Duration = maxDuration
	said := 0
	_, err := Run(ctx, sc, func(policy string, at, of time.Duration, _ int64) {
		said++
		if policy != "default" || at <= 0 || at > of {
			t.Errorf("%s: %s of %s", policy, at, of)
		}
		cancel()
	})
	if !errors.Is(err, context.Canceled) || said != 1 {
		t.Errorf("%v after %d reports", err, said)
	}
}
