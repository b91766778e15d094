package subscriber

import (
	"context"
	"errors"
	"fmt"
)

// resealPage is how many subscribers are read at once.
const resealPage = 200

// ErrNoKeyring says that there is no key to seal with.
var ErrNoKeyring = errors.New("there is no keyring to seal with")

// ResealResult counts subscribers.
type ResealResult struct {
	// Sealed were written anew, under the first key.
	Sealed int
	// Already were under it.
	Already int
	// Unreadable are left as they were.
	Unreadable int
}

// Seen is how many were looked at.
func (r ResealResult) Seen() int { return r.Sealed + r.Already + r.Unreadable }

// Reseal writes every subscriber under the keyring's first key, be it in the clear
// or under another key. It changes nothing else, and writes each over the version
// that it read, so that it undoes nobody's change. It may be broken off and begun
// again: those that are done are passed over. Progress, if set, is told after each
// page.
//
// It returns ErrNoKeyring, and ErrUnreadable after all others are done if some
// could not be opened. One that is written in the clear meanwhile, by a process
// that has no keyring, is for the next run.
func (s *Store) Reseal(ctx context.Context, progress func(ResealResult)) (ResealResult, error) {
	var total ResealResult
	if s.codec.ring.ID() == "" {
		return total, fmt.Errorf("reseal: %w", ErrNoKeyring)
	}
	var unread error
	for after := ""; ; {
		configs, err := s.backend.ListConfigs(ctx, after, resealPage)
		if err != nil {
			return total, fmt.Errorf("reseal: %w", err)
		}
		if len(configs) == 0 {
			break
		}
		after = configs[len(configs)-1].ID
		for _, c := range configs {
			switch done, err := s.resealOne(ctx, c); {
			case errors.Is(err, ErrUnreadable):
				total.Unreadable++
				unread = err
			case err != nil:
				return total, fmt.Errorf("reseal: subscriber %s: %w", c.ID, err)
			case done:
				total.Sealed++
			default:
				total.Already++
			}
		}
		if progress != nil {
			progress(total)
		}
	}
	if unread != nil {
		return total, fmt.Errorf("reseal: %d subscribers cannot be opened, the last one: %w", total.Unreadable, unread)
	}
	return total, nil
}

// resealOne says whether it wrote. One that is deleted meanwhile needs no key.
func (s *Store) resealOne(ctx context.Context, c config) (done bool, err error) {
	for try := 1; ; try++ {
		if gone(c) || sealedUnder(c.Blob) == s.codec.ring.ID() {
			return false, nil
		}
		sub, err := s.codec.unmarshal(c)
		if err != nil {
			return false, err
		}
		err = s.put(ctx, sub, c.Version, edited)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, ErrNotFound):
			return false, nil
		case !errors.Is(err, ErrVersion) || try == patchTries:
			return false, err
		}
		if c, err = s.backend.Config(ctx, c.ID); errors.Is(err, ErrNotFound) {
			return false, nil
		} else if err != nil {
			return false, err //nolint:wrapcheck // Reseal names the operation
		}
	}
}
