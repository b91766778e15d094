package redrive

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/fault"
)

var noon = time.UnixMilli(1_800_000_000_000).UTC()

// where a cohort of each state stands.
func standing(s State) Cohort {
	c := Cohort{State: s, Rate: 40, Limit: 50, Reserved: 9, HeldBack: "x"}
	switch s {
	case Planning:
	case Canary:
		c.Planned = true
	case Awaiting:
		c.Planned, c.CanaryPassed = true, true
	case Running, Paused, Done, Aborted:
		c.Planned, c.CanaryPassed, c.ApprovedAt = true, true, noon
	}
	if s == Paused || s == Aborted {
		c.Stopped, c.StoppedBy, c.StoppedAt = "before", "key_0", noon
	}
	return c
}

// Every action in every state: what it leads to, or that it is refused and changes
// nothing.
func TestEveryActionInEveryState(t *testing.T) {
	t.Parallel()
	at := noon.Add(time.Hour)
	actions := []struct {
		name string
		do   func(*Cohort) error
		to   map[State]State
	}{
		{"approve", func(c *Cohort) error { return c.approve("key_1", "seen on the screen", at) }, map[State]State{Awaiting: Running}},
		{"pause", func(c *Cohort) error { return c.pause("key_1", "a look first", at) }, map[State]State{
			Planning: Paused, Canary: Paused, Awaiting: Paused, Running: Paused, Paused: Paused,
		}},
		{"resume", func(c *Cohort) error { return c.resume(at) }, map[State]State{Paused: Running}},
		{"abort", func(c *Cohort) error { return c.abort("key_1", "not worth it", at) }, map[State]State{
			Planning: Aborted, Canary: Aborted, Awaiting: Aborted, Running: Aborted, Paused: Aborted, Aborted: Aborted,
		}},
	}
	for _, s := range []State{Planning, Canary, Awaiting, Running, Paused, Done, Aborted} {
		for _, a := range actions {
			c := standing(s)
			err := a.do(&c)
			want, allowed := a.to[s]
			switch {
			case !allowed && !errors.Is(err, ErrState):
				t.Errorf("%s of one that is %s: %v, want ErrState", a.name, s, err)
			case !allowed && !cmp.Equal(standing(s), c):
				t.Errorf("%s of one that is %s was refused, and changed it: %s", a.name, s, cmp.Diff(standing(s), c))
			case allowed && (err != nil || c.State != want):
				t.Errorf("%s of one that is %s: %s, %v; want %s", a.name, s, c.State, err, want)
			case allowed && s == want && !cmp.Equal(standing(s), c):
				t.Errorf("a second %s changed it: %s", a.name, cmp.Diff(standing(s), c))
			case allowed && want == Running && (c.Rate != 1 || c.Limit != 0 || c.Stopped != "" || !c.PacedAt.Equal(at)):
				t.Errorf("%s of one that is %s does not begin slowly: %+v", a.name, s, c)
			case allowed && s != want && want != Running && (c.StoppedBy != "key_1" || c.Stopped == "" || !c.StoppedAt.Equal(at) || c.HeldBack != ""):
				t.Errorf("%s of one that is %s does not say by whom and why: %+v", a.name, s, c)
			}
		}
	}
}

// One that is resumed goes on where it was.
func TestResumeGoesBack(t *testing.T) {
	t.Parallel()
	for _, s := range []State{Planning, Canary, Awaiting, Running} {
		c := standing(s)
		if err := c.pause("key_1", "why not", noon); err != nil {
			t.Fatal(err)
		}
		if err := c.resume(noon); err != nil || c.State != s || c.Stopped != "" {
			t.Errorf("one that was %s is %s after pause and resume, %v", s, c.State, err)
		}
		if was := standing(s); c.Reserved != was.Reserved {
			t.Errorf("one that was %s forgets what it was given to release", s)
		}
	}
}

