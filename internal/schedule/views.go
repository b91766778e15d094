package schedule

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/delivery"
)

// Sample looks at the whole engine in one round trip. Its cost grows with the
// number of classes and partitions, never with the backlog.
func (e *Engine) Sample(ctx context.Context, classes []string) (Sample, error) {
	args := make([]any, len(classes))
	s := Sample{}
	due := map[int64]int64{}
	for i, c := range classes {
		args[i] = c
	}
	for _, c := range append(slices.Clone(classes), OtherClass) {
		for _, lane := range delivery.Lanes {
			s.Ages = append(s.Ages, Ages{Class: c, Lane: lane})
		}
	}
	calls := make([]call, len(e.parts))
	for p, prefix := range e.parts {
		calls[p] = call{e.scripts.sample, prefix, args}
	}
	open, late := make([]*redis.IntCmd, len(e.events)), make([]*redis.IntCmd, len(e.events))
	cmds, err := e.run(ctx, calls, func(p redis.Pipeliner) {
		for i, prefix := range e.events {
			open[i], late[i] = p.ZCard(ctx, prefix+"open"), p.ZCard(ctx, prefix+"late")
		}
	})
	if err != nil {
		return Sample{}, err
	}
	for i, cmd := range cmds {
		v, err := cmd.Result()
		if err == nil {
			err = errors.Join(open[i].Err(), late[i].Err())
		}
		if err != nil {
			return Sample{}, classify("sample", err)
		}
		r := newReply("sample", v)
		s.add(r, due)
		s.OpenEvents += open[i].Val()
		s.LateEvents += late[i].Val()
		if r.err != nil {
			return Sample{}, r.err
		}
	}
	minute := s.Now.UnixMilli() / time.Minute.Milliseconds()
	s.DueFrom = fromMillis(minute * time.Minute.Milliseconds())
	for i := range s.Due {
		s.Due[i] = max(0, due[minute+int64(i)])
	}
	if others := s.Ages[len(s.Ages)-len(delivery.Lanes):]; !slices.ContainsFunc(others, Ages.waits) {
		s.Ages = s.Ages[:len(s.Ages)-len(delivery.Lanes)]
	}
	return s, nil
}

// waits says whether anything does.
func (a Ages) waits() bool {
	return !a.Eligible.IsZero() || !a.Limited.IsZero() || !a.Held.IsZero()
}

// add takes in one partition's answer; due is what falls due by minute, since the
// partitions answer one after another, and a minute may end between two.
func (s *Sample) add(r *reply, due map[int64]int64) {
	if now := r.time(); now.After(s.Now) {
		s.Now = now
	}
	for _, field := range []*int64{
		&s.Leases, &s.ExpiredLeases, &s.Ready, &s.Scheduled, &s.Dead, &s.OnHold,
		&s.Ledger.Accepted, &s.Ledger.Pending, &s.Ledger.Delivered, &s.Ledger.Dead, &s.Ledger.Cancelled, &s.Held, &s.Limited,
	} {
		*field += r.number()
	}
	earlier(&s.OldestDead, r.time())
	minute := r.number()
	for i := range s.Due {
		due[minute+int64(i)] += r.number()
	}
	for i := range s.Ages {
		a := &s.Ages[i]
		for _, head := range []*time.Time{&a.Eligible, &a.Limited, &a.Held} {
			earlier(head, r.time())
		}
	}
}

// earlier keeps the earlier of two times, where zero is none.
func earlier(to *time.Time, t time.Time) {
	if !t.IsZero() && (to.IsZero() || t.Before(*to)) {
		*to = t
	}
}

