package access

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"time"

	"golang.org/x/time/rate"
)

// What callers of Gate.Authenticate branch on, besides *LimitedError.
var (
	// ErrNoToken: the request carries none.
	ErrNoToken = errors.New("no token")
	// ErrBadToken: it is no token, or that of a key that is unknown, expired or
	// revoked. There is one answer for all, so that it says nothing to who guesses.
	ErrBadToken = errors.New("the token is not valid")
	// ErrUnavailable: Redis did not answer, and what is remembered is too old.
	ErrUnavailable = errors.New("the store of keys is unavailable")
)

// LimitedError is returned, as *LimitedError, for a request beyond its key's rate.
type LimitedError struct {
	// RetryAfter is when the next request would be taken, if there is no other; above 0.
	RetryAfter time.Duration
}

func (e *LimitedError) Error() string {
	return fmt.Sprintf("the key is over its rate; try again in %s", e.RetryAfter.Round(time.Millisecond))
}

// maxToken bounds, in bytes, what is hashed for who has no key yet.
const maxToken = 512

// Gate says who makes a request. It keeps all keys in memory, so that a request
// costs no call to Redis: it asks once a second at most whether they have changed.
// It is safe for concurrent use.
type Gate struct {
	ring      *ring
	used      *usage
	bootstrap *hash // nil if there is no bootstrap key
	now       func() time.Time
}

// Authenticate returns who holds the token. It returns ErrNoToken for an empty one,
// ErrBadToken, *LimitedError together with the identity, or an error that wraps
// ErrUnavailable.
//
// A key that is revoked by another process ends here within a second. While Redis is
// away, keys are as they were last seen, for a minute; then all but the bootstrap
// key are unavailable. ctx bounds how long it waits for Redis.
func (g *Gate) Authenticate(ctx context.Context, token string) (Identity, error) {
	switch {
	case token == "":
		return Identity{}, ErrNoToken
	case len(token) > maxToken:
		return Identity{}, ErrBadToken
	}
	h := hashOf(token)
	if g.bootstrap != nil && h.is(*g.bootstrap) {
		return Bootstrap, nil
	}
	id, ok := keyIDOf(token)
	if !ok {
		return Identity{}, ErrBadToken
	}
	keys, err := g.ring.current(ctx)
	if err != nil {
		return Identity{}, fmt.Errorf("authenticate: %w", err)
	}
	k, known := keys.byID[id]
	if !known {
		k = &nobody // compared all the same, so that an unknown id takes as long
	}
	if same := h.is(k.hash); !same || !known {
		return Identity{}, ErrBadToken
	}
	return g.admit(ctx, k)
}

// holder is Authenticate for who has shown the key before, and is known by its id.
func (g *Gate) holder(ctx context.Context, id string) (Identity, error) {
	keys, err := g.ring.current(ctx)
	if err != nil {
		return Identity{}, fmt.Errorf("authenticate: %w", err)
	}
	k, known := keys.byID[id]
	if !known {
		return Identity{}, ErrBadToken
	}
	return g.admit(ctx, k)
}

// admit lets in who holds the key, unless it has ended or is over its rate.
func (g *Gate) admit(ctx context.Context, k *known) (Identity, error) {
	now := g.now()
	if !k.Active(now) {
		return Identity{}, ErrBadToken
	}
	if wait := k.meter.take(now); wait > 0 {
		return k.identity(), &LimitedError{RetryAfter: wait}
	}
	g.used.mark(ctx, k, now)
	return k.identity(), nil
}

// Open says whether there is no key at all: none stored, ended ones included, and
// no bootstrap key. It is as fresh as Authenticate, and returns an error that wraps
// ErrUnavailable.
func (g *Gate) Open(ctx context.Context) (bool, error) {
	if g.bootstrap != nil {
		return false, nil
	}
	keys, err := g.ring.current(ctx)
	if err != nil {
		return false, fmt.Errorf("look for keys: %w", err)
	}
	return keys.stored == 0, nil
}

// Format prints the name alone: the hash of a bootstrap key that somebody thought
// up can be guessed at.
func (*Gate) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, "access.Gate") }

// LogValue is as Format.
func (*Gate) LogValue() slog.Value { return slog.StringValue("access.Gate") }

// known is a key in memory.
type known struct {
	Key
	hash  hash
	meter *meter
}

var nobody known

func (k *known) identity() Identity {
	return Identity{KeyID: k.ID, Name: k.Name, Role: k.Role, Account: k.Account}
}

// meter is what a process knows of a key beyond what is stored. It outlives the
// reading of the keys that made it.
type meter struct {
	bucket *rate.Limiter // nil: no limit
	usedAt usedAt
}

// newMeter is a token bucket of perSecond requests, which holds twice as many and at
// least one; 0 means no limit.
func newMeter(perSecond float64) *meter {
	if perSecond <= 0 {
		return &meter{}
	}
	burst := int(math.Ceil(2 * perSecond)) // bounded by maxRate
	return &meter{bucket: rate.NewLimiter(rate.Limit(perSecond), max(burst, 1))}
}

// take takes one request, or says how long until there is one. A reservation that
// is cancelled would not give all of it back when others came between.
func (m *meter) take(now time.Time) time.Duration {
	if m.bucket == nil || m.bucket.AllowN(now, 1) {
		return 0
	}
	missing := 1 - m.bucket.TokensAt(now)
	wait := time.Duration(missing / float64(m.bucket.Limit()) * float64(time.Second))
	return max(wait, time.Nanosecond)
}
