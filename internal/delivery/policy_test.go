package delivery

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func with(change func(*Policy)) Policy {
	p := DefaultPolicy()
	change(&p)
	return p
}

// fields gives the names of what Validate found wrong, each once per finding.
func fields(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%v is not joined", err)
	}
	var names []string
	for _, e := range joined.Unwrap() {
		fe, ok := errors.AsType[FieldError](e)
		if !ok || fe.Detail == "" || !strings.HasPrefix(fe.Error(), fe.Field+": ") {
			t.Errorf("%v is no FieldError", e)
		}
		names = append(names, fe.Field)
	}
	return names
}

func TestDefaultPolicy(t *testing.T) {
	t.Parallel()
	p := DefaultPolicy()
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	if w := p.Warnings(); len(w) != 0 {
		t.Error(w)
	}
	// "15 attempts: mean 2.7 h": half of each window.
	var mean time.Duration
	for attempt := 1; attempt < p.MaxAttempts; attempt++ {
		mean += Window(p, attempt) / 2
	}
	if h := mean.Hours(); h < 2.65 || h > 2.75 {
		t.Errorf("15 attempts take %.2f h on average", h)
	}
}

// TestPolicyBounds: at each bound, and just beyond it.
func TestPolicyBounds(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	dur := func(field string, set func(*Policy, Duration), lo, hi time.Duration) {
		for v, ok := range map[time.Duration]bool{
			lo: true, hi: true, lo - 1: false, hi + 1: false, -hi: false, math.MaxInt64: false, math.MinInt64: false,
		} {
			p := with(func(p *Policy) {
				p.BackoffBase, p.BackoffCap, p.MaxAge = Duration(10*time.Millisecond), Duration(day), maxAgeBound
			})
			set(&p, Duration(v))
			if field == "max_age" {
				p.AttemptTimeout = Duration(100 * time.Millisecond)
			}
			found := fields(t, p.Validate())
			if !ok && (len(found) == 0 || found[0] != field) || ok && len(found) != 0 {
				t.Errorf("%s %s: %v", field, v, found)
			}
		}
	}
	dur("attempt_timeout", func(p *Policy, d Duration) { p.AttemptTimeout = d }, 100*time.Millisecond, time.Minute)
	dur("backoff_base", func(p *Policy, d Duration) { p.BackoffBase = d }, 10*time.Millisecond, day)
	dur("backoff_cap", func(p *Policy, d Duration) { p.BackoffCap = d }, 10*time.Millisecond, day)
	dur("max_age", func(p *Policy, d Duration) { p.MaxAge = d }, time.Second, 30*day)
	dur("retry_after_cap", func(p *Policy, d Duration) { p.RetryAfterCap = d }, 0, day)

	num := func(field string, set func(*Policy, int), lo, hi int) {
		for v, ok := range map[int]bool{lo: true, hi: true, lo - 1: false, hi + 1: false, math.MinInt: false, math.MaxInt: false} {
			p := with(func(p *Policy) { p.MaxAttempts, p.BreakerFailures, p.RatePerSecond = 100, 1, 1 })
			set(&p, v)
			found := fields(t, p.Validate())
			if field == "breaker_failures" && v == hi { // 100 of 100 attempts: see the rules across fields
				ok = false
			}
			if !ok && (len(found) == 0 || found[0] != field) || ok && len(found) != 0 {
				t.Errorf("%s %d: %v", field, v, found)
			}
		}
	}
	num("max_attempts", func(p *Policy, n int) { p.MaxAttempts = n }, 1, 100)
	num("max_in_flight", func(p *Policy, n int) { p.MaxInFlight = n }, 1, 1000)
	num("burst", func(p *Policy, n int) { p.Burst = n }, 0, 10_000)
	num("breaker_failures", func(p *Policy, n int) { p.BreakerFailures = n }, 1, 100)
	num("max_held", func(p *Policy, n int) { p.MaxHeld = n }, 1, 10_000_000)

	for v, ok := range map[float64]bool{
		0: true, 0.001: true, 10_000: true, 10_000.1: false, -0.1: false,
		math.NaN(): false, math.Inf(1): false, math.Inf(-1): false,
	} {
		found := fields(t, with(func(p *Policy) { p.RatePerSecond = v }).Validate())
		if ok != (len(found) == 0) || !ok && found[0] != "rate_per_second" {
			t.Errorf("rate_per_second %v: %v", v, found)
		}
	}
}

func TestPolicyClassifyBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		to     Override
		ok     bool
	}{
		{400, OverrideRetry, true},
		{599, OverrideDead, true},
		{399, OverrideRetry, false},
		{600, OverrideDead, false},
		{200, OverrideDead, false},
		{0, OverrideDead, false},
		{404, "", false},
		{404, "deliver", false},
	} {
		found := fields(t, with(func(p *Policy) { p.Classify = map[int]Override{c.status: c.to} }).Validate())
		if c.ok != (len(found) == 0) {
			t.Errorf("%d to %q: %v", c.status, c.to, found)
		}
	}
}

