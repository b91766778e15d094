package schedule

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/delivery"
)

// Gap is a kind of thing that does not add up: something that was accepted and may get
// no outcome, or is counted wrongly.
type Gap string

// The gaps.
const (
	GapNoRecord   Gap = "no_record"   // it stands somewhere and has no record, or a damaged one
	GapNoPlace    Gap = "no_place"    // scheduled and in no lane, or dead and in no list of the dead
	GapNoLease    Gap = "no_lease"    // leased, and no lease of it ends
	GapNotPending Gap = "not_pending" // pending and not counted as that: it would never expire
	GapStray      Gap = "stray"       // it stands where it must not
	GapClaim      Gap = "claim"       // a redrive has it and does not know of it, or is there no more
	GapLeases     Gap = "leases"      // a subscriber's count of leases is off
	GapLedger     Gap = "ledger"      // accepted is not pending + delivered + dead + cancelled
	GapUnexpanded Gap = "unexpanded"  // an event's expansion is closed, and a delivery of its plan is not there
	GapLate       Gap = "late"        // an event was not expanded by its expand_by
)

// Gaps are all kinds, for metrics.
var Gaps = []Gap{
	GapNoRecord, GapNoPlace, GapNoLease, GapNotPending, GapStray, GapClaim, GapLeases, GapLedger, GapUnexpanded, GapLate,
}

// Finding is one gap.
type Finding struct {
	Gap Gap
	// ID of the delivery, subscriber or event; the partition's prefix for the ledger.
	ID string
}

// Inspection is a step of a walk over all that is kept.
type Inspection struct {
	Found []Finding
	// Looked is how many deliveries, places and events the step looked at.
	Looked int
	// Next is where the walk goes on; "" once it has come round.
	Next string
}

// The walk: the records and events as SCAN has them, node by node, then the places of
// each partition, order by order.
const (
	inspectPage = 250
	// youngFor is how long after its accept an event may still be under way.
	youngFor = 2 * time.Minute
)

// Inspect takes a step of the walk that began with "". A step is a few round trips, of
// about 250 deliveries each; whoever calls decides how many it takes a second.
//
// What is written meanwhile may or may not be looked at. Nothing found is a transition
// under way: each delivery is seen at one instant.
func (e *Engine) Inspect(ctx context.Context, from string) (Inspection, error) {
	kind, at, _ := strings.Cut(from, " ")
	switch kind {
	case "", "keys":
		return e.inspectKeys(ctx, at)
	case "places":
		return e.inspectPlaces(ctx, at)
	}
	return Inspection{}, fmt.Errorf("inspect: no step %q", from)
}

// inspectKeys looks at a page of SCAN. at is "node cursor".
func (e *Engine) inspectKeys(ctx context.Context, at string) (Inspection, error) {
	node, cursor := 0, uint64(0)
	if at != "" {
		if _, err := fmt.Sscanf(at, "%d %d", &node, &cursor); err != nil {
			return Inspection{}, fmt.Errorf("inspect: step %q: %w", at, err)
		}
	}
	nodes, err := e.nodes(ctx)
	if err != nil {
		return Inspection{}, err
	}
	if node >= len(nodes) { // a cluster that shrank
		return Inspection{Next: walk{sub: -1}.String()}, nil
	}
	keys, next, err := nodes[node].Scan(ctx, cursor, "{fo:*", inspectPage).Result()
	if err != nil {
		return Inspection{}, classify("inspect", err)
	}
	in := Inspection{Looked: len(keys)}
	byPart := map[string][]any{}
	var events []string
	for _, key := range keys {
		prefix, rest, _ := strings.Cut(key, "}:")
		if id, ok := strings.CutPrefix(rest, "d:"); ok {
			byPart[prefix+"}:"] = append(byPart[prefix+"}:"], id)
		}
		if id, ok := strings.CutPrefix(rest, "ev:"); ok && strings.HasPrefix(prefix, "{fo:e") {
			events = append(events, id)
		}
	}
	if err := e.inspectRecords(ctx, &in, byPart); err != nil {
		return Inspection{}, err
	}
	if err := e.inspectEvents(ctx, &in, events); err != nil {
		return Inspection{}, err
	}
	switch {
	case next != 0:
		in.Next = fmt.Sprintf("keys %d %d", node, next)
	case node+1 < len(nodes):
		in.Next = fmt.Sprintf("keys %d 0", node+1)
	default:
		in.Next = walk{sub: -1}.String()
	}
	return in, nil
}

