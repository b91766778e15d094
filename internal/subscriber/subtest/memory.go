// Package subtest answers: does a Backend keep its word?
//
// Run is the contract suite of subscriber.Backend and of what stands on it, to be
// run over every implementation. Memory is one, for tests that need subscribers
// and no Redis.
package subtest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
)

var _ subscriber.Backend = (*Memory)(nil)

// Memory is a Backend in memory, faithful to the obligations of the interface.
type Memory struct {
	// Before, if set, is called at the start of every operation, outside of any
	// lock: it may block, and its error is the operation's. Set it before use.
	Before func(ctx context.Context, op string) error

	mu      sync.Mutex
	configs map[string]*entry
	gens    []int64
}

type entry struct {
	schedule.Config
	schedule.Terms
	change          schedule.Change
	gen             int64
	waiting, leased int
	owner           string // of one that is deleted
}

// NewMemory is an empty Memory of so many partitions.
func NewMemory(partitions int) *Memory {
	return &Memory{configs: map[string]*entry{}, gens: make([]int64, partitions)}
}

// Now is the time, as Redis would tell it.
func (m *Memory) Now(context.Context) (time.Time, error) { return time.Now(), nil }

func (m *Memory) begin(ctx context.Context, op string) (unlock func(), err error) {
	if m.Before != nil {
		if err := m.Before(ctx, op); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	m.mu.Lock()
	return m.mu.Unlock, nil
}

func (m *Memory) partition(id string) int { return int(delivery.Hash16(id)) % len(m.gens) }

// touch dates an entry with a new generation of its partition.
func (m *Memory) touch(e *entry) {
	p := m.partition(e.ID)
	m.gens[p]++
	e.gen = m.gens[p]
}

// PutConfig implements subscriber.Backend.
func (m *Memory) PutConfig(ctx context.Context, id string, expect int64, blob []byte, t schedule.Terms, c schedule.Change) (int64, error) {
	unlock, err := m.begin(ctx, "put config")
	if err != nil {
		return 0, err
	}
	defer unlock()
	e := m.configs[id]
	switch {
	case e != nil && !e.Deleted && e.Version == expect+1 && bytes.Equal(e.Blob, blob):
		return e.Version, nil // the same call again
	case expect > 0 && (e == nil || e.Deleted):
		return 0, fmt.Errorf("put config: %w", schedule.ErrNotFound)
	case expect > 0 && e.Version != expect, expect == 0 && e != nil:
		return 0, fmt.Errorf("put config: %w", schedule.ErrVersion)
	}
	if e == nil {
		e = &entry{Config: schedule.Config{ID: id}}
		m.configs[id] = e
	}
	e.Version++
	e.Blob, e.Terms, e.change = slices.Clone(blob), t, c
	m.touch(e)
	return e.Version, nil
}

// Config implements subscriber.Backend.
func (m *Memory) Config(ctx context.Context, id string) (schedule.Config, error) {
	unlock, err := m.begin(ctx, "config")
	if err != nil {
		return schedule.Config{}, err
	}
	defer unlock()
	e := m.configs[id]
	if e == nil || e.Deleted {
		return schedule.Config{}, fmt.Errorf("config: %w", schedule.ErrNotFound)
	}
	return e.Config, nil
}

// ListConfigs implements subscriber.Backend.
func (m *Memory) ListConfigs(ctx context.Context, after string, limit int) ([]schedule.Config, error) {
	unlock, err := m.begin(ctx, "list configs")
	if err != nil {
		return nil, err
	}
	defer unlock()
	var list []schedule.Config
	for id, e := range m.configs {
		if id > after && !e.Deleted {
			list = append(list, e.Config)
		}
	}
	slices.SortFunc(list, byID)
	return list[:min(limit, len(list))], nil
}

// Generations implements subscriber.Backend.
func (m *Memory) Generations(ctx context.Context) ([]int64, error) {
	unlock, err := m.begin(ctx, "generations")
	if err != nil {
		return nil, err
	}
	defer unlock()
	return slices.Clone(m.gens), nil
}

// Changes implements subscriber.Backend.
func (m *Memory) Changes(ctx context.Context, partition int, since int64) ([]schedule.Config, int64, error) {
	unlock, err := m.begin(ctx, "changes")
	if err != nil {
		return nil, 0, err
	}
	defer unlock()
	var list []schedule.Config
	for id, e := range m.configs {
		if m.partition(id) == partition && e.gen > since {
			list = append(list, e.Config)
		}
	}
	slices.SortFunc(list, byID)
	return list, m.gens[partition], nil
}

func byID(a, b schedule.Config) int { return strings.Compare(a.ID, b.ID) }

// Tombstone implements subscriber.Backend.
func (m *Memory) Tombstone(ctx context.Context, id, owner string) error {
	unlock, err := m.begin(ctx, "tombstone")
	if err != nil {
		return err
	}
	defer unlock()
	e := m.configs[id]
	if e == nil {
		return fmt.Errorf("tombstone: %w", schedule.ErrNotFound)
	}
	if !e.Deleted {
		e.Deleted, e.Blob, e.owner = true, nil, owner
		e.Version++
		m.touch(e)
	}
	return nil
}

// Owners implements subscriber.Backend.
func (m *Memory) Owners(ctx context.Context, ids []string) ([]string, error) {
	unlock, err := m.begin(ctx, "owners")
	if err != nil {
		return nil, err
	}
	defer unlock()
	out := make([]string, len(ids))
	for i, id := range ids {
		if e := m.configs[id]; e != nil {
			out[i] = e.owner
		}
	}
	return out, nil
}

// CancelPending implements subscriber.Backend.
func (m *Memory) CancelPending(ctx context.Context, id string, limit int) (cancelled, remaining, leases int, err error) {
	unlock, err := m.begin(ctx, "cancel pending")
	if err != nil {
		return 0, 0, 0, err
	}
	defer unlock()
	e := m.configs[id]
	if e == nil {
		return 0, 0, 0, fmt.Errorf("cancel pending: %w", schedule.ErrNotFound)
	}
	cancelled = min(limit, e.waiting)
	e.waiting -= cancelled
	return cancelled, e.waiting, e.leased, nil
}

// Told is what the last PutConfig told the scheduler.
func (m *Memory) Told(id string) (schedule.Terms, schedule.Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.configs[id]
	return e.Terms, e.change
}

// Enqueue gives a subscriber n deliveries.
func (m *Memory) Enqueue(id string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.configs[id].waiting += n
}

// Lease takes one of a subscriber's deliveries, until end is called.
func (m *Memory) Lease(id string) (end func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.configs[id]
	e.waiting--
	e.leased++
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		e.leased--
	}
}

// Keep remembers everything as it is, and returns what takes it back to there:
// what a failover to a replica that lagged does.
func (m *Memory) Keep() (restore func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	configs, gens := map[string]*entry{}, slices.Clone(m.gens)
	for id, e := range m.configs {
		c := *e
		configs[id] = &c
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.configs, m.gens = configs, gens
	}
}
