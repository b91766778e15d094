package access

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"
)

const (
	// checkEvery is how long keys are taken as they were last read: the bound within
	// which a revoked key ends everywhere.
	checkEvery = time.Second
	// grace is how long they are taken so while Redis does not answer. It lets the
	// API outlive a failover, and a key that was revoked just before it outlive
	// itself by no more.
	grace = time.Minute
	// readTimeout bounds one read. It serves many requests, so it has none of their
	// deadlines.
	readTimeout = 2 * time.Second
)

// keyset is all keys at one moment. It is never changed once others can see it.
type keyset struct {
	byID   map[string]*known
	stored int // those that cannot be read included

	generation string
	checked    time.Time // when the read that saw it began
	epoch      uint64    // of the ring when that read began
}

// ring keeps the keys in memory and says how fresh they are.
type ring struct {
	db     backend
	rate   float64 // of keys without one of their own; 0 for none
	now    func() time.Time
	logger *slog.Logger

	mu     sync.Mutex
	keys   *keyset
	epoch  uint64    // raised by each change made here: what was read before it is old
	failed time.Time // when the last read began, if it failed; else zero
	cause  error     // why
	read   *reading  // the one that is out, if any
}

// reading is a read that is out, for all that wait for it.
type reading struct {
	done chan struct{}
	err  error // once done
}

// current returns the keys as they were at most checkEvery ago, or at most grace ago
// while Redis is away. All that need a read share one.
func (r *ring) current(ctx context.Context) (*keyset, error) {
	for {
		r.mu.Lock()
		now := r.now()
		keys, read := r.keys, r.read
		if keys != nil && keys.epoch == r.epoch && within(now, keys.checked, checkEvery) {
			r.mu.Unlock()
			return keys, nil
		}
		usable := keys != nil && within(now, keys.checked, grace)
		if !r.failed.IsZero() && within(now, r.failed, checkEvery) && read == nil {
			cause := r.cause
			r.mu.Unlock()
			if usable {
				return keys, nil
			}
			return nil, cause
		}
		// Nobody waits each second for a Redis that hangs: while it is known to be
		// away, one read looks whether it is back. After a pause it is not known.
		away := !r.failed.IsZero() && within(now, r.failed, checkEvery+readTimeout)
		if read == nil {
			read = r.start(ctx, now)
		}
		r.mu.Unlock()
		if away && usable {
			return keys, nil
		}
		select {
		case <-read.done:
			switch {
			case read.err == nil: // look again: a change made here may be newer
			case usable:
				return keys, nil
			default:
				return nil, read.err
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
		}
	}
}

// within says whether a time lies less than d back. One that lies ahead does not: a
// clock that was set back must not make anything fresh for longer.
func within(now, then time.Time, d time.Duration) bool {
	age := now.Sub(then)
	return age >= 0 && age < d
}

// start begins a read. The caller holds mu.
func (r *ring) start(ctx context.Context, now time.Time) *reading {
	rd := &reading{done: make(chan struct{})}
	r.read = rd
	before, epoch := r.keys, r.epoch
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	go func() {
		defer cancel()
		keys, err := r.load(ctx, before)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.read, rd.err = nil, err
		close(rd.done)
		if err != nil {
			if r.failed.IsZero() {
				r.logger.WarnContext(ctx, "keys cannot be read; known ones are taken for a while", "grace", grace, "error", err)
			}
			r.failed, r.cause = now, err
			return
		}
		r.failed, r.cause = time.Time{}, nil
		if epoch == r.epoch {
			keys.checked, keys.epoch = now, epoch
			r.keys = keys
		}
	}()
	return rd
}

// load returns a new keyset: that of before if nothing has changed since.
func (r *ring) load(ctx context.Context, before *keyset) (*keyset, error) {
	if before != nil {
		generation, err := r.db.generation(ctx)
		if err != nil {
			return nil, err
		}
		if generation == before.generation {
			same := *before
			return &same, nil
		}
	}
	generation, rows, err := r.db.allKeys(ctx)
	if err != nil {
		return nil, err
	}
	next := &keyset{byID: make(map[string]*known, len(rows)), stored: len(rows), generation: generation}
	for _, row := range rows {
		key, h, err := row.decode()
		if err != nil {
			// One that a newer version wrote, say: it opens nothing, and closes nothing.
			r.logger.WarnContext(ctx, "a stored key cannot be read and is not taken", "key_id", row.id, "error", err)
			continue
		}
		k := &known{Key: key, hash: h}
		if old := before.get(key.ID); old != nil && old.RatePerSecond == key.RatePerSecond {
			k.meter = old.meter // or every change of any key would fill all buckets
		} else {
			k.meter = newMeter(orDefault(key.RatePerSecond, r.rate))
		}
		next.byID[key.ID] = k
	}
	return next, nil
}

func orDefault(perSecond, standard float64) float64 {
	if perSecond == 0 {
		return standard
	}
	return perSecond
}

func (s *keyset) get(id string) *known {
	if s == nil {
		return nil
	}
	return s.byID[id]
}

// outdate has the next request read again, whatever is out now: it began before.
func (r *ring) outdate() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch++
}

// revoked ends a key in memory, so that it ends here though Redis goes away now.
func (r *ring) revoked(id string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.keys.get(id)
	if old == nil || !old.RevokedAt.IsZero() {
		return
	}
	ended := *old
	ended.RevokedAt = at
	next := *r.keys
	next.byID = maps.Clone(next.byID)
	next.byID[id] = &ended
	r.keys = &next
	r.epoch++ // a read that is out may have begun before
}

// ended lists up to limit keys that were over by that time.
func (r *ring) ended(by time.Time, limit int) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keys == nil {
		return nil
	}
	var ids []string
	for id, k := range r.keys.byID {
		if len(ids) == limit {
			break
		}
		over := func(t time.Time) bool { return !t.IsZero() && t.Before(by) }
		if over(k.RevokedAt) || over(k.ExpiresAt) {
			ids = append(ids, id)
		}
	}
	return ids
}

// wait returns when no read is out.
func (r *ring) wait() {
	r.mu.Lock()
	read := r.read
	r.mu.Unlock()
	if read != nil {
		<-read.done
	}
}
