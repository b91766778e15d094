package seal

import (
	"bytes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

const (
	keySize = 32 // bytes: AES-256
	maxKeys = 16 // more are no rotation but a mistake
	maxID   = 32 // bytes
)

// ErrKeyring is returned for a text that is no keyring. It quotes nothing of it
// but ids: what stands in the wrong place may be a key.
var ErrKeyring = errors.New("not a keyring")

// Keyring is the keys that there are. The first seals, all of them open. A nil
// one has none. It never changes, is safe for concurrent use, and prints as its
// ids.
type Keyring struct {
	keys []key
}

type key struct {
	id   string
	aead cipher.AEAD
}

// Parse reads "id:base64,id:base64", as it stands in a setting or a file; there,
// a key may also have a line of its own. An id is 1 to 32 of a-z 0-9 _ -; a key
// is the base64 of exactly 32 bytes, with or without padding, in either alphabet.
// It returns ErrKeyring, wrapped with what is wrong and where.
func Parse(text string) (*Keyring, error) {
	r := new(Keyring)
	var seen [][]byte
	for entry := range strings.FieldsFuncSeq(text, func(c rune) bool { return c == ',' || c == '\n' }) {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		n := len(r.keys) + 1
		id, encoded, found := strings.Cut(entry, ":")
		switch {
		case !found || !validID(id):
			return nil, fmt.Errorf("%w: entry %d must be id:base64, the id 1 to %d of a-z 0-9 _ -", ErrKeyring, n, maxID)
		case r.find(id) != nil:
			return nil, fmt.Errorf("%w: the id %q stands twice", ErrKeyring, id)
		case n > maxKeys:
			return nil, fmt.Errorf("%w: more than %d keys", ErrKeyring, maxKeys)
		}
		raw, ok := decode(encoded)
		if !ok || len(raw) != keySize {
			return nil, fmt.Errorf("%w: the key of %q must be the base64 of exactly %d random bytes (openssl rand -base64 %d)",
				ErrKeyring, id, keySize, keySize)
		}
		for i, other := range seen {
			if bytes.Equal(other, raw) {
				return nil, fmt.Errorf("%w: %q and %q are the same key: make a new one", ErrKeyring, r.keys[i].id, id)
			}
		}
		seen = append(seen, raw)
		k, err := newKey(id, raw)
		if err != nil {
			return nil, err
		}
		r.keys = append(r.keys, k)
	}
	if len(r.keys) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrKeyring)
	}
	return r, nil
}

// decode takes any of base64's common spellings: what openssl, Go and Python
// print is meant alike.
func decode(text string) ([]byte, bool) {
	text = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(text, "="))
	raw, err := base64.RawStdEncoding.Strict().DecodeString(text)
	return raw, err == nil && !strings.ContainsAny(text, "\r\n")
}

func validID(id string) bool {
	return id != "" && len(id) <= maxID && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

// ID is that of the key that seals; "" if there is none.
func (r *Keyring) ID() string {
	if r == nil || len(r.keys) == 0 {
		return ""
	}
	return r.keys[0].id
}

// find gives a key by its id, nil if it is not there.
func (r *Keyring) find(id string) *key {
	if r == nil {
		return nil
	}
	for i := range r.keys {
		if r.keys[i].id == id {
			return &r.keys[i]
		}
	}
	return nil
}

// String names the keys and shows none.
func (r *Keyring) String() string {
	if r.ID() == "" {
		return "keyring (empty)"
	}
	ids := make([]string, len(r.keys))
	for i, k := range r.keys {
		ids[i] = k.id
	}
	return "keyring (" + strings.Join(ids, ", ") + ")"
}

// Format prints the ids under every verb.
func (r *Keyring) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, r.String()) }

// LogValue is the same for slog.
func (r *Keyring) LogValue() slog.Value { return slog.StringValue(r.String()) }

// MarshalText is the same for JSON, which must not hold keys either.
func (r *Keyring) MarshalText() ([]byte, error) { //nolint:revive // the others have the pointer, for the nil one
	return []byte(r.String()), nil
}
