package subscriber

import (
	"context"
	"sync"
)

// sharedCheck runs one check at a time and lets callers share the next one: never
// the one that is under way, which may have looked before they asked. So under
// any load there is one check running and at most one being waited for.
type sharedCheck struct {
	run func(context.Context) error

	mu      sync.Mutex
	running bool
	next    *round // not begun; nil if nobody waits
}

// round is one check and those who wait for it.
type round struct {
	ctx  context.Context //nolint:containedctx // of the first who asked: for its trace, its deadline is not used
	done chan struct{}
	err  error // to be read after done
}

// join waits for a check that begins after the call. The check does not end with
// any one caller's context: others wait for it too.
func (c *sharedCheck) join(ctx context.Context) error {
	c.mu.Lock()
	r := c.next
	if r == nil {
		r = &round{ctx: context.WithoutCancel(ctx), done: make(chan struct{})}
		c.next = r
	}
	if !c.running {
		c.running = true
		go c.work() //nolint:contextcheck // each round brings its own
	}
	c.mu.Unlock()

	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return context.Cause(ctx) //nolint:wrapcheck // Refresh names the operation
	}
}

// work runs rounds until nobody waits.
func (c *sharedCheck) work() {
	for {
		c.mu.Lock()
		r := c.next
		c.next = nil
		if r == nil {
			c.running = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()

		bounded, cancel := context.WithTimeout(r.ctx, checkTimeout)
		r.err = c.run(bounded)
		cancel()
		close(r.done)
	}
}
