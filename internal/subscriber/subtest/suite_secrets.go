package subtest

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/seal"
	"github.com/fanout/fanout/internal/subscriber"
)

// Key is the text of a key for tests, by its id: a secret to nobody.
func Key(id string) string {
	return id + ":" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(id[len(id)-1:]), 32))
}

// Keyring is the keys of these ids; the first seals.
func Keyring(t testing.TB, ids ...string) *seal.Keyring {
	t.Helper()
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = Key(id)
	}
	return must(seal.Parse(strings.Join(keys, ",")))(t)
}

// sealing is a store over the same backend with these keys.
func (b bundle) sealing(t testing.TB, ids ...string) *subscriber.Store {
	t.Helper()
	return subscriber.New(b.Backend, AnyURL{}, nil, b.Now, subscriber.WithKeyring(Keyring(t, ids...)))
}

func testRotate(t *testing.T, b bundle) {
	s := b.create(t, subscriber.Draft{})
	next := must(b.store.RotateSecret(b.ctx, s.ID, subscriber.Rotation{Overlap: time.Hour}))(t)
	if len(next.Secrets) != 2 || next.Secrets[1].Value != s.Secrets[0].Value || next.Secrets[0].Value == s.Secrets[0].Value {
		t.Fatalf("rotated into %v", next.Secrets)
	}
	if first, old := next.Secrets[0], next.Secrets[1]; !first.ExpiresAt.IsZero() || old.ExpiresAt != first.CreatedAt.Add(time.Hour) || first.ID == old.ID {
		t.Errorf("new %q until %s, old %q until %s", first.ID, first.ExpiresAt, old.ID, old.ExpiresAt)
	}
	if next.Version <= s.Version || next.URL != s.URL {
		t.Errorf("version %d after %d", next.Version, s.Version)
	}
	if got := must(b.store.Get(b.ctx, s.ID))(t); !reflect.DeepEqual(got, next) {
		t.Error("read back another subscriber")
	}
	_, err := b.store.RotateSecret(b.ctx, "sub_nobody", subscriber.Rotation{})
	wantErr(t, "rotate nobody", err, subscriber.ErrNotFound)
}

// testConcurrentRotations: each one's secret is there in the end, and no more than
// may be.
func testConcurrentRotations(t *testing.T, b bundle) {
	s := b.create(t, subscriber.Draft{})
	inParallel(subscriber.MaxSecrets-1, func(int) {
		if _, err := b.store.RotateSecret(b.ctx, s.ID, subscriber.Rotation{Overlap: time.Hour}); err != nil {
			t.Error(err)
		}
	})
	if got := must(b.store.Get(b.ctx, s.ID))(t); len(got.Secrets) != subscriber.MaxSecrets {
		t.Errorf("%d secrets", len(got.Secrets))
	}
	_, err := b.store.RotateSecret(b.ctx, s.ID, subscriber.Rotation{Overlap: time.Hour})
	wantErr(t, "one too many", err, subscriber.ErrTooManySecrets)
}

func testHeaders(t *testing.T, b bundle) {
	s := b.create(t, subscriber.Draft{Headers: map[string]*string{"X-Token": new("one"), "X-Tenant": new("acme")}})
	next := must(b.store.Patch(b.ctx, s.ID, -1, subscriber.Draft{Headers: map[string]*string{"x-token": new("two"), "X-Tenant": nil}}))(t)
	want := subscriber.Headers{"x-token": "two"}
	if got := must(b.store.Get(b.ctx, s.ID))(t); !reflect.DeepEqual(next.Headers, want) || !reflect.DeepEqual(got, next) {
		t.Errorf("patched into %v, read %v", next.Headers, got.Headers)
	}
	none := must(b.store.Patch(b.ctx, s.ID, -1, subscriber.Draft{Headers: map[string]*string{"X-TOKEN": nil}}))(t)
	if got := must(b.store.Get(b.ctx, s.ID))(t); !reflect.DeepEqual(got, none) || got.Headers != nil {
		t.Errorf("left %v", got.Headers)
	}
}

