package subscriber

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fanout/fanout/internal/fault"
)

// Bounds of a rotation.
const (
	// DefaultOverlap is what an API takes if none is given: a day to bring the new
	// secret to every receiver.
	DefaultOverlap = 24 * time.Hour
	// MaxOverlap is a week: a secret that was replaced is to come to an end.
	MaxOverlap = 7 * 24 * time.Hour
	// MaxSecrets is how many may be active at once. Each costs a signature and some
	// 50 bytes in every request.
	MaxSecrets = 5
)

// ErrTooManySecrets is returned if another secret would be the sixth active one.
// Wait for one to expire.
var ErrTooManySecrets = errors.New("too many active secrets")

// Rotation asks for a new secret in place of those that there are.
type Rotation struct {
	// Secret is the new secret's text; nil: one is made at random.
	Secret *string
	// Overlap is how long the older ones go on signing beside it, 0 to MaxOverlap:
	// none for longer than it had. With 0 they end at once, as after a leak.
	Overlap time.Duration
}

// RotateSecret gives a subscriber a new secret, which signs first in every attempt
// leased after it returns. The older ones sign too until the overlap is over, so
// that a receiver with either verifies; after that none of them does. It may be
// called again within an overlap.
//
// The secret that is the newest already makes no new one: then the older ones end
// after this overlap, if that is sooner. So the same call is safe to repeat if it
// names the secret. One that makes its own is not: after an error the secret may
// have been made, and nobody knows it.
//
// It returns the subscriber, whose first secret is the new one, or *fault.Invalid,
// ErrNotFound, ErrTooManySecrets, or ErrVersion if others keep changing it.
func (s *Store) RotateSecret(ctx context.Context, id string, r Rotation) (Subscriber, error) {
	if err := r.Check(); err != nil {
		return Subscriber{}, err
	}
	for try := 1; ; try++ {
		sub, err := s.rotateOnce(ctx, id, r)
		if errors.Is(err, ErrVersion) && try < patchTries {
			continue
		}
		return sub, err
	}
}

// Check says what is wrong with a rotation, whosever it is: *fault.Invalid, or nil.
func (r Rotation) Check() error {
	var bad fault.List
	if r.Overlap < 0 || r.Overlap > MaxOverlap {
		bad.Addf("/overlap", "must be from 0s to %s, is %s", MaxOverlap, r.Overlap)
	}
	if r.Secret != nil {
		if err := ParseSecret(*r.Secret); err != nil {
			bad.Addf("/secret", "%s", err)
		}
	}
	return bad.Sorted().Err(judged)
}

func (s *Store) rotateOnce(ctx context.Context, id string, r Rotation) (Subscriber, error) {
	cur, err := s.Get(ctx, id)
	if err != nil {
		return Subscriber{}, err
	}
	now, err := s.stamp(ctx)
	if err != nil {
		return Subscriber{}, fmt.Errorf("rotate the secret of subscriber %s: %w", id, err)
	}
	next := cur
	if next.Secrets, err = rotated(cur.Secrets, r, now); err != nil {
		return Subscriber{}, fmt.Errorf("rotate the secret of subscriber %s: %w", id, err)
	}
	if slices.Equal(next.Secrets, cur.Secrets) { // asked for before
		return cur, nil
	}
	next.UpdatedAt = now
	if err := s.put(ctx, &next, cur.Version, edited); err != nil {
		return Subscriber{}, fmt.Errorf("rotate the secret of subscriber %s: %w", id, err)
	}
	return next, nil
}

// rotated is the secrets after a rotation, the newest first. The newest never has
// an end.
func rotated(cur []Secret, r Rotation, now time.Time) ([]Secret, error) {
	older := active(cur, now)
	var first Secret
	switch i := slices.IndexFunc(older, func(o Secret) bool { return r.Secret != nil && o.Value == *r.Secret }); {
	case i == 0:
		first, older = older[0], older[1:]
	case i > 0:
		var bad fault.List
		bad.Addf("/secret", "is an older secret of this subscriber, which was replaced: give one that it never had")
		return nil, bad.Sorted().Err(judged)
	default:
		var err error
		if first, err = secretOf(r.Secret, now); err != nil {
			return nil, err
		}
	}
	first.ExpiresAt = time.Time{}
	end := now.Add(r.Overlap)
	for i, o := range older {
		if o.ExpiresAt.IsZero() || end.Before(o.ExpiresAt) {
			older[i].ExpiresAt = end
		}
	}
	next := append([]Secret{first}, active(older, now)...)
	if len(next) > MaxSecrets {
		return nil, fmt.Errorf("%w: at most %d, and the oldest goes at %s", ErrTooManySecrets, MaxSecrets,
			next[len(next)-1].ExpiresAt.Format(time.RFC3339))
	}
	return next, nil
}

// active is a copy of those secrets that are not over.
func active(secrets []Secret, now time.Time) []Secret {
	return slices.DeleteFunc(slices.Clone(secrets), func(s Secret) bool { return !s.Active(now) })
}

// secretOf is a secret of the given text, or a random one.
func secretOf(text *string, now time.Time) (s Secret, err error) {
	if text != nil {
		s.Value = *text
	} else if s, err = NewSecret(); err != nil {
		return Secret{}, err
	}
	s.CreatedAt = now
	s.ID, err = newID(secretPrefix, now)
	return s, err
}
