package simulate

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fanout/fanout/internal/delivery"
)

func TestParsePolicy(t *testing.T) {
	t.Parallel()
	want := Policy{"quick", delivery.DefaultPolicy()}
	want.MaxAttempts, want.BackoffBase, want.RatePerSecond = 8, ms(2000), 2.5
	want.Classify = map[int]delivery.Override{404: delivery.OverrideRetry}
	got, err := ParsePolicy("quick:max_attempts=8,backoff_base=2s,rate_per_second=2.5,classify.404=retry")
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if got, err := ParsePolicy("plain"); err != nil || !cmp.Equal(got, Policy{"plain", delivery.DefaultPolicy()}) {
		t.Errorf("%+v: %v", got, err)
	}
}

// What a flag says wrongly is told with what is wrong.
func TestWrongFlags(t *testing.T) {
	t.Parallel()
	policy := func(s string) error { _, err := ParsePolicy(s); return err }
	group := func(s string) error { _, err := ParseGroup(s); return err }
	outage := func(s string) error { _, _, err := ParseOutage(s); return err }
	for _, c := range []struct {
		parse      func(string) error
		text, says string
	}{
		{policy, "", "want name:field=value"},
		{policy, ":max_attempts=3", "want name:field=value"},
		{policy, "p:max_attempts", "no field=value"},
		{policy, "p:attempts=3", `no field "attempts"`},
		{policy, "p:max_attempts=many", "max_attempts=many"},
		{policy, "p:backoff_base=2", "backoff_base=2"},
		{policy, "p:classify.x=retry", "want a status"},
		{group, "g:size=3", `no field "size"`},
		{group, "g:endpoints=few", "invalid syntax"},
		{group, "g:p50=1", "want a duration"},
		{outage, "g:until=3s", `no field "until"`},
		{outage, "g:share=all", "invalid syntax"},
	} {
		if err := c.parse(c.text); !errors.Is(err, ErrScenario) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, want %q", c.text, err, c.says)
		}
	}
}

func TestParseGroupAndOutage(t *testing.T) {
	t.Parallel()
	g, err := ParseGroup("slow:endpoints=10,fanout=0.5,p50=1s,p99=5s,failures=0.01,status=503")
	want := Group{Name: "slow", Endpoints: 10, Fanout: 0.5, Latency: Latency{ms(1000), ms(5000)}, Failures: Failures{0.01, 503}}
	if diff := cmp.Diff(want, g); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	sc := &Scenario{Groups: []Group{g}}
	name, o, err := ParseOutage("slow:from=10m,for=15m,does=429,share=0.5,retry_after=30s")
	if err := errors.Join(err, sc.AddOutage(name, o)); err != nil {
		t.Fatal(err)
	}
	wantO := []Outage{{ms(600_000), ms(900_000), Limits, 0.5, ms(30_000)}}
	if diff := cmp.Diff(wantO, sc.Groups[0].Outages); diff != "" {
		t.Error(diff)
	}
	if err := sc.AddOutage("other", o); !errors.Is(err, ErrScenario) {
		t.Error(err)
	}
}

func TestWrongFiles(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"":                               "empty",
		"rates: 3":                       "field rates not found",
		"rate: 3\n---\nrate: 4":          "more than one document",
		"policies: [{name: p, x: 1}]":    `no field "x"`,
		"slots: 0":                       "slots: must be from 1 to 100000, is 0",
		"{dispatchers: 0, duration: 0s}": "dispatchers: must be from 1 to 1000, is 0",
		"rate: 0":                        "rate: must be above 0, and at most 100000 events a second, is 0",
		"run_on: 0s":                     "run_on: must be from 1ms to 720h, is 0s",
		"policies: [p]":                  "a policy is a mapping",
		"policies: [{max_age: [1]}]":     "want one value",
		"groups: [{latency: {p50: 1}}]":  "want a duration",
	} {
		if _, err := Read(strings.NewReader(text)); !errors.Is(err, ErrScenario) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}