func testFilteredList(t *testing.T, b bundle) {
	var want []string
	for i := range 40 {
		account, class := fmt.Sprint("acc", i%3), []string{"standard", "bulk"}[i%2]
		s := b.create(t, subscriber.Draft{Account: &account, Class: &class})
		if i%3 == 1 && i%2 == 1 {
			want = append(want, s.ID)
		}
	}
	slices.Sort(want) // those made within one millisecond are in no order
	dir := subscriber.NewDirectory(b.Backend)
	for name, store := range map[string]*subscriber.Store{
		"from Redis": b.store, "from memory": subscriber.New(b.Backend, AnyURL{}, nil, b.Now, subscriber.WithDirectory(dir)),
	} {
		var got []string
		for after := ""; ; {
			page := must(store.List(b.ctx, subscriber.ListFilter{Account: "acc1", Class: "bulk"}, after, 3))(t)
			for _, s := range page {
				got = append(got, s.ID)
			}
			if len(page) < 3 {
				break
			}
			after = got[len(got)-1]
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: listed\n%v\nwant\n%v", name, got, want)
		}
		for f, n := range map[subscriber.ListFilter]int{{Account: "acc0"}: 14, {Class: "bulk"}: 20, {}: 40, {Account: "nobody"}: 0} {
			if got := must(store.List(b.ctx, f, "", 100))(t); len(got) != n {
				t.Errorf("%s: %d of %+v, want %d", name, len(got), f, n)
			}
		}
		// What was made before the call is seen by it.
		s := b.create(t, subscriber.Draft{Account: new(strings.ReplaceAll(name, " ", "-"))})
		if got := must(store.List(b.ctx, subscriber.ListFilter{Account: s.Account}, "", 9))(t); len(got) != 1 || got[0].ID != s.ID {
			t.Errorf("%s: a new one is not listed", name)
		}
		must(store.Delete(b.ctx, s.ID, true))(t)
	}
}

// confidentials are what a copy of Redis must not show of the subscriber that
// secretive makes.
var confidentials = []string{"hunter2", "whsec_", "tok3n", "s3cret"}

func secretive(t *testing.T, b bundle, store *subscriber.Store) subscriber.Subscriber {
	t.Helper()
	return must(store.Create(b.ctx, subscriber.Draft{
		URL: new("https://example.com/h?token=hunter2"), Headers: map[string]*string{"Authorization": new("Bearer tok3n")},
		Filter: &subscriber.Filter{Types: []string{"shipment.*"}},
	}))(t)
}

func (b bundle) shows(t *testing.T, id string) bool {
	t.Helper()
	c := must(b.Backend.Config(b.ctx, id))(t)
	for _, word := range confidentials {
		if bytes.Contains(c.Blob, []byte(word)) {
			return true
		}
	}
	return false
}

