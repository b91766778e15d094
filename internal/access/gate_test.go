package access

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/test/redistest"
)

func TestWhateverIsWrongWithATokenTheAnswerIsTheSame(t *testing.T) {
	each(t, Options{Bootstrap: bootstrap}, func(w *world) {
		good, token := w.create(NewKey{})
		expiring, expired := w.create(NewKey{ExpiresAt: w.clk.now().Add(time.Minute)})
		ended, revoked := w.create(NewKey{})
		w.wants(w.Store, token, nil)
		w.wants(w.Store, expired, nil)
		w.wants(w.Store, revoked, nil)
		_, err := w.Keys.Revoke(w.ctx, ended.ID)
		w.ok(err)
		w.clk.advance(time.Minute - time.Millisecond)
		w.wants(w.Store, expired, nil)
		w.clk.advance(time.Millisecond)

		_, stranger := w.create(NewKey{})
		secret := stranger[len(stranger)-secretLen:]
		for name, bad := range map[string]string{
			"unknown":         goodToken,
			"another secret":  token[:len(token)-secretLen] + secret,
			"one bit off":     token[:40] + string(token[40]^1) + token[41:],
			"cut":             token[:len(token)-1],
			"longer":          token + "A",
			"expired":         expired,
			"revoked":         revoked,
			"key id":          good.ID,
			"bootstrap, cut":  bootstrap[1:],
			"bootstrap, more": bootstrap + "x",
			"nonsense":        "x",
			"id of another":   strings.Replace(token, good.ID[4:], expiring.ID[4:], 1),
			"long":            strings.Repeat("x", maxToken+1),
			"no text":         "\x00\xff",
		} {
			id, err := w.Gate.Authenticate(w.ctx, bad)
			if err != ErrBadToken || id != (Identity{}) { //nolint:errorlint // bare: not even the text may differ
				w.Errorf("%s: %+v, %v; want the bare ErrBadToken", name, id, err)
			}
		}
		w.wants(w.Store, "", ErrNoToken)
		w.wants(w.Store, token, nil)
		if id := w.wants(w.Store, bootstrap, nil); id != Bootstrap {
			w.Errorf("the bootstrap key is %+v", id)
		}
	})
}

func TestChangesAreSeenByOthersWithinASecond(t *testing.T) {
	each(t, Options{}, func(w *world) {
		other := w.open(Options{})
		k, token := w.create(NewKey{})
		w.wants(w.Store, token, nil)
		w.wants(other, token, nil)
		_, err := w.Keys.Revoke(w.ctx, k.ID)
		w.ok(err)
		_, second := w.create(NewKey{})
		w.wants(w.Store, token, ErrBadToken) // at once where it was done
		w.wants(w.Store, second, nil)

		w.clk.advance(time.Second - time.Millisecond)
		w.wants(other, token, nil) // what it costs not to ask at each request
		w.clk.advance(time.Millisecond)
		w.wants(other, token, ErrBadToken)
		w.wants(other, second, nil)
	})
}

// A read that was out while a key was revoked knows nothing of it, and must not bring
// the key back.
func TestReadThatBeganBeforeARevocationIsDropped(t *testing.T) {
	t.Parallel()
	m := redistest.Mini(t)
	watched := redistest.Client(t, m.Addr())
	w := newWorld(t, watched, Options{})
	k, token := w.create(NewKey{})
	w.wants(w.Store, token, nil)
	w.Gate.used.wait()

	arrived, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	watched.AddHook(&spy{hold: func(name string) {
		if name == "get" { // the generation alone, outside of a MULTI
			once.Do(func() { close(arrived); <-release })
		}
	}})
	w.clk.advance(checkEvery)
	early := make(chan error, 1)
	go func() {
		_, err := w.Gate.Authenticate(w.ctx, token)
		early <- err
	}()
	<-arrived
	// Revoked while the old generation is on its way; and Redis cannot be asked again.
	_, err := (&Keys{db: backend{redistest.Client(t, m.Addr())}, ring: w.Keys.ring, now: w.clk.now}).Revoke(w.ctx, k.ID)
	w.ok(err)
	m.SetError("ERR away")
	close(release)
	if err := <-early; !errors.Is(err, ErrBadToken) {
		t.Errorf("the request that read before: %v", err)
	}
	w.wants(w.Store, token, ErrBadToken)
}