func TestApproveNeedsASentence(t *testing.T) {
	t.Parallel()
	for text, fine := range map[string]bool{
		"": false, "ok": false, "   ": false, " a ": false, "yes": true, "Lagerbestand geprüft ✓": true,
		"two\nlines": false, "a\tb": false, "bell\a": false, "bad \xff utf-8": false, "turned \u202e round": false,
		"del\u007f": false, strings.Repeat("é", 500): true, strings.Repeat("x", 501): false, "no\u00a0break": true,
	} {
		c := standing(Awaiting)
		err := c.approve("key_1", text, noon)
		var bad *fault.Invalid
		if errors.As(err, &bad) == fine || fine != (c.State == Running) {
			t.Errorf("%q: %v, state %s", text, err, c.State)
		}
		if !fine && (bad == nil || bad.Fields[0].Pointer != "/effect") {
			t.Errorf("%q: %v", text, err)
		}
		if fine && (c.Effect != text || c.ApprovedBy != "key_1" || !c.ApprovedAt.Equal(noon)) {
			t.Errorf("%q: %+v", text, c)
		}
	}
}

func TestOrders(t *testing.T) {
	t.Parallel()
	id := delivery.NewID("e1", "s1")
	tests := []struct {
		name string
		set  func(*Order)
		want []string // pointers
	}{
		{"as little as can be", func(*Order) {}, nil},
		{"no reason", func(o *Order) { o.Reason = "" }, []string{"/reason"}},
		{"a budget of none", func(o *Order) { o.Budget = -1 }, []string{"/attempt_budget"}},
		{"a budget too big", func(o *Order) { o.Budget = 11 }, []string{"/attempt_budget"}},
		{"a big budget", func(o *Order) { o.Budget = 10 }, nil},
		{"canaries", func(o *Order) { o.Canaries = 10 }, nil},
		{"too many canaries", func(o *Order) { o.Canaries = 11 }, []string{"/canaries"}},
		{"less than no canary", func(o *Order) { o.Canaries = -1 }, []string{"/canaries"}},
		{"a negative rate", func(o *Order) { o.MaxRate = -1 }, []string{"/max_rate"}},
		{"no rate at all", func(o *Order) { o.MaxRate = math.NaN() }, []string{"/max_rate"}},
		{"without end", func(o *Order) { o.MaxRate = math.Inf(1) }, []string{"/max_rate"}},
		{"a rate that takes years", func(o *Order) { o.MaxRate = 0.001 }, []string{"/max_rate"}},
		{"a slow one", func(o *Order) { o.MaxRate = 0.01 }, nil},
		{"too fast", func(o *Order) { o.MaxRate = 1001 }, []string{"/max_rate"}},
		{"seconds", func(o *Order) { o.Within = delivery.Duration(time.Second) }, []string{"/within"}},
		{"months", func(o *Order) { o.Within = delivery.Duration(31 * 24 * time.Hour) }, []string{"/within"}},
		{"ids", func(o *Order) { o.IDs = []string{id} }, nil},
		{"what is no id", func(o *Order) { o.IDs = []string{id, "dlv_x"} }, []string{"/ids/1"}},
		{"too many ids", func(o *Order) {
			for i := range MaxIDs + 1 {
				o.IDs = append(o.IDs, delivery.NewID(fmt.Sprint(i), "s1"))
			}
		}, []string{"/ids"}},
		{"ids and a filter", func(o *Order) { o.IDs, o.Filter.Class = []string{id}, "gold" }, []string{"/filter"}},
		{"until before since", func(o *Order) { o.Filter.Since, o.Filter.Until = noon, noon }, []string{"/filter/until"}},
		{"outcomes that there are", func(o *Order) { o.Filter.Outcome, o.Filter.Reason = delivery.HTTP5xx, delivery.Exhausted }, nil},
		{"outcomes that there are not", func(o *Order) { o.Filter.Outcome, o.Filter.Reason = "http_500", "dead" }, []string{"/filter/outcome", "/filter/reason"}},
		{"all at once", func(o *Order) { o.Reason, o.Budget, o.MaxRate = "x", 99, -3 }, []string{"/attempt_budget", "/max_rate", "/reason"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := Order{Reason: "their deploy was bad"}
			tt.set(&o)
			err := o.withDefaults().check()
			var got []string
			if bad := (*fault.Invalid)(nil); errors.As(err, &bad) {
				for _, p := range bad.Fields {
					got = append(got, p.Pointer)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("problems at %v, want %v: %v", got, tt.want, err)
			}
		})
	}
	o := Order{Reason: "why", IDs: []string{id, id}}.withDefaults()
	if o.Budget != 2 || o.Canaries != 1 || time.Duration(o.Within) != 24*time.Hour || len(o.IDs) != 1 {
		t.Errorf("defaults: %+v", o)
	}
}