// Each bound is checked, and all that is wrong is said at once.
func TestValidate(t *testing.T) {
	t.Parallel()
	for says, spoil := range map[string]func(*Scenario){
		"rate: must be":                      func(s *Scenario) { s.Rate = -1 },
		"rate: must be above 0, and at":      func(s *Scenario) { s.Rate = 0 },
		"p50, 2s, must not be above p99, 1s": func(s *Scenario) { s.Groups[0].Latency = Latency{ms(2000), ms(1000)} },
		"duration: must be":                  func(s *Scenario) { s.Duration = maxDuration + 1 },
		"run_on: must be":                    func(s *Scenario) { s.RunOn = -1 },
		"slots: must be":                     func(s *Scenario) { s.Slots = -1 },
		"dispatchers: must be":               func(s *Scenario) { s.Dispatchers = 1001 },
		"groups: there is none":              func(s *Scenario) { s.Groups = nil },
		"is no name":                         func(s *Scenario) { s.Groups[0].Name = "a/b" },
		`the name "g" is taken`:              func(s *Scenario) { s.Groups = append(s.Groups, s.Groups[0]) },
		`the name "all" is taken`:            func(s *Scenario) { s.Groups[0].Name = "all" },
		"endpoints: must be":                 func(s *Scenario) { s.Groups[0].Endpoints = -1 },
		"fanout: must be":                    func(s *Scenario) { s.Groups[0].Fanout = 11 },
		"latency: p50 must be":               func(s *Scenario) { s.Groups[0].Latency.P50 = -1 },
		"failures.share: must be":            func(s *Scenario) { s.Groups[0].Failures.Share = 1.1 },
		"failures.status: must be":           func(s *Scenario) { s.Groups[0].Failures.Status = 200 },
		"outages[0].does: must be":           func(s *Scenario) { s.Groups[0].Outages = []Outage{{For: 1, Share: 1, Does: "sulk"}} },
		"outages[0]: from and for":           func(s *Scenario) { s.Groups[0].Outages = []Outage{{Share: 1, Does: Hang}} },
		"outages[0].retry_after":             func(s *Scenario) { s.Groups[0].Outages = []Outage{{For: 1, Share: 1, Does: Hang, RetryAfter: 1}} },
		"outages[0].share: must be":          func(s *Scenario) { s.Groups[0].Outages = []Outage{{For: 1, Share: 2, Does: Hang}} },
		"overhead: p50":                      func(s *Scenario) { s.Overhead.P50 = delivery.Duration(2 * time.Hour) },
		"flows[0].rate":                      func(s *Scenario) { s.Flows = []Flow{{For: 1, Groups: []string{"g"}}} },
		"flows[0]: from and for":             func(s *Scenario) { s.Flows = []Flow{{Rate: 1, Groups: []string{"g"}}} },
		"flows[0].groups: there is non":      func(s *Scenario) { s.Flows = []Flow{{Rate: 1, For: 1}} },
		`there is no group "h"`:              func(s *Scenario) { s.Flows = []Flow{{Rate: 1, For: 1, Groups: []string{"h"}}} },
		"policies: ":                         func(s *Scenario) { s.Policies[0].Name = "" },
		"policy default: max_attempts":       func(s *Scenario) { s.Policies[0].MaxAttempts = 0 },
	} {
		sc := &Scenario{Name: "t", Rate: 1, Groups: []Group{{Name: "g", Endpoints: 10}}}
		sc.Fill()
		if err := sc.Validate(); err != nil {
			t.Fatal(err)
		}
		spoil(sc)
		if err := sc.Validate(); !errors.Is(err, ErrScenario) || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
}

func TestBuiltinsArePossible(t *testing.T) {
	t.Parallel()
	for _, name := range Names {
		sc := Builtin(name)
		sc.Fill()
		if err := sc.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if Builtin("none") != nil {
		t.Error("there is one called none")
	}
}
