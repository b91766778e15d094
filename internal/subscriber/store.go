package subscriber

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/fanout/fanout/internal/schedule"
)

// What callers branch on, besides *fault.Invalid.
var (
	// ErrNotFound: no such subscriber, or no longer.
	ErrNotFound = schedule.ErrNotFound
	// ErrVersion: someone else changed the subscriber meanwhile.
	ErrVersion = schedule.ErrVersion
)

// config is a subscriber as the backend keeps it. The name lives here so that no
// other file needs package schedule.
type config = schedule.Config

// edited is a change that leaves a subscriber's holds as they are.
const edited = schedule.Edited

// Feed is what a Directory lives on; every Backend is one.
//
// An implementation MUST
//   - raise a partition's generation with every change of a config in it, before
//     that change is replied to;
//   - answer Changes with every config of the partition whose last change is past
//     since, tombstones included, complete up to the generation that it returns;
//     a tombstone is never forgotten;
//   - answer ErrNotFound to Config of an id that was deleted or never known;
//   - answer Owners with one for each id, in their order: whom its tombstone names, which
//     is kept for ever, and "" for what is not deleted or was without an owner.
type Feed interface {
	Config(ctx context.Context, id string) (schedule.Config, error)
	Generations(ctx context.Context) ([]int64, error)
	Changes(ctx context.Context, partition int, since int64) ([]schedule.Config, int64, error)
	Owners(ctx context.Context, ids []string) ([]string, error)
}

// Backend keeps what this package writes; *schedule.Engine is one.
//
// An implementation MUST
//   - answer PutConfig's expect: 0 demands that the id is new, a version above 0
//     that very version; ErrVersion if it is not so, ErrNotFound if a version is
//     demanded of an id never known or deleted. It raises the version.
//     Repeating a call whose reply was lost MUST get the reply that was lost.
//     The change says what it means for the subscriber's holds, as package
//     schedule words it, and holds for every lease after the reply;
//   - list in the order of ids, without tombstones: fewer than limit where some
//     were deleted meanwhile, none at the end alone;
//   - answer Tombstone and CancelPending of a tombstoned id as of a living one,
//     so that a delete can be repeated; ErrNotFound is for an id never known;
//   - lease nothing and enqueue nothing for an id once Tombstone has replied.
type Backend interface {
	Feed
	PutConfig(ctx context.Context, id string, expect int64, blob []byte, t schedule.Terms, c schedule.Change) (version int64, err error)
	ListConfigs(ctx context.Context, after string, limit int) ([]schedule.Config, error)
	Tombstone(ctx context.Context, id, owner string) error
	CancelPending(ctx context.Context, id string, limit int) (cancelled, remaining, leases int, err error)
}

// gone tells a tombstone. A config whose blob went while it was read is one that
// was deleted at that moment: a backend may read the two one after the other.
func gone(c config) bool { return c.Deleted || len(c.Blob) == 0 }

// URLPolicy says which URLs may be delivered to.
type URLPolicy interface {
	// CheckURL returns nil, or what is wrong in words for the one who registers
	// the URL. It MUST NOT quote the URL's query, nor take long: it may not dial.
	CheckURL(raw string) error
}

// Store writes subscribers. It is safe for concurrent use, by many processes.
type Store struct {
	backend Backend
	rules   rules
	now     func(context.Context) (time.Time, error)
	codec   codec
	dir     *Directory // of the filtered List; nil if there is none

	ending endings
}

// New is a Store. classes are the allowed ones, the first of which is the
// default; none means "standard" alone. now is Redis time (Engine.Now), so that
// every process dates a subscriber alike.
func New(
	backend Backend, urls URLPolicy, classes []string, now func(context.Context) (time.Time, error), opts ...Option,
) *Store {
	o := apply(opts)
	if len(classes) == 0 {
		classes = []string{"standard"}
	}
	return &Store{
		backend: backend, rules: rules{urls: urls, classes: slices.Clone(classes)}, now: now,
		codec: o.codec, dir: o.dir,
		ending: endings{mu: make(chan struct{}, 1), left: map[string]bool{}},
	}
}

// patchTries is how often a patch of any version starts again when others keep
// changing the same subscriber.
const patchTries = 8

// Check says what is wrong with a draft of a new subscriber, or of a change to one:
// *fault.Invalid, or nil. It stores nothing.
func (s *Store) Check(d Draft, cur *Subscriber) error {
	if cur == nil {
		_, err := d.create(s.rules)
		return err
	}
	_, err := d.patch(*cur, s.rules)
	return err
}

// Create stores a new subscriber, with its secret, which is not to be read
// anywhere else. It returns *fault.Invalid, or an error of the backend; after the
// latter the subscriber may exist all the same.
func (s *Store) Create(ctx context.Context, d Draft) (Subscriber, error) {
	sub, err := d.create(s.rules)
	if err != nil {
		return Subscriber{}, err
	}
	now, err := s.stamp(ctx)
	if err != nil {
		return Subscriber{}, fmt.Errorf("create subscriber: %w", err)
	}
	sub.CreatedAt, sub.UpdatedAt = now, now
	if sub.ID, err = newID(idPrefix, now); err != nil {
		return Subscriber{}, err
	}
	secret, err := secretOf(d.Secret, now)
	if err != nil {
		return Subscriber{}, err
	}
	sub.Secrets = []Secret{secret}
	if err := s.put(ctx, &sub, 0, edited); err != nil {
		return Subscriber{}, fmt.Errorf("create subscriber: %w", err)
	}
	return sub, nil
}

