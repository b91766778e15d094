package access

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// usedEvery is how often a process writes when a key was used: what it is for, to
	// find keys that nobody uses any more, needs no more.
	usedEvery = time.Minute
	// writeTimeout bounds one write. One that fails is made good a minute later.
	writeTimeout = 2 * time.Second
)

// usedAt is when the use of a key was written last, in ms since the epoch.
type usedAt struct{ ms atomic.Int64 }

// due says whether it is to be written again, to one caller only.
func (u *usedAt) due(now time.Time) bool {
	last, ms := u.ms.Load(), now.UnixMilli()
	return ms-last >= usedEvery.Milliseconds() && u.ms.CompareAndSwap(last, ms)
}

// usage writes when keys were used, off the road of the requests.
type usage struct {
	db     backend
	logger *slog.Logger

	mu      sync.Mutex
	pending map[string]int64
	writing chan struct{} // closed when the goroutine that writes has ended; nil if there is none
}

func (u *usage) mark(ctx context.Context, k *known, now time.Time) {
	if !k.meter.usedAt.due(now) {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.pending == nil {
		u.pending = make(map[string]int64)
	}
	u.pending[k.ID] = now.UnixMilli()
	if u.writing == nil {
		u.writing = make(chan struct{})
		go u.write(context.WithoutCancel(ctx))
	}
}

// write writes what is pending until nothing is.
func (u *usage) write(ctx context.Context) {
	for {
		u.mu.Lock()
		batch := maps.Clone(u.pending)
		clear(u.pending)
		if len(batch) == 0 {
			close(u.writing)
			u.writing = nil
			u.mu.Unlock()
			return
		}
		u.mu.Unlock()
		bounded, cancel := context.WithTimeout(ctx, writeTimeout)
		if err := u.db.markUsed(bounded, batch); err != nil {
			u.logger.WarnContext(ctx, "when keys were used last cannot be written", "keys", len(batch), "error", err)
		}
		cancel()
	}
}

// wait returns when nothing is being written.
func (u *usage) wait() {
	u.mu.Lock()
	writing := u.writing
	u.mu.Unlock()
	if writing != nil {
		<-writing
	}
}
