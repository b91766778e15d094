package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// The form of a token: "fok_", the key's ULID, "_", and 32 random bytes as
// base64url without padding. The prefix lets a scanner find a leaked one; the id in
// it lets the gate find the key without a search by secret.
const (
	tokenPrefix = "fok_"
	keyPrefix   = "key_"
	secretSize  = 32 // bytes: as many as SHA-256 keeps apart
	secretLen   = 43 // characters that they take
	tokenLen    = len(tokenPrefix) + ulid.EncodedSize + 1 + secretLen
)

// hash is the SHA-256 of a token. A slow hash would add nothing: nobody guesses 32
// random bytes.
type hash [sha256.Size]byte

func hashOf(token string) hash { return sha256.Sum256([]byte(token)) }

// is compares in a time that says nothing of where they differ.
func (h hash) is(other hash) bool { return subtle.ConstantTimeCompare(h[:], other[:]) == 1 }

// newKeyID is "key_" and a ULID of that time.
func newKeyID(now time.Time) (string, error) {
	id, err := ulid.New(ulid.Timestamp(now), rand.Reader) // ulid.Make would not use crypto/rand
	if err != nil {
		return "", fmt.Errorf("make a key id: %w", err)
	}
	return keyPrefix + id.String(), nil
}

// newToken makes the token of a key.
func newToken(keyID string) (string, error) {
	secret := make([]byte, secretSize)
	if _, err := rand.Read(secret); err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	return tokenPrefix + strings.TrimPrefix(keyID, keyPrefix) + "_" + base64.RawURLEncoding.EncodeToString(secret), nil
}

// keyIDOf reads the key id out of a token. It takes the one spelling that newToken
// makes: whatever else there is cannot be a token.
func keyIDOf(token string) (string, bool) {
	if len(token) != tokenLen {
		return "", false
	}
	rest, ok := strings.CutPrefix(token, tokenPrefix)
	if !ok || rest[ulid.EncodedSize] != '_' {
		return "", false
	}
	id, err := ulid.ParseStrict(rest[:ulid.EncodedSize])
	if err != nil || id.String() != rest[:ulid.EncodedSize] {
		return "", false
	}
	secret := rest[ulid.EncodedSize+1:]
	// The decoder skips line breaks; 43 characters of the alphabet are 32 bytes.
	if b, err := base64.RawURLEncoding.Strict().DecodeString(secret); err != nil || len(b) != secretSize {
		return "", false
	}
	return keyPrefix + id.String(), true
}
