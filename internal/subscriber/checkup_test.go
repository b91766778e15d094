package subscriber_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/subscriber/subtest"
)

// TestCheckup: a process learns by itself that it lacks a key, and that it no
// longer does.
func TestCheckup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := subtest.NewMemory(4)
		var away atomic.Bool
		m.Before = func(context.Context, string) error {
			if away.Load() {
				return schedule.ErrUnavailable
			}
			return nil
		}
		store := func(ids ...string) *subscriber.Store {
			return subscriber.New(m, subtest.AnyURL{}, nil, m.Now, subscriber.WithKeyring(subtest.Keyring(t, ids...)))
		}
		away.Store(true)
		c := subscriber.NewCheckup(m, subscriber.WithKeyring(subtest.Keyring(t, "k1")))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		step := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			time.Sleep(6 * time.Second)
			err := c.Ready(t.Context())
			if (err == nil) != (len(want) == 0) {
				t.Errorf("%s: %v", what, err)
			}
			for _, w := range want {
				if !strings.Contains(fmt.Sprint(err), w) {
					t.Errorf("%s: %v does not say %s", what, err, w)
				}
			}
		}
		step("Redis is away", "not checked yet")
		away.Store(false)
		for range 3 {
			create(t, store("k1"), subscriber.Draft{})
		}
		step("all under its key")
		other := create(t, store("k2"), subscriber.Draft{})
		step("one under another", "1 subscribers", other.ID, `"k2"`, "FANOUT_SECRETS_KEY")
		if err := c.Ready(t.Context()); !errors.Is(err, subscriber.ErrUnreadable) {
			t.Error(err)
		}
		away.Store(true)
		step("and Redis away", "1 subscribers")
		away.Store(false)
		if _, err := store("k1", "k2").Reseal(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		step("resealed under its key")
		gone := create(t, store("k2"), subscriber.Draft{})
		step("another one", gone.ID)
		if _, err := store("k1").Delete(t.Context(), gone.ID, true); err != nil {
			t.Fatal(err)
		}
		step("and deleted")

		// A damaged one is one subscriber's trouble, and no key mends it.
		c1, err := m.Config(t.Context(), other.ID)
		if err != nil {
			t.Fatal(err)
		}
		broken := strings.Replace(string(c1.Blob), `"sealed":"v1.k1.`, `"sealed":"v1.k1.AAAA`, 1)
		if _, err := m.PutConfig(t.Context(), other.ID, c1.Version, []byte(broken), schedule.Terms{}, schedule.Edited); err != nil {
			t.Fatal(err)
		}
		step("damaged")
		if _, err := store("k1").Get(t.Context(), other.ID); !errors.Is(err, subscriber.ErrUnreadable) {
			t.Errorf("damaged: %v", err)
		}
		restore := m.Keep()
		create(t, store("k2"), subscriber.Draft{})
		step("before Redis is set back", "1 subscribers")
		restore()
		step("after")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestReadyWaitsForTheFirstLook: a start is no trouble that somebody is to be told of,
// unless the look takes longer than who asks can wait.
func TestReadyWaitsForTheFirstLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := subtest.NewMemory(4)
		m.Before = func(context.Context, string) error {
			time.Sleep(300 * time.Millisecond)
			return nil
		}
		c := subscriber.NewCheckup(m, subscriber.WithKeyring(subtest.Keyring(t, "k1")))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		impatient, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer end()
		go func() { done <- c.Run(ctx) }()
		if err := c.Ready(impatient); err == nil {
			t.Error("ready before it has looked")
		}
		if err := c.Ready(t.Context()); err != nil {
			t.Errorf("a healthy start: %v", err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestResealAgainstOthers: it undoes nobody's change, and takes a delete for done.
func TestResealAgainstOthers(t *testing.T) {
	t.Parallel()
	m, bare := newStore(t)
	a, b, c := create(t, bare, subscriber.Draft{}), create(t, bare, subscriber.Draft{}), create(t, bare, subscriber.Draft{})
	once := map[string]bool{}
	m.Before = func(ctx context.Context, op string) error {
		if op != "put config" || once[op] {
			return nil
		}
		once[op] = true // at the first write others are quicker
		if _, err := bare.Patch(ctx, a.ID, -1, subscriber.Draft{Name: new("meanwhile")}); err != nil {
			return err
		}
		_, err := bare.Delete(ctx, b.ID, true)
		return err
	}
	sealing := subscriber.New(m, subtest.AnyURL{}, nil, m.Now, subscriber.WithKeyring(subtest.Keyring(t, "k1")))
	got, err := sealing.Reseal(t.Context(), nil)
	if err != nil || got.Sealed != 2 || got.Seen() != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	for id, name := range map[string]string{a.ID: "meanwhile", c.ID: ""} {
		if s, err := sealing.Get(t.Context(), id); err != nil || s.Name != name {
			t.Errorf("%s is %q, %v", id, s.Name, err)
		}
		if _, err := bare.Get(t.Context(), id); !errors.Is(err, subscriber.ErrUnreadable) {
			t.Errorf("%s is not sealed: %v", id, err)
		}
	}
	if _, err := sealing.Get(t.Context(), b.ID); !errors.Is(err, subscriber.ErrNotFound) {
		t.Errorf("deleted: %v", err)
	}
}

// TestResealInterrupted goes on where it was.
func TestResealInterrupted(t *testing.T) {
	t.Parallel()
	m, bare := newStore(t)
	for range 300 {
		create(t, bare, subscriber.Draft{})
	}
	sealing := subscriber.New(m, subtest.AnyURL{}, nil, m.Now, subscriber.WithKeyring(subtest.Keyring(t, "k1")))
	ctx, cancel := context.WithCancel(t.Context())
	first, err := sealing.Reseal(ctx, func(subscriber.ResealResult) { cancel() })
	if !errors.Is(err, context.Canceled) || first.Sealed == 0 || first.Sealed == 300 {
		t.Fatalf("%+v, %v", first, err)
	}
	rest, err := sealing.Reseal(t.Context(), nil)
	if err != nil || rest.Already != first.Sealed || rest.Sealed != 300-first.Sealed {
		t.Errorf("%+v after %+v, %v", rest, first, err)
	}
}
