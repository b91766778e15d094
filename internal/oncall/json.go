package oncall

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/fanout/fanout/internal/schedule"
)

// The JSON of GET /v1/oncall. Ages are in seconds, times RFC 3339 by the Redis
// clock; stale_seconds is how long ago the sample was taken.
type (
	reportJSON struct {
		Now          time.Time     `json:"now"`
		StaleSeconds float64       `json:"stale_seconds"`
		Triage       triageJSON    `json:"triage"`
		InFlight     int64         `json:"in_flight"`
		Limited      int64         `json:"limited"`
		OldestDead   float64       `json:"oldest_dead_letter_seconds"`
		LateEvents   int64         `json:"late_events"`
		Fleet        fleetJSON     `json:"fleet"`
		Release      releaseJSON   `json:"release"`
		Redis        redisJSON     `json:"redis"`
		Gaps         []gapJSON     `json:"gaps"`
		Redrives     []redriveJSON `json:"redrives"`
		Classes      []classJSON   `json:"classes"`
		Ledger       ledgerJSON    `json:"ledger"`
		Leases       int64         `json:"leases"`
		Expired      int64         `json:"leases_expired"`
		Ready        int64         `json:"ready"`
		Scheduled    int64         `json:"scheduled"`
		OnHold       int64         `json:"subscribers_on_hold"`
		Held         int64         `json:"deliveries_held"`
		DeadLetters  int64         `json:"dead_letters"`
		OpenEvents   int64         `json:"open_events"`
		Trouble      string        `json:"trouble"`
		Holds        []heldJSON    `json:"on_hold"`
		LastFailures []failureJSON `json:"last_failures"`
	}
	classJSON struct {
		Class      string     `json:"class"`
		Configured bool       `json:"configured"`
		SLOSeconds float64    `json:"slo_seconds"`
		Breaching  bool       `json:"breaching"`
		Lanes      []laneJSON `json:"lanes"`
	}
	laneJSON struct {
		Lane     string  `json:"lane"`
		Eligible float64 `json:"oldest_eligible_age_seconds"`
		Limited  float64 `json:"limited_age_seconds"`
		Held     float64 `json:"held_age_seconds"`
	}
	ledgerJSON struct {
		Accepted  int64 `json:"accepted"`
		Pending   int64 `json:"pending"`
		Delivered int64 `json:"delivered"`
		Dead      int64 `json:"dead"`
		Cancelled int64 `json:"cancelled"`
		Balanced  bool  `json:"balanced"`
	}
	heldJSON struct {
		SubscriberID string          `json:"subscriber_id"`
		Reasons      []schedule.Hold `json:"reasons"`
		Since        time.Time       `json:"since"`
		Until        time.Time       `json:"until,omitzero"`
		Pending      int64           `json:"pending"`
	}
	failureJSON struct {
		DeliveryID   string    `json:"delivery_id"`
		SubscriberID string    `json:"subscriber_id"`
		EventID      string    `json:"event_id"`
		Outcome      string    `json:"outcome"`
		Reason       string    `json:"reason"`
		Attempts     int       `json:"attempts"`
		At           time.Time `json:"at"`
	}
)

// JSON serves the last snapshot: 200, or 503 with Retry-After before the first.
func (o *OnCall) JSON() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		o.mu.Lock()
		s, sight, t := o.latest, o.sight(), o.triage()
		o.mu.Unlock()
		if s.Taken.IsZero() {
			steady, running := Judge(s, sight, o.blindAfter).Sentence()
			unavailable(w, steady+running)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		// A failed write means that the client is gone; there is nobody to tell.
		_ = json.NewEncoder(w).Encode(report(s, sight, t))
	})
}

func report(s Snapshot, sight Sight, t Triage) reportJSON {
	r := reportJSON{
		Now: s.At.UTC(), StaleSeconds: sight.Stale.Round(time.Millisecond).Seconds(),
		Triage: triageReport(t), InFlight: s.InFlight(), Limited: s.Limited, OldestDead: s.OldestDead.Seconds(),
		LateEvents: s.LateEvents, Fleet: fleetReport(s.Fleet), Release: releaseReport(s.Release), Redis: redisReport(s),
		Gaps: gapsReport(s.Gaps), Redrives: redrivesReport(s.Redrives),
		Ledger: ledgerJSON{
			s.Ledger.Accepted, s.Ledger.Pending, s.Ledger.Delivered, s.Ledger.Dead, s.Ledger.Cancelled,
			s.Ledger.Balanced(),
		},
		Leases: s.Leases, Expired: s.Expired, Ready: s.Ready, Scheduled: s.Scheduled,
		OnHold: s.OnHold, Held: s.Held, DeadLetters: s.DeadLetters, OpenEvents: s.OpenEvents, Trouble: sight.Trouble,
		Classes: make([]classJSON, 0, len(s.Classes)),
		Holds:   make([]heldJSON, 0, len(s.Holds)), LastFailures: make([]failureJSON, 0, len(s.Failures)),
	}
	for _, c := range s.shown() {
		cj := classJSON{Class: c.Name, Configured: !c.Other, SLOSeconds: c.SLO.Seconds(), Breaching: c.Breaching()}
		for _, l := range c.Lanes {
			cj.Lanes = append(cj.Lanes,
				laneJSON{string(l.Name), l.Eligible.Seconds(), l.Limited.Seconds(), l.Held.Seconds()})
		}
		r.Classes = append(r.Classes, cj)
	}
	for _, h := range s.Holds {
		r.Holds = append(r.Holds, heldJSON{h.ID, h.Reasons, h.Since.UTC(), h.Until.UTC(), h.Pending})
	}
	for _, f := range s.Failures {
		r.LastFailures = append(r.LastFailures, failureJSON{
			f.DeliveryID, f.SubscriberID, f.EventID, string(f.Outcome), string(f.Reason), f.Attempts, f.At.UTC(),
		})
	}
	return r
}

// unavailable answers 503; whoever mounts the handler gives errors their form, and
// takes the detail over.
func unavailable(w http.ResponseWriter, detail string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusServiceUnavailable)
	_ = json.NewEncoder(w).Encode(struct { //nolint:errchkjson // a string cannot fail; if the write does, the client is gone
		Detail string `json:"detail"`
	}{detail})
}
