package redrive

import (
	"fmt"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// A queue that stands. Fresh deliveries wait for a slot now and then: events come in
// bursts. If the oldest of them has waited at every look, a queue stands, and more is
// sent than the fleet carries; after CoDel (RFC 8289, section 3), which tells the one from
// the other by the least and not by the mean. It is seen long before the age SLO is in
// danger, and before slots run out: what is scarce may be processors, or Redis.
// A queue that stands. Fresh deliveries wait for a slot now and then: events come in
// bursts. If the oldest of them has waited at every look of a while, a queue stands, and
// more is sent than the fleet carries; after CoDel (RFC 8289, section 3), which tells the
// one from the other by the least and not by the mean. It is seen long before the age SLO
// is in danger, and before slots run out: what is scarce may be processors, or Redis.
const (
	// queueTarget is for how long the oldest eligible fresh delivery may have waited at
	// each look of queueOver. At fewer looks the bursts of a fleet that is used to two
	// thirds pass for a queue, and the cohort gets nowhere.
	queueTarget = 20 * time.Millisecond
	queueOver   = 3 * stepEvery
	// burstTarget is for how long it may have waited at one look before the cohort slows
	// down: bursts begin to meet long before a queue stands.
	burstTarget = 12 * time.Millisecond
	// queueShare is by how much a queue that stood before the cohort began to run, such as
	// that of endpoints that are too slow for what they are sent, may be longer.
	queueShare = 1.5
)

// seen is what the runner remembers of its looks at a cohort that runs. Another runner
// begins anew, which costs a look or two.
type seen struct {
	least time.Duration // that the oldest eligible fresh delivery had waited, since it began to run
	queue time.Time     // since when each look found a queue; zero if this one did not
	burst bool          // this one found a burst at least
	busy  time.Time     // since when nearly all slots are in use; zero if they are not
}

// forget keeps what was seen of those alone that go on running.
func (s *Service) forget(cohorts []Cohort) {
	kept := map[string]seen{}
	for _, c := range cohorts {
		if was, ok := s.seen[c.ID]; ok && c.State == Running && c.Limit > 0 {
			kept[c.ID] = was
		}
	}
	s.seen = kept
}

// busyFor is for how long nearly all slots have been in use, up to this look, at which
// they are.
func (s *Service) busyFor(c *Cohort, h health) time.Duration {
	if since := s.seen[c.ID].busy; !since.IsZero() {
		return h.sample.Now.Sub(since)
	}
	return 0
}

// waited is for how long the oldest eligible fresh delivery has waited; 0 if none does.
func (h health) waited() (most time.Duration) {
	for _, a := range h.sample.Ages {
		if a.Lane == delivery.Fresh && !a.Eligible.IsZero() {
			most = max(most, h.sample.Now.Sub(a.Eligible))
		}
	}
	return most
}

// pressed is why a cohort is held back for a while: "" if it is not. It is asked once a
// look.
func (s *Service) pressed(c *Cohort, h health) string {
	now, known := s.seen[c.ID]
	waited, busy := h.waited(), h.busy()
	if !known || waited < now.least {
		now.least = waited
	}
	stood := time.Duration(queueShare * float64(now.least))
	bound := max(queueTarget, stood)
	now.burst = waited > max(burstTarget, stood)
	now.queue = since(now.queue, waited > bound, h.sample.Now)
	now.busy = since(now.busy, busy != "", h.sample.Now)
	s.seen[c.ID] = now
	switch {
	case busy != "" && h.sample.Now.Sub(now.busy) >= busyOver:
		return busy
	case !now.queue.IsZero() && h.sample.Now.Sub(now.queue) >= queueOver:
		return fmt.Sprintf("fresh deliveries have waited for more than %s for a while, now for %s: a queue stands",
			bound.Round(time.Millisecond), waited.Round(time.Millisecond))
	}
	return ""
}

// since is from when on something has been so at every look.
func since(was time.Time, so bool, now time.Time) time.Time {
	switch {
	case !so:
		return time.Time{}
	case was.IsZero():
		return now
	}
	return was
}