// nodes are those that hold keys, in an order that stays while they do.
func (e *Engine) nodes(ctx context.Context) ([]redis.Cmdable, error) {
	cluster, ok := e.rdb.(*redis.ClusterClient)
	if !ok {
		return []redis.Cmdable{e.rdb}, nil
	}
	var out []redis.Cmdable
	seen := map[*redis.Client]bool{}
	for _, prefixes := range [][]string{e.parts, e.events} {
		for _, prefix := range prefixes {
			node, err := cluster.MasterForKey(ctx, prefix)
			if err != nil {
				return nil, classify("inspect", err)
			}
			if !seen[node] {
				seen[node] = true
				out = append(out, node)
			}
		}
	}
	return out, nil
}

func (e *Engine) inspectRecords(ctx context.Context, in *Inspection, byPart map[string][]any) error {
	var calls []call
	for prefix, ids := range byPart {
		calls = append(calls, call{e.scripts.inspect, prefix, ids})
	}
	if len(calls) == 0 {
		return nil
	}
	cmds, err := e.run(ctx, calls)
	if err != nil {
		return err
	}
	for _, cmd := range cmds {
		if err := in.take(cmd, ""); err != nil {
			return err
		}
	}
	return nil
}

// take takes a script's pairs in. whose stands for the id "-".
func (in *Inspection) take(cmd *redis.Cmd, whose string) error {
	words, err := cmd.StringSlice()
	if err != nil {
		return classify("inspect", err)
	}
	for i := 0; i+1 < len(words); i += 2 {
		id := words[i]
		if id == "-" {
			id = whose
		}
		in.Found = append(in.Found, Finding{Gap(words[i+1]), id})
	}
	return nil
}

// inspectEvents looks for events whose expansion is closed and whose deliveries are not
// all there. It looks at those whose deliveries cannot have been forgotten yet.
func (e *Engine) inspectEvents(ctx context.Context, in *Inspection, ids []string) error {
	now, err := e.Now(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		ev, err := e.Event(ctx, id)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		age := now.Sub(ev.AcceptedAt)
		if ev.Open || age < youngFor || age > e.opts.DeliveredRetention/2 || len(ev.SubscriberIDs) == 0 {
			continue
		}
		planned := make([]string, len(ev.SubscriberIDs))
		for i, sub := range ev.SubscriberIDs {
			planned[i] = delivery.NewID(id, sub)
		}
		in.Looked += len(planned)
		missing, err := e.missing(ctx, planned)
		if err != nil {
			return err
		}
		if missing {
			in.Found = append(in.Found, Finding{GapUnexpanded, id})
		}
	}
	return nil
}

// missing says whether one of the planned deliveries is neither there, in whatever
// state, nor discarded by an operator.
func (e *Engine) missing(ctx context.Context, planned []string) (bool, error) {
	keys := make([][2]string, len(planned))
	for i, id := range planned {
		part, err := e.partitionOfDelivery(id)
		if err != nil {
			return false, err
		}
		keys[i] = [2]string{e.parts[part] + "d:" + id, e.parts[part] + "gone:" + id}
	}
	marks := make([]*redis.IntCmd, len(planned))
	err := e.read(ctx, "inspect", func(p redis.Pipeliner) {
		for i, pair := range keys {
			marks[i] = p.Exists(ctx, pair[0], pair[1])
		}
	})
	if err != nil {
		return false, err
	}
	for _, m := range marks {
		if m.Val() == 0 {
			return true, nil
		}
	}
	return false, nil
}
