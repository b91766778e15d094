package subscriber

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"
)

// The prefixes of the Standard Webhooks specification ("Signature scheme"): they
// say how a secret signs, and let a scanner find a leaked one.
const (
	hmacPrefix    = "whsec_" // symmetric, signs v1
	ed25519Prefix = "whsk_"  // asymmetric private key, signs v1a
	ed25519Public = "whpk_"  // what its receiver is given
)

// The specification's bounds of a symmetric secret, in bytes.
const (
	minSecret = 24
	maxSecret = 64
)

// newSecretSize is the size, in bytes, of a secret made here: that of the HMAC
// SHA-256 digest, beyond which a key adds nothing.
const newSecretSize = 32

// ErrBadSecret is returned for a text that no receiver's library would take as a
// signing secret. It never quotes the text.
var ErrBadSecret = errors.New("not a signing secret")

// secretPrefix marks the id of a secret, which is none itself.
const secretPrefix = "sec_"

// Secret is one signing secret of a subscriber. While two are active, as in a
// rotation, every request carries a signature of each.
//
// It prints as its prefix alone under every fmt verb (but %p, which go vet
// refuses for a struct) and in slog. JSON holds it
// whole, which is how it is stored: never marshal one into a log or an answer.
type Secret struct {
	// ID names it where its value must not be shown: "sec_" and a ULID.
	ID string `json:"id,omitempty"`
	// Value is "whsec_" and the base64 of 24 to 64 bytes, or "whsk_" and the
	// base64 of an Ed25519 private key (64 bytes, or its 32-byte seed).
	Value string `json:"value"`
	// CreatedAt is when it was made or given.
	CreatedAt time.Time `json:"created_at"`
	// ExpiresAt is when it stops signing; zero means that it does not.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// NewSecret makes a symmetric secret of 32 random bytes. The caller sets ID and
// CreatedAt.
func NewSecret() (Secret, error) {
	key := make([]byte, newSecretSize)
	if _, err := rand.Read(key); err != nil {
		return Secret{}, fmt.Errorf("make a signing secret: %w", err)
	}
	return Secret{Value: hmacPrefix + base64.StdEncoding.EncodeToString(key)}, nil
}

// ParseSecret checks a secret that a subscriber gave: ErrBadSecret, wrapped with
// what is wrong, or nil.
func ParseSecret(text string) error {
	_, _, err := Secret{Value: text}.Keys()
	return err
}

// Keys decodes the secret: exactly one of the two is set. It returns ErrBadSecret
// for anything that a receiver could read in another way, or not at all.
func (s Secret) Keys() (hmacKey []byte, private ed25519.PrivateKey, err error) {
	if text, ok := strings.CutPrefix(s.Value, hmacPrefix); ok {
		key, err := decodeKey(text)
		if err != nil {
			return nil, nil, err
		}
		if len(key) < minSecret || len(key) > maxSecret {
			return nil, nil, fmt.Errorf("%w: %s must hold %d to %d bytes, holds %d",
				ErrBadSecret, hmacPrefix, minSecret, maxSecret, len(key))
		}
		return key, nil, nil
	}
	if text, ok := strings.CutPrefix(s.Value, ed25519Prefix); ok {
		key, err := decodeKey(text)
		if err != nil {
			return nil, nil, err
		}
		private, err := privateKey(key)
		return nil, private, err
	}
	return nil, nil, fmt.Errorf("%w: must begin with %s or %s", ErrBadSecret, hmacPrefix, ed25519Prefix)
}

// Public is the "whpk_" text that verifies what an Ed25519 secret signs, or ""
// for a symmetric secret. It is not a secret.
func (s Secret) Public() (string, error) {
	_, private, err := s.Keys()
	if err != nil || private == nil {
		return "", err
	}
	public := private[ed25519.SeedSize:] // the layout of RFC 8032 that crypto/ed25519 keeps
	return ed25519Public + base64.StdEncoding.EncodeToString(public), nil
}

// Active says whether the secret signs at the given time.
func (s Secret) Active(now time.Time) bool {
	return s.ExpiresAt.IsZero() || now.Before(s.ExpiresAt)
}

// privateKey takes a seed, or a seed and its public half. A half that does not
// belong to the seed is refused: its signatures would verify nowhere.
func privateKey(key []byte) (ed25519.PrivateKey, error) {
	switch len(key) {
	case ed25519.SeedSize:
		return ed25519.NewKeyFromSeed(key), nil
	case ed25519.PrivateKeySize:
		private := ed25519.NewKeyFromSeed(key[:ed25519.SeedSize])
		if !private.Equal(ed25519.PrivateKey(key)) {
			return nil, fmt.Errorf("%w: the public half of the %s key is not that of its seed",
				ErrBadSecret, ed25519Prefix)
		}
		return private, nil
	}
	return nil, fmt.Errorf("%w: %s must hold %d or %d bytes, holds %d",
		ErrBadSecret, ed25519Prefix, ed25519.PrivateKeySize, ed25519.SeedSize, len(key))
}

// decodeKey reads canonical base64 alone. Go skips line breaks and tolerates stray
// trailing bits where other languages do not, and a secret that two libraries
// read as two keys verifies nowhere.
func decodeKey(text string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || base64.StdEncoding.EncodeToString(key) != text {
		return nil, fmt.Errorf("%w: what follows the prefix must be padded standard base64", ErrBadSecret)
	}
	return key, nil
}

// String is the prefix and nothing that signs.
func (s Secret) String() string {
	for _, prefix := range []string{hmacPrefix, ed25519Prefix} {
		if strings.HasPrefix(s.Value, prefix) {
			return prefix + "[redacted]"
		}
	}
	return "[redacted]"
}

// GoString redacts %#v.
func (s Secret) GoString() string { return s.String() }

// Format redacts every verb. fmt asks a Stringer for some of them only, and %d
// would print the fields.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// LogValue redacts it in slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