func TestRequestsShareOneReadASecond(t *testing.T) {
	t.Parallel()
	rdb := redistest.Server(t).Client()
	w := newWorld(t, rdb, Options{})
	_, token := w.create(NewKey{})
	w.wants(w.Store, token, nil)
	w.Gate.used.wait()
	seen := &spy{commands: make(chan string, 10_000)}
	rdb.AddHook(seen)
	for range 3 {
		w.clk.advance(checkEvery)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if _, err := w.Gate.Authenticate(w.ctx, token); err != nil {
					t.Errorf("authenticate: %v", err)
				}
				if open, err := w.Gate.Open(w.ctx); err != nil || open {
					t.Errorf("open: %v, %v", open, err)
				}
			})
		}
		wg.Wait()
	}
	gets := 0
	for len(seen.commands) > 0 {
		switch name := <-seen.commands; name {
		case "get":
			gets++
		case "hello", "client": // of a new connection
		default:
			t.Errorf("a request sent %s", name)
		}
	}
	if gets != 3 {
		t.Errorf("600 requests in 3 s asked %d times, want once a second", gets)
	}
}

func TestOpenIsOverOnceThereWasAKey(t *testing.T) {
	each(t, Options{}, func(w *world) {
		other := w.open(Options{})
		open := func(s *Store, want bool) {
			w.Helper()
			if got, err := s.Gate.Open(w.ctx); err != nil || got != want {
				w.Errorf("open is %v, %v; want %v", got, err, want)
			}
		}
		open(w.Store, true)
		open(other, true)
		open(w.open(Options{Bootstrap: bootstrap}), false)
		k, _ := w.create(NewKey{})
		open(w.Store, false)
		w.clk.advance(checkEvery)
		open(other, false)
		_, err := w.Keys.Revoke(w.ctx, k.ID)
		w.ok(err)
		open(w.Store, false)
		open(w.open(Options{}), false)

		// One that nobody can read is no way in, and is a key all the same.
		w.ok(w.rdb.Del(w.ctx, redisKeys, redisRevoked).Err())
		w.ok(w.rdb.HSet(w.ctx, redisKeys, k.ID, `{"sha256":""}`).Err())
		late := w.open(Options{})
		open(late, false)
		w.wants(late, goodToken, ErrBadToken)
	})
}

func TestKnownKeysOutliveRedisByAMinute(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, redistest.AOFAlways())
	w := newWorld(t, server.Client(), Options{Bootstrap: bootstrap})
	k, token := w.create(NewKey{})
	other, gone := w.create(NewKey{})
	w.wants(w.Store, token, nil)
	w.wants(w.Store, gone, nil)
	_, err := w.Keys.Revoke(w.ctx, other.ID)
	w.ok(err)
	server.Kill9()

	w.wants(w.Store, gone, ErrBadToken) // revoked here, though it cannot be asked
	w.clk.advance(time.Minute - time.Millisecond)
	if id := w.wants(w.Store, token, nil); id.KeyID != k.ID {
		t.Errorf("it is %+v", id)
	}
	w.wants(w.Store, goodToken, ErrBadToken)
	w.clk.advance(time.Millisecond)
	w.wants(w.Store, token, ErrUnavailable)
	w.wants(w.Store, goodToken, ErrUnavailable)
	w.wants(w.Store, "nonsense", ErrBadToken)
	w.wants(w.Store, bootstrap, nil)
	// One that never read any key has nothing to go by.
	w.wants(w.open(Options{}), token, ErrUnavailable)
	if _, err := w.open(Options{}).Gate.Open(w.ctx); !errors.Is(err, ErrUnavailable) {
		t.Errorf("open: %v, want unavailable", err)
	}

	server.Restart()
	w.clk.advance(checkEvery)
	// The first may meet a connection of the dead server.
	_, _ = w.Gate.Authenticate(w.ctx, token)
	w.clk.advance(checkEvery)
	w.wants(w.Store, token, nil)
	w.wants(w.Store, gone, ErrBadToken)
}

// While Redis hangs, one request a second waits for it, at most for as long as it may,
// and the others go on.
func TestHangingRedisIsWaitedForOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	w := newWorld(t, server.Client(), Options{})
	_, token := w.create(NewKey{})
	w.wants(w.Store, token, nil)
	w.Gate.used.wait()
	server.Stop()
	w.clk.advance(checkEvery)

	short, cancel := context.WithTimeout(w.ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := w.Gate.Authenticate(short, token); !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a deadline: %v", err)
	}
	w.wants(w.Store, token, nil) // after the read has given up
	for range 2 {
		w.clk.advance(checkEvery)
		short, cancel := context.WithTimeout(w.ctx, time.Second) // half of what the read takes
		if _, err := w.Gate.Authenticate(short, token); err != nil {
			t.Errorf("while it is known to hang: %v", err)
		}
		cancel()
	}
	server.Cont()
	w.Gate.ring.wait()
	w.wants(w.Store, token, nil)
}

