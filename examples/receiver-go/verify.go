package main

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// verifier refuses what the secret's owner did not sign, and what was not signed now.
type verifier interface {
	Verify(body []byte, h http.Header) error
}

// newVerifier takes the subscriber's secret, or the public key of a whsk_ one.
func newVerifier(secret string) (verifier, error) {
	if text, is := strings.CutPrefix(secret, "whpk_"); is {
		key, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(key) != ed25519.PublicKeySize {
			return nil, errors.New("not the base64 of 32 bytes")
		}
		return publicKey(key), nil
	}
	if !strings.HasPrefix(secret, "whsec_") { // above all not a whsk_: it signs, and is no receiver's
		return nil, errors.New("neither whsec_ nor whpk_")
	}
	return standardwebhooks.NewWebhook(secret)
}

// publicKey verifies v1a, which the library does not know: Ed25519 over the same text.
type publicKey ed25519.PublicKey

// tolerance is how far the sender's clock may be off; the library has the same.
const tolerance = 5 * time.Minute

func (key publicKey) Verify(body []byte, h http.Header) error {
	id, stamp := h.Get("webhook-id"), h.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || time.Since(time.Unix(seconds, 0)).Abs() > tolerance {
		return errors.New("its timestamp is not of now")
	}
	signed := append([]byte(id+"."+stamp+"."), body...)
	for _, one := range strings.Fields(h.Get("webhook-signature")) {
		text, is := strings.CutPrefix(one, "v1a,")
		signature, err := base64.StdEncoding.DecodeString(text)
		if is && err == nil && ed25519.Verify(ed25519.PublicKey(key), signed, signature) {
			return nil
		}
	}
	return errors.New("no signature is by this key")
}
