package simulate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// ErrScenario says that what was to be played is not possible. Its message names each
// field.
var ErrScenario = errors.New("the scenario cannot be played")

// Scenario is what is played. Zero values take the defaults of Fill: what somebody gave
// goes through Given, which refuses them.
type Scenario struct {
	Name string `json:"name" yaml:"name"`
	// Rate is events a second, up to 100,000; Poisson arrivals unless Steady.
	Rate   float64 `json:"rate" yaml:"rate"`
	Steady bool    `json:"steady" yaml:"steady"`
	// Duration is for how long they come, 1 ms to 30 days; RunOn how long the run may go on
	// after that for what is pending still, default 24 h.
	Duration delivery.Duration `json:"duration" yaml:"duration"`
	RunOn    delivery.Duration `json:"run_on" yaml:"run_on"`
	Seed     uint64            `json:"seed" yaml:"seed"`
	// Slots of each of the Dispatchers; default 100 and 1.
	Slots       int `json:"slots" yaml:"slots"`
	Dispatchers int `json:"dispatchers" yaml:"dispatchers"`
	// Overhead is what the service takes from a lease to the request; default 4 ms at p50 and
	// 9 at p99. It is the machine's, and measured by `fanout loadtest`.
	Overhead Latency  `json:"overhead" yaml:"overhead"`
	Groups   []Group  `json:"groups" yaml:"groups"`
	Flows    []Flow   `json:"flows,omitempty" yaml:"flows"`
	Policies []Policy `json:"policies" yaml:"policies"`
}

// Group is endpoints that behave alike.
type Group struct {
	Name      string `json:"name" yaml:"name"`
	Endpoints int    `json:"endpoints" yaml:"endpoints"`
	// Fanout is how many of them an event goes to, on average; 0 for all.
	Fanout   float64  `json:"fanout" yaml:"fanout"`
	Latency  Latency  `json:"latency" yaml:"latency"`
	Failures Failures `json:"failures" yaml:"failures"`
	Outages  []Outage `json:"outages,omitempty" yaml:"outages"`
}

// Latency is log-normal through its median and P99; constant if P99 is 0, or the same.
type Latency struct {
	P50 delivery.Duration `json:"p50" yaml:"p50"`
	P99 delivery.Duration `json:"p99" yaml:"p99"`
}

// Failures are the share of attempts that are answered by Status (default 500) at any time.
type Failures struct {
	Share  float64 `json:"share" yaml:"share"`
	Status int     `json:"status" yaml:"status"`
}

// Outage is a window in which the first Share (default all) of a group's endpoints fail.
type Outage struct {
	From  delivery.Duration `json:"from" yaml:"from"`
	For   delivery.Duration `json:"for" yaml:"for"`
	Does  Manner            `json:"does" yaml:"does"`
	Share float64           `json:"share" yaml:"share"`
	// RetryAfter is what a 429 asks for, in whole seconds; 0 for nothing.
	RetryAfter delivery.Duration `json:"retry_after" yaml:"retry_after"`
}

// Manner is how an endpoint fails.
type Manner string

// The manners.
const (
	Refuse Manner = "refuse" // no connection
	Fails  Manner = "500"
	Hang   Manner = "hang" // no answer
	Limits Manner = "429"
)

var manners = []Manner{Refuse, Fails, Hang, Limits}

// Flow is events beside the main rate: Rate a second from From on, for For, to the named
// groups alone.
type Flow struct {
	Rate   float64           `json:"rate" yaml:"rate"`
	From   delivery.Duration `json:"from" yaml:"from"`
	For    delivery.Duration `json:"for" yaml:"for"`
	Groups []string          `json:"groups" yaml:"groups"`
}

// Policy is one to be compared, by its name.
type Policy struct {
	Name            string `json:"name"`
	delivery.Policy `yaml:"-"`
}

// Fill puts the defaults in place of what is left out.
func (s *Scenario) Fill() {
	fill := func(d *delivery.Duration, is time.Duration) {
		if *d == 0 {
			*d = delivery.Duration(is)
		}
	}
	fill(&s.Duration, time.Hour)
	fill(&s.RunOn, 24*time.Hour)
	if s.Overhead.P50 == 0 {
		s.Overhead = Latency{delivery.Duration(4 * time.Millisecond), delivery.Duration(9 * time.Millisecond)}
	}
	if s.Slots == 0 {
		s.Slots = 100
	}
	if s.Dispatchers == 0 {
		s.Dispatchers = 1
	}
	if s.Seed == 0 {
		s.Seed = 1
	}
	if len(s.Policies) == 0 {
		s.Policies = []Policy{{"default", delivery.DefaultPolicy()}}
	}
	for i := range s.Groups {
		g := &s.Groups[i]
		if g.Fanout == 0 {
			g.Fanout = float64(g.Endpoints)
		}
		fill(&g.Latency.P50, 50*time.Millisecond)
		if g.Failures.Status == 0 {
			g.Failures.Status = 500
		}
		for j := range g.Outages {
			if g.Outages[j].Share == 0 {
				g.Outages[j].Share = 1
			}
		}
	}
}

