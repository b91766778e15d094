package delivery

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// leased is a delivery at its n-th attempt, with time left; change it further.
func leased(n int, change ...func(*Delivery)) Delivery {
	d := New("evt_1", "sub_1", noon, 24*time.Hour)
	d.State, d.Attempts, d.DeliveryCount = Leased, n, int64(n)
	for _, c := range change {
		c(&d)
	}
	return d
}

// TestDecide goes over every outcome, with budget and time left and spent.
func TestDecide(t *testing.T) {
	t.Parallel()
	p := DefaultPolicy()
	for outcome, fact := range Facts {
		for _, spent := range []bool{false, true} {
			for _, late := range []bool{false, true} {
				attempt := 3
				if spent {
					attempt = p.MaxAttempts
				}
				d := leased(attempt)
				if late {
					d.ExpiresAt = noon.Add(-time.Second)
				}
				want := Decision{Next: Scheduled, DueAt: noon.Add(Backoff(p, d.ID, attempt))}
				switch {
				case fact.Kind == Success:
					want = Decision{Next: Delivered} // even late: it is a fact
				case fact.Kind == Terminal:
					want = Decision{Next: Dead, Reason: outcome, Disable: outcome == Gone}
				case outcome == LeaseLost && late:
					want = Decision{Next: Dead, Reason: Expired, GiveBack: true}
				case outcome == LeaseLost:
					want.GiveBack = true
				case spent:
					want = Decision{Next: Dead, Reason: Exhausted}
				case late:
					want = Decision{Next: Dead, Reason: Expired}
				}
				got, err := Decide(p, d, Result{Outcome: outcome}, noon)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s, spent %v, late %v (-want +got):\n%s", outcome, spent, late, diff)
				}
			}
		}
	}
}

// TestDecideAtTheExpiry: due exactly at expires_at still goes, a millisecond
// later does not.
func TestDecideAtTheExpiry(t *testing.T) {
	t.Parallel()
	p := DefaultPolicy()
	d := leased(3)
	d.ExpiresAt = noon.Add(Backoff(p, d.ID, 3))
	for off, want := range map[time.Duration]State{0: Scheduled, time.Millisecond: Dead} {
		if got, err := Decide(p, d, Result{Outcome: Timeout}, noon.Add(off)); err != nil || got.Next != want {
			t.Errorf("%s later: %+v, %v", off, got, err)
		}
	}
}

// TestLeaseLosses: three are forgiven, even on a budget of one; the fourth is
// charged.
func TestLeaseLosses(t *testing.T) {
	t.Parallel()
	for _, budget := range []int{1, 2, 15} {
		p := with(func(p *Policy) { p.MaxAttempts = budget })
		d := leased(0)
		leases := 0
		for {
			leases++
			d.State, d.Attempts, d.DeliveryCount = Leased, d.Attempts+1, d.DeliveryCount+1
			got, err := Decide(p, d, Result{Outcome: LeaseLost}, noon)
			if err != nil {
				t.Fatal(err)
			}
			if want := leases <= MaxLeaseLosses; got.GiveBack != want {
				t.Fatalf("budget %d, lease %d: %+v", budget, leases, got)
			}
			d.LeaseLosses++
			if got.GiveBack {
				d.Attempts--
			}
			if got.Next == Dead {
				if got.Reason != Exhausted {
					t.Errorf("budget %d: dead by %s", budget, got.Reason)
				}
				break
			}
		}
		if leases != budget+MaxLeaseLosses {
			t.Errorf("budget %d: ended after %d leases", budget, leases)
		}
	}
}

