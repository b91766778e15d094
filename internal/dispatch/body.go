package dispatch

import (
	"context"
	"fmt"

	"github.com/maypok86/otter/v2"

	"github.com/fanout/fanout/internal/schedule"
)

// bodyCacheBytes bounds the payloads kept in memory. An event's deliveries come
// close together, so what matters is the events of the last moments: 256 of the
// largest kind, or hundreds of thousands of the usual one.
const bodyCacheBytes = 64 << 20

// bodies reads each payload once for all deliveries of an event: concurrent
// readers share one call, later ones the cache. Payloads never change.
type bodies struct {
	sched Bodies
	cache *otter.Cache[string, schedule.Body]
}

func newBodies(s Bodies) *bodies {
	return &bodies{sched: s, cache: otter.Must(&otter.Options[string, schedule.Body]{
		MaximumWeight: bodyCacheBytes,
		Weigher: func(id string, b schedule.Body) uint32 {
			const entry = 128                                                  // what an entry costs beside its bytes, about
			return uint32(len(id) + len(b.Bytes) + len(b.Traceparent) + entry) //nolint:gosec // far below 4 GiB
		},
	})}
}

// get returns the payload of an event, or schedule.ErrNotFound. Errors are not
// cached.
func (b *bodies) get(ctx context.Context, eventID string) (schedule.Body, error) {
	body, err := b.cache.Get(ctx, eventID, otter.LoaderFunc[string, schedule.Body](b.sched.Body))
	if err != nil {
		return schedule.Body{}, fmt.Errorf("read the payload of event %s: %w", eventID, err)
	}
	return body, nil
}
