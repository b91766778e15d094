//go:build cluster

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// nodesOf are the primary that holds a delivery, and the one that holds its payload.
func (s *service) nodesOf(d delivery.Delivery) (record, payload int) {
	ctx := s.Context()
	record, payload = -1, -1
	for i, n := range s.cluster.Nodes {
		node := n.Client()
		for _, k := range node.Keys(ctx, "*:"+d.ID).Val() {
			if strings.Contains(k, "}:d:") {
				record = i
			}
		}
		if len(node.Keys(ctx, "*:body:"+d.EventID).Val()) > 0 {
			payload = i
		}
	}
	return record, payload
}

// A primary dies, or hangs. Whoever lives on the other two is served meanwhile; what
// lives on it waits, and is served when it is back. Nothing is lost.
func TestPrimaryDies(t *testing.T) {
	t.Parallel()
	for i := range 6 {
		dies, hangs := i/2, i%2 == 1
		t.Run(fmt.Sprintf("primary=%d,hangs=%t", dies, hangs), func(t *testing.T) {
			t.Parallel()
			s := start(t)
			var well atomic.Bool
			e := s.endpoint(func(_ int, w http.ResponseWriter, _ *http.Request) {
				if !well.Load() {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			})
			const subscribers, events = 12, 6
			for range subscribers {
				s.subscribe(e.URL, "dies", tireless)
			}
			s.postMany(events, "dies-", "dies")
			s.await(e, subscribers*events) // each has failed once, so that all wait

			type placed struct {
				delivery.Delivery
				record, payload int
			}
			var all []placed
			perNode := map[int]int{}
			for i := range events {
				ev, err := s.engine.Event(t.Context(), fmt.Sprint("dies-", i))
				s.ok(err)
				for _, sub := range ev.SubscriberIDs {
					d, err := s.engine.Delivery(t.Context(), delivery.NewID(ev.ID, sub))
					s.ok(err)
					r, p := s.nodesOf(d.Delivery)
					all = append(all, placed{d.Delivery, r, p})
					perNode[r]++
				}
			}
			if len(perNode) != 3 {
				t.Fatalf("deliveries by primary: %v, want some on each", perNode)
			}
			if hangs {
				s.cluster.Nodes[dies].Stop()
			} else {
				s.cluster.Nodes[dies].Kill9()
			}
			well.Store(true)
			gone := time.Now()
			for _, d := range all {
				if d.record == dies || d.payload == dies {
					continue
				}
				s.until("deliveries on living primaries are delivered", func() bool {
					got, err := s.engine.Delivery(t.Context(), d.ID)
					return err == nil && got.State == delivery.Delivered
				})
			}
			t.Logf("others_served_after_ms=%d", time.Since(gone).Milliseconds())
			status, b := s.do("POST", "/v1/events", event("meanwhile", "dies", `{}`))
			if status != http.StatusServiceUnavailable {
				t.Errorf("post while a primary is away: %d, want 503: %s", status, b)
			}
			if hangs {
				s.cluster.Nodes[dies].Cont()
			} else {
				s.cluster.Nodes[dies].Restart()
			}
			s.cluster.Await()
			s.until("the event is accepted again", func() bool {
				status, _ := s.do("POST", "/v1/events", event("meanwhile", "dies", `{}`))
				return status == http.StatusAccepted
			})
			if l := s.balanced(); l.Delivered != subscribers*(events+1) {
				t.Errorf("ledger %+v, want %d delivered", l, subscribers*(events+1))
			}
		})
	}
}

// Deliveries whose payload is on a primary that is away cannot be sent. They must
// not keep others of the same subscriber from it, though they are older and more
// than it may have in flight.
func TestUnreadablePayloadsDoNotBlockTheOthers(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *setup) { c.workers, c.slots = 0, 10 })
	away := (s.cluster.NodeOf("fo:meta") + 1) % 3 // a new dispatcher asks the other for the layout
	e := s.endpoint(always(http.StatusOK))
	const subscribers, events = 12, 24
	for range subscribers {
		s.subscribe(e.URL, "unreadable", `{"attempt_timeout":"2s","max_in_flight":2}`)
	}
	var unreadable, readable []string
	for i := range events {
		id := fmt.Sprint("unreadable-", i)
		s.post(id, "unreadable", `{}`)
		ev, err := s.engine.Event(t.Context(), id)
		s.ok(err)
		for _, sub := range ev.SubscriberIDs {
			d, err := s.engine.Delivery(t.Context(), delivery.NewID(id, sub))
			s.ok(err)
			switch record, payload := s.nodesOf(d.Delivery); {
			case record == away:
			case payload == away:
				unreadable = append(unreadable, d.ID)
			default:
				readable = append(readable, d.ID)
			}
		}
	}
	if len(unreadable) < 20 || len(readable) < 20 {
		t.Fatalf("%d deliveries without a payload, %d with: want more of each", len(unreadable), len(readable))
	}
	s.cluster.Nodes[away].Kill9()
	s.dispatcher()
	began := time.Now()
	for _, id := range readable {
		s.until("those with a payload are delivered", func() bool {
			d, err := s.engine.Delivery(t.Context(), id)
			return err == nil && d.State == delivery.Delivered
		})
	}
	t.Logf("unreadable=%d readable=%d delivered_after_ms=%d", len(unreadable), len(readable), time.Since(began).Milliseconds())
	s.cluster.Nodes[away].Restart()
	s.cluster.Await()
	if l := s.balanced(); l.Delivered != subscribers*events {
		t.Errorf("ledger %+v, want %d delivered", l, subscribers*events)
	}
}
