package subscriber_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/fault"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/subscriber/subtest"
)

// httpsOnly is a URLPolicy with an opinion.
type httpsOnly struct{}

func (httpsOnly) CheckURL(raw string) error {
	if !strings.HasPrefix(raw, "https://") {
		return errors.New("must be https")
	}
	return nil
}

func givenSecret(n int) *string {
	return new("whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("s", n))))
}

// pointers are where an error finds fault; it must be a *fault.Invalid or nil.
func pointers(t *testing.T, err error) (p []string) {
	t.Helper()
	var inv *fault.Invalid
	if err != nil && !errors.As(err, &inv) {
		t.Fatalf("%v is not *fault.Invalid", err)
	}
	if inv != nil {
		for _, f := range inv.Fields {
			p = append(p, f.Pointer)
			if f.Detail == "" || !strings.Contains(err.Error(), f.Pointer+" "+f.Detail) {
				t.Errorf("%q does not say what is wrong at %s", err, f.Pointer)
			}
		}
	}
	return p
}

func TestCreateJudgesTheWholeDraft(t *testing.T) {
	t.Parallel()
	ok := new("https://example.com/hook")
	for name, c := range map[string]struct {
		draft subscriber.Draft
		want  []string
	}{
		"a URL is enough":    {subscriber.Draft{URL: ok}, nil},
		"nothing":            {subscriber.Draft{}, []string{"/url"}},
		"empty URL":          {subscriber.Draft{URL: new("")}, []string{"/url"}},
		"URL policy":         {subscriber.Draft{URL: new("http://example.com")}, []string{"/url"}},
		"URL of 2048":        {subscriber.Draft{URL: new("https://" + strings.Repeat("a", 2040))}, nil},
		"URL of 2049":        {subscriber.Draft{URL: new("https://" + strings.Repeat("a", 2041))}, []string{"/url"}},
		"account":            {subscriber.Draft{URL: ok, Account: new("Acme-1.eu:x_y")}, nil},
		"account of 65":      {subscriber.Draft{URL: ok, Account: new(strings.Repeat("a", 65))}, []string{"/account"}},
		"account empty":      {subscriber.Draft{URL: ok, Account: new("")}, []string{"/account"}},
		"account with space": {subscriber.Draft{URL: ok, Account: new("a b")}, []string{"/account"}},
		"name of 100":        {subscriber.Draft{URL: ok, Name: new(strings.Repeat("ä", 100))}, nil},
		"name of 101":        {subscriber.Draft{URL: ok, Name: new(strings.Repeat("ä", 101))}, []string{"/name"}},
		"name with newline":  {subscriber.Draft{URL: ok, Name: new("a\nb")}, []string{"/name"}},
		"class":              {subscriber.Draft{URL: ok, Class: new("bulk")}, nil},
		"unknown class":      {subscriber.Draft{URL: ok, Class: new("gold")}, []string{"/class"}},
		"secret of 23":       {subscriber.Draft{URL: ok, Secret: givenSecret(23)}, []string{"/secret"}},
		"secret of 24":       {subscriber.Draft{URL: ok, Secret: givenSecret(24)}, nil},
		"secret of 64":       {subscriber.Draft{URL: ok, Secret: givenSecret(64)}, nil},
		"secret of 65":       {subscriber.Draft{URL: ok, Secret: givenSecret(65)}, []string{"/secret"}},
		"no types":           {subscriber.Draft{URL: ok, Filter: &subscriber.Filter{Types: []string{}}}, []string{"/filter/types"}},
		"policy bound":       {subscriber.Draft{URL: ok, Policy: &subscriber.PolicyPatch{MaxAttempts: new(101)}}, []string{"/policy/max_attempts"}},
		"across fields": {
			subscriber.Draft{URL: ok, Policy: &subscriber.PolicyPatch{MaxAge: new(delivery.Duration(5 * time.Second))}},
			[]string{"/policy/attempt_timeout"},
		},
		"everything at once": {
			subscriber.Draft{
				Account: new(""), Name: new("\x00"), URL: new("ftp://x"), Class: new("gold"), Secret: new("hunter2"),
				Filter: &subscriber.Filter{Types: []string{"a", "."}, Attributes: map[string][]string{"a/b": nil}},
				Policy: &subscriber.PolicyPatch{MaxAttempts: new(0), MaxHeld: new(0)},
			},
			[]string{"/account", "/class", "/filter/attributes/a~1b", "/filter/types/1", "/name", "/policy/max_attempts", "/policy/max_held", "/secret", "/url"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := subtest.NewMemory(4)
			store := subscriber.New(m, httpsOnly{}, []string{"standard", "bulk"}, m.Now)
			_, err := store.Create(t.Context(), c.draft)
			if got := pointers(t, err); !slices.Equal(got, c.want) {
				t.Errorf("faults at %v, want %v", got, c.want)
			}
			if list, _ := store.List(t.Context(), subscriber.ListFilter{}, "", 10); (len(list) == 1) != (c.want == nil) {
				t.Errorf("%d stored", len(list))
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error quotes the secret: %v", err)
			}
		})
	}
}

func TestUnknownClassNamesTheAllowed(t *testing.T) {
	t.Parallel()
	_, store := newStore(t)
	_, err := store.Create(t.Context(), subscriber.Draft{URL: new("https://example.com"), Class: new("gold")})
	if err == nil || !strings.Contains(err.Error(), `"gold": must be one of "standard", "bulk"`) {
		t.Error(err)
	}
}

// TestRefusalsSayWhichRule: a person can act on each without reading the contract.
func TestRefusalsSayWhichRule(t *testing.T) {
	t.Parallel()
	_, store := newStore(t)
	sub := create(t, store, subscriber.Draft{})
	for want, d := range map[string]subscriber.Draft{
		"/name is 101 characters long, must be at most 100":    {Name: new(strings.Repeat("ä", 101))},
		"/name holds U+000A, which cannot be printed":          {Name: new("a\nb")},
		"/name holds U+202E, which cannot be printed":          {Name: new("a\u202eb")},
		"/name is not valid UTF-8":                             {Name: new("\xff")},
		`/class is "` + strings.Repeat("ä", 40) + `...": must`: {Class: new(strings.Repeat("ä", 41))},
		"/secret cannot be changed by a patch: rotate it (POST /v1/subscribers/{id}/secrets)": {
			Secret: givenSecret(32),
		},
	} {
		_, err := store.Patch(t.Context(), sub.ID, -1, d)
		if len(pointers(t, err)) != 1 || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestCreateDefaults(t *testing.T) {
	t.Parallel()
	m, store := newStore(t)
	a, b := create(t, store, subscriber.Draft{}), create(t, store, subscriber.Draft{})
	if !regexp.MustCompile(`^sub_[0-9A-HJKMNP-TV-Z]{26}$`).MatchString(a.ID) || a.ID == b.ID {
		t.Errorf("ids %s, %s", a.ID, b.ID)
	}
	if a.Account != "default" || a.Class != "standard" || a.Paused || !slices.Equal(a.Filter.Types, []string{"*"}) {
		t.Errorf("defaults: %s %s %v %v", a.Account, a.Class, a.Paused, a.Filter)
	}
	if diff := cmp.Diff(delivery.DefaultPolicy(), a.Policy); diff != "" {
		t.Error(diff)
	}
	if len(a.Secrets) != 1 || a.Secrets[0].Value == b.Secrets[0].Value || a.Secrets[0].CreatedAt != a.CreatedAt {
		t.Error("secrets are not each one's own")
	}
	if err := subscriber.ParseSecret(a.Secrets[0].Value); err != nil {
		t.Error(err)
	}
	want := schedule.Terms{
		Class: "standard", MaxInFlight: 16, LeaseTime: 25 * time.Second, BreakerFailures: 5, MaxHeld: 100_000,
	}
	if terms, change := m.Told(a.ID); terms != want || change != schedule.Edited {
		t.Errorf("terms %+v, want %+v; change %q", terms, want, change)
	}
}

func TestTermsFollowThePolicy(t *testing.T) {
	t.Parallel()
	m, store := newStore(t)
	s := create(t, store, subscriber.Draft{})
	_, err := store.Patch(t.Context(), s.ID, -1, subscriber.Draft{
		Class: new("bulk"), Paused: new(true),
		Policy: &subscriber.PolicyPatch{
			AttemptTimeout: new(delivery.Duration(time.Minute)), MaxInFlight: new(3), RatePerSecond: new(2.5),
			BreakerFailures: new(7), MaxHeld: new(12),
		},
	})
	want := schedule.Terms{
		Class: "bulk", MaxInFlight: 3, LeaseTime: time.Minute + subscriber.SettleMargin,
		RatePerSecond: 2.5, Burst: 3, BreakerFailures: 7, MaxHeld: 12, Paused: true,
	}
	if terms, _ := m.Told(s.ID); err != nil || terms != want {
		t.Errorf("terms %+v, want %+v, %v", terms, want, err)
	}
}

// TestWhatAPatchTellsTheScheduler: what a change means for the holds.
func TestWhatAPatchTellsTheScheduler(t *testing.T) {
	t.Parallel()
	m, store := newStore(t)
	for name, c := range map[string]struct {
		paused  bool // before
		draft   subscriber.Draft
		change  schedule.Change
		writes  bool
		isPause bool // after
	}{
		"a name":                      {draft: subscriber.Draft{Name: new("new")}, writes: true},
		"nothing":                     {draft: subscriber.Draft{Name: new("")}},
		"a pause":                     {draft: subscriber.Draft{Paused: new(true)}, writes: true, isPause: true},
		"a second pause":              {paused: true, draft: subscriber.Draft{Paused: new(true)}, isPause: true},
		"a resume":                    {paused: true, draft: subscriber.Draft{Paused: new(false)}, change: schedule.Lifted, writes: true},
		"a resume of one not paused":  {draft: subscriber.Draft{Paused: new(false)}, change: schedule.Lifted, writes: true},
		"a resume and a name":         {draft: subscriber.Draft{Paused: new(false), Name: new("n")}, change: schedule.Lifted, writes: true},
		"another URL":                 {draft: subscriber.Draft{URL: new("https://example.com/b")}, change: schedule.Moved, writes: true},
		"the URL that it has":         {draft: subscriber.Draft{URL: new("https://example.com/hook")}},
		"another query":               {draft: subscriber.Draft{URL: new("https://example.com/hook?token=2")}, change: schedule.Moved, writes: true},
		"another URL of a paused one": {paused: true, draft: subscriber.Draft{URL: new("https://b.example/")}, change: schedule.Moved, writes: true, isPause: true},
		"another URL and a resume": {
			paused: true, draft: subscriber.Draft{URL: new("https://b.example/"), Paused: new(false)}, change: schedule.Moved, writes: true,
		},
		"the URL that it has and a resume": {
			draft: subscriber.Draft{URL: new("https://example.com/hook"), Paused: new(false)}, change: schedule.Lifted, writes: true,
		},
	} {
		s := create(t, store, subscriber.Draft{Paused: &c.paused})
		next, err := store.Patch(t.Context(), s.ID, -1, c.draft)
		if err != nil {
			t.Fatal(err)
		}
		terms, change := m.Told(s.ID)
		if change != c.change || (next.Version > s.Version) != c.writes || next.Paused != c.isPause || terms.Paused != c.isPause {
			t.Errorf("%s: told %q and paused %v, version %d to %d; want %q, %v, written: %v",
				name, change, terms.Paused, s.Version, next.Version, c.change, c.isPause, c.writes)
		}
	}
}

// TestBreakerFollows: a breaker_failures that nobody chose is never in the way.
func TestBreakerFollows(t *testing.T) {
	t.Parallel()
	type pp = subscriber.PolicyPatch
	for name, c := range map[string]struct {
		patches []pp
		want    int
		bad     bool // the last patch
	}{
		"default":              {[]pp{{}}, 5, false},
		"one attempt":          {[]pp{{MaxAttempts: new(1)}}, 1, false},
		"two attempts":         {[]pp{{MaxAttempts: new(2)}}, 1, false},
		"five attempts":        {[]pp{{MaxAttempts: new(5)}}, 4, false},
		"six attempts":         {[]pp{{MaxAttempts: new(6)}}, 5, false},
		"chosen":               {[]pp{{MaxAttempts: new(6), BreakerFailures: new(2)}}, 2, false},
		"chosen too high":      {[]pp{{MaxAttempts: new(6), BreakerFailures: new(6)}}, 0, true},
		"follows down":         {[]pp{{}, {MaxAttempts: new(3)}}, 2, false},
		"follows up again":     {[]pp{{MaxAttempts: new(3)}, {MaxAttempts: new(20)}}, 5, false},
		"chosen does not":      {[]pp{{BreakerFailures: new(3)}, {MaxAttempts: new(10)}}, 3, false},
		"chosen is in the way": {[]pp{{BreakerFailures: new(9)}, {MaxAttempts: new(9)}}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, store := newStore(t)
			s := create(t, store, subscriber.Draft{})
			var err error
			for _, p := range c.patches {
				if err != nil {
					t.Fatal(err)
				}
				s, err = store.Patch(t.Context(), s.ID, -1, subscriber.Draft{Policy: &p})
			}
			if c.bad {
				if got := pointers(t, err); !slices.Equal(got, []string{"/policy/breaker_failures"}) {
					t.Errorf("faults at %v", got)
				}
			} else if err != nil || s.Policy.BreakerFailures != c.want {
				t.Errorf("breaker_failures %d, %v; want %d", s.Policy.BreakerFailures, err, c.want)
			}
		})
	}
}

func TestPatch(t *testing.T) {
	t.Parallel()
	full := subscriber.Draft{
		Account: new("acme"), Name: new("n"), Class: new("bulk"), Secret: givenSecret(32),
		Filter: &subscriber.Filter{Types: []string{"a.b"}, Attributes: map[string][]string{"k": {"v"}}},
		Policy: &subscriber.PolicyPatch{MaxAttempts: new(9), Classify: &map[int]delivery.Override{404: delivery.OverrideRetry}},
	}
	for name, c := range map[string]struct {
		patch subscriber.Draft
		want  []string // faults
		check func(s subscriber.Subscriber) bool
	}{
		"attributes leave types": {
			subscriber.Draft{Filter: &subscriber.Filter{Attributes: map[string][]string{"x": {"y"}}}},
			nil,
			func(s subscriber.Subscriber) bool {
				return s.Filter.Types[0] == "a.b" && len(s.Filter.Attributes) == 1 && s.Filter.Attributes["x"][0] == "y"
			},
		},
		"types leave attributes": {
			subscriber.Draft{Filter: &subscriber.Filter{Types: []string{"c"}}},
			nil,
			func(s subscriber.Subscriber) bool {
				return s.Filter.Types[0] == "c" && s.Filter.Attributes["k"][0] == "v"
			},
		},
		"attributes removed": {
			subscriber.Draft{Filter: &subscriber.Filter{Attributes: map[string][]string{}}},
			nil,
			func(s subscriber.Subscriber) bool { return s.Filter.Attributes == nil },
		},
		"policy in part": {
			subscriber.Draft{Policy: &subscriber.PolicyPatch{MaxHeld: new(7)}},
			nil,
			func(s subscriber.Subscriber) bool {
				return s.Policy.MaxHeld == 7 && s.Policy.MaxAttempts == 9 && s.Policy.Classify[404] != ""
			},
		},
		"overrides removed": {
			subscriber.Draft{Policy: &subscriber.PolicyPatch{Classify: &map[int]delivery.Override{}}},
			nil,
			func(s subscriber.Subscriber) bool { return s.Policy.Classify == nil },
		},
		"name emptied":        {subscriber.Draft{Name: new("")}, nil, func(s subscriber.Subscriber) bool { return s.Name == "" }},
		"same account":        {subscriber.Draft{Account: new("acme")}, nil, func(subscriber.Subscriber) bool { return true }},
		"another account":     {subscriber.Draft{Account: new("evil")}, []string{"/account"}, nil},
		"a secret":            {subscriber.Draft{Secret: givenSecret(32)}, []string{"/secret"}, nil},
		"merged, then judged": {subscriber.Draft{Policy: &subscriber.PolicyPatch{Burst: new(5)}}, []string{"/policy/burst"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, store := newStore(t)
			made := create(t, store, full)
			got, err := store.Patch(t.Context(), made.ID, made.Version, c.patch)
			if at := pointers(t, err); !slices.Equal(at, c.want) {
				t.Fatalf("faults at %v, want %v", at, c.want)
			}
			if err == nil && !c.check(got) {
				t.Errorf("patched into %+v %+v", got.Filter, got.Policy)
			}
			again, err := store.Get(t.Context(), made.ID)
			if err != nil || !slices.Equal(again.Secrets, made.Secrets) || again.Secrets[0].Value != *full.Secret {
				t.Errorf("secrets changed, %v", err)
			}
		})
	}
}

// TestPatchJudgesWhatItSets: stricter rules do not lock in who was there before.
func TestPatchJudgesWhatItSets(t *testing.T) {
	t.Parallel()
	m := subtest.NewMemory(4)
	old := subscriber.New(m, subtest.AnyURL{}, []string{"legacy"}, m.Now)
	s, err := old.Create(t.Context(), subscriber.Draft{URL: new("http://example.com")})
	if err != nil {
		t.Fatal(err)
	}
	strict := subscriber.New(m, httpsOnly{}, []string{"standard"}, m.Now)
	if _, err := strict.Patch(t.Context(), s.ID, -1, subscriber.Draft{Name: new("renamed")}); err != nil {
		t.Error(err)
	}
	if _, err := strict.Pause(t.Context(), s.ID); err != nil {
		t.Error(err)
	}
	_, err = strict.Patch(t.Context(), s.ID, -1, subscriber.Draft{URL: &s.URL, Class: &s.Class})
	if got := pointers(t, err); !slices.Equal(got, []string{"/class", "/url"}) {
		t.Errorf("faults at %v", got)
	}
}

// TestDraftReadsJSON: the names are those of the API.
func TestDraftReadsJSON(t *testing.T) {
	t.Parallel()
	var d subscriber.Draft
	err := json.Unmarshal([]byte(`{"url":"https://example.com","filter":{"attributes":{"carrier":["dhl"]}},
		"policy":{"attempt_timeout":"3s","rate_per_second":2.5,"burst":4,"classify":{"404":"retry"}},"paused":true}`), &d)
	if err != nil {
		t.Fatal(err)
	}
	_, store := newStore(t)
	s, err := store.Create(t.Context(), d)
	if err != nil || s.Policy.AttemptTimeout != delivery.Duration(3*time.Second) || s.Policy.RatePerSecond != 2.5 ||
		s.Policy.Classify[404] != delivery.OverrideRetry || s.Filter.Types[0] != "*" || !s.Paused {
		t.Errorf("%+v %+v, %v", s.Policy, s.Filter, err)
	}
}

// TestNothingPrintsASubscriber tries every way in which one gets into a log.
func TestNothingPrintsASubscriber(t *testing.T) {
	t.Parallel()
	m, store := newStore(t)
	s, err := store.Create(t.Context(), subscriber.Draft{URL: new("https://example.com/?token=query-token"), Secret: givenSecret(32)})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		fmt.Fprintf(&out, verb+"\n", s)
		fmt.Fprintf(&out, verb+"\n", &s)
		fmt.Fprintf(&out, verb+"\n", []subscriber.Subscriber{s})
		fmt.Fprintf(&out, verb+"\n", s.Secrets)
	}
	for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(h).Info("x", "one", s, "pointer", &s, "list", []subscriber.Subscriber{s})
	}
	if b, err := json.Marshal(s); err == nil {
		t.Errorf("marshalled: %s", b)
	}
	for _, secret := range []string{strings.TrimPrefix(s.Secrets[0].Value, "whsec_"), "query-token", fmt.Sprintf("%x", s.Secrets[0].Value)} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("%q shows in:\n%s", secret, out.String())
		}
	}
	if !strings.Contains(out.String(), s.ID) {
		t.Error("nobody can tell which subscriber it was")
	}
	if c, err := m.Config(t.Context(), s.ID); err != nil || !strings.Contains(string(c.Blob), s.Secrets[0].Value) {
		t.Errorf("the stored form lacks the secret, %v", err)
	}
}
