// Package seal answers: who can read this at rest?
//
// A Keyring seals small secrets with AES-256-GCM before they are stored, so that
// a copy of the store (a backup, a replica, an append-only file) gives none of
// them away. The first key seals, every key opens: so a key is replaced by
// putting the new one first, sealing everything again, and dropping the old one.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// What Open returns. Neither quotes what was to be opened.
var (
	// ErrUnknownKey: sealed under a key that the keyring has not. It is wrapped with
	// the key's id, which is no secret.
	ErrUnknownKey = errors.New("is not in the keyring")
	// ErrDamaged: not what Seal gave, or not for this owner.
	ErrDamaged = errors.New("sealed text is damaged")
)

// version begins every sealed text, so that another form can follow.
const version = "v1"

// encoding is strict and unpadded: of each sealed text there is one spelling.
var encoding = base64.RawURLEncoding.Strict()

// Seal seals a text for its owner (aad): it opens for the same owner alone, so
// that nobody who can write to the store moves one owner's secrets to another. It
// gives "v1.<key id>.<base64url of nonce and ciphertext>", anew each time.
//
// The nonce is random, so one key may seal 2^32 texts (NIST SP 800-38D, 8.3).
func (r *Keyring) Seal(plain, aad []byte) (string, error) {
	if r == nil || len(r.keys) == 0 {
		return "", errors.New("seal: there is no key")
	}
	k := r.keys[0]
	box := k.aead.Seal(nil, nil, plain, aad) //nolint:gosec // the cipher makes the nonce
	return version + "." + k.id + "." + encoding.EncodeToString(box), nil
}

// Open gives the text back. It returns ErrUnknownKey, or ErrDamaged for whatever
// does not come from Seal with the same owner. A nil Keyring knows no key.
func (r *Keyring) Open(sealed string, aad []byte) ([]byte, error) {
	id, text, err := split(sealed)
	if err != nil {
		return nil, err
	}
	k := r.find(id)
	if k == nil {
		return nil, fmt.Errorf("key %q %w", id, ErrUnknownKey)
	}
	// The decoder skips line breaks, even a strict one.
	raw, err := encoding.DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") {
		return nil, ErrDamaged
	}
	plain, err := k.aead.Open(nil, nil, raw, aad)
	if err != nil {
		return nil, fmt.Errorf("%w, or was sealed for another owner or under another key %q", ErrDamaged, id)
	}
	return plain, nil
}

// KeyID says under which key a text is sealed. It returns ErrDamaged.
func KeyID(sealed string) (string, error) {
	id, _, err := split(sealed)
	return id, err
}

func split(sealed string) (id, text string, err error) {
	parts := strings.Split(sealed, ".")
	if len(parts) != 3 || parts[0] != version || !validID(parts[1]) {
		return "", "", ErrDamaged
	}
	return parts[1], parts[2], nil
}

// newKey makes the cipher. It keeps no key but in the cipher's own state.
func newKey(id string, raw []byte) (key, error) {
	block, err := aes.NewCipher(raw)
	if err != nil {
		return key{}, fmt.Errorf("key %q: %w", id, err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return key{}, fmt.Errorf("key %q: %w", id, err)
	}
	return key{id: id, aead: aead}, nil
}
