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
	held   map[string]int64    // partition prefix -> deliveries that its subscribers count as held
}

func (c *checker) sayf(format string, a ...any) {
	c.faults = append(c.faults, fmt.Sprintf(format, a...))
}

// Faults is what does not add up, in a stable order.
func (s *Snapshot) Faults() []string {
	c := &checker{
		Snapshot: s, faults: slices.Clone(s.damaged),
		places: map[string][]string{}, open: map[string]int{}, held: map[string]int64{},
	}
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
	for prefix := range s.ledgers {
		if s.held[prefix] != c.held[prefix] {
			c.sayf("the ledger of %s counts %d deliveries as held, its subscribers %d", prefix, s.held[prefix], c.held[prefix])
		}
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
	c.claim(d)
}

// claim checks that what a cohort has waits in it, or is out, as its state says.
func (c *checker) claim(d *Delivery) {
	cohort := c.claims[d.ID]
	_, waits := c.zsets[d.prefix+"cohort:"+cohort][d.ID]
	_, out := c.zsets[d.prefix+"out:"+cohort][d.ID]
	pending := d.State == delivery.Scheduled || d.State == delivery.Leased
	if cohort == "" {
		if pending && d.Lane == delivery.Redrive {
			c.sayf("%s is being redriven, and no cohort has it", d.ID)
		}
		return
	}
	if waits != (d.State == delivery.Dead) || out != pending || waits == out {
		c.sayf("%s is %s, in cohort %s: waits %v, out %v", d.ID, d.State, cohort, waits, out)
	}
}

// payload checks that what is still to be sent, or kept as evidence, is there.
func (c *checker) payload(d *Delivery) {
	switch d.State {
	case delivery.Scheduled, delivery.Leased:
		// One that is redriven has the payload that it had as a dead letter.
		if !c.bodies[d.EventID] && (d.RedriveGeneration == 0 || !c.keys[d.prefix+"pin:"+d.EventID]) {
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

// subscriber checks that each lane stands where it says, and that this follows from
// the subscriber's state.
func (c *checker) subscriber(s *Subscriber) {
	if s.Leases != c.open[s.ID] {
		c.sayf("%s counts %d leases, %d are open", s.ID, s.Leases, c.open[s.ID])
	}
	for _, lane := range []string{"f", "r", "d"} {
		c.lane(s, lane)
	}
	if _, ok := c.zsets[s.prefix+"expiry"][s.ID]; !ok && len(c.zsets[s.prefix+"pend:"+s.ID]) > 0 {
		c.sayf("%s has pending deliveries whose expiry nobody looks for", s.ID)
	}
	c.hold(s)
}

// hold checks that who is on hold is listed and counted so. A throttle ends by the
// time alone, and until somebody looks it is counted on.
func (c *checker) hold(s *Subscriber) {
	if since, listed := c.zsets[s.prefix+"held"][s.ID]; listed != (s.since > 0) || since != float64(s.since) {
		c.sayf("%s is on hold since %d and is not in held, or the other way: %.0f", s.ID, s.since, since)
	}
	stands := !s.Deleted && (s.paused || s.disabled || s.open > 0)
	if stands && s.since == 0 || !stands && s.throttled == 0 && s.since > 0 {
		c.sayf("%s is on hold since %d, which does not follow from %v", s.ID, s.since, s.fields)
	}
	want := int64(0)
	if s.since > 0 {
		want = int64(len(c.zsets[s.prefix+"pend:"+s.ID]))
	}
	if s.held != want {
		c.sayf("%s counts %d deliveries as held, %d are pending", s.ID, s.held, want)
	}
	c.held[s.prefix] += s.held
}

// marks are what a place means: the order and the age gauge that a lane is in.
var marks = map[string]struct{ order, kind string }{
	"-": {}, "q": {"due", "e"}, "y": {"ready", "e"}, "s": {"slow", "e"},
	"l": {"", "l"}, "t": {"due", "l"}, "h": {"", "h"}, "u": {"due", "h"}, "p": {"slow", "h"},
}

func (c *checker) lane(s *Subscriber, lane string) {
	head, waits := 0.0, false
	for _, due := range c.zsets[s.prefix+"q:"+lane+":"+s.ID] {
		if !waits || due < head {
			head, waits = due, true
		}
	}
	place := s.places[lane]
	in := func(zset string) bool { _, ok := c.zsets[s.prefix+zset][s.ID]; return ok }
	want := marks[place]
	for _, order := range []string{"due", "ready", "slow"} {
		if in(order+":"+lane) != (order == want.order) {
			c.sayf("%s lane %s: its place is %s, in %s is %v", s.ID, lane, place, order, in(order+":"+lane))
		}
	}
	for _, kind := range []string{"e", "l", "h"} {
		if in("age:"+kind+":"+s.class+":"+lane) != (kind == want.kind) {
			c.sayf("%s lane %s: its place is %s, in the ages %s is %v", s.ID, lane, place, kind, kind != want.kind)
		}
	}
	if !s.mayStand(place, waits) {
		c.sayf("%s lane %s: place %s, waits %v, does not follow from %v", s.ID, lane, place, waits, s.fields)
	}
	if at, bound := c.zsets[s.prefix+"due:"+lane][s.ID], s.latest(head); want.order == "due" && at > bound {
		c.sayf("%s lane %s: in due at %.0f, may be served at %.0f", s.ID, lane, at, bound)
	}
}

// mayStand says whether a place follows from the state, as far as it does not depend
// on the time.
func (s *Subscriber) mayStand(place string, waits bool) bool {
	barred := s.paused || s.disabled || s.probe != "-"
	full := s.Leases >= s.limit
	slow := s.latency == 0 || s.latency > 1000
	switch {
	case place == "-" || !waits || s.Deleted:
		return place == "-" && (!waits || s.Deleted)
	case place == "h":
		return barred || (s.open > 0 && full)
	case barred:
		return false
	case place == "u":
		return s.throttled > 0 || s.open > 0
	case place == "l":
		return full && s.open == 0
	case full:
		return false
	case place == "p":
		return s.open > 0
	case place == "t", place == "q":
		return s.open == 0
	}
	return s.open == 0 && (place == "s") == slow
}

// latest is the time by which a lane that waits for one is looked at again.
func (s *Subscriber) latest(head float64) float64 {
	return max(head, float64(s.throttled), float64(s.open), float64(s.tokens))
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
