//go:build chaos

package chaos

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/test/audit"
)

// checker compares what Redis, the producers and the receivers say.
type checker struct {
	*world
	*audit.Snapshot

	subs map[string]*sub // by id
	log  map[string][]request
}

// check waits until nothing moves and finds what does not agree. With "all",
// nothing may be pending; with "held", what is held may.
func (w *world) check(which string) {
	w.quiet()
	s, err := audit.Read(w.ctx, w.rdb)
	if err != nil {
		w.wrong("%v", err)
		return
	}
	for _, f := range s.Faults() {
		w.wrong("audit: %s", f)
	}
	c := &checker{world: w, Snapshot: s, subs: w.truth.byID(), log: w.receivers.requests()}
	if s.Leases > 0 || s.Open > 0 || s.Late > 0 {
		w.wrong("%d leases, %d events not expanded, %d given up", s.Leases, s.Open, s.Late)
	}
	if which == "all" && s.Ledger.Pending > 0 {
		w.wrong("%d deliveries are pending, and nothing is held", s.Ledger.Pending)
	}
	c.ledger()
	c.events()
	states := map[delivery.State]int{}
	for _, d := range s.Deliveries {
		if d.ID != "" { // else the audit has said so
			states[d.State]++
			c.delivery(d)
		}
	}
	c.requests()
	w.mu.Lock()
	defer w.mu.Unlock()
	if which == "all" {
		figures.deliveries.Add(s.Ledger.Accepted)
		w.states = states
	}
}

// ledger compares what on-call is shown with what the raw keys say.
func (c *checker) ledger() {
	planned := int64(0)
	for _, e := range c.Events {
		planned += int64(e.Deliveries)
	}
	if planned != c.Ledger.Accepted {
		c.wrong("the events were planned for %d deliveries, the ledger has %d accepted", planned, c.Ledger.Accepted)
	}
	var shown audit.Ledger
	for _, api := range c.apis() {
		if !until(10*time.Second, func() bool {
			var report struct {
				Ledger struct {
					audit.Ledger
					Balanced bool
				}
			}
			a := c.call(c.ctx, api, http.MethodGet, "/v1/oncall", "")
			if json.Unmarshal(a.Body, &report) != nil {
				return false
			}
			shown = report.Ledger.Ledger
			return shown == c.Ledger && report.Ledger.Balanced
		}) {
			c.wrong("on-call is shown %+v by %s, Redis has %+v", shown, api.name, c.Ledger)
		}
	}
}

// events compares the stored events with what their producers were told.
func (c *checker) events() {
	c.truth.mu.Lock()
	defer c.truth.mu.Unlock()
	for id, e := range c.Events {
		p := c.truth.events[id]
		if p == nil {
			c.wrong("event %s is stored, and nobody posted it", id)
			continue
		}
		if !p.Accepted && !p.Unknown {
			c.wrong("event %s is stored, and each post of it was refused", id)
		}
		if p.Accepted && p.Deliveries != e.Deliveries {
			c.wrong("event %s was accepted with %d deliveries and is stored with %d", id, p.Deliveries, e.Deliveries)
		}
		c.plan(p, e)
	}
	for id, p := range c.truth.events {
		if !p.Accepted || c.Events[id] != nil {
			continue
		}
		if c.justBeforeKill(p.AcceptedAt) {
			figures.lost.Add(1)
			continue
		}
		c.wrong("event %s was accepted at %s and is LOST", id, p.AcceptedAt.Format(time.RFC3339Nano))
	}
}

// plan checks whom an event was planned for.
func (c *checker) plan(p *posted, e *audit.Event) {
	for id, s := range c.subs {
		planned := slices.Contains(e.Planned, id)
		if s.must(p) && !planned && !c.lossy {
			c.wrong("event %s was not planned for %s", p.ID, s.Name)
		}
		if planned && !s.may(p) {
			c.wrong("event %s was planned for %s, which it cannot match", p.ID, s.Name)
		}
	}
}

// mayForget is what everysec may lose: Redis writes once a second, and lets a
// write that takes long hold it up for another.
const mayForget = 2 * time.Second

// justBeforeKill says that Redis was allowed to forget what was at that time.
func (w *world) justBeforeKill(t time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lossy && slices.ContainsFunc(w.killed, func(k time.Time) bool {
		return t.Before(k.Add(100*time.Millisecond)) && t.After(k.Add(-mayForget))
	})
}

