package access

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/test/redistest"
)

func anyRole(Role) bool { return true }

// begin makes a session of a key.
func (w *world) begin(token string) Session {
	w.Helper()
	s, err := w.Sessions.Begin(w.ctx, token, anyRole)
	w.ok(err)
	return s
}

// session holds whose session it is against what is wanted; nil means taken.
func (w *world) session(s *Store, token string, want error) Identity {
	w.Helper()
	id, err := s.Sessions.Identity(w.ctx, token)
	if !errors.Is(err, want) || (want == nil) != (err == nil) {
		w.Fatalf("the session gave %+v, %v; want %v", id, err, want)
	}
	return id
}

// A session opens what its key does, in every process, until one of the two ends.
func TestSessionEnds(t *testing.T) {
	each(t, Options{}, func(w *world) {
		other := w.open(Options{})
		key, token := w.create(NewKey{Role: Viewer, Name: "night shift"})
		one, two := w.begin(token), w.begin(token)
		if one.Token == two.Token || one.Identity.Role != Viewer || !one.ExpiresAt.Equal(w.clk.now().Add(SessionLife)) {
			t.Errorf("began %+v", one)
		}
		for _, s := range []*Store{w.Store, other} {
			if id := w.session(s, one.Token, nil); id.KeyID != key.ID || id.Name != "night shift" || id.Role != Viewer {
				t.Errorf("the session is %+v", id)
			}
		}
		for _, bad := range []string{"fos_", token, one.Token + "x", strings.Replace(one.Token, "fos_", "fok_", 1), one.Token[:len(one.Token)-1] + "!"} {
			w.session(w.Store, bad, ErrBadToken)
		}
		w.session(w.Store, "", ErrNoToken)
		if life := w.rdb.TTL(w.ctx, redisSession+sessionHash(one.Token)).Val(); life <= SessionLife-time.Minute || life > SessionLife {
			t.Errorf("Redis keeps it for %s", life)
		}

		w.ok(other.Sessions.End(w.ctx, one.Token)) // another process' sign-out
		w.session(w.Store, one.Token, ErrBadToken)
		w.session(w.Store, two.Token, nil)
		_, err := other.Keys.Revoke(w.ctx, key.ID)
		w.ok(err)
		w.session(other, two.Token, ErrBadToken)
		w.clk.advance(checkEvery)
		w.session(w.Store, two.Token, ErrBadToken)

		// Nothing in Redis opens anything.
		keys, err := redistest.Keys(w.ctx, w.rdb, redisSession+"*")
		w.ok(err)
		if len(keys) != 1 || strings.Contains(keys[0], two.Token) || strings.Contains(w.rdb.Get(w.ctx, keys[0]).Val(), two.Token[5:]) {
			t.Errorf("Redis has %q", keys)
		}
	})
}

// Who may have one is for the caller to say, and a key that has ended gets none.
func TestSessionIsRefused(t *testing.T) {
	each(t, Options{}, func(w *world) {
		_, producer := w.create(NewKey{Role: Producer})
		s, err := w.Sessions.Begin(w.ctx, producer, func(r Role) bool { return r != Producer })
		if !errors.Is(err, ErrRole) || s.Token != "" || s.Identity.Role != Producer {
			t.Errorf("a producer got %+v, %v", s, err)
		}
		if _, err := w.Sessions.Begin(w.ctx, "fok_nonsense", anyRole); !errors.Is(err, ErrBadToken) {
			t.Errorf("nonsense: %v", err)
		}
		_, short := w.create(NewKey{ExpiresAt: w.clk.now().Add(time.Hour)})
		session := w.begin(short)
		w.clk.advance(2 * time.Hour)
		w.session(w.Store, session.Token, ErrBadToken)
		_, err = w.Sessions.Begin(w.ctx, short, anyRole)
		if !errors.Is(err, ErrBadToken) {
			t.Errorf("an expired key: %v", err)
		}
	})
}

// A session of the admin key of the configuration ends when that becomes another.
func TestSessionOfBootstrap(t *testing.T) {
	each(t, Options{Bootstrap: bootstrap}, func(w *world) {
		session := w.begin(bootstrap)
		if id := w.session(w.Store, session.Token, nil); id != Bootstrap {
			t.Errorf("it is %+v", id)
		}
		w.session(w.open(Options{Bootstrap: bootstrap}), session.Token, nil)
		w.session(w.open(Options{Bootstrap: bootstrap + "2"}), session.Token, ErrBadToken)
		w.session(w.open(Options{}), session.Token, ErrBadToken)
	})
}

// While Redis is away, what was used a moment ago goes on for a minute, and no longer:
// the page is most needed then.
func TestSessionOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	m := redistest.Mini(t)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr(), MaxRetries: -1, DialTimeout: time.Second})
	t.Cleanup(func() { _ = rdb.Close() })
	w := newWorld(t, rdb, Options{})
	_, token := w.create(NewKey{Role: Viewer})
	used, fresh := w.begin(token), w.begin(token)
	w.session(w.Store, used.Token, nil)
	m.Close()
	w.session(w.Store, used.Token, nil)
	w.session(w.Store, fresh.Token, ErrUnavailable)
	w.clk.advance(grace + time.Second)
	w.session(w.Store, used.Token, ErrUnavailable)
}
