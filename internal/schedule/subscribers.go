package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// PutConfig writes a subscriber and returns its new version. expect is the
// version that it must be at: 0 for one that must not exist yet, -1 for any.
// ErrVersion if it is at another; ErrNotFound if it does not exist or is deleted.
//
// Every attempt leased after PutConfig returns sees the new version.
func (e *Engine) PutConfig(
	ctx context.Context, id string, expect int64, blob []byte, t Terms, c Change,
) (int64, error) {
	v, err := e.run1(ctx, e.scripts.putConfig, e.parts[e.PartitionOf(id)],
		id, expect, blob, t.Class, t.words(), e.opts.InitialCap*capUnit, string(c))
	if err != nil {
		return 0, fmt.Errorf("subscriber %s: %w", id, err)
	}
	n, ok := v.(int64)
	if !ok {
		return 0, fmt.Errorf("put_config: script returned %T, not a version", v)
	}
	return n, nil
}

// words are the terms as lua/subscriber.lua reads them, from max_in_flight on.
func (t Terms) words() string {
	every, burst := "0", 0
	if t.RatePerSecond > 0 {
		every, burst = strconv.FormatFloat(1000/t.RatePerSecond, 'f', 6, 64), max(t.Burst, 1)
	}
	paused := 0
	if t.Paused {
		paused = 1
	}
	return fmt.Sprintf("%d %d %s %d %d %d %d", max(t.MaxInFlight, 1), t.LeaseTime.Milliseconds(), every, burst,
		cmp.Or(t.BreakerFailures, defaultBreakerFailures), cmp.Or(t.MaxHeld, defaultMaxHeld), paused)
}

// What stands for 0 in Terms.
const (
	defaultBreakerFailures = 5
	defaultMaxHeld         = 100_000
)

// Config reads a subscriber; ErrNotFound if there is none or it is deleted.
func (e *Engine) Config(ctx context.Context, id string) (Config, error) {
	cs, err := e.configs(ctx, []string{id})
	if err != nil {
		return Config{}, err
	}
	if cs[0].Version == 0 || cs[0].Deleted {
		return Config{}, fmt.Errorf("subscriber %s: %w", id, ErrNotFound)
	}
	return cs[0], nil
}

// configs reads subscribers in one round trip. One that does not exist has
// version 0.
func (e *Engine) configs(ctx context.Context, ids []string) ([]Config, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	hashes := make([]*redis.SliceCmd, len(ids))
	blobs := make([]*redis.StringCmd, len(ids))
	// Version before blob: if a change comes between, a new blob is filed under the
	// old version and will be read again, never an old blob under the new one.
	err := e.read(ctx, "config", func(p redis.Pipeliner) {
		for i, id := range ids {
			prefix := e.parts[e.PartitionOf(id)]
			hashes[i] = p.HMGet(ctx, prefix+"sub:"+id, "v", "tomb")
			blobs[i] = p.Get(ctx, prefix+"cfg:"+id)
		}
	})
	if err != nil {
		return nil, err
	}
	out := make([]Config, len(ids))
	for i, id := range ids {
		out[i].ID = id
		h := hashes[i].Val()
		if h[0] == nil {
			continue
		}
		r := newReply("config", h)
		out[i].Version = r.number()
		out[i].Blob = []byte(blobs[i].Val())
		// Without a blob it was deleted between the two reads.
		out[i].Deleted = h[1] != nil || len(out[i].Blob) == 0
		if r.err != nil {
			return nil, r.err
		}
	}
	return out, nil
}

// ListConfigs returns up to limit subscribers by id, after the given one, over
// all partitions.
func (e *Engine) ListConfigs(ctx context.Context, after string, limit int) ([]Config, error) {
	from := "-"
	if after != "" {
		from = "(" + after
	}
	lists := make([]*redis.StringSliceCmd, len(e.parts))
	err := e.read(ctx, "list configs", func(p redis.Pipeliner) {
		for i, prefix := range e.parts {
			lists[i] = p.ZRangeByLex(ctx, prefix+"subs", &redis.ZRangeBy{Min: from, Max: "+", Count: int64(limit)})
		}
	})
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, l := range lists {
		ids = append(ids, l.Val()...)
	}
	slices.Sort(ids)
	out, err := e.configs(ctx, ids[:min(limit, len(ids))])
	// One deleted between the two reads is simply not there.
	out = slices.DeleteFunc(out, func(c Config) bool { return c.Version == 0 || c.Deleted })
	return out, err
}