// delivery holds one record against the log of its endpoint.
func (c *checker) delivery(d *audit.Delivery) {
	s, log := c.subs[d.SubscriberID], c.log[d.ID]
	acknowledged := slices.ContainsFunc(log, func(r request) bool { return r.Status/100 == 2 })
	forgiven := slices.ContainsFunc(log, func(r request) bool { return c.justBeforeKill(r.At) })

	switch d.State {
	case delivery.Scheduled:
		if s == nil || !s.Paused {
			c.wrong("%s is pending, and its subscriber is not held", d.ID)
		}
	case delivery.Leased:
		c.wrong("%s is leased after everything ended", d.ID)
	case delivery.Delivered:
		if !acknowledged {
			c.wrong("%s is delivered, and its endpoint never answered 2xx: %+v", d.ID, log)
		}
	case delivery.Cancelled:
		if s == nil || s.Ending.IsZero() {
			c.wrong("%s is cancelled, and nobody deleted its subscriber", d.ID)
		}
	case delivery.Dead:
		c.dead(d, s)
	}
	if n := int64(len(log)); n > d.DeliveryCount-int64(d.Releases) && !forgiven {
		c.wrong("%s: %d requests, delivery_count %d, releases %d: %+v", d.ID, n, d.DeliveryCount, d.Releases, log)
	}
	c.evidence(d, log)
}

// dead checks why a delivery is dead: of a healthy endpoint it may not be.
func (c *checker) dead(d *audit.Delivery, s *sub) {
	kind, attempts := "extra", policies["extra"].attempts
	if s != nil {
		kind, _, _ = strings.Cut(s.Name, "-")
		attempts = s.MaxAttempts
	}
	switch {
	case kind == "refusing" && d.Reason == delivery.HTTP422:
	case d.Reason == delivery.Exhausted && d.Attempts == attempts:
		if kind == "healthy" || kind == "extra" {
			c.wrong("%s to a healthy endpoint is dead: %+v", d.ID, d.History)
		}
	default:
		c.wrong("%s to %s is dead for %q after %d of %d attempts: %+v", d.ID, kind, d.Reason, d.Attempts, attempts, d.History)
	}
	for _, r := range c.log[d.ID] {
		// A 2xx that its worker did not live to see, or that came too late for it, is
		// in the evidence as a loss; any other was dropped.
		i := slices.IndexFunc(d.History, func(a delivery.Attempt) bool { return a.Fence == r.Count })
		if r.Status/100 == 2 && (i < 0 || !unseen(d.History[i].Outcome)) {
			c.wrong("%s is dead though its endpoint answered %d at delivery_count %d: %+v", d.ID, r.Status, r.Count, d.History)
		}
	}
}

// unseen says that an outcome may hide an answer that was given.
func unseen(o delivery.Outcome) bool {
	return slices.Contains([]delivery.Outcome{delivery.LeaseLost, delivery.Timeout, delivery.Reset, delivery.Connect}, o)
}

// evidence checks that an attempt is told as its endpoint answered it.
func (c *checker) evidence(d *audit.Delivery, log []request) {
	for _, a := range d.History {
		i := slices.IndexFunc(log, func(r request) bool { return r.Count == a.Fence })
		switch {
		case unseen(a.Outcome):
		case i < 0:
			c.wrong("%s: attempt at delivery_count %d came to %s, and no request of it arrived", d.ID, a.Fence, a.Outcome)
		case a.Status != log[i].Status:
			c.wrong("%s: attempt at delivery_count %d has status %d, its endpoint answered %d", d.ID, a.Fence, a.Status, log[i].Status)
		}
	}
}

// requests checks everything that arrived.
func (c *checker) requests() {
	for id, log := range c.log {
		d := c.Deliveries[id]
		counts := map[int64]bool{}
		for _, r := range log {
			switch {
			case d == nil || d.ID == "":
				if !c.justBeforeKill(r.At) {
					c.wrong("a webhook %s of event %s arrived, and there is no such delivery", id, r.Event)
				}
				continue
			case d.EventID != r.Event || d.ID != delivery.NewID(r.Event, d.SubscriberID):
				c.wrong("the webhook %s is of event %s, its delivery of %s", id, r.Event, d.EventID)
			case counts[r.Count] && !c.lossy:
				c.wrong("%s: two requests at delivery_count %d", id, r.Count)
			case r.Count > d.DeliveryCount && !c.lossy:
				c.wrong("%s: a request at delivery_count %d, it is at %d", id, r.Count, d.DeliveryCount)
			}
			counts[r.Count] = true
			c.where(c.subs[d.SubscriberID], r)
		}
	}
}

// longestLease is that of an attempt timeout of 3 s.
const longestLease = 18 * time.Second

// where checks that a request went where its subscriber was at that time.
func (c *checker) where(s *sub, r request) {
	if s == nil {
		return
	}
	if r.Sub != s.Name {
		c.wrong("%s went to %s, it is for %s", r.ID, r.Path, s.Name)
	}
	// A worker that froze between its last look at the clock and its request sends
	// when it wakes: nothing can call that back.
	if s.EndedWhole && r.At.After(s.Ended) && !c.froze {
		c.wrong("%s arrived %s after the DELETE of %s was answered", r.ID, r.At.Sub(s.Ended), s.Name)
	}
	for i, m := range s.Moves {
		if m.To == r.Path && i+1 < len(s.Moves) && r.At.After(s.Moves[i+1].Done.Add(longestLease)) {
			c.wrong("%s went to %s %s after the URL was changed", r.ID, r.Path, r.At.Sub(s.Moves[i+1].Done))
		}
	}
}
