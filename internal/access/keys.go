package access

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrNotFound is returned for the id of no key.
var ErrNotFound = errors.New("no such key")

const (
	// MaxList is the most that Keys.List and Audit.List give at once.
	MaxList = 1000
	// forgetAfter is how long a key that has ended can still be looked up: as long
	// as the audit log, which names it.
	forgetAfter = auditRetention
	// forgetAtOnce bounds how many of those one Create removes.
	forgetAtOnce = 100
)

// Keys creates, reads and revokes keys. It is safe for concurrent use, by many
// processes.
type Keys struct {
	db   backend
	ring *ring
	now  func() time.Time
}

// Create stores a new key and returns it with its token, which is not to be read
// anywhere else. by is the key id of who creates it. It works at once in this
// process, and within a second in every other.
//
// It returns *fault.Invalid, or an error that wraps ErrUnavailable; after the latter the
// key may exist all the same, and nobody knows its token.
func (k *Keys) Create(ctx context.Context, n NewKey, by string) (Key, string, error) {
	now := k.now().UTC().Truncate(time.Millisecond)
	if err := n.Check(now); err != nil {
		return Key{}, "", err
	}
	id, err := newKeyID(now)
	if err != nil {
		return Key{}, "", err
	}
	token, err := newToken(id)
	if err != nil {
		return Key{}, "", err
	}
	key := Key{
		ID: id, Name: n.Name, Role: n.Role, Account: n.Account, RatePerSecond: n.RatePerSecond,
		CreatedBy: clip(by), CreatedAt: now,
	}
	if !n.ExpiresAt.IsZero() {
		key.ExpiresAt = n.ExpiresAt.UTC().Truncate(time.Millisecond)
	}
	blob, err := encodeKey(key, hashOf(token))
	if err != nil {
		return Key{}, "", fmt.Errorf("create key: %w", err)
	}
	defer k.ring.outdate() // after a lost reply too: it may be there
	// Keys are removed nowhere else: so a store that has had a key never looks as if
	// it had none.
	if err := k.db.putKey(ctx, id, blob, newGeneration(), k.ring.ended(now.Add(-forgetAfter), forgetAtOnce)); err != nil {
		return Key{}, "", fmt.Errorf("create key: %w", err)
	}
	return key, token, nil
}

// Get reads one key. It returns ErrNotFound, or wraps ErrUnavailable.
func (k *Keys) Get(ctx context.Context, id string) (Key, error) {
	rows, err := k.db.rows(ctx, []string{id})
	if err != nil {
		return Key{}, fmt.Errorf("get key: %w", err)
	}
	if len(rows) == 0 {
		return Key{}, fmt.Errorf("get key %s: %w", clip(id), ErrNotFound)
	}
	key, _, err := rows[0].decode()
	return key, err
}

// List reads up to limit (1 to MaxList) keys whose ids are after the given one, by
// id: in the order in which they were created. Revoked and expired ones are listed
// until 90 days after their end. Fewer than limit are the last.
func (k *Keys) List(ctx context.Context, after string, limit int) ([]Key, error) {
	if limit < 1 || limit > MaxList {
		return nil, fmt.Errorf("list keys: limit must be 1 to %d, is %d", MaxList, limit)
	}
	ids, err := k.db.keyIDs(ctx)
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	slices.Sort(ids)
	first, found := slices.BinarySearch(ids, after)
	if found {
		first++
	}
	ids = ids[first:min(len(ids), first+limit)]
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := k.db.rows(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	keys := make([]Key, 0, len(rows))
	for _, r := range rows {
		key, _, err := r.decode()
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// Revoke ends a key: at once in this process, within a second in every other. A
// key that is revoked already stays as it is. It returns ErrNotFound, or wraps
// ErrUnavailable; after the latter the key may be revoked all the same: repeat it.
func (k *Keys) Revoke(ctx context.Context, id string) (Key, error) {
	key, err := k.Get(ctx, id)
	if err != nil {
		return Key{}, fmt.Errorf("revoke: %w", err)
	}
	defer k.ring.outdate() // whoever revoked it: a read that is out may have begun before
	if key.RevokedAt.IsZero() {
		// Whoever comes first says when.
		at, err := k.db.revoke(ctx, id, k.now().UnixMilli(), newGeneration())
		if err != nil {
			return Key{}, fmt.Errorf("revoke key %s: %w", id, err)
		}
		key.RevokedAt = fromMs(at)
	}
	k.ring.revoked(id, key.RevokedAt)
	return key, nil
}

// newGeneration names a state of all keys. It is random rather than counted: after
// an older file was restored, a count could come to the same number again and mean
// other keys.
func newGeneration() string { return rand.Text() }
