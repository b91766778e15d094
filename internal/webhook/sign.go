package webhook

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fanout/fanout/internal/subscriber"
)

// The headers of the Standard Webhooks specification ("Webhook headers").
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

// Tolerance is how far a timestamp may lie from a receiver's clock, either way:
// what the specification's libraries use.
const Tolerance = 5 * time.Minute

const publicPrefix = "whpk_" // of an Ed25519 public key

// What Sign and Verify return, wrapped with the reason.
var (
	// ErrUnsigned: no active secret, or one that cannot sign.
	ErrUnsigned = errors.New("cannot sign")
	// ErrBadSignature: headers are missing, or no signature is by that key.
	ErrBadSignature = errors.New("bad signature")
	// ErrTimestamp: the timestamp is more than Tolerance away.
	ErrTimestamp = errors.New("timestamp outside the tolerance")
)

// Sign gives the value of webhook-signature: one signature for each secret that
// is active at the given time, separated by spaces, "v1" (HMAC-SHA256) or "v1a"
// (Ed25519) by the kind of secret. What is signed is `id.seconds.body`. It
// returns ErrUnsigned if there is nothing to sign with, or if any active secret
// is broken: leaving one out would fail at some receiver, in silence.
func Sign(secrets []subscriber.Secret, id string, at time.Time, body []byte) (string, error) {
	return sign(newSigner, secrets, id, at, body)
}

// sign is Sign with signers from wherever the caller keeps them.
func sign(
	signerOf func(secret string) (*signer, error), secrets []subscriber.Secret, id string, at time.Time, body []byte,
) (string, error) {
	if id == "" {
		return "", fmt.Errorf("%w: no webhook-id", ErrUnsigned)
	}
	out := make([]byte, 0, 128)
	for _, s := range secrets {
		if !s.Active(at) {
			continue
		}
		if len(out) > 0 {
			out = append(out, ' ')
		}
		key, err := signerOf(s.Value)
		if err != nil {
			return "", fmt.Errorf("%w: %w", ErrUnsigned, err)
		}
		out = key.append(out, id, at.Unix(), body)
	}
	if len(out) == 0 {
		return "", fmt.Errorf("%w: the subscriber has no active secret", ErrUnsigned)
	}
	return string(out), nil
}

// signer is a secret that has been decoded, and HMACs that have taken it in. Made anew
// for every signature that is 10 allocations and 4.7 us; kept, it is one and 0.6 us.
type signer struct {
	private ed25519.PrivateKey // nil for a symmetric secret
	macs    sync.Pool          // of *keyed
}

// keyed is an HMAC that has taken its key in, and room to work in. It serves one
// signature at a time.
type keyed struct {
	hash hash.Hash
	used bool
	room []byte
}

func newSigner(secret string) (*signer, error) {
	key, private, err := subscriber.Secret{Value: secret}.Keys()
	if err != nil {
		return nil, err //nolint:wrapcheck // sign wraps it
	}
	s := &signer{private: private}
	s.macs.New = func() any { return &keyed{hash: hmac.New(sha256.New, key)} }
	return s, nil
}

// append appends one signature.
func (s *signer) append(out []byte, id string, seconds int64, body []byte) []byte {
	if s.private != nil {
		out = append(out, "v1a,"...)
		return base64.StdEncoding.AppendEncode(out, ed25519.Sign(s.private, append(preamble(id, seconds, len(body)), body...)))
	}
	k, _ := s.macs.Get().(*keyed)
	defer s.macs.Put(k)
	out = append(out, "v1,"...)
	return base64.StdEncoding.AppendEncode(out, k.mac(id, seconds, body))
}

// mac streams the signed content, so that a large body is not copied. What it returns
// holds until the next one.
func (k *keyed) mac(id string, seconds int64, body []byte) []byte {
	if k.used { // the first Reset keeps a copy of the keyed state, worth it for a second
		k.hash.Reset()
	}
	k.used = true
	k.room = appendPreamble(k.room[:0], id, seconds)
	k.hash.Write(k.room)
	k.hash.Write(body)
	k.room = k.hash.Sum(k.room[:0])
	return k.room
}

// mac is that of a key which is used once.
func mac(key []byte, id string, seconds int64, body []byte) []byte {
	return (&keyed{hash: hmac.New(sha256.New, key)}).mac(id, seconds, body)
}

// preamble is what precedes the body in the signed content, with room after it.
func preamble(id string, seconds int64, room int) []byte {
	return appendPreamble(make([]byte, 0, len(id)+22+room), id, seconds) // 22: two dots and the longest int64
}

func appendPreamble(b []byte, id string, seconds int64) []byte {
	b = append(b, id...)
	b = append(b, '.')
	b = strconv.AppendInt(b, seconds, 10)
	return append(b, '.')
}

// Verify is the receiver's side: nil if any signature in the headers is by the
// key ("whsec_", or the "whpk_" of a "whsk_") and the timestamp is within
// Tolerance of now. It returns ErrBadSignature, ErrTimestamp, or
// subscriber.ErrBadSecret for the key.
func Verify(key string, h http.Header, body []byte, now time.Time) error {
	id, stamp, signatures := h.Get(HeaderID), h.Get(HeaderTimestamp), h.Get(HeaderSignature)
	if id == "" || stamp == "" || signatures == "" {
		return fmt.Errorf("%w: a webhook header is missing", ErrBadSignature)
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: %s is not a number of seconds", ErrBadSignature, HeaderTimestamp)
	}
	version, matches, err := verifier(key, id, seconds, body)
	if err != nil {
		return err
	}
	for one := range strings.SplitSeq(signatures, " ") {
		v, text, _ := strings.Cut(one, ",")
		if v != version {
			continue
		}
		sig, err := base64.StdEncoding.DecodeString(text)
		if err != nil || !matches(sig) {
			continue
		}
		// Only now: an unsigned timestamp says nothing.
		if off := now.Sub(time.Unix(seconds, 0)); off > Tolerance || off < -Tolerance {
			return fmt.Errorf("%w: %s off", ErrTimestamp, off.Round(time.Second))
		}
		return nil
	}
	return fmt.Errorf("%w: none of the signatures is by this key over this body", ErrBadSignature)
}

// verifier picks the scheme by the key: its version, and a check in constant time.
func verifier(key, id string, seconds int64, body []byte) (string, func([]byte) bool, error) {
	if text, ok := strings.CutPrefix(key, publicPrefix); ok {
		public, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(public) != ed25519.PublicKeySize {
			return "", nil, fmt.Errorf("%w: %s must be the base64 of %d bytes",
				subscriber.ErrBadSecret, publicPrefix, ed25519.PublicKeySize)
		}
		return "v1a", func(sig []byte) bool {
			return ed25519.Verify(public, append(preamble(id, seconds, len(body)), body...), sig)
		}, nil
	}
	secret, private, err := subscriber.Secret{Value: key}.Keys()
	if err != nil {
		return "", nil, fmt.Errorf("verify: %w", err)
	}
	if private != nil {
		return "", nil, fmt.Errorf("%w: a receiver verifies with the public %s key",
			subscriber.ErrBadSecret, publicPrefix)
	}
	return "v1", func(sig []byte) bool { return hmac.Equal(sig, mac(secret, id, seconds, body)) }, nil
}
