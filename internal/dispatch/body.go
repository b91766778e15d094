package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// bodyCacheBytes bounds the payloads kept in memory. An event's deliveries come
// close together, so what matters is the events of the last moments: 256 of the
// largest kind, or hundreds of thousands of the usual one.
const bodyCacheBytes = 64 << 20

// bodies reads each payload once for all deliveries of an event: concurrent
// readers share one call, later ones the cache. Payloads never change.
//
// In a cluster the payloads of one event partition may be out of reach while all
// else goes on. Whoever has waited for one in vain says so, and for a while nobody
// else does: attempts that only wait for such payloads would fill all slots.
type bodies struct {
	sched     Bodies
	partition func(eventID string) int
	cache     *otter.Cache[string, *schedule.Body]

	mu   sync.Mutex
	away map[int]time.Time // event partitions not to ask, and until when
}

// errAway says that a payload was not asked for, as others were asked for in vain.
var errAway = errors.New("payloads of its partition are out of reach")

func newBodies(s Scheduler) *bodies {
	return &bodies{sched: s, partition: s.PartitionOf, away: map[int]time.Time{}, cache: otter.Must(&otter.Options[string, *schedule.Body]{
		MaximumWeight: bodyCacheBytes,
		Weigher: func(id string, b *schedule.Body) uint32 {
			const entry = 128                                                  // what an entry costs beside its bytes, about
			return uint32(len(id) + len(b.Bytes) + len(b.Traceparent) + entry) //nolint:gosec // far below 4 GiB
		},
	})}
}

// wanting notes that a payload could not be read for as long as one may wait.
func (b *bodies) wanting(eventID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away[b.partition(eventID)] = time.Now().Add(unreadableFor)
}

func (b *bodies) isAway(eventID string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Now().Before(b.away[b.partition(eventID)])
}

// get returns the payload of an event, which nobody may change, or
// schedule.ErrNotFound, or errAway. Errors are not cached.
func (b *bodies) get(ctx context.Context, eventID string) (*schedule.Body, error) {
	if body, ok := b.cache.GetIfPresent(eventID); ok {
		return body, nil
	}
	if b.isAway(eventID) {
		return nil, fmt.Errorf("read the payload of event %s: %w", eventID, errAway)
	}
	body, err := b.cache.Get(ctx, eventID, otter.LoaderFunc[string, *schedule.Body](b.load))
	if err != nil {
		return nil, fmt.Errorf("read the payload of event %s: %w", eventID, err)
	}
	return body, nil
}

// of is get for a delivery. One that is redriven may outlive its event, and has a
// payload of its own for that.
func (b *bodies) of(ctx context.Context, d delivery.Delivery) (*schedule.Body, error) {
	body, err := b.get(ctx, d.EventID)
	if d.RedriveGeneration == 0 || !errors.Is(err, schedule.ErrNotFound) {
		return body, err
	}
	pinned, err := b.sched.Pinned(ctx, d.SubscriberID, d.EventID)
	if err != nil {
		return nil, fmt.Errorf("read the payload that %s keeps: %w", d.ID, err)
	}
	return &pinned, nil
}

func (b *bodies) load(ctx context.Context, eventID string) (*schedule.Body, error) {
	body, err := b.sched.Body(ctx, eventID)
	return &body, err //nolint:wrapcheck // get wraps it
}
