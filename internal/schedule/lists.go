package schedule

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/fanout/fanout/internal/delivery"
)

// ListState is what deliveries of a subscriber can be listed by: the states that have
// an order of their own. Those that are delivered or cancelled have none, as it would
// cost each delivery more than it is worth; they are found by their event.
type ListState string

// The states to list by.
const (
	ListPending   ListState = "pending" // scheduled and leased
	ListScheduled ListState = "scheduled"
	ListLeased    ListState = "leased"
	ListDead      ListState = "dead"
)

// DeliveryQuery names a list of deliveries.
type DeliveryQuery struct {
	SubscriberID string
	State        ListState // default ListPending
}

// scanMost is how many deliveries one call looks at: those scheduled or leased are
// picked from all that are pending, and a page may come back short.
const scanMost = 1000

// MaxPage is the most that a page of a list holds.
const MaxPage = 1000

// ListDeliveries returns up to limit (1 to MaxPage) deliveries of a subscriber, and the
// cursor for those that follow, "" at the end. A page may hold fewer, or none, and have
// a next. Pending ones come in the order in which they expire, dead ones newest first.
//
// A delivery that is in the list all the while is returned once, whatever comes and
// goes meanwhile. Errors: ErrCursor.
func (e *Engine) ListDeliveries(
	ctx context.Context, q DeliveryQuery, after string, limit int,
) (page []delivery.Delivery, next string, err error) {
	order, direction, keep, err := q.order()
	if err != nil {
		return nil, "", err
	}
	if limit < 1 || limit > MaxPage {
		return nil, "", fmt.Errorf("list deliveries: limit must be 1 to %d, is %d", MaxPage, limit)
	}
	list := order + ":" + string(keep)
	at, err := parsePlace(list, after)
	if err != nil {
		return nil, "", err
	}
	prefix := e.parts[e.PartitionOf(q.SubscriberID)]
	for looked := 0; looked < scanMost; {
		places, err := e.readOn(ctx, []string{prefix}, order, direction, at, limit)
		if err != nil {
			return nil, "", err
		}
		known, err := e.standingAt(ctx, places)
		if err != nil {
			return nil, "", err
		}
		for _, p := range places {
			at = p
			if d, ok := known[p.id]; ok && (keep == "" || d.State == keep) {
				page = append(page, d)
			}
			if len(page) == limit {
				return page, at.cursor(list), nil
			}
		}
		if len(places) < limit {
			return page, "", nil
		}
		looked += len(places)
	}
	return page, at.cursor(list), nil
}

// order is where the deliveries of a query stand, which way it is read, and the state
// of those that are kept; "" for all.
func (q DeliveryQuery) order() (name string, direction int, keep delivery.State, err error) {
	switch q.State {
	case "", ListPending:
		return "pend:" + q.SubscriberID, up, "", nil
	case ListScheduled:
		return "pend:" + q.SubscriberID, up, delivery.Scheduled, nil
	case ListLeased:
		return "pend:" + q.SubscriberID, up, delivery.Leased, nil
	case ListDead:
		return "dead:" + q.SubscriberID, down, "", nil
	}
	return "", 0, "", fmt.Errorf("list deliveries: no list of state %q", q.State)
}

// standingAt reads the deliveries that stand at places.
func (e *Engine) standingAt(ctx context.Context, places []place) (map[string]delivery.Delivery, error) {
	ids := make([]string, len(places))
	for i, p := range places {
		ids[i] = p.id
	}
	found, err := e.Deliveries(ctx, ids)
	byID := make(map[string]delivery.Delivery, len(found))
	for _, d := range found {
		byID[d.ID] = d
	}
	return byID, err
}

// DeadLettersPage returns up to limit (1 to MaxPage) dead letters with their evidence,
// newest first, and the cursor for the older ones, "" at the end: of one subscriber, or
// of all if its id is "". It keeps ListDeliveries' promise.
func (e *Engine) DeadLettersPage(
	ctx context.Context, subscriberID, after string, limit int,
) (page []Evidence, next string, err error) {
	if limit < 1 || limit > MaxPage {
		return nil, "", fmt.Errorf("list dead letters: limit must be 1 to %d, is %d", MaxPage, limit)
	}
	order, prefixes := "dead", e.parts
	if subscriberID != "" {
		order, prefixes = "dead:"+subscriberID, []string{e.parts[e.PartitionOf(subscriberID)]}
	}
	at, err := parsePlace(order, after)
	if err != nil {
		return nil, "", err
	}
	places, err := e.readOn(ctx, prefixes, order, down, at, limit)
	if err != nil || len(places) == 0 {
		return nil, "", err
	}
	if len(places) == limit {
		next = places[limit-1].cursor(order)
	}
	byPart := map[int][]string{}
	rank := map[string]int{}
	for i, p := range places {
		part, err := e.partitionOfDelivery(p.id)
		if err != nil {
			return nil, "", err
		}
		byPart[part] = append(byPart[part], p.id)
		rank[p.id] = i
	}
	for part, ids := range byPart {
		found, err := e.evidence(ctx, e.parts[part], ids)
		if err != nil {
			return nil, "", err
		}
		page = append(page, found...)
	}
	slices.SortFunc(page, func(a, b Evidence) int { return cmp.Compare(rank[a.ID], rank[b.ID]) })
	return page, next, nil
}

