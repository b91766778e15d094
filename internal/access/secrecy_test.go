package access

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/test/redistest"
)

// Who can read Redis can use no key.
func TestNothingSecretIsStored(t *testing.T) {
	each(t, Options{Bootstrap: bootstrap}, func(w *world) {
		var tokens []string
		for range 5 {
			_, token := w.create(NewKey{})
			w.wants(w.Store, token, nil)
			tokens = append(tokens, token)
		}
		w.wants(w.Store, bootstrap, nil)
		w.Gate.used.wait()
		w.ok(w.Audit.Append(w.ctx, Entry{Actor: Bootstrap, Action: "createKey"}))

		var all strings.Builder
		keys, err := redistest.Keys(w.ctx, w.rdb, "*")
		w.ok(err)
		if len(keys) != 4 {
			w.Fatalf("keys are %v, want four (nothing was revoked)", keys)
		}
		for _, key := range keys {
			if !strings.HasPrefix(key, "{fo:access}:") {
				w.Errorf("%s lies elsewhere", key)
			}
			hash, _ := w.rdb.HGetAll(w.ctx, key).Result()
			stream, _ := w.rdb.XRange(w.ctx, key, "-", "+").Result()
			text, _ := w.rdb.Get(w.ctx, key).Result()
			fmt.Fprint(&all, hash, stream, text)
		}
		if !strings.Contains(all.String(), "createKey") || !strings.Contains(all.String(), "sha256") {
			w.Fatal("this looks at nothing")
		}
		bootstrapHash := hashOf(bootstrap)
		for _, secret := range append(tokens, bootstrap, hex.EncodeToString(bootstrapHash[:])) {
			if strings.Contains(all.String(), secret) || strings.Contains(all.String(), secret[len(secret)-secretLen+10:]) {
				w.Errorf("Redis holds %s", secret)
			}
		}
	})
}

func TestNothingSecretIsPrinted(t *testing.T) {
	t.Parallel()
	m := redistest.Mini(t)
	o := Options{Bootstrap: bootstrap, Rate: 5}
	var text bytes.Buffer
	handlers := []slog.Handler{slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}), slog.NewJSONHandler(&text, nil)}
	o.Logger = slog.New(handlers[0])
	w := newWorld(t, redistest.Client(t, m.Addr()), o)
	k, token := w.create(NewKey{})
	id := w.wants(w.Store, token, nil)
	w.wants(w.Store, bootstrap, nil)
	w.Gate.used.wait()

	m.SetError("ERR away")
	w.clk.advance(2 * time.Minute)
	_, away := w.Gate.Authenticate(w.ctx, token)
	_, limited := w.Gate.Authenticate(w.ctx, token)
	_, _, invalid := w.Keys.Create(w.ctx, NewKey{Name: "x\n", Role: Role(token), Account: token}, "")
	_, short := Open(w.rdb, Options{Bootstrap: "hunter2-hunter2-hunter2"})
	_, odd := Open(w.rdb, Options{Bootstrap: "hunter2-hunter2-hunter2 and-much-more-of-it"})
	for _, v := range []any{o, &o, w.Store, *w.Store, w.Gate, w.Keys, w.Audit, k, id, away, limited, invalid, short, odd} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			fmt.Fprintf(&text, verb+"\n", v)
		}
		for _, h := range handlers {
			slog.New(h).InfoContext(context.WithoutCancel(w.ctx), "look", "value", v)
		}
	}
	h, b := hashOf(token), hashOf(bootstrap)
	for name, secret := range map[string]string{
		"the token": token, "its secret": token[len(token)-secretLen:], "its hash": hex.EncodeToString(h[:]),
		"the token in hex":  hex.EncodeToString([]byte(token)),
		"the bootstrap key": bootstrap, "its hash in hex": hex.EncodeToString(b[:]), "it in hex": hex.EncodeToString([]byte(bootstrap)),
		"its hash as numbers": strings.Trim(fmt.Sprint(b), "[]"), "its hash in Go": strings.TrimSuffix(fmt.Sprintf("%#v", b[:8])[7:], "}"),
		"a refused bootstrap key": "hunter2",
	} {
		if i := strings.Index(text.String(), secret); i >= 0 {
			t.Errorf("%s is printed: %s", name, text.String()[max(0, i-200):i+len(secret)])
		}
	}
}

func TestBadOptionsAreRefusedInWords(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t, "127.0.0.1:1")
	for name, c := range map[string]struct {
		o    Options
		want string // "" if it is good
	}{
		"nothing":       {Options{}, ""},
		"32 characters": {Options{Bootstrap: strings.Repeat("a", 32)}, ""},
		"31 characters": {Options{Bootstrap: strings.Repeat("a", 31)}, "31 characters long, must be at least 32"},
		"31 of 2 bytes": {Options{Bootstrap: strings.Repeat("é", 31)}, "31 characters long, must be at least 32"},
		"line break":    {Options{Bootstrap: strings.Repeat("a", 32) + "\n"}, "line breaks"},
		"not ASCII":     {Options{Bootstrap: strings.Repeat("é", 32)}, "printable ASCII"},
		"long":          {Options{Bootstrap: strings.Repeat("a", 513)}, "at most 512"},
		"512 bytes":     {Options{Bootstrap: strings.Repeat("a", 512)}, ""},
		"negative rate": {Options{Rate: -1}, "rate"},
		"huge rate":     {Options{Rate: 1e9}, "rate"},
	} {
		_, err := Open(rdb, c.o)
		if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestIdentityTravelsInTheContext(t *testing.T) {
	t.Parallel()
	if id := From(t.Context()); id != (Identity{}) || id.Role.Valid() {
		t.Errorf("nobody is %+v", id)
	}
	want := Identity{KeyID: "key_1", Role: Viewer}
	if id := From(With(With(t.Context(), Local), want)); id != want {
		t.Errorf("it is %+v, want %+v", id, want)
	}
	for _, r := range Roles() {
		if !r.Valid() {
			t.Errorf("%s is not valid", r)
		}
	}
}
