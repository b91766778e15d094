package subscriber

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// MaxList is the most that List gives at once.
const MaxList = 1000

// ListFilter narrows a List; what is "" narrows nothing.
type ListFilter struct {
	Account, Class string
}

func (f ListFilter) fits(s *Subscriber) bool {
	return (f.Account == "" || f.Account == s.Account) && (f.Class == "" || f.Class == s.Class)
}

// List reads up to limit (1 to MaxList) subscribers that fit the filter and whose
// ids are after the given one, by id. Fewer than limit are the last. It returns
// ErrUnreadable if one of them is sealed under a key that is not here.
//
// Without a filter it reads a page. With one it reads from the Directory if there
// is one (WithDirectory), else every subscriber up to the last that fits.
func (s *Store) List(ctx context.Context, f ListFilter, after string, limit int) ([]Subscriber, error) {
	if limit < 1 || limit > MaxList {
		return nil, fmt.Errorf("list subscribers: limit must be 1 to %d, is %d", MaxList, limit)
	}
	if f != (ListFilter{}) && s.dir != nil {
		if err := s.dir.Refresh(ctx); err != nil {
			return nil, fmt.Errorf("list subscribers: %w", err)
		}
		return s.dir.list(f, after, limit)
	}
	subs := make([]Subscriber, 0, limit)
	for len(subs) < limit {
		page := limit - len(subs)
		if f != (ListFilter{}) {
			page = MaxList // most may not fit
		}
		configs, err := s.backend.ListConfigs(ctx, after, page)
		if err != nil {
			return nil, fmt.Errorf("list subscribers: %w", err)
		}
		if len(configs) == 0 {
			break
		}
		after = configs[len(configs)-1].ID
		if subs, err = s.pick(subs, f, configs); err != nil {
			return nil, err
		}
	}
	return subs[:min(limit, len(subs))], nil
}

// pick appends those that fit.
func (s *Store) pick(subs []Subscriber, f ListFilter, configs []config) ([]Subscriber, error) {
	for _, c := range configs {
		if gone(c) {
			continue
		}
		sub, err := s.codec.unmarshal(c)
		if sub != nil && !f.fits(sub) {
			continue // readable or not
		}
		if err != nil {
			return nil, err
		}
		subs = append(subs, *sub)
	}
	return subs, nil
}

// list is List over what is in memory. It looks at every subscriber, which is some
// milliseconds for 100,000.
func (d *Directory) list(f ListFilter, after string, limit int) ([]Subscriber, error) {
	var fit []reading
	d.mu.RLock()
	for id, filed := range d.index.filed {
		if id > after && f.fits(filed.sub) {
			fit = append(fit, reading{filed.sub, d.unread[id]})
		}
	}
	d.mu.RUnlock()
	slices.SortFunc(fit, func(a, b reading) int { return strings.Compare(a.ID, b.ID) })
	fit = fit[:min(limit, len(fit))]
	subs := make([]Subscriber, len(fit))
	for i, s := range fit {
		if s.unread != nil {
			return nil, fmt.Errorf("list subscribers: %w", s.unread)
		}
		subs[i] = *s.Subscriber
	}
	return subs, nil
}