// place is where a reader of an order stands: at the last delivery that it saw.
type place struct {
	score float64
	id    string // "" before the first
}

// The ways to read an order.
const (
	up   = 1
	down = -1
)

// readOn reads up to limit places behind one, over all of the partitions.
func (e *Engine) readOn(ctx context.Context, prefixes []string, order string, direction int, at place, limit int) ([]place, error) {
	score := ""
	if at.id != "" {
		score = strconv.FormatFloat(at.score, 'f', -1, 64)
	}
	calls := make([]call, len(prefixes))
	for i, prefix := range prefixes {
		calls[i] = call{e.scripts.page, prefix, []any{order, direction, limit, score, at.id}}
	}
	cmds, err := e.run(ctx, calls)
	if err != nil {
		return nil, err
	}
	var out []place
	for _, cmd := range cmds {
		words, err := cmd.StringSlice()
		if err != nil {
			return nil, classify("page", err)
		}
		for i := 0; i+1 < len(words); i += 2 {
			score, err := strconv.ParseFloat(words[i+1], 64)
			if err != nil {
				return nil, fmt.Errorf("page: score of %s: %w", words[i], err)
			}
			out = append(out, place{score, words[i]})
		}
	}
	slices.SortFunc(out, func(a, b place) int {
		return direction * cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.id, b.id))
	})
	return out[:min(limit, len(out))], nil
}

// cursor is the place as a caller keeps it: opaque, and good for its own list only.
func (p place) cursor(list string) string {
	text := strings.Join([]string{list, strconv.FormatFloat(p.score, 'f', -1, 64), p.id}, "|")
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

// parsePlace reads a cursor of a list; "" is before its first.
func parsePlace(list, cursor string) (place, error) {
	if cursor == "" {
		return place{}, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	words := strings.Split(string(text), "|")
	if err != nil || len(words) != 3 || words[0] != list {
		return place{}, ErrCursor
	}
	score, err := strconv.ParseFloat(words[1], 64)
	if _, bad := delivery.IDHash16(words[2]); err != nil || bad != nil || math.IsNaN(score) || math.IsInf(score, 0) {
		return place{}, ErrCursor
	}
	return place{score, words[2]}, nil
}

// RetryNow has a scheduled delivery fall due at once, and returns it. Its attempt
// budget and its subscriber's holds, cap and rate are as ever. One that is due already
// is left where it stands. Errors: ErrNotFound, ErrNotScheduled, delivery.ErrBadID.
func (e *Engine) RetryNow(ctx context.Context, id string) (delivery.Delivery, error) {
	p, err := e.partitionOfDelivery(id)
	if err != nil {
		return delivery.Delivery{}, err
	}
	v, err := e.run1(ctx, e.scripts.retryNow, e.parts[p], id)
	if err != nil {
		return delivery.Delivery{}, err
	}
	text, _ := v.(string)
	if text == "" {
		return delivery.Delivery{}, fmt.Errorf("delivery %s: %w", id, ErrNotScheduled)
	}
	r, err := decode(id, text)
	return r.Delivery, err
}

// CancelDelivery ends a pending delivery without another attempt, and returns it. A
// request that is on the wire is not called back: should it succeed, that is counted as
// a success that came too late to matter. One that is cancelled already is returned as
// it is. Errors: ErrNotFound, ErrFinal (delivered or dead), delivery.ErrBadID.
func (e *Engine) CancelDelivery(ctx context.Context, id string) (delivery.Delivery, error) {
	d, err := e.one(ctx, id)
	if err != nil {
		return delivery.Delivery{}, err
	}
	if d.State == delivery.Scheduled || d.State == delivery.Leased {
		prefix := e.parts[e.PartitionOf(d.SubscriberID)]
		if _, err := e.run1(ctx, e.scripts.cancel, prefix, d.SubscriberID, 1, e.opts.DeliveredRetention.Milliseconds(), id); err != nil {
			return delivery.Delivery{}, err
		}
		if d, err = e.one(ctx, id); err != nil {
			return delivery.Delivery{}, err
		}
	}
	if d.State != delivery.Cancelled {
		return d, fmt.Errorf("delivery %s is %s: %w", id, d.State, ErrFinal)
	}
	return d, nil
}

// one reads a delivery's record.
func (e *Engine) one(ctx context.Context, id string) (delivery.Delivery, error) {
	ds, err := e.Deliveries(ctx, []string{id})
	if err == nil && len(ds) == 0 {
		err = fmt.Errorf("delivery %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return delivery.Delivery{}, err
	}
	return ds[0], nil
}
