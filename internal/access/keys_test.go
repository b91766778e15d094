package access

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/fault"
	"github.com/fanout/fanout/test/redistest"
)

func TestKeyIsReadAsItWasCreated(t *testing.T) {
	each(t, Options{}, func(w *world) {
		want, token := w.create(NewKey{
			Name: "warehouse é", Role: Subscriber, Account: "acme", RatePerSecond: 2.5,
			ExpiresAt: w.clk.now().Add(time.Hour),
		})
		if want.CreatedBy != "bootstrap" || !want.CreatedAt.Equal(w.clk.now()) || !want.LastUsedAt.IsZero() {
			w.Errorf("created %+v", want)
		}
		got, err := w.Keys.Get(w.ctx, want.ID)
		w.ok(err)
		if !reflect.DeepEqual(got, want) {
			w.Errorf("read %+v, created %+v", got, want)
		}
		id := w.wants(w.Store, token, nil)
		if (id != Identity{KeyID: want.ID, Name: "warehouse é", Role: Subscriber, Account: "acme"}) {
			w.Errorf("the token is that of %+v", id)
		}
		for _, id := range []string{"key_01ARZ3NDEKTSV4RRFFQ69G5FAV", "", "\xff", strings.Repeat("x", 100_000)} {
			if _, err := w.Keys.Get(w.ctx, id); !errors.Is(err, ErrNotFound) || len(err.Error()) > 1000 {
				w.Errorf("get %.20q: %.100v, want not found", id, err)
			}
			if _, err := w.Keys.Revoke(w.ctx, id); !errors.Is(err, ErrNotFound) {
				w.Errorf("revoke %.20q: %.100v, want not found", id, err)
			}
		}
	})
}

