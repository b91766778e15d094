package dispatch

import (
	"encoding/json"
	"log/slog"
	"net/url"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/webhook"
)

// judge makes verdicts, for this worker's own attempts and for the leases of dead
// ones alike.
type judge struct {
	worker, version string
	metrics         *metrics
	log             *slog.Logger
}

// decide is delivery.Decide with an answer for impossible metadata. Such a
// delivery must end and be seen: released or retried it would come back as it is,
// for ever. So it is dead-lettered as bad_request, our fault, with an error in
// the log; unless the endpoint took it, which is a fact whatever the counters say.
func (j *judge) decide(p delivery.Policy, d delivery.Delivery, r delivery.Result, now time.Time) delivery.Decision {
	decision, err := delivery.Decide(p, d, r, now)
	if err == nil {
		return decision
	}
	j.metrics.faults.WithLabelValues(faultImpossible).Inc()
	j.log.Error("delivery ended: its record contradicts itself",
		"delivery_id", d.ID, "subscriber_id", d.SubscriberID, "event_id", d.EventID, "error", err)
	if r.Outcome.Kind() == delivery.Success {
		return delivery.Decision{Next: delivery.Delivered}
	}
	return delivery.Decision{Next: delivery.Dead, Reason: delivery.BadRequest}
}

// verdict is what settles an attempt of this worker.
func (j *judge) verdict(t *trial, decision delivery.Decision) schedule.Verdict {
	v := schedule.Verdict{
		ID: t.ID, Fence: t.Fence(), Decision: decision, Outcome: t.answer.Outcome, Status: t.answer.Status,
		Took: t.answer.Duration, RetryAfter: t.answer.RetryAfter,
	}
	// A success at once leaves nothing to explain, and most are that: its record
	// is all that it costs.
	if t.answer.Outcome != delivery.OK || t.again() {
		a := delivery.Attempt{
			Number: t.Attempts, Fence: t.Fence(),
			StartedAt: t.startedAt.UnixMilli(), Duration: t.answer.Duration.Milliseconds(),
			Outcome: t.answer.Outcome, Status: t.answer.Status,
			Error: t.answer.Err, Excerpt: t.answer.Excerpt, RetryAfter: t.answer.RetryAfter.Milliseconds(),
			Worker: j.worker, Version: j.version, TraceID: t.traceID, Phases: phasesOf(t.answer),
		}
		if decision.Next == delivery.Dead && t.sub != nil {
			a.Terms = &delivery.Terms{
				Origin: origin(t.sub.URL), Headers: t.answer.Headers, Class: t.class, Version: t.sub.Version, Policy: t.policy,
			}
		}
		v.Attempt = j.evidence(a)
	}
	if decision.Next == delivery.Dead {
		v.Body = t.body
	}
	return v
}

// phasesOf says where an answer's time went; nil if nothing was sent.
func phasesOf(a webhook.Answer) *delivery.Phases {
	if a.Phases == (webhook.Phases{}) {
		return nil
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return &delivery.Phases{
		DNS: ms(a.Phases.DNS), Dial: ms(a.Phases.Dial), TLS: ms(a.Phases.TLS),
		FirstByte: ms(a.Phases.FirstByte), Body: ms(a.Phases.Body), Reused: a.Phases.Reused,
	}
}

// origin is scheme and host: what follows in an endpoint's URL may hold its token.
func origin(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// reclaim is what settles a lease in place of its worker. The evidence names no
// worker: it is not known here who that was.
func (j *judge) reclaim(l schedule.Leased, decision delivery.Decision, body *schedule.Body) schedule.Verdict {
	return schedule.Verdict{
		ID: l.ID, Fence: l.Fence(), Decision: decision, Outcome: delivery.LeaseLost, Reclaim: true, Body: body,
		Attempt: j.evidence(delivery.Attempt{
			Number: l.Attempts, Fence: l.Fence(), StartedAt: l.LastAttemptAt.UnixMilli(),
			Outcome: delivery.LeaseLost, Error: "the lease ran out before its worker settled it",
		}),
	}
}

// evidence is the JSON of an attempt.
func (j *judge) evidence(a delivery.Attempt) []byte {
	b, err := json.Marshal(a)
	if err != nil { // strings and numbers always marshal
		j.log.Error("attempt evidence lost", "error", err)
	}
	return b
}