func testSealed(t *testing.T, b bundle) {
	bare := secretive(t, b, b.store)
	store := b.sealing(t, "k1")
	sealed := secretive(t, b, store)
	if !b.shows(t, bare.ID) || b.shows(t, sealed.ID) {
		t.Error("what is in the clear and what is sealed is not as it was asked for")
	}
	for _, s := range []subscriber.Subscriber{bare, sealed} {
		if got := must(store.Get(b.ctx, s.ID))(t); !reflect.DeepEqual(got, s) {
			t.Errorf("read back another subscriber than %s", s)
		}
	}
	if got := must(b.store.Get(b.ctx, bare.ID))(t); !reflect.DeepEqual(got, bare) {
		t.Error("what is in the clear cannot be read without a key")
	}
	for name, without := range map[string]*subscriber.Store{"no keyring": b.store, "another key": b.sealing(t, "k2")} {
		_, err := without.Get(b.ctx, sealed.ID)
		wantErr(t, name, err, subscriber.ErrUnreadable)
		wantErr(t, name, err, seal.ErrUnknownKey)
		for _, say := range []string{`"k1"`, "FANOUT_SECRETS_KEY", "--secrets-key-file", sealed.ID} {
			if err != nil && !strings.Contains(err.Error(), say) {
				t.Errorf("%s: %v does not say %s", name, err, say)
			}
		}
		_, err = without.Patch(b.ctx, sealed.ID, -1, subscriber.Draft{Name: new("x")})
		wantErr(t, name+": patch", err, subscriber.ErrUnreadable)
		_, err = without.List(b.ctx, subscriber.ListFilter{}, "", 10)
		wantErr(t, name+": list", err, subscriber.ErrUnreadable)
	}

	// Without the key its events still find it, and its deliveries wait.
	d := subscriber.NewDirectory(b.Backend)
	if err := d.Refresh(b.ctx); err != nil {
		t.Fatal(err)
	}
	if got := d.Match(delivery.Event{Type: "shipment.delivered"}); len(got) != 2 {
		t.Errorf("matched %v", got)
	}
	for range 2 { // read, and remembered
		got, err := d.At(b.ctx, sealed.ID, sealed.Version)
		wantErr(t, "at", err, subscriber.ErrUnreadable)
		if got == nil || got.URL != "" || got.Secrets != nil || !reflect.DeepEqual(got.Policy, sealed.Policy) {
			t.Errorf("without its key it is %v", got)
		}
	}
	if got := must(subscriber.NewDirectory(b.Backend, subscriber.WithKeyring(Keyring(t, "k1"))).At(b.ctx, sealed.ID, 0))(t); got.URL != sealed.URL {
		t.Error("not opened with its key")
	}
	// It can be ended without the key.
	must(b.store.Delete(b.ctx, sealed.ID, true))(t)
	_, err := d.At(b.ctx, sealed.ID, sealed.Version+1)
	wantErr(t, "at the end", err, subscriber.ErrGone)
}

func testReseal(t *testing.T, b bundle) {
	subs := []subscriber.Subscriber{secretive(t, b, b.store), secretive(t, b, b.sealing(t, "k1")), secretive(t, b, b.sealing(t, "k2"))}
	d := subscriber.NewDirectory(b.Backend, subscriber.WithKeyring(Keyring(t, "k2")))
	_, err := d.At(b.ctx, subs[1].ID, subs[1].Version)
	wantErr(t, "at, before", err, subscriber.ErrUnreadable)
	store := b.sealing(t, "k2", "k1")
	pages := 0
	got := must(store.Reseal(b.ctx, func(subscriber.ResealResult) { pages++ }))(t)
	if got != (subscriber.ResealResult{Sealed: 2, Already: 1}) || pages == 0 {
		t.Errorf("resealed %+v in %d pages", got, pages)
	}
	again := must(store.Reseal(b.ctx, nil))(t)
	if again != (subscriber.ResealResult{Already: 3}) {
		t.Errorf("a second time: %+v", again)
	}
	for range 2 { // read, and remembered
		if got := must(d.At(b.ctx, subs[1].ID, subs[1].Version+1))(t); got.URL != subs[1].URL {
			t.Error("resealed, and still not opened")
		}
	}
	only := b.sealing(t, "k2")
	for _, s := range subs {
		now := must(only.Get(b.ctx, s.ID))(t)
		s.Version, now.Version = 0, 0
		if !reflect.DeepEqual(now, s) {
			t.Errorf("%s was changed", s.ID)
		}
	}
	lost := secretive(t, b, b.sealing(t, "k3"))
	got, err = only.Reseal(b.ctx, nil)
	if !errors.Is(err, subscriber.ErrUnreadable) || got != (subscriber.ResealResult{Already: 3, Unreadable: 1}) || !strings.Contains(err.Error(), lost.ID) {
		t.Errorf("with one that cannot be opened: %+v, %v", got, err)
	}
	_, err = b.store.Reseal(b.ctx, nil)
	wantErr(t, "without a key", err, subscriber.ErrNoKeyring)
}