func TestBadKeysAreRefusedWithAllThatIsWrong(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nothing may get there
	t.Cleanup(func() { _ = rdb.Close() })
	w := newWorld(t, rdb, Options{})
	now := w.clk.now()
	good := NewKey{Name: "n", Role: Viewer}
	for name, c := range map[string]struct {
		change func(*NewKey)
		want   []string
	}{
		"nothing":             {func(n *NewKey) { *n = NewKey{} }, []string{"/name", "/role"}},
		"blank name":          {func(n *NewKey) { n.Name = "  " }, []string{"/name"}},
		"long name":           {func(n *NewKey) { n.Name = strings.Repeat("é", 101) }, []string{"/name"}},
		"line break in name":  {func(n *NewKey) { n.Name = "a\nb" }, []string{"/name"}},
		"name of no text":     {func(n *NewKey) { n.Name = "a\xff" }, []string{"/name"}},
		"unknown role":        {func(n *NewKey) { n.Role = "root" }, []string{"/role"}},
		"no account":          {func(n *NewKey) { n.Role = Subscriber }, []string{"/account"}},
		"bad account":         {func(n *NewKey) { n.Role, n.Account = Subscriber, "a b" }, []string{"/account"}},
		"account and break":   {func(n *NewKey) { n.Role, n.Account = Subscriber, "a\n" }, []string{"/account"}},
		"long account":        {func(n *NewKey) { n.Role, n.Account = Subscriber, strings.Repeat("a", 65) }, []string{"/account"}},
		"account of a viewer": {func(n *NewKey) { n.Account = "acme" }, []string{"/account"}},
		"expired":             {func(n *NewKey) { n.ExpiresAt = now }, []string{"/expires_at"}},
		"expires too late":    {func(n *NewKey) { n.ExpiresAt = now.Add(maxLife + 1) }, []string{"/expires_at"}},
		"negative rate":       {func(n *NewKey) { n.RatePerSecond = -1 }, []string{"/rate_per_second"}},
		"tiny rate":           {func(n *NewKey) { n.RatePerSecond = 0.001 }, []string{"/rate_per_second"}},
		"huge rate":           {func(n *NewKey) { n.RatePerSecond = 1e9 }, []string{"/rate_per_second"}},
		"rate of no number":   {func(n *NewKey) { n.RatePerSecond = math.NaN() }, []string{"/rate_per_second"}},
		"all at once": {func(n *NewKey) {
			*n = NewKey{Role: "x", Account: "y", ExpiresAt: now.Add(-1), RatePerSecond: math.Inf(1)}
		}, []string{"/account", "/expires_at", "/name", "/rate_per_second", "/role"}},
	} {
		n := good
		c.change(&n)
		_, token, err := w.Keys.Create(w.ctx, n, "")
		bad, ok := errors.AsType[*fault.Invalid](err)
		if !ok || token != "" {
			t.Errorf("%s: %v, want it refused", name, err)
			continue
		}
		var got []string
		for _, f := range bad.Fields {
			got = append(got, f.Pointer)
			if f.Detail == "" || !strings.Contains(err.Error(), f.Pointer+" "+f.Detail) {
				t.Errorf("%s: the error %q lacks %+v", name, err, f)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: wrong are %v, want %v", name, got, c.want)
		}
	}
	for _, limit := range []int{0, MaxList + 1} {
		if _, err := w.Keys.List(w.ctx, "", limit); err == nil {
			t.Errorf("a list of %d", limit)
		}
	}
}

func TestKeysAreListedByIDInPages(t *testing.T) {
	each(t, Options{}, func(w *world) {
		if keys, err := w.Keys.List(w.ctx, "", 10); err != nil || len(keys) != 0 {
			w.Fatalf("a list of nothing: %v, %v", keys, err)
		}
		var want []string
		for range 23 {
			k, _ := w.create(NewKey{})
			want = append(want, k.ID)
			w.clk.advance(time.Millisecond)
		}
		_, err := w.Keys.Revoke(w.ctx, want[5])
		w.ok(err)
		var got []string
		for after := ""; ; {
			page, err := w.Keys.List(w.ctx, after, 7)
			w.ok(err)
			for _, k := range page {
				got = append(got, k.ID)
				if k.RevokedAt.IsZero() == (k.ID == want[5]) {
					w.Errorf("%s is listed as revoked at %v", k.ID, k.RevokedAt)
				}
			}
			if len(page) < 7 {
				break
			}
			after = got[len(got)-1]
		}
		if !slices.Equal(got, want) {
			w.Errorf("listed %v, want %v", got, want)
		}
	})
}

func TestRevokeIsIdempotent(t *testing.T) {
	each(t, Options{}, func(w *world) {
		k, token := w.create(NewKey{})
		w.wants(w.Store, token, nil)
		first, err := w.Keys.Revoke(w.ctx, k.ID)
		w.ok(err)
		if !first.RevokedAt.Equal(w.clk.now()) {
			w.Errorf("revoked at %v, want %v", first.RevokedAt, w.clk.now())
		}
		w.clk.advance(time.Hour)
		second, err := w.Keys.Revoke(w.ctx, k.ID)
		w.ok(err)
		if !second.RevokedAt.Equal(first.RevokedAt) {
			w.Errorf("revoked again: at %v, was %v", second.RevokedAt, first.RevokedAt)
		}
		w.wants(w.Store, token, ErrBadToken)
		// Two that both saw it before its end: the first one counts.
		at, err := w.Keys.db.revoke(w.ctx, k.ID, w.clk.now().UnixMilli(), newGeneration())
		if err != nil || at != first.RevokedAt.UnixMilli() {
			w.Errorf("revoked at %d, %v; want %d", at, err, first.RevokedAt.UnixMilli())
		}
	})
}

func TestManyCreateAndRevokeAtOnce(t *testing.T) {
	each(t, Options{}, func(w *world) {
		const n = 50
		other := w.open(Options{})
		w.clk.advance(time.Minute)
		keys, tokens := make([]Key, n), make([]string, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				k, token, err := w.Keys.Create(w.ctx, NewKey{Name: "one of many", Role: Producer}, "bootstrap")
				if err == nil {
					_, err = w.Gate.Authenticate(w.ctx, token)
				}
				if err != nil {
					w.Errorf("create and use: %v", err)
				}
				keys[i], tokens[i] = k, token
			})
		}
		wg.Wait()
		listed, err := w.Keys.List(w.ctx, "", MaxList)
		w.ok(err)
		if len(listed) != n {
			w.Fatalf("%d keys, want %d", len(listed), n)
		}
		// Each is revoked twice at the same time, by two processes.
		for i, k := range keys {
			var at [2]time.Time
			revoke := func(s *Store, turn int) {
				ended, err := s.Keys.Revoke(w.ctx, k.ID)
				if err != nil {
					w.Errorf("revoke: %v", err)
				}
				at[turn] = ended.RevokedAt
				if _, err := s.Gate.Authenticate(w.ctx, tokens[i]); !errors.Is(err, ErrBadToken) {
					w.Errorf("a key taken after its end: %v", err)
				}
			}
			var both sync.WaitGroup
			both.Go(func() { revoke(w.Store, 0) })
			both.Go(func() { revoke(other, 1) })
			both.Wait()
			if at[0].IsZero() || !at[0].Equal(at[1]) {
				w.Errorf("%s was revoked at %v and at %v", k.ID, at[0], at[1])
			}
		}
	})
}