// Get reads one subscriber. It returns ErrNotFound or ErrUnreadable.
func (s *Store) Get(ctx context.Context, id string) (Subscriber, error) {
	c, err := s.backend.Config(ctx, id)
	if err == nil && gone(c) {
		err = ErrNotFound
	}
	if err != nil {
		return Subscriber{}, fmt.Errorf("get subscriber %s: %w", clip(id), err)
	}
	sub, err := s.codec.unmarshal(c)
	if err != nil {
		return Subscriber{}, err
	}
	return *sub, nil
}

// Owners says whose the subscribers were that are deleted: an account for each id, in
// their order, "" for one that is not deleted or never was. What a subscriber leaves
// behind is still its owner's to see.
func (s *Store) Owners(ctx context.Context, ids []string) ([]string, error) {
	owners, err := s.backend.Owners(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("owners of deleted subscribers: %w", err)
	}
	return owners, nil
}

// Patch changes what the draft sets. ifVersion is the version that the caller
// saw, or -1 for whichever it is. Every attempt leased after it returns uses the
// new subscriber. It returns *fault.Invalid, ErrNotFound or ErrVersion.
//
// Another URL is another endpoint: it starts without the holds that the old one
// earned. One that sets paused to false is a Resume. Any other patch that changes
// nothing writes nothing.
func (s *Store) Patch(ctx context.Context, id string, ifVersion int64, d Draft) (Subscriber, error) {
	for try := 1; ; try++ {
		sub, err := s.patchOnce(ctx, id, ifVersion, d)
		if ifVersion < 0 && errors.Is(err, ErrVersion) && try < patchTries {
			continue
		}
		return sub, err
	}
}

func (s *Store) patchOnce(ctx context.Context, id string, ifVersion int64, d Draft) (Subscriber, error) {
	cur, err := s.Get(ctx, id)
	if err != nil {
		return Subscriber{}, err
	}
	if ifVersion >= 0 && ifVersion != cur.Version {
		return Subscriber{}, fmt.Errorf("patch subscriber %s: at version %d, not %d: %w", id, cur.Version, ifVersion, ErrVersion)
	}
	next, err := d.patch(cur, s.rules)
	if err != nil {
		return Subscriber{}, err
	}
	change := changeBy(d, cur)
	if change == edited && reflect.DeepEqual(next, cur) {
		return cur, nil
	}
	if next.UpdatedAt, err = s.stamp(ctx); err == nil {
		next.Secrets = active(next.Secrets, next.UpdatedAt)
		err = s.put(ctx, &next, cur.Version, change)
	}
	if err != nil {
		return Subscriber{}, fmt.Errorf("patch subscriber %s: %w", id, err)
	}
	return next, nil
}

// Pause holds a subscriber: its deliveries wait until Resume. Pausing twice is
// pausing once.
func (s *Store) Pause(ctx context.Context, id string) (Subscriber, error) {
	paused := true
	return s.Patch(ctx, id, -1, Draft{Paused: &paused})
}

// Resume ends what somebody can end: a pause, and the hold of an endpoint that
// answered 410; and it has an open breaker try the endpoint at once. What the
// endpoint asked for by Retry-After stands. It is written even if the subscriber is
// not paused, for its other holds are not in its config.
func (s *Store) Resume(ctx context.Context, id string) (Subscriber, error) {
	paused := false
	return s.Patch(ctx, id, -1, Draft{Paused: &paused})
}

// changeBy is what a draft means for the holds of a subscriber. Where it both moves
// and resumes, the move says it all: nothing is known of the new endpoint.
func changeBy(d Draft, cur Subscriber) schedule.Change {
	switch {
	case d.URL != nil && *d.URL != cur.URL:
		return schedule.Moved
	case d.Paused != nil && !*d.Paused:
		return schedule.Lifted
	}
	return edited
}

// termsOf is what the scheduler must know of a subscriber.
func termsOf(s Subscriber) schedule.Terms {
	p := s.Policy
	return schedule.Terms{
		Class: s.Class, MaxInFlight: p.MaxInFlight,
		// The rule that a lease outlives its attempt is kept here: there is no
		// other way to a lease time.
		LeaseTime:     s.LeaseTime(),
		RatePerSecond: p.RatePerSecond, Burst: p.AtOnce(),
		BreakerFailures: p.BreakerFailures, MaxHeld: p.MaxHeld,
		Paused: s.Paused,
	}
}

// put writes the subscriber over the expected version and sets its new one.
func (s *Store) put(ctx context.Context, sub *Subscriber, expect int64, change schedule.Change) error {
	blob, err := s.codec.marshal(*sub)
	if err != nil {
		return err
	}
	version, err := s.backend.PutConfig(ctx, sub.ID, expect, blob, termsOf(*sub), change)
	if err != nil {
		return err //nolint:wrapcheck // the callers name the operation
	}
	sub.Version = version
	return nil
}

// stamp is the time of a change, as it is stored.
func (s *Store) stamp(ctx context.Context) (time.Time, error) {
	now, err := s.now(ctx)
	return now.UTC().Truncate(time.Millisecond), err
}

// endings remembers what FinishDeletes has seen.
type endings struct {
	mu   chan struct{}   // a mutex that a context can give up on
	seen []int64         // per partition, the generation read up to
	left map[string]bool // tombstones with deliveries or leases left
}