// TestPolicyAcrossFields: each rule names the field to change and mentions the
// other.
func TestPolicyAcrossFields(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Policy)
		field  string // "" if allowed
		other  string
	}{
		"base above cap":          {func(p *Policy) { p.BackoffBase, p.BackoffCap = Duration(2*time.Second), Duration(time.Second) }, "backoff_base", "backoff_cap"},
		"base at cap":             {func(p *Policy) { p.BackoffBase = p.BackoffCap }, "", ""},
		"timeout above age":       {func(p *Policy) { p.AttemptTimeout, p.MaxAge = Duration(2*time.Second), Duration(time.Second) }, "attempt_timeout", "max_age"},
		"timeout at age":          {func(p *Policy) { p.MaxAge = p.AttemptTimeout }, "", ""},
		"breaker at budget":       {func(p *Policy) { p.BreakerFailures = p.MaxAttempts }, "breaker_failures", "max_attempts"},
		"breaker below budget":    {func(p *Policy) { p.BreakerFailures = p.MaxAttempts - 1 }, "", ""},
		"budget of one":           {func(p *Policy) { p.MaxAttempts, p.BreakerFailures = 1, 5 }, "", ""},
		"burst without a rate":    {func(p *Policy) { p.Burst = 1 }, "burst", "rate_per_second"},
		"burst with a rate":       {func(p *Policy) { p.Burst, p.RatePerSecond = 1, 0.5 }, "", ""},
		"retry after of nothing":  {func(p *Policy) { p.RetryAfterCap = 0 }, "", ""},
		"classify of two answers": {func(p *Policy) { p.Classify = map[int]Override{404: OverrideRetry, 500: OverrideDead} }, "", ""},
	} {
		err := with(c.change).Validate()
		found := fields(t, err)
		if c.field == "" && err != nil || c.field != "" && (len(found) != 1 || found[0] != c.field || !strings.Contains(err.Error(), c.other)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPolicyZero: all that is wrong is said at once.
func TestPolicyZero(t *testing.T) {
	t.Parallel()
	found := fields(t, Policy{}.Validate())
	want := []string{"attempt_timeout", "max_attempts", "backoff_base", "backoff_cap", "max_age", "max_in_flight", "breaker_failures", "max_held"}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Error(diff)
	}
}

func TestPolicyWarnings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Policy)
		want   int
	}{
		"cap beyond reach":     {func(p *Policy) { p.MaxAttempts, p.BreakerFailures, p.BackoffCap = 3, 2, 2*p.BackoffCap }, 1},
		"cap reached at last":  {func(p *Policy) { p.MaxAttempts, p.BackoffCap = 12, p.BackoffCap-1 }, 0},
		"cap missed by one":    {func(p *Policy) { p.MaxAttempts, p.BackoffCap = 11, p.BackoffCap-1 }, 1},
		"cap of the default":   {func(p *Policy) { p.MaxAttempts, p.BreakerFailures = 3, 2 }, 0},
		"loses deliveries":     {func(p *Policy) { p.MaxAge = p.RetryAfterCap }, 1},
		"no retry, no backoff": {func(p *Policy) { p.MaxAttempts = 1 }, 0},
	} {
		if w := with(c.change).Warnings(); len(w) != c.want {
			t.Errorf("%s: %q", name, w)
		}
	}
}

func TestPolicyJSON(t *testing.T) {
	t.Parallel()
	in := with(func(p *Policy) { p.Classify, p.RatePerSecond, p.Burst = map[int]Override{404: OverrideRetry}, 2.5, 3 })
	b, err := json.Marshal(in)
	if err != nil || !strings.Contains(string(b), `"attempt_timeout":"10s"`) || !strings.Contains(string(b), `"classify":{"404":"retry"}`) {
		t.Fatalf("%s, %v", b, err)
	}
	var out Policy
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(in, out); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{`"10"`, `10`, `"soon"`, `""`, `{}`} {
		if json.Unmarshal([]byte(`{"max_age":`+bad+`}`), &out) == nil {
			t.Errorf("%s passes for a duration", bad)
		}
	}
}

func TestAtOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate  float64
		burst int
		want  int
	}{
		{0, 0, 0}, {1, 0, 1}, {0.001, 0, 1}, {2.5, 0, 3}, {10_000, 0, 10_000}, {100, 1, 1}, {0.5, 20, 20},
	} {
		p := with(func(p *Policy) { p.RatePerSecond, p.Burst = c.rate, c.burst })
		if err := p.Validate(); err != nil || p.AtOnce() != c.want {
			t.Errorf("%v a second, burst %d: %d at once, want %d (%v)", c.rate, c.burst, p.AtOnce(), c.want, err)
		}
	}
}