// TestRedriveBudgets: a generation has its own budget and starts its backoff
// anew; what was spent before does not count again.
func TestRedriveBudgets(t *testing.T) {
	t.Parallel()
	p := DefaultPolicy()
	redriven := func(attempt, base, budget int) Delivery {
		return leased(attempt, func(d *Delivery) { d.Lane, d.RedriveGeneration, d.BudgetBase, d.Budget = Redrive, 1, base, budget })
	}
	for name, c := range map[string]struct {
		d    Delivery
		want State
		as   int // the attempt whose backoff applies
	}{
		"first of one":               {redriven(16, 15, 1), Dead, 0},
		"first of two":               {redriven(16, 15, 2), Scheduled, 1},
		"second of two":              {redriven(17, 15, 2), Dead, 0},
		"the policy's, first":        {redriven(16, 15, 0), Scheduled, 1},
		"the policy's, last but one": {redriven(29, 15, 0), Scheduled, 14},
		"the policy's, last":         {redriven(30, 15, 0), Dead, 0},
		"beyond it":                  {redriven(31, 15, 0), Dead, 0},
		"more than the policy's":     {redriven(20, 0, 40), Scheduled, 20},
	} {
		got, err := Decide(p, c.d, Result{Outcome: HTTP5xx, Status: 500}, noon)
		if err != nil || got.Next != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
			continue
		}
		if want := noon.Add(Backoff(p, c.d.ID, c.as)); c.want == Scheduled && !got.DueAt.Equal(want) {
			t.Errorf("%s: due %s, want %s", name, got.DueAt, want)
		}
		if c.want == Dead && got.Reason != Exhausted {
			t.Errorf("%s: dead by %s", name, got.Reason)
		}
	}
}

// TestRetryAfterIsAFloor: the later of the two, and still within expires_at.
func TestRetryAfterIsAFloor(t *testing.T) {
	t.Parallel()
	p := DefaultPolicy()
	d := leased(3)
	backoff := Backoff(p, d.ID, 3)
	for after, want := range map[time.Duration]time.Duration{
		0: backoff, backoff - 1: backoff, backoff + 1: backoff + 1, time.Hour: time.Hour,
	} {
		got, err := Decide(p, d, Result{Outcome: HTTP429, Status: 429, RetryAfter: after}, noon)
		if err != nil || !got.DueAt.Equal(noon.Add(want)) {
			t.Errorf("after %s: %+v, %v", after, got, err)
		}
	}
	d.ExpiresAt = noon.Add(30 * time.Minute)
	got, err := Decide(p, d, Result{Outcome: HTTP5xx, Status: 503, RetryAfter: time.Hour}, noon)
	if err != nil || got.Next != Dead || got.Reason != Expired {
		t.Errorf("beyond expires_at: %+v, %v", got, err)
	}
}

func TestClassifyOverrides(t *testing.T) {
	t.Parallel()
	p := with(func(p *Policy) {
		p.Classify = map[int]Override{404: OverrideRetry, 410: OverrideRetry, 500: OverrideDead, 418: OverrideRetry, 200: OverrideDead, 0: OverrideDead}
	})
	for _, c := range []struct {
		status int
		o      Outcome
		next   State
		reason Outcome
	}{
		{404, HTTP404, Scheduled, ""},
		{403, HTTP403, Dead, HTTP403},
		{410, Gone, Scheduled, ""},
		{418, HTTP4xx, Scheduled, ""},
		{417, HTTP4xx, Dead, HTTP4xx},
		{500, HTTP5xx, Dead, HTTP5xx},
		{502, HTTP5xx, Scheduled, ""},
		{200, OK, Delivered, ""},    // refused by Validate, and yet a success stays one
		{0, Timeout, Scheduled, ""}, // no status, no override
		{0, BlockedAddress, Dead, BlockedAddress},
	} {
		got, err := Decide(p, leased(1), Result{Outcome: c.o, Status: c.status}, noon)
		if err != nil || got.Next != c.next || got.Reason != c.reason {
			t.Errorf("%d %s: %+v, %v", c.status, c.o, got, err)
		}
	}
	// An override to retry is finite too.
	got, err := Decide(p, leased(p.MaxAttempts), Result{Outcome: HTTP404, Status: 404}, noon)
	if err != nil || got.Reason != Exhausted {
		t.Errorf("at the last attempt: %+v, %v", got, err)
	}
}

