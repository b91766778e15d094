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
const (
	// queueTarget is for how long the oldest eligible fresh delivery may have waited at
	// each of two looks. An attempt takes about as long.
	queueTarget = 10 * time.Millisecond
	// queueShare is by how much a queue that stood before the cohort began to run, such as
	// that of endpoints that are too slow for what they are sent, may be longer.
	queueShare = 1.5
)

// seen is what the runner keeps of its looks at a cohort. Another runner begins anew: that
// costs a look or two.
type seen struct {
	waited time.Duration // by the oldest eligible fresh delivery, at the last look
	least  time.Duration // of those since it began to run
	busy   time.Time     // since when nearly all slots are in use; zero if they are not
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
	was, known := s.seen[c.ID]
	now := seen{waited: h.waited(), busy: was.busy}
	now.least = now.waited
	stands := time.Duration(0)
	if known {
		now.least, stands = min(was.least, now.waited), min(was.waited, now.waited)
	}
	busy := h.busy()
	switch {
	case busy == "":
		now.busy = time.Time{}
	case now.busy.IsZero():
		now.busy = h.sample.Now
	}
	s.seen[c.ID] = now
	switch {
	case busy != "":
		return busy
	case stands > max(queueTarget, time.Duration(queueShare*float64(was.least))):
		return fmt.Sprintf("fresh deliveries wait for %s and more: a queue stands", stands.Round(time.Millisecond))
	}
	return ""
}
