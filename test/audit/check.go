package audit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/delivery"
)

// Check reads everything and returns what does not add up, a sentence each; none
// if all is well. Open leases and pending deliveries are no fault.
func Check(ctx context.Context, rdb redis.UniversalClient) ([]string, error) {
	s, err := Read(ctx, rdb)
	if err != nil {
		return nil, err
	}
	return s.Faults(), nil
}

// checker gathers what is wrong.
type checker struct {
	*Snapshot

	faults []string
	places map[string][]string // delivery id -> where it stands, such as "q:f"
	open   map[string]int      // subscriber id -> leases that stand in `leases`
}

func (c *checker) sayf(format string, a ...any) {
	c.faults = append(c.faults, fmt.Sprintf(format, a...))
}

// Faults is what does not add up, in a stable order.
func (s *Snapshot) Faults() []string {
	c := &checker{Snapshot: s, faults: slices.Clone(s.damaged), places: map[string][]string{}, open: map[string]int{}}
	c.place()
	for _, id := range slices.Sorted(maps.Keys(s.Deliveries)) {
		c.delivery(id, s.Deliveries[id])
	}
	for id, places := range c.places {
		c.sayf("%s has no record and stands in %v", id, places)
	}
	c.compareLedgers()
	for _, id := range slices.Sorted(maps.Keys(s.Subscribers)) {
		c.subscriber(s.Subscribers[id])
	}
	for _, id := range slices.Sorted(maps.Keys(s.Events)) {
		c.event(s.Events[id])
	}
	return c.faults
}

// place notes where each delivery stands.
func (c *checker) place() {
	for key, members := range c.zsets {
		prefix, kind, id := split(key)
		if isEvents(prefix) {
			continue
		}
		var name string
		switch kind {
		case "q":
			lane, _, _ := strings.Cut(id, ":")
			name = "q:" + lane
		case "pend", "leases":
			name = kind
		case "dead":
			name = "dead"
			if id != "" {
				name = "dead of its subscriber"
			}
		default:
			continue
		}
		for m := range members {
			c.places[m] = append(c.places[m], name)
		}
	}
}

var queueOf = map[delivery.Lane]string{delivery.Fresh: "q:f", delivery.Retry: "q:r", delivery.Redrive: "q:d"}

// home is where a delivery must stand.
func home(d *Delivery) []string {
	switch d.State {
	case delivery.Scheduled:
		return []string{queueOf[d.Lane], "pend"}
	case delivery.Leased:
		return []string{"leases", "pend"}
	case delivery.Dead:
		return []string{"dead", "dead of its subscriber"}
	case delivery.Delivered, delivery.Cancelled:
	}
	return nil
}

func (c *checker) delivery(id string, d *Delivery) {
	places := c.places[id]
	delete(c.places, id)
	if d.ID == "" {
		c.sayf("%s has evidence and no record", id)
		return
	}
	want := home(d)
	for _, p := range places {
		if p == "leases" {
			c.open[d.SubscriberID]++
		}
		i := slices.Index(want, p)
		if i >= 0 {
			want = slices.Delete(want, i, i+1)
			continue
		}
		// A lease outlives its delivery's end until its worker is heard of.
		if p != "leases" || (d.State != delivery.Delivered && d.State != delivery.Cancelled) {
			c.sayf("%s is %s and stands in %v", id, d.State, places)
		}
	}
	if len(want) > 0 {
		c.sayf("%s is %s and is missing from %v (stands in %v)", id, d.State, want, places)
	}
	if got := int64(d.Attempts + d.Releases + min(d.LeaseLosses, delivery.MaxLeaseLosses)); got != d.DeliveryCount {
		c.sayf("%s: delivery_count %d, but attempts %d + releases %d + losses given back %d",
			id, d.DeliveryCount, d.Attempts, d.Releases, min(d.LeaseLosses, delivery.MaxLeaseLosses))
	}
	if s := c.Subscribers[d.SubscriberID]; s == nil || s.prefix != d.prefix {
		c.sayf("%s stands in %s, its subscriber %s does not", id, d.prefix, d.SubscriberID)
	}
	c.payload(d)
}