// Keys that ended as long ago as the audit log reaches are forgotten, but a store
// never looks as if there was none.
func TestLongEndedKeysAreForgotten(t *testing.T) {
	each(t, Options{}, func(w *world) {
		revoked, _ := w.create(NewKey{})
		expired, token := w.create(NewKey{ExpiresAt: w.clk.now().Add(time.Hour)})
		w.wants(w.Store, token, nil) // so that it has a last use as well
		w.Gate.used.wait()
		_, err := w.Keys.Revoke(w.ctx, revoked.ID)
		w.ok(err)
		w.clk.advance(forgetAfter)
		w.wants(w.Store, token, ErrBadToken)
		if open, err := w.Gate.Open(w.ctx); open || err != nil {
			w.Fatalf("with ended keys only the store is open: %v, %v", open, err)
		}
		kept, _ := w.create(NewKey{})
		if keys, err := w.Keys.List(w.ctx, "", 10); err != nil || len(keys) != 3 {
			w.Fatalf("%v, %v; want all three just before", keys, err)
		}
		w.clk.advance(time.Hour + time.Second)
		w.wants(w.Store, token, ErrBadToken)
		last, _ := w.create(NewKey{})
		keys, err := w.Keys.List(w.ctx, "", 10)
		w.ok(err)
		if len(keys) != 2 || keys[0].ID != kept.ID || keys[1].ID != last.ID {
			w.Errorf("left are %v, want %s and %s", keys, kept.ID, last.ID)
		}
		for _, key := range []string{redisRevoked, redisUsed} {
			if n, err := w.rdb.HLen(w.ctx, key).Result(); err != nil || n != 0 {
				w.Errorf("%s has %d fields left, %v", key, n, err)
			}
		}
		_, err = w.Keys.Get(w.ctx, expired.ID)
		if !errors.Is(err, ErrNotFound) {
			w.Errorf("get a forgotten key: %v", err)
		}
	})
}

func TestWhatRedisCannotDoIsUnavailable(t *testing.T) {
	t.Parallel()
	m := redistest.Mini(t)
	w := newWorld(t, redistest.Client(t, m.Addr()), Options{})
	k, _ := w.create(NewKey{})
	m.SetError("OOM command not allowed")
	for name, call := range map[string]func() error{
		"create": func() error { _, _, err := w.Keys.Create(w.ctx, NewKey{Name: "n", Role: Viewer}, ""); return err },
		"get":    func() error { _, err := w.Keys.Get(w.ctx, k.ID); return err },
		"list":   func() error { _, err := w.Keys.List(w.ctx, "", 1); return err },
		"revoke": func() error { _, err := w.Keys.Revoke(w.ctx, k.ID); return err },
		"append": func() error { return w.Audit.Append(w.ctx, Entry{Action: "a"}) },
		"audit":  func() error { _, _, err := w.Audit.List(w.ctx, Filter{}, "", 1); return err },
	} {
		if err := call(); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("%s: %v, want unavailable, and why", name, err)
		}
	}
}
