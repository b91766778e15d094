package subscriber

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// Published with the Standard Webhooks libraries: secrets to nobody.
const (
	vectorHMAC    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorPrivate = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
	vectorPublic  = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
)

func bytesOf(n int) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, n)) }

func TestParseSecret(t *testing.T) {
	t.Parallel()
	mixed := append(bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)...)
	for name, c := range map[string]struct {
		text string
		ok   bool
	}{
		"vector hmac":             {vectorHMAC, true},
		"vector ed25519":          {vectorPrivate, true},
		"23 bytes":                {"whsec_" + bytesOf(23), false},
		"24 bytes":                {"whsec_" + bytesOf(24), true},
		"64 bytes":                {"whsec_" + bytesOf(64), true},
		"65 bytes":                {"whsec_" + bytesOf(65), false},
		"empty":                   {"", false},
		"prefix alone":            {"whsec_", false},
		"no prefix":               {bytesOf(32), false},
		"upper prefix":            {"WHSEC_" + bytesOf(32), false},
		"public key":              {vectorPublic, false},
		"seed":                    {"whsk_" + bytesOf(32), true},
		"33 bytes of ed25519":     {"whsk_" + bytesOf(33), false},
		"halves of two keys":      {"whsk_" + base64.StdEncoding.EncodeToString(mixed), false},
		"url alphabet":            {"whsec_" + strings.Repeat("-_", 16), false},
		"no padding":              {"whsec_" + strings.TrimRight(bytesOf(32), "="), false},
		"line break inside":       {"whsec_" + bytesOf(24)[:8] + "\n" + bytesOf(24)[8:], false},
		"line break at the end":   {vectorHMAC + "\n", false},
		"space before":            {" " + vectorHMAC, false},
		"stray bits in the last":  {"whsec_" + strings.Replace(bytesOf(25), "w==", "x==", 1), false},
		"full-width look-alike":   {"ｗhsec_" + bytesOf(32), false},
		"words instead of base64": {"whsec_correct horse battery staple", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := ParseSecret(c.text)
			if (err == nil) != c.ok {
				t.Fatalf("ParseSecret: %v, want ok %v", err, c.ok)
			}
			if err == nil {
				return
			}
			if !errors.Is(err, ErrBadSecret) {
				t.Errorf("%v is not ErrBadSecret", err)
			}
			if rest := strings.TrimPrefix(c.text, "whsec_"); len(rest) > 8 && strings.Contains(err.Error(), rest) {
				t.Errorf("the error quotes the secret: %v", err)
			}
		})
	}
}

func TestNewSecret(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 100 {
		s, err := NewSecret()
		if err != nil {
			t.Fatal(err)
		}
		key, private, err := s.Keys()
		if err != nil || private != nil || len(key) != 32 {
			t.Fatalf("made %d bytes, private %v, %v", len(key), private != nil, err)
		}
		if seen[s.Value] {
			t.Fatal("made the same secret twice")
		}
		seen[s.Value] = true
	}
}

func TestSecretPublic(t *testing.T) {
	t.Parallel()
	if got, err := (Secret{Value: vectorPrivate}).Public(); err != nil || got != vectorPublic {
		t.Errorf("public of the vector: %q, %v", got, err)
	}
	if got, err := (Secret{Value: vectorHMAC}).Public(); err != nil || got != "" {
		t.Errorf("a symmetric secret has a public half: %q, %v", got, err)
	}
	if _, err := (Secret{Value: "x"}).Public(); !errors.Is(err, ErrBadSecret) {
		t.Errorf("public of nonsense: %v", err)
	}
}

func TestSecretActive(t *testing.T) {
	t.Parallel()
	end := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	s := Secret{Value: vectorHMAC, ExpiresAt: end}
	for at, want := range map[time.Time]bool{end.Add(-time.Millisecond): true, end: false, end.Add(time.Hour): false} {
		if s.Active(at) != want {
			t.Errorf("at %s active is %v", at, !want)
		}
	}
	if !(Secret{Value: vectorHMAC}).Active(end) {
		t.Error("a secret with no end has ended")
	}
}

// TestSecretNeverPrints tries every verb, by value, by pointer and nested, and
// slog in both of its formats.
func TestSecretNeverPrints(t *testing.T) {
	t.Parallel()
	for _, value := range []string{vectorHMAC, vectorPrivate, "topsecretwithoutprefix"} {
		s := Secret{Value: value}
		var out strings.Builder
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x", "%X", "%T", "%t", "%08.3f"} {
			fmt.Fprintf(&out, verb+"\n", s)
			fmt.Fprintf(&out, verb+"\n", &s)
			fmt.Fprintf(&out, verb+"\n", []Secret{s})
			fmt.Fprintf(&out, verb+"\n", struct{ S Secret }{s})
			fmt.Fprintf(&out, verb+"\n", map[string]Secret{"k": s})
		}
		fmt.Fprintln(&out, s, &s)
		for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			slog.New(h).Info("a secret", "secret", s, "pointer", &s)
		}
		tail := strings.TrimPrefix(strings.TrimPrefix(value, "whsec_"), "whsk_")
		hexed := fmt.Sprintf("%x", tail)
		if strings.Contains(out.String(), tail) || strings.Contains(strings.ToLower(out.String()), hexed) {
			t.Errorf("a secret shows in:\n%s", out.String())
		}
	}
}

// TestSecretIsStoredWhole: JSON is the form of storage, and must round trip.
func TestSecretIsStoredWhole(t *testing.T) {
	t.Parallel()
	in := Secret{Value: vectorHMAC, CreatedAt: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out Secret
	if err := json.Unmarshal(b, &out); err != nil || out != in {
		t.Errorf("came back as %+v from %s, %v", out.Value == in.Value, b, err)
	}
}