// TestImpossible: contradicting counters are an error for every outcome, a
// success included: nobody knows what it would be a success of.
func TestImpossible(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Delivery){
		"scheduled":              func(d *Delivery) { d.State = Scheduled },
		"delivered":              func(d *Delivery) { d.State = Delivered },
		"dead":                   func(d *Delivery) { d.State = Dead },
		"cancelled":              func(d *Delivery) { d.State = Cancelled },
		"no state":               func(d *Delivery) { d.State = "" },
		"nothing charged":        func(d *Delivery) { d.Attempts, d.DeliveryCount = 0, 0 },
		"negative attempts":      func(d *Delivery) { d.Attempts, d.DeliveryCount = -1, -1 },
		"more leases":            func(d *Delivery) { d.DeliveryCount++ },
		"fewer leases":           func(d *Delivery) { d.DeliveryCount-- },
		"release uncounted":      func(d *Delivery) { d.Releases = 1 },
		"loss uncounted":         func(d *Delivery) { d.LeaseLosses = 1 },
		"charged loss given":     func(d *Delivery) { d.LeaseLosses, d.DeliveryCount = 4, d.DeliveryCount+4 },
		"negative releases":      func(d *Delivery) { d.Releases, d.DeliveryCount = -1, d.DeliveryCount-1 },
		"negative losses":        func(d *Delivery) { d.LeaseLosses, d.DeliveryCount = -1, d.DeliveryCount-1 },
		"negative generation":    func(d *Delivery) { d.RedriveGeneration = -1 },
		"negative base":          func(d *Delivery) { d.BudgetBase = -1 },
		"negative budget":        func(d *Delivery) { d.Budget = -1 },
		"generation from now on": func(d *Delivery) { d.BudgetBase = d.Attempts },
		"generation to come":     func(d *Delivery) { d.BudgetBase = d.Attempts + 1 },
		"never expires":          func(d *Delivery) { d.ExpiresAt = time.Time{} },
	} {
		for outcome := range Facts {
			got, err := Decide(DefaultPolicy(), leased(5, change), Result{Outcome: outcome}, noon)
			if !errors.Is(err, ErrImpossible) || got != (Decision{}) {
				t.Errorf("%s, %s: %+v, %v", name, outcome, got, err)
			}
		}
	}
	// What looks odd and is fine.
	for name, change := range map[string]func(*Delivery){
		"releases":              func(d *Delivery) { d.Releases, d.DeliveryCount = 7, 12 },
		"losses beyond the cap": func(d *Delivery) { d.LeaseLosses, d.DeliveryCount = 9, 8 },
		"redriven twice":        func(d *Delivery) { d.RedriveGeneration, d.BudgetBase, d.Budget = 2, 4, 3 },
	} {
		if _, err := Decide(DefaultPolicy(), leased(5, change), Result{Outcome: Timeout}, noon); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// anyPolicy draws a valid policy.
func anyPolicy(t *rapid.T) Policy {
	base := rapid.Int64Range(int64(10*time.Millisecond), int64(24*time.Hour)).Draw(t, "base")
	p := DefaultPolicy()
	p.MaxAttempts = rapid.IntRange(1, 100).Draw(t, "max_attempts")
	p.BreakerFailures = 1
	p.BackoffBase, p.BackoffCap = Duration(base), Duration(rapid.Int64Range(base, int64(24*time.Hour)).Draw(t, "cap"))
	p.Classify = rapid.MapOf(rapid.IntRange(400, 599), rapid.SampledFrom([]Override{OverrideRetry, OverrideDead})).Draw(t, "classify")
	if err := p.Validate(); err != nil && p.MaxAttempts > 1 {
		t.Fatal(err)
	}
	return p
}

// anyResult draws what an attempt may have come to.
func anyResult(t *rapid.T) Result {
	if rapid.Bool().Draw(t, "answered") {
		status := rapid.IntRange(200, 599).Draw(t, "status")
		after := rapid.Int64Range(0, int64(24*time.Hour)).Draw(t, "retry_after")
		return Result{Outcome: Classify(status), Status: status, RetryAfter: time.Duration(after)}
	}
	return Result{Outcome: rapid.SampledFrom([]Outcome{
		Timeout, Connect, Reset, DNS, TLS, LeaseLost, BlockedAddress, BadRequest, PayloadMissing, Unknown,
	}).Draw(t, "outcome")}
}

// TestDecideNeverGoesOnTooLong: for any possible delivery, another attempt is
// within its time and its budget, no earlier than now and what was asked for.
func TestDecideNeverGoesOnTooLong(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, r := anyPolicy(t), anyResult(t)
		d := leased(rapid.IntRange(1, 300).Draw(t, "attempts"))
		d.Releases = rapid.IntRange(0, 10).Draw(t, "releases")
		d.LeaseLosses = rapid.IntRange(0, 10).Draw(t, "losses")
		d.DeliveryCount = int64(d.Attempts + d.Releases + min(d.LeaseLosses, MaxLeaseLosses))
		d.BudgetBase = rapid.IntRange(0, d.Attempts-1).Draw(t, "base")
		d.Budget = rapid.IntRange(0, 100).Draw(t, "budget")
		now := noon.Add(time.Duration(rapid.Int64Range(int64(-48*time.Hour), int64(48*time.Hour)).Draw(t, "now")))

		got, err := Decide(p, d, r, now)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := Decide(p, d, r, now); again != got {
			t.Fatalf("%+v, then %+v", got, again)
		}
		if got.GiveBack && (r.Outcome != LeaseLost || d.LeaseLosses >= MaxLeaseLosses) {
			t.Fatalf("given back: %+v", got)
		}
		switch got.Next {
		case Scheduled:
			switch {
			case got.DueAt.After(d.ExpiresAt):
				t.Fatalf("due %s, expires %s", got.DueAt, d.ExpiresAt)
			case !got.GiveBack && d.Attempts >= d.AttemptLimit(p):
				t.Fatalf("attempt %d of %d goes on", d.Attempts, d.AttemptLimit(p))
			case got.DueAt.Before(now.Add(r.RetryAfter)):
				t.Fatalf("due %s, asked for %s from %s", got.DueAt, r.RetryAfter, now)
			case got.Reason != "":
				t.Fatalf("%+v", got)
			}
		case Dead:
			if Facts[got.Reason].Kind != Terminal && p.Classify[r.Status] != OverrideDead {
				t.Fatalf("dead by %q", got.Reason)
			}
		case Delivered:
			if r.Outcome != OK {
				t.Fatalf("delivered by %s", r.Outcome)
			}
		case Leased, Cancelled:
			t.Fatalf("%+v", got)
		}
	})
}