// Generations returns, per partition, a number that grows with each change of a
// subscriber there. One round trip.
func (e *Engine) Generations(ctx context.Context) ([]int64, error) {
	cmds := make([]*redis.StringCmd, len(e.parts))
	err := e.read(ctx, "generations", func(p redis.Pipeliner) {
		for i, prefix := range e.parts {
			cmds[i] = p.Get(ctx, prefix+"gen")
		}
	})
	if err != nil {
		return nil, err
	}
	out := make([]int64, len(cmds))
	for i, c := range cmds {
		// A partition in which nothing was ever written has none: 0.
		if out[i], err = c.Int64(); err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("generations: %w", err)
		}
	}
	return out, nil
}

// changesPage bounds one round trip of Changes.
const changesPage = 1000

// Changes returns the subscribers of a partition that changed after generation
// since, each as it is now (tombstones too), and the generation that this covers.
func (e *Engine) Changes(ctx context.Context, partition int, since int64) ([]Config, int64, error) {
	prefix := e.parts[partition]
	gen := since
	var out []Config
	for {
		var cmd *redis.ZSliceCmd
		err := e.read(ctx, "changes", func(p redis.Pipeliner) {
			cmd = p.ZRangeByScoreWithScores(ctx, prefix+"changes", &redis.ZRangeBy{
				Min: fmt.Sprintf("(%d", gen), Max: "+inf", Count: changesPage,
			})
		})
		if err != nil {
			return nil, since, err
		}
		page := cmd.Val()
		ids := make([]string, len(page))
		for i, z := range page {
			ids[i] = z.Member.(string) //nolint:forcetypeassert,errcheck // go-redis returns strings
			gen = int64(z.Score)
		}
		cs, err := e.configs(ctx, ids)
		if err != nil {
			return nil, since, err
		}
		out = append(out, cs...)
		if len(page) < changesPage {
			return out, gen, nil
		}
	}
}

// Owners says whose the subscribers were that are deleted, as Tombstone was told: a
// word for each id, in their order, "" for one that is not deleted or whose owner is
// not known. One round trip.
func (e *Engine) Owners(ctx context.Context, ids []string) ([]string, error) {
	cmds := make([]*redis.SliceCmd, len(ids))
	err := e.read(ctx, "owners", func(p redis.Pipeliner) {
		for i, id := range ids {
			cmds[i] = p.HMGet(ctx, e.parts[e.PartitionOf(id)]+"sub:"+id, "owner")
		}
	})
	if err != nil {
		return nil, err
	}
	out := make([]string, len(ids))
	for i, cmd := range cmds {
		out[i], _ = cmd.Val()[0].(string) // nil without one
	}
	return out, nil
}

// Tombstone deletes a subscriber: nothing is leased or enqueued for it once this
// has returned. The owner is kept with it for ever; "" if that is not known. ErrNotFound
// if there was none. Deleting again is no error, and leaves the first owner.
func (e *Engine) Tombstone(ctx context.Context, id, owner string) error {
	_, err := e.run1(ctx, e.scripts.tombstone, e.parts[e.PartitionOf(id)], id, owner)
	if err != nil {
		return fmt.Errorf("subscriber %s: %w", id, err)
	}
	return nil
}

// CancelPending cancels up to limit of a subscriber's pending deliveries. It
// returns how many, how many remain pending, and how many leases are still open:
// requests that may be on the wire.
func (e *Engine) CancelPending(ctx context.Context, id string, limit int) (cancelled, remaining, leases int, err error) {
	v, err := e.run1(ctx, e.scripts.cancel, e.parts[e.PartitionOf(id)],
		id, limit, e.opts.DeliveredRetention.Milliseconds())
	if err != nil {
		return 0, 0, 0, fmt.Errorf("subscriber %s: %w", id, err)
	}
	r := newReply("cancel", v)
	cancelled, remaining, leases = int(r.number()), int(r.number()), int(r.number())
	return cancelled, remaining, leases, r.err
}
