package seal

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// keyText is the base64 of a key of one byte repeated: a secret to nobody.
func keyText(b byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, keySize))
}

func parse(t testing.TB, text string) *Keyring {
	t.Helper()
	r, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSealAndOpen(t *testing.T) {
	t.Parallel()
	r := parse(t, "new:"+keyText(1)+",old:"+keyText(2))
	for _, plain := range []string{"", "a", strings.Repeat("secret", 10_000)} {
		sealed, err := r.Seal([]byte(plain), []byte("sub_1"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(sealed, "v1.new.") || strings.Contains(sealed, "secret") {
			t.Errorf("sealed as %.40q", sealed)
		}
		if id, err := KeyID(sealed); id != "new" || err != nil {
			t.Errorf("key id %q, %v", id, err)
		}
		got, err := r.Open(sealed, []byte("sub_1"))
		if err != nil || string(got) != plain {
			t.Errorf("opened %.20q, %v", got, err)
		}
		again, err := r.Seal([]byte(plain), []byte("sub_1"))
		if err != nil || again == sealed {
			t.Errorf("sealed alike twice, %v", err)
		}
		if _, err := r.Open(sealed, []byte("sub_2")); !errors.Is(err, ErrDamaged) {
			t.Errorf("opened for another owner: %v", err)
		}
	}
}

// TestRotation: the new key first, everything sealed again, the old one dropped.
func TestRotation(t *testing.T) {
	t.Parallel()
	before := parse(t, "old:"+keyText(2))
	both := parse(t, "new:"+keyText(1)+",old:"+keyText(2))
	after := parse(t, "new:"+keyText(1))
	sealed, err := before.Seal([]byte("x"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := both.Open(sealed, nil); err != nil || string(got) != "x" {
		t.Errorf("with both: %q, %v", got, err)
	}
	_, err = after.Open(sealed, nil)
	if !errors.Is(err, ErrUnknownKey) || !strings.Contains(err.Error(), `"old"`) {
		t.Errorf("without its key: %v", err)
	}
	// Another key of the same id is not taken for it.
	if _, err := parse(t, "old:"+keyText(3)).Open(sealed, nil); !errors.Is(err, ErrDamaged) {
		t.Errorf("under another key: %v", err)
	}
	var none *Keyring
	if _, err := none.Open(sealed, nil); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("without a keyring: %v", err)
	}
	if _, err := none.Seal(nil, nil); err == nil || none.ID() != "" {
		t.Error("sealed without a key")
	}
}

// TestEveryChangeIsSeen: of a sealed text no byte can be changed, added or left out.
func TestEveryChangeIsSeen(t *testing.T) {
	t.Parallel()
	r := parse(t, "k:"+keyText(1))
	sealed, err := r.Seal([]byte("to be kept"), []byte("sub_1"))
	if err != nil {
		t.Fatal(err)
	}
	refused := func(text string) {
		t.Helper()
		if got, err := r.Open(text, []byte("sub_1")); err == nil {
			t.Errorf("%q opens as %q", text, got)
		} else if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrUnknownKey) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for i := range len(sealed) {
		refused(sealed[:i])
		refused(sealed[:i] + sealed[i+1:])
		refused(sealed[:i] + string(sealed[i]^1) + sealed[i+1:])
		for _, odd := range []string{"\n", "\r", " ", "=", ".", "A"} {
			refused(sealed[:i] + odd + sealed[i:])
		}
	}
	for _, odd := range []string{"\n", "=", "A", "."} {
		refused(sealed + odd)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	good := keyText(0xfb) // has + and / in it
	for text, ids := range map[string]string{
		"k1:" + good: "k1",
		" k1:" + good + " ,\n k2:" + keyText(2) + "\n":                   "k1, k2",
		"k1:" + strings.TrimRight(good, "="):                             "k1",
		"k_-9:" + strings.NewReplacer("+", "-", "/", "_").Replace(good):  "k_-9",
		"a:" + good + "\r\nb:" + keyText(2) + "\r\n":                     "a, b",
		strings.Repeat("a", maxID) + ":" + good:                          strings.Repeat("a", maxID),
		"k1:" + base64.RawURLEncoding.EncodeToString(make([]byte, 32)):   "k1",
		"k1:" + good + "," + "k2:" + keyText(2) + ",,k3:" + keyText(3):   "k1, k2, k3",
		"2026-12:" + base64.StdEncoding.EncodeToString(make([]byte, 32)): "2026-12",
	} {
		r, err := Parse(text)
		if err != nil || r.String() != "keyring ("+ids+")" {
			t.Errorf("%q: %v, %v", text, r, err)
		}
	}
	many := make([]string, maxKeys+1)
	for i := range many {
		many[i] = fmt.Sprintf("k%d:%s", i, keyText(byte(i)))
	}
	for what, text := range map[string]string{
		"empty": "", "blank": " \n,", "no id": good, "empty id": ":" + good, "upper case": "K:" + good, "dot": "a.b:" + good,
		"long id": strings.Repeat("a", maxID+1) + ":" + good, "short key": "k:" + base64.StdEncoding.EncodeToString(make([]byte, 31)),
		"long key": "k:" + base64.StdEncoding.EncodeToString(make([]byte, 33)), "no base64": "k:hunter2hunter2", "no key": "k:",
		"twice an id": "k:" + good + ",k:" + keyText(2), "twice a key": "a:" + good + ",b:" + good, "too many": strings.Join(many, ","),
		"turned round": good + ":k",
	} {
		r, err := Parse(text)
		if r != nil || !errors.Is(err, ErrKeyring) {
			t.Errorf("%s: %v, %v", what, r, err)
			continue
		}
		for _, secret := range []string{good, strings.TrimRight(good, "="), "hunter2", keyText(2), base64.StdEncoding.EncodeToString(make([]byte, 31))[:20]} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the error shows a key: %v", what, err)
			}
		}
	}
}

// TestNoKeyPrints, under any verb, by value or nested, in slog and in JSON.
func TestNoKeyPrints(t *testing.T) {
	t.Parallel()
	raw := bytes.Repeat([]byte{0xab}, keySize)
	r := parse(t, "k1:"+base64.StdEncoding.EncodeToString(raw))
	type nest struct {
		R *Keyring
		r *Keyring
	}
	var out strings.Builder
	for _, v := range []any{r, nest{r, r}, &nest{r, r}, []*Keyring{r}, map[string]*Keyring{"a": r}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(b)
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", "v", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "v", v)
	}
	if !strings.Contains(out.String(), "keyring (k1)") {
		t.Error("its ids do not show")
	}
	for _, form := range []string{"abababab", "ABABABAB", "171 171 171", "q6urq6ur", "0xab, 0xab"} {
		if strings.Contains(out.String(), form) {
			t.Errorf("%q shows in %s", form, out.String())
		}
	}
}

// FuzzOpen: nothing makes it panic, and nothing opens but what was sealed, in its
// one spelling.
func FuzzOpen(f *testing.F) {
	r := parse(f, "k1:"+keyText(1)+",k2:"+keyText(2))
	const sealed = "v1.k1.o2wjb1mt-8EAtEbYt4OZ7q01VbliVRLw-vU95GCv7AlA" // by Seal, once: workers must agree on it
	for _, text := range []string{sealed, sealed + "\n", sealed[:len(sealed)-1], "v1.k2." + sealed[6:], "v1.k1.", "v1..", "", "v2.k1.AAAA", "....."} {
		f.Add(text, "owner")
	}
	f.Add(sealed, "other")
	f.Fuzz(func(t *testing.T, text, owner string) {
		plain, err := r.Open(text, []byte(owner))
		if err == nil && (text != sealed || owner != "owner" || string(plain) != "plain") {
			t.Fatalf("%q of %q opens as %q", text, owner, plain)
		}
		if err != nil && text == sealed && owner == "owner" {
			t.Fatal(err)
		}
		if err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrUnknownKey) {
			t.Fatalf("%q: %v is neither", text, err)
		}
	})
}