// Delivery returns a delivery and the evidence of its attempts; ErrNotFound, or
// delivery.ErrBadID.
func (e *Engine) Delivery(ctx context.Context, id string) (Evidence, error) {
	p, err := e.partitionOfDelivery(id)
	if err != nil {
		return Evidence{}, err
	}
	ds, err := e.evidence(ctx, e.parts[p], []string{id})
	if err == nil && len(ds) == 0 {
		err = fmt.Errorf("delivery %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return Evidence{}, err
	}
	return ds[0], nil
}

// Deliveries returns those of the ids that exist, in order, in one round trip.
func (e *Engine) Deliveries(ctx context.Context, ids []string) ([]delivery.Delivery, error) {
	keys := make([]string, len(ids))
	for i, id := range ids {
		p, err := e.partitionOfDelivery(id)
		if err != nil {
			return nil, err
		}
		keys[i] = e.parts[p] + "d:" + id
	}
	cmds := make([]*redis.StringCmd, len(ids))
	err := e.read(ctx, "deliveries", func(p redis.Pipeliner) {
		for i, key := range keys {
			cmds[i] = p.Get(ctx, key)
		}
	})
	if err != nil {
		return nil, err
	}
	var out []delivery.Delivery
	for i, c := range cmds {
		if errors.Is(c.Err(), redis.Nil) {
			continue
		}
		r, err := decode(ids[i], c.Val()) //nolint:gosec // there is one for each id
		if err != nil {
			return nil, err
		}
		out = append(out, r.Delivery)
	}
	return out, nil
}

// DeadLetters returns the newest dead letters over all partitions, with their
// evidence.
func (e *Engine) DeadLetters(ctx context.Context, limit int) ([]Evidence, error) {
	heads := make([]*redis.ZSliceCmd, len(e.parts))
	err := e.read(ctx, "dead letters", func(p redis.Pipeliner) {
		for i, prefix := range e.parts {
			heads[i] = p.ZRevRangeWithScores(ctx, prefix+"dead", 0, int64(limit)-1)
		}
	})
	if err != nil {
		return nil, err
	}
	all := merge(heads)
	slices.Reverse(all) // the newest first
	byPart := make(map[int][]string)
	for _, z := range all[:min(limit, len(all))] {
		id, _ := z.Member.(string)
		p, err := e.partitionOfDelivery(id)
		if err != nil {
			return nil, err
		}
		byPart[p] = append(byPart[p], id)
	}
	var out []Evidence
	for p, ids := range byPart {
		ds, err := e.evidence(ctx, e.parts[p], ids)
		if err != nil {
			return nil, err
		}
		out = append(out, ds...)
	}
	slices.SortStableFunc(out, func(a, b Evidence) int { return b.EndedAt.Compare(a.EndedAt) })
	return out, nil
}

// merge joins lists of several partitions into one, by score.
func merge(lists []*redis.ZSliceCmd) []redis.Z {
	var all []redis.Z
	for _, l := range lists {
		all = append(all, l.Val()...)
	}
	slices.SortStableFunc(all, func(a, b redis.Z) int { return cmp.Compare(a.Score, b.Score) })
	return all
}

// evidence reads records and attempts of deliveries of one partition.
func (e *Engine) evidence(ctx context.Context, prefix string, ids []string) ([]Evidence, error) {
	recs := make([]*redis.StringCmd, len(ids))
	atts := make([]*redis.StringSliceCmd, len(ids))
	err := e.read(ctx, "evidence", func(p redis.Pipeliner) {
		for i, id := range ids {
			recs[i] = p.Get(ctx, prefix+"d:"+id)
			atts[i] = p.LRange(ctx, prefix+"att:"+id, 0, -1)
		}
	})
	if err != nil {
		return nil, err
	}
	var out []Evidence
	for i, id := range ids {
		if errors.Is(recs[i].Err(), redis.Nil) {
			continue
		}
		r, err := decode(id, recs[i].Val())
		if err != nil {
			return nil, err
		}
		d := DeadLetter{Delivery: r.Delivery, Reason: r.Reason}
		for _, text := range atts[i].Val() {
			var a delivery.Attempt
			if err := json.Unmarshal([]byte(text), &a); err != nil {
				return nil, fmt.Errorf("attempts of %s: %w", id, err)
			}
			d.History = append(d.History, a)
		}
		out = append(out, d)
	}
	return out, nil
}
