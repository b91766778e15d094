package access

import (
	"encoding/base64"
	"regexp"
	"strings"
	"testing"
)

const goodToken = "fok_01KJN5J6G0ABCDEFGHJKMNPQRS_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

func TestTokenHasItsForm(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^fok_[0-9A-HJKMNP-TV-Z]{26}_[A-Za-z0-9_-]{43}$`)
	seen := map[string]bool{}
	for range 1000 {
		id, err := newKeyID(newClock().now())
		if err != nil {
			t.Fatal(err)
		}
		token, err := newToken(id)
		if err != nil || !form.MatchString(token) || seen[token] {
			t.Fatalf("a token %q, %v: not of its form, or not new", token, err)
		}
		seen[token] = true
		if got, ok := keyIDOf(token); !ok || got != id {
			t.Fatalf("the token of %s reads as that of %q, %v", id, got, ok)
		}
	}
}

func TestOtherSpellingsAreNoToken(t *testing.T) {
	t.Parallel()
	if _, ok := keyIDOf(goodToken); !ok {
		t.Fatal("the model itself is refused")
	}
	for name, token := range map[string]string{
		"empty": "", "prefix alone": "fok_", "other prefix": "fog" + goodToken[3:],
		"short": goodToken[:len(goodToken)-1], "long": goodToken + "A", "blank before": " " + goodToken[:len(goodToken)-1],
		"lower case id":           "fok_" + strings.ToLower(goodToken[4:30]) + goodToken[30:],
		"id past the last time":   "fok_8" + goodToken[5:],
		"letter that is no digit": goodToken[:10] + "I" + goodToken[11:],
		"bits beyond 32 bytes":    goodToken[:len(goodToken)-1] + "B",
		"line break":              goodToken[:len(goodToken)-1] + "\n",
		"standard base64":         goodToken[:40] + "+" + goodToken[41:],
		"padding":                 goodToken[:len(goodToken)-1] + "=",
		"no second underscore":    goodToken[:30] + "-" + goodToken[31:],
	} {
		if id, ok := keyIDOf(token); ok {
			t.Errorf("%s: read as the token of %s", name, id)
		}
	}
}

// Whatever is read as a token is spelled as newToken would spell it: no two texts
// are the same token.
func FuzzToken(f *testing.F) {
	f.Add(goodToken)
	f.Add(goodToken + "=")
	f.Add("fok_" + strings.Repeat("0", 26) + "_" + strings.Repeat("-", 42) + "8")
	f.Add(strings.Repeat("é", 37))
	f.Fuzz(func(t *testing.T, token string) {
		id, ok := keyIDOf(token)
		if !ok {
			if id != "" {
				t.Fatalf("refused, and yet an id %q", id)
			}
			return
		}
		secret, err := base64.RawURLEncoding.DecodeString(token[len(token)-secretLen:])
		if err != nil {
			t.Fatalf("taken, and its secret is no base64: %v", err)
		}
		again := tokenPrefix + strings.TrimPrefix(id, keyPrefix) + "_" + base64.RawURLEncoding.EncodeToString(secret)
		if again != token || len(secret) != secretSize {
			t.Fatalf("%q is taken, but it would be spelled %q", token, again)
		}
	})
}
