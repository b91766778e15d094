package subscriber

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fanout/fanout/internal/seal"
)

// checkEvery is how often a Checkup looks. It costs one round trip if no
// subscriber has changed.
const checkEvery = 5 * time.Second

// checkPage is how many subscribers are read at once.
const checkPage = 500

var errNotChecked = errors.New("the keys of subscribers are not checked yet")

// Checkup tells a process whether it has the key of every subscriber, before
// deliveries find out one by one: one that lacks a key must report that it is not
// ready. It keeps nothing of those that can be opened.
type Checkup struct {
	backend Backend
	codec   codec

	seen []int64 // per partition, the generation looked at; nil before the first look

	first  chan struct{} // closed once the first look has ended, well or not
	mu     sync.Mutex
	looked bool
	locked map[string]error // by subscriber
}

// NewCheckup is a Checkup; Run it.
func NewCheckup(b Backend, opts ...Option) *Checkup {
	return &Checkup{backend: b, codec: apply(opts).codec, first: make(chan struct{}), locked: map[string]error{}}
}

// Run looks at once and then at its interval, until ctx ends; once in a Checkup's life.
// A look that fails is made up for by the next: whether Redis answers is for others to
// report.
func (c *Checkup) Run(ctx context.Context) error {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for begun := false; ; begun = true {
		_ = c.Look(ctx)
		if !begun {
			close(c.first)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Ready is nil, or ErrUnreadable with how many subscribers this process has no key
// for, one of them, and what to do. Who asks before the first look has ended waits for
// it, as long as ctx lasts: a process that has just begun is not one in trouble.
func (c *Checkup) Ready(ctx context.Context) error {
	select {
	case <-c.first:
	case <-ctx.Done():
		return errNotChecked
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.looked {
		return errNotChecked
	}
	for _, err := range c.locked {
		return fmt.Errorf("%d subscribers cannot be sent to, such as: %w", len(c.locked), err)
	}
	return nil
}

// Look is one look at what has changed since the last. One at a time.
func (c *Checkup) Look(ctx context.Context) error {
	gens, err := c.backend.Generations(ctx)
	if err != nil {
		return fmt.Errorf("check keys: %w", err)
	}
	if c.behind(gens) {
		return c.all(ctx, gens)
	}
	for p, gen := range gens {
		if gen == c.seen[p] {
			continue
		}
		configs, upTo, err := c.backend.Changes(ctx, p, c.seen[p])
		if err != nil {
			return fmt.Errorf("check keys: read changes of partition %d: %w", p, err)
		}
		c.note(configs)
		c.seen[p] = upTo
	}
	return nil
}

// behind says whether to begin anew: at the start, and when Redis came back older
// than it was.
func (c *Checkup) behind(gens []int64) bool {
	if len(c.seen) != len(gens) {
		return true
	}
	for p, gen := range gens {
		if gen < c.seen[p] {
			return true
		}
	}
	return false
}

// all looks at every subscriber, in pages: what changes meanwhile is past gens, and
// for the next look.
func (c *Checkup) all(ctx context.Context, gens []int64) error {
	c.mu.Lock()
	clear(c.locked)
	c.looked = false
	c.mu.Unlock()
	for after := ""; ; {
		configs, err := c.backend.ListConfigs(ctx, after, checkPage)
		if err != nil {
			return fmt.Errorf("check keys: %w", err)
		}
		if len(configs) == 0 {
			break
		}
		c.note(configs)
		after = configs[len(configs)-1].ID
	}
	c.seen = gens
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looked = true
	return nil
}

// note takes down which of them lack a key. One that is damaged is not among them:
// it would keep the process from serving all others, and no key mends it.
func (c *Checkup) note(configs []config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, from := range configs {
		delete(c.locked, from.ID)
		if gone(from) {
			continue
		}
		if _, err := c.codec.unmarshal(from); errors.Is(err, seal.ErrUnknownKey) {
			c.locked[from.ID] = err
		}
	}
}
