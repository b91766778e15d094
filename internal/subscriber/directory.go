package subscriber

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// ErrGone is returned for a subscriber that was deleted, or never was.
var ErrGone = errors.New("subscriber is gone")

// checkTimeout bounds one shared check. It is wide because the first one reads
// every subscriber; the callers' own contexts bound how long they wait for it.
const checkTimeout = time.Minute

// Directory is every subscriber in memory. It is safe for concurrent use.
type Directory struct {
	feed    Feed
	codec   codec
	current atomic.Pointer[snapshot] // Match reads this and takes no lock

	mu    sync.RWMutex
	index *index
	// unread has the subscribers whose sealed part could not be opened, and why.
	unread map[string]error

	check sharedCheck
	seen  []int64 // per partition, the generation applied; of the running check alone
}

// NewDirectory is an empty Directory: Refresh fills it.
func NewDirectory(feed Feed, opts ...Option) *Directory {
	d := &Directory{feed: feed, codec: apply(opts).codec, index: newIndex(), unread: map[string]error{}}
	d.current.Store(d.index.snapshot())
	d.check.run = d.catchUp
	return d
}

// Match finds the subscribers that an event is for, ordered by id. They are
// shared: callers MUST NOT change them. Paused ones are among them, since their
// deliveries wait; so are those whose key is not here, without URL, secrets and
// headers; deleted ones are not. It sees every change that was replied to
// before the last successful Refresh was called.
func (d *Directory) Match(e delivery.Event) []*Subscriber { return d.current.Load().match(e) }

// Len is how many subscribers there are.
func (d *Directory) Len() int { return d.current.Load().size }

// Refresh brings the Directory up to the moment of the call: any change whose
// reply came before it is seen by a Match after it. Callers at the same time
// share one check, one that begins after they all asked. It costs one round trip
// if nothing has changed, and one per changed partition otherwise. After an
// error the Directory is as it was, or some partitions further.
func (d *Directory) Refresh(ctx context.Context) error {
	if err := d.check.join(ctx); err != nil {
		return fmt.Errorf("refresh subscribers: %w", err)
	}
	return nil
}

// At gives the subscriber at that version or a later one, from memory if it can
// and else from Redis. It is for an attempt whose lease named the version,
// so that an attempt leased after a PATCH's reply uses the new URL, secret and
// policy. Callers MUST NOT change it. It returns ErrGone, or ErrUnreadable beside
// the subscriber without URL, secrets and headers.
func (d *Directory) At(ctx context.Context, id string, version int64) (*Subscriber, error) {
	d.mu.RLock()
	known, unread := d.index.filed[id].sub, d.unread[id]
	d.mu.RUnlock()
	// One that is ahead of the lease was changed since; or Redis was set back to an
	// older state, in which that version never was. Only Redis knows.
	if known != nil && (known.Version == version || version == 0) {
		return known, unread
	}
	c, err := d.feed.Config(ctx, id)
	if errors.Is(err, ErrNotFound) || (err == nil && gone(c)) {
		d.publish([]string{id}, nil)
		return nil, fmt.Errorf("subscriber %s: %w", id, ErrGone)
	}
	if err != nil {
		return nil, fmt.Errorf("read subscriber %s: %w", id, err)
	}
	s, err := d.codec.unmarshal(c)
	if s != nil {
		d.publish(nil, []reading{{s, err}})
	}
	return s, err
}

// catchUp is one check: which partitions have moved on, and what changed there.
func (d *Directory) catchUp(ctx context.Context) error {
	gens, err := d.feed.Generations(ctx)
	if err != nil {
		return fmt.Errorf("read generations: %w", err)
	}
	if len(d.seen) != len(gens) {
		d.seen = make([]int64, len(gens))
	}
	var errs []error // one partition's trouble is not the others'
	for p, gen := range gens {
		if gen == d.seen[p] {
			continue
		}
		if err := d.catchUpPartition(ctx, p, gen); err != nil {
			errs = append(errs, fmt.Errorf("read changes of partition %d: %w", p, err))
		}
	}
	return errors.Join(errs...)
}

// catchUpPartition applies the changes of one partition up to gen at least.
func (d *Directory) catchUpPartition(ctx context.Context, p int, gen int64) error {
	if gen < d.seen[p] {
		return d.reload(ctx, p)
	}
	for d.seen[p] < gen {
		configs, upTo, err := d.feed.Changes(ctx, p, d.seen[p])
		if err != nil {
			return err //nolint:wrapcheck // catchUp names the operation
		}
		if upTo <= d.seen[p] {
			return fmt.Errorf("no changes past generation %d, though it is at %d", d.seen[p], gen)
		}
		lost, put, _ := d.sortOut(ctx, configs)
		d.publish(lost, put)
		d.seen[p] = upTo
	}
	return nil
}

// reload takes a partition anew. Its generation went back, so Redis lost writes
// (a failover, a restored backup): versions say nothing any more, and whoever is
// not in the answer no longer exists.
func (d *Directory) reload(ctx context.Context, p int) error {
	slog.WarnContext(ctx, "subscriber generation went back, reloading its partition", "partition", p)
	configs, upTo, err := d.feed.Changes(ctx, p, 0)
	if err != nil {
		return err //nolint:wrapcheck // catchUp names the operation
	}
	_, put, unread := d.sortOut(ctx, configs)
	var all []string
	d.mu.RLock()
	for id := range d.index.filed {
		if int(delivery.Hash16(id))%len(d.seen) == p && !unread[id] {
			all = append(all, id)
		}
	}
	d.mu.RUnlock()
	d.publish(all, put) // in one step: nobody is missing in between
	d.seen[p] = upTo
	return nil
}

// sortOut reads configs as they came. One that cannot be read is said and set
// apart, to be left as it was: it must not keep the events of every other
// subscriber from being accepted. One that cannot be opened is put all the same:
// its events are to wait for it.
func (d *Directory) sortOut(ctx context.Context, configs []config) (lost []string, put []reading, unread map[string]bool) {
	unread = map[string]bool{}
	var sealed []error
	for _, c := range configs {
		if gone(c) {
			lost = append(lost, c.ID)
			continue
		}
		s, err := d.codec.unmarshal(c)
		if s != nil && err != nil {
			sealed = append(sealed, err)
		} else if err != nil {
			slog.ErrorContext(ctx, "subscriber cannot be read, keeping what was known of it",
				"subscriber_id", c.ID, "version", c.Version, "error", err)
			unread[c.ID] = true
			continue
		}
		put = append(put, reading{s, err})
	}
	if len(sealed) > 0 { // one line: it may be all of them
		slog.ErrorContext(ctx, "subscribers cannot be opened, their deliveries wait", "count", len(sealed), "error", sealed[0])
	}
	return lost, put, unread
}

// reading is a subscriber, and why a part of it is missing, if one is.
type reading struct {
	*Subscriber

	unread error
}

// publish changes the index, first by those lost, and swaps the snapshot once.
func (d *Directory) publish(lost []string, put []reading) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range lost {
		d.index.remove(id)
		delete(d.unread, id)
	}
	for _, s := range put {
		// At and Refresh read on their own, so an answer may be the older one.
		if known := d.index.filed[s.ID].sub; known == nil || known.Version < s.Version {
			d.index.put(s.Subscriber)
			delete(d.unread, s.ID)
			if s.unread != nil {
				d.unread[s.ID] = s.unread
			}
		}
	}
	d.current.Store(d.index.snapshot())
}
