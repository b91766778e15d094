package httpapi

import (
	"encoding/base64"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/access"
	"github.com/fanout/fanout/test/redistest"
)

// unlocked is the rig over a store without any key.
func unlocked(t *testing.T, change ...func(*Deps)) (*rig, *access.Store) {
	t.Helper()
	store, err := access.Open(redistest.Client(t, redistest.Mini(t).Addr()), access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return newRig(t, append([]func(*Deps){func(d *Deps) {
		d.Gate, d.Keys, d.Audit = store.Gate, store.Keys, store.Audit
	}}, change...)...), store
}

// Without any key whoever is on this machine may do all, and nobody by another name;
// the first key ends that.
func TestOpenUntilTheFirstKey(t *testing.T) {
	t.Parallel()
	r, _ := unlocked(t)
	if me := into[Self](t, r.do("GET", "/v1/keys/self", ""), 200); me != (Self{ID: "local", Name: "local", Role: RoleAdmin}) {
		t.Errorf("got %+v", me)
	}
	wantProblem(t, r.do("GET", "/v1/subscribers", "", "Host: rebind.example"), ProblemCodeHostNotAllowed)
	made := into[KeyCreated](t, r.do("POST", "/v1/keys", `{"name":"first","role":"admin"}`), 201)

	wantProblem(t, r.do("GET", "/v1/subscribers", ""), ProblemCodeUnauthenticated)
	r.key = made.Key
	// By whatever name: who asks is told by the key now.
	if me := into[Self](t, r.do("GET", "/v1/keys/self", "", "Host: api.example"), 200); me.ID != made.ID || me.Name != "first" {
		t.Errorf("got %+v", me)
	}
	into[Key](t, r.do("DELETE", "/v1/keys/"+made.ID, ""), 200)
	wantProblem(t, r.do("GET", "/v1/keys/self", ""), ProblemCodeUnauthenticated) // at once, and it never opens again
	r.key = ""
	wantProblem(t, r.do("GET", "/v1/keys/self", ""), ProblemCodeUnauthenticated)
}

// A server that other machines reach asks for a key even while there is none.
func TestNeverOpen(t *testing.T) {
	t.Parallel()
	r, _ := unlocked(t, func(d *Deps) { d.NeverOpen = true })
	wantProblem(t, r.do("GET", "/v1/subscribers", ""), ProblemCodeUnauthenticated)
	into[Health](t, r.do("GET", "/healthz", "", "Host: probe.example"), 200)
}

// In a demo who shows no key is the admin still; who shows one is its holder.
func TestKeyless(t *testing.T) {
	t.Parallel()
	r, store := unlocked(t, func(d *Deps) { d.Keyless = true })
	_, token, err := store.Keys.Create(t.Context(), access.NewKey{Name: "v", Role: access.Viewer}, "test")
	if err != nil {
		t.Fatal(err)
	}
	into[SubscriberCreated](t, r.do("POST", "/v1/subscribers", minimal), 201)
	wantProblem(t, r.do("POST", "/v1/subscribers", minimal, "Host: rebind.example"), ProblemCodeHostNotAllowed)
	r.key = token
	wantProblem(t, r.do("POST", "/v1/subscribers", minimal), ProblemCodeForbidden)
	wantProblem(t, r.do("GET", "/v1/subscribers", "", "Authorization: Bearer x"), ProblemCodeUnauthenticated)
}

// A key is shown as a bearer or as a password, and to no log.
func TestWaysToShowAKey(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	token := k.keys[access.Viewer]
	for _, header := range []string{
		"Bearer " + token, "bearer " + token, "BEARER   " + token,
		"Basic " + base64.StdEncoding.EncodeToString([]byte("anyone:"+token)),
		"basic " + base64.StdEncoding.EncodeToString([]byte(":"+token)),
	} {
		if me := into[Self](t, k.do("GET", "/v1/keys/self", "", "Authorization: "+header), 200); me.ID != k.ids[access.Viewer] || me.Role != RoleViewer {
			t.Errorf("got %+v", me)
		}
	}
	if me := into[Self](t, k.do("GET", "/v1/keys/self", ""), 200); me.ID != "bootstrap" || me.Role != RoleAdmin {
		t.Errorf("bootstrap is %+v", me)
	}
	if me := into[Self](t, k.as(access.Subscriber, "GET", "/v1/keys/self", ""), 200); me.Account != "acc_1" {
		t.Errorf("got %+v", me)
	}
	log := k.log.String()
	if strings.Contains(log, token) || strings.Contains(log, base64.StdEncoding.EncodeToString([]byte("anyone:"+token))) {
		t.Error("the log has the token")
	}
	lines := k.lines()
	last := lines[len(lines)-1]
	if last["key_id"] != k.ids[access.Subscriber] || last["role"] != "subscriber" {
		t.Errorf("the log line does not say who: %v", last)
	}
}

func TestRateLimit(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	_, slow := k.makeKey(access.NewKey{Name: "slow", Role: access.Viewer, RatePerSecond: 0.5})
	into[Self](t, k.do("GET", "/v1/keys/self", "", "Authorization: Bearer "+slow), 200)
	a := k.do("GET", "/v1/keys/self", "", "Authorization: Bearer "+slow)
	wantProblem(t, a, ProblemCodeRateLimited)
	if a.header.Get("Retry-After") != "2" {
		t.Errorf("Retry-After %q, want 2", a.header.Get("Retry-After"))
	}
	k.as(access.Viewer, "GET", "/v1/keys/self", "") // others are not
	for _, line := range k.lines() {
		if line["code"] == "rate_limited" && line["key_id"] == nil {
			t.Error("the log does not say whose requests are too many")
		}
	}
}

func TestExpiredKey(t *testing.T) {
	t.Parallel()
	var later atomic.Bool
	store, err := access.Open(redistest.Client(t, redistest.Mini(t).Addr()), access.Options{Now: func() time.Time {
		if later.Load() {
			return time.Now().Add(time.Hour)
		}
		return time.Now()
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	r := newRig(t, func(d *Deps) { d.Gate = store.Gate })
	_, r.key, err = store.Keys.Create(t.Context(), access.NewKey{Name: "brief", Role: access.Viewer, ExpiresAt: time.Now().Add(time.Minute)}, "test")
	if err != nil {
		t.Fatal(err)
	}
	into[Self](t, r.do("GET", "/v1/keys/self", ""), 200)
	later.Store(true)
	wantProblem(t, r.do("GET", "/v1/keys/self", ""), ProblemCodeUnauthenticated)
}