// payload checks that what is still to be sent, or kept as evidence, is there.
func (c *checker) payload(d *Delivery) {
	switch d.State {
	case delivery.Scheduled, delivery.Leased:
		if !c.bodies[d.EventID] {
			c.sayf("%s is %s and its event has no payload", d.ID, d.State)
		}
	case delivery.Dead:
		if d.Reason != delivery.PayloadMissing && !c.keys[d.prefix+"pin:"+d.EventID] {
			c.sayf("%s is dead and its payload is not pinned", d.ID)
		}
	case delivery.Delivered, delivery.Cancelled:
	}
}

// compareLedgers compares each partition's ledger with its records.
func (c *checker) compareLedgers() {
	said := map[string]Ledger{}
	for _, d := range c.Deliveries {
		l := said[d.prefix]
		l.Accepted++
		switch d.State {
		case delivery.Scheduled, delivery.Leased:
			l.Pending++
		case delivery.Delivered:
			l.Delivered++
		case delivery.Dead:
			l.Dead++
		case delivery.Cancelled:
			l.Cancelled++
		}
		said[d.prefix] = l
	}
	for prefix, l := range c.ledgers {
		if l.Accepted != l.Pending+l.Delivered+l.Dead+l.Cancelled {
			c.sayf("the ledger of %s does not balance: %+v", prefix, l)
		}
		if l != said[prefix] {
			c.sayf("the ledger of %s is %+v, its records say %+v", prefix, l, said[prefix])
		}
		delete(said, prefix)
	}
	for prefix, l := range said {
		c.sayf("%s has no ledger, its records say %+v", prefix, l)
	}
}

// subscriber derives where each lane of a subscriber must stand.
func (c *checker) subscriber(s *Subscriber) {
	if s.Leases != c.open[s.ID] {
		c.sayf("%s counts %d leases, %d are open", s.ID, s.Leases, c.open[s.ID])
	}
	limit := 0
	_, _ = fmt.Sscan(s.fields["cap"], &limit)
	for _, lane := range []string{"f", "r", "d"} {
		head, waits := 0.0, false
		for _, due := range c.zsets[s.prefix+"q:"+lane+":"+s.ID] {
			if !waits || due < head {
				head, waits = due, true
			}
		}
		in := func(zset string) bool { _, ok := c.zsets[s.prefix+zset][s.ID]; return ok }
		age := func(kind string) bool { return in("age:" + kind + ":" + s.fields["cls"] + ":" + lane) }
		due, ready := in("due:"+lane), in("ready:"+lane)
		got := [...]bool{due || ready, due && ready, age("e"), age("l"), age("h")}
		var want [5]bool
		switch {
		case !waits || s.Deleted:
		case s.Hold != "":
			want[4] = true
		case s.Leases >= limit:
			want[3] = true
		default:
			want[0], want[2] = true, true
		}
		if got != want {
			c.sayf("%s lane %s: (in due or ready, in both, eligible, limited, held) = %v, want %v; %v",
				s.ID, lane, got, want, s.fields)
		}
		if at := c.zsets[s.prefix+"due:"+lane][s.ID]; due && at > head {
			c.sayf("%s lane %s: in due at %.0f, its head falls due at %.0f", s.ID, lane, at, head)
		}
	}
	if _, ok := c.zsets[s.prefix+"expiry"][s.ID]; !ok && len(c.zsets[s.prefix+"pend:"+s.ID]) > 0 {
		c.sayf("%s has pending deliveries whose expiry nobody looks for", s.ID)
	}
}

// event checks that a closed plan led to all its deliveries.
func (c *checker) event(e *Event) {
	if e.Deliveries != len(e.Planned) {
		c.sayf("event %s told its producer %d deliveries, planned %d", e.ID, e.Deliveries, len(e.Planned))
	}
	for _, sub := range e.Planned {
		if d := c.Deliveries[delivery.NewID(e.ID, sub)]; (d == nil || d.ID == "") && !e.Open {
			c.sayf("event %s is expanded, and has no delivery for %s", e.ID, sub)
		}
	}
}