// TestEveryLifeEnds plays whole lives, with releases and lost leases in between:
// they end, within the budget and the forgiven losses.
func TestEveryLifeEnds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := anyPolicy(t)
		d := New("evt_1", fmt.Sprint(rapid.Uint32().Draw(t, "subscriber")), noon, 30*24*time.Hour)
		now, requests := noon, 0
		for d.State == Scheduled {
			now = later(now, d.DueAt)
			d.State, d.Attempts, d.DeliveryCount = Leased, d.Attempts+1, d.DeliveryCount+1
			if d.Releases < 5 && rapid.IntRange(0, 9).Draw(t, "release") == 0 { // never left
				d.State, d.Attempts, d.Releases = Scheduled, d.Attempts-1, d.Releases+1
				continue
			}
			requests++
			r := anyResult(t)
			got, err := Decide(p, d, r, now)
			if err != nil {
				t.Fatalf("%+v: %v", d, err)
			}
			d.State, d.DueAt = got.Next, got.DueAt
			if r.Outcome == LeaseLost {
				d.LeaseLosses++
			}
			if got.GiveBack {
				d.Attempts--
			}
		}
		if requests > p.MaxAttempts+MaxLeaseLosses || int64(requests) > d.DeliveryCount-int64(d.Releases) {
			t.Fatalf("%d requests for a budget of %d: %+v", requests, p.MaxAttempts, d)
		}
	})
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
