package schedule

import (
	"context"
	"fmt"
)

// walk is where the inspection of places stands: in a partition, at a subscriber (-1
// before the first), in one of its orders, behind so many of its places.
type walk struct{ part, sub, order, place int }

func (w walk) String() string {
	return fmt.Sprintf("places %d %d %d %d", w.part, w.sub, w.order, w.place)
}

// The orders of a partition and of a subscriber.
var (
	partOrders = []string{"leases", "dead"}
	subOrders  = []string{"pend:", "q:f:", "q:r:", "q:d:", "dead:"}
)

// inspectPlaces looks for places without a record, at the subscribers' counts, and, at
// each partition's beginning, at its ledger and its late events.
func (e *Engine) inspectPlaces(ctx context.Context, at string) (Inspection, error) {
	var w walk
	if _, err := fmt.Sscanf(at, "%d %d %d %d", &w.part, &w.sub, &w.order, &w.place); err != nil {
		return Inspection{}, fmt.Errorf("inspect: step %q: %w", at, err)
	}
	in := Inspection{}
	if w.part >= len(e.parts) {
		return in, nil // come round
	}
	prefix := e.parts[w.part]
	if w.sub < 0 && w.order == 0 && w.place == 0 {
		if err := e.inspectLate(ctx, &in, w.part); err != nil {
			return in, err
		}
	}
	order, err := e.beginOrder(ctx, &in, w)
	if err != nil {
		return in, err
	}
	if order == "" {
		in.Next = walk{part: w.part + 1, sub: -1}.String()
		return in, nil
	}
	looked, err := e.inspectOrder(ctx, &in, prefix, order, w.place)
	if err != nil {
		return in, err
	}
	in.Next = w.next(looked).String()
	return in, nil
}

// beginOrder names the order that a step looks at, and looks at its subscriber's counts
// before the first; "" behind the last subscriber.
func (e *Engine) beginOrder(ctx context.Context, in *Inspection, w walk) (string, error) {
	if w.sub < 0 {
		return partOrders[w.order], nil
	}
	prefix := e.parts[w.part]
	subs, err := e.subscribersFrom(ctx, prefix, w.sub)
	if err != nil || len(subs) == 0 {
		return "", err
	}
	if w.order == 0 && w.place == 0 {
		err = e.inspectCounts(ctx, in, prefix, subs)
	}
	return subOrders[w.order] + subs[0], err
}

// next is the step after one that has looked at so many places.
func (w walk) next(looked int) walk {
	orders := len(subOrders)
	if w.sub < 0 {
		orders = len(partOrders)
	}
	switch {
	case looked == inspectPage:
		w.place += looked
	case w.order+1 < orders:
		w.order, w.place = w.order+1, 0
	default:
		w.sub, w.order, w.place = w.sub+1, 0, 0
	}
	return w
}

func (e *Engine) inspectOrder(ctx context.Context, in *Inspection, prefix, order string, from int) (looked int, err error) {
	v, err := e.run1(ctx, e.scripts.inspectPlaces, prefix, order, from, from+inspectPage-1)
	if err != nil {
		return 0, err
	}
	r := newReply("inspect", v)
	looked = int(r.number())
	for r.more() {
		in.Found = append(in.Found, Finding{GapNoRecord, r.text()})
	}
	in.Looked += looked
	return looked, r.err
}

func (e *Engine) inspectCounts(ctx context.Context, in *Inspection, prefix string, subs []string) error {
	args := make([]any, len(subs))
	for i, id := range subs {
		args[i] = id
	}
	cmds, err := e.run(ctx, []call{{e.scripts.inspectCounts, prefix, args}})
	if err != nil {
		return err
	}
	return in.take(cmds[0], prefix)
}

// subscribersFrom reads one subscriber of a partition, the nth in order of ids.
func (e *Engine) subscribersFrom(ctx context.Context, prefix string, n int) ([]string, error) {
	ids, err := e.rdb.ZRange(ctx, prefix+"subs", int64(n), int64(n)).Result()
	return ids, classify("inspect", err)
}

// inspectLate looks at an event partition's events that were not expanded in time, and
// at the ledger, which must add up though a partition has no subscriber.
func (e *Engine) inspectLate(ctx context.Context, in *Inspection, part int) error {
	ids, err := e.rdb.ZRange(ctx, e.events[part]+"late", 0, inspectPage-1).Result()
	if err != nil {
		return classify("inspect", err)
	}
	for _, id := range ids {
		in.Found = append(in.Found, Finding{GapLate, id})
	}
	in.Looked += len(ids)
	return e.inspectCounts(ctx, in, e.parts[part], nil)
}