// An older file of Redis that was restored may come to have as many changes again.
func TestRestoredKeysAreOtherKeys(t *testing.T) {
	each(t, Options{}, func(w *world) {
		_, token := w.create(NewKey{})
		w.wants(w.Store, token, nil)
		w.ok(w.rdb.Del(w.ctx, redisKeys, redisGen, redisRevoked, redisUsed).Err())
		_, second, err := w.open(Options{}).Keys.Create(w.ctx, NewKey{Name: "n", Role: Viewer}, "")
		w.ok(err)
		w.clk.advance(checkEvery)
		w.wants(w.Store, token, ErrBadToken)
		w.wants(w.Store, second, nil)
	})
}

func TestRateIsExact(t *testing.T) {
	each(t, Options{Rate: 10, Bootstrap: bootstrap}, func(w *world) {
		_, token := w.create(NewKey{})
		_, slow := w.create(NewKey{RatePerSecond: 0.5})
		burst := func(token string, want int64) {
			w.Helper()
			var taken atomic.Int64
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					if w.limited(token) == 0 {
						taken.Add(1)
					}
				})
			}
			wg.Wait()
			if taken.Load() != want {
				w.Errorf("%d of 100 at once were taken, want %d", taken.Load(), want)
			}
		}
		near := func(got, want time.Duration) {
			w.Helper()
			if d := got - want; d < -time.Microsecond || d > time.Microsecond {
				w.Errorf("it says to wait %v, want %v", got, want)
			}
		}
		burst(token, 20)
		near(w.limited(token), 100*time.Millisecond)
		w.clk.advance(99 * time.Millisecond)
		near(w.limited(token), time.Millisecond)
		w.clk.advance(time.Millisecond)
		burst(token, 1)
		w.create(NewKey{}) // other keys are read again, buckets are not filled
		burst(token, 0)
		w.clk.advance(time.Second)
		burst(token, 10)
		w.clk.advance(time.Hour)
		burst(token, 20)

		burst(slow, 1)
		near(w.limited(slow), 2*time.Second)
		w.clk.advance(2 * time.Second)
		burst(slow, 1)
		burst(bootstrap, 100)

		id, err := w.Gate.Authenticate(w.ctx, slow)
		limit, ok := errors.AsType[*LimitedError](err)
		if !ok || limit.RetryAfter <= 0 || id.Role != Operator {
			w.Errorf("a limited request: %+v, %v; want who it is as well", id, err)
		}
	})
}

func TestNoRateIsNoLimit(t *testing.T) {
	each(t, Options{}, func(w *world) {
		_, token := w.create(NewKey{})
		for range 5000 {
			if wait := w.limited(token); wait != 0 {
				w.Fatalf("limited for %v", wait)
			}
		}
	})
}

func TestLastUseIsWrittenOnceAMinute(t *testing.T) {
	each(t, Options{}, func(w *world) {
		k, token := w.create(NewKey{})
		used := func(want time.Time) {
			w.Helper()
			w.wants(w.Store, token, nil)
			w.Gate.used.wait()
			got, err := w.Keys.Get(w.ctx, k.ID)
			w.ok(err)
			if !got.LastUsedAt.Equal(want) {
				w.Errorf("last used at %v, want %v", got.LastUsedAt, want)
			}
		}
		first := w.clk.now()
		used(first)
		w.clk.advance(30 * time.Second)
		used(first)
		w.create(NewKey{}) // reading the keys again is no reason to write
		w.clk.advance(usedEvery - 30*time.Second - time.Millisecond)
		used(first)
		w.clk.advance(time.Millisecond)
		used(first.Add(usedEvery))
		w.wants(w.Store, token[:len(token)-secretLen]+goodToken[len(goodToken)-secretLen:], ErrBadToken)
		w.clk.advance(time.Hour)
		_, err := w.Keys.Revoke(w.ctx, k.ID)
		w.ok(err)
		w.wants(w.Store, token, ErrBadToken)
		w.Gate.used.wait()
		got, err := w.Keys.Get(w.ctx, k.ID)
		w.ok(err)
		if !got.LastUsedAt.Equal(first.Add(usedEvery)) {
			w.Errorf("a refused request counts as a use: %v", got.LastUsedAt)
		}
	})
}

func TestOpenDoesNotDial(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: nil})
	t.Cleanup(func() { _ = rdb.Close() })
	seen := &spy{commands: make(chan string, 10)}
	rdb.AddHook(seen)
	s, err := Open(rdb, Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if len(seen.commands) > 0 {
		t.Errorf("Open sent %s", <-seen.commands)
	}
}