// Bounds on a scenario: what a machine's memory and a person's patience carry.
const (
	maxRate      = 100_000
	maxDuration  = delivery.Duration(30 * 24 * time.Hour)
	maxEndpoints = 100_000
	maxSlots     = 100_000

	maxDispatchers = 1000
)

// Validate returns all that is wrong, joined under ErrScenario, or nil.
func (s *Scenario) Validate() error {
	var errs []error
	check := func(good bool, format string, a ...any) {
		if !good {
			errs = append(errs, fmt.Errorf(format, a...))
		}
	}
	for _, f := range [][2]string{
		{"rate", s.badRate()},
		{"duration", badTime(s.Duration)},
		{"run_on", badTime(s.RunOn)},
		{"slots", badCount(s.Slots, maxSlots)},
		{"dispatchers", badCount(s.Dispatchers, maxDispatchers)},
		{"overhead", s.Overhead.bad()},
	} {
		check(f[1] == "", "%s: %s", f[0], f[1])
	}
	check(len(s.Groups) > 0, "groups: there is none")
	names := map[string]bool{}
	total := 0
	for _, g := range s.Groups {
		check(nameable(g.Name), "groups: %q is no name: letters, digits, - and _, up to 32", g.Name)
		check(!names[g.Name] && g.Name != allGroups, "groups: the name %q is taken", g.Name)
		names[g.Name] = true
		total += g.Endpoints
		errs = append(errs, g.validate()...)
	}
	check(total <= maxEndpoints, "groups: %d endpoints, at most %d", total, maxEndpoints)
	for i, f := range s.Flows {
		check(f.Rate > 0 && f.Rate <= maxRate, "flows[%d].rate: must be above 0, to %d", i, maxRate)
		check(f.From >= 0 && f.For > 0 && f.From <= maxDuration && f.For <= maxDuration, "flows[%d]: from and for must name a time", i)
		check(len(f.Groups) > 0, "flows[%d].groups: there is none", i)
		for _, g := range f.Groups {
			check(names[g], "flows[%d].groups: there is no group %q", i, g)
		}
	}
	errs = append(errs, validatePolicies(s.Policies)...)
	if len(errs) > 0 {
		return fmt.Errorf("%w: %w", ErrScenario, errors.Join(errs...))
	}
	return nil
}

func (g Group) validate() (errs []error) {
	check := func(good bool, format string, a ...any) {
		if !good {
			errs = append(errs, fmt.Errorf("group "+g.Name+": "+format, a...))
		}
	}
	check(g.Endpoints >= 1 && g.Endpoints <= maxEndpoints, "endpoints: must be from 1 to %d, is %d", maxEndpoints, g.Endpoints)
	check(g.Fanout > 0 && g.Fanout <= float64(g.Endpoints), "fanout: must be above 0, and at most the %d endpoints, is %v", g.Endpoints, g.Fanout)
	check(g.Latency.bad() == "", "latency: %s", g.Latency.bad())
	check(g.Failures.Share >= 0 && g.Failures.Share <= 1, "failures.share: must be from 0 to 1, is %v", g.Failures.Share)
	check(g.Failures.Status >= 300 && g.Failures.Status <= 599, "failures.status: must be from 300 to 599, is %d", g.Failures.Status)
	for i, o := range g.Outages {
		check(o.From >= 0 && o.For > 0 && o.From <= maxDuration && o.For <= maxDuration, "outages[%d]: from and for must name a time", i)
		check(slices.Contains(manners, o.Does), "outages[%d].does: must be one of %v, is %q", i, manners, o.Does)
		check(o.Share > 0 && o.Share <= 1, "outages[%d].share: must be above 0, to 1, is %v", i, o.Share)
		check(o.RetryAfter >= 0 && (o.RetryAfter == 0 || o.Does == Limits), "outages[%d].retry_after: is what a 429 asks for", i)
	}
	return errs
}

func validatePolicies(all []Policy) (errs []error) {
	names := map[string]bool{}
	for _, p := range all {
		if !nameable(p.Name) || names[p.Name] {
			errs = append(errs, fmt.Errorf("policies: %q is taken or no name: letters, digits, - and _, up to 32", p.Name))
		}
		names[p.Name] = true
		if err := p.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("policy %s: %w", p.Name, err))
		}
	}
	return errs
}

// bad says what is wrong with a latency, "" for nothing.
func (l Latency) bad() string {
	const most = delivery.Duration(time.Hour)
	switch {
	case l.P50 <= 0 || l.P50 > most || l.P99 < 0 || l.P99 > most:
		return "p50 must be positive, and none above 1h"
	case l.P99 != 0 && l.P99 < l.P50:
		return fmt.Sprintf("p50, %s, must not be above p99, %s", time.Duration(l.P50), time.Duration(l.P99))
	}
	return ""
}

// nameable says whether a name can stand in a table, a flag and a file's name.
func nameable(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	return name != "" && len(name) <= 32 && strings.Trim(name, letters) == ""
}
