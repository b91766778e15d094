package httpapi

import (
	"fmt"
	"net/http"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// maxAttempts is the most that a policy may grant.
const maxAttempts = 100

// PreviewSchedule shows what a subscriber's policy would do.
func (s *server) PreviewSchedule(w http.ResponseWriter, r *http.Request, id SubscriberID, p PreviewScheduleParams) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		attempts := 0
		if p.Attempts != nil {
			if attempts = *p.Attempts; attempts < 1 || attempts > maxAttempts {
				return badParameter(ProblemCodeInvalidParameter, "attempts", fmt.Sprintf("must be from 1 to %d", maxAttempts))
			}
		}
		sub, err := s.ownSubscriber(r.Context(), id)
		if err != nil {
			return err
		}
		out := previewView(sub.Policy, delivery.Preview(sub.Policy, attempts))
		out.SubscriberID, out.Version = sub.ID, sub.Version
		return writeJSON(w, http.StatusOK, out)
	})
}

func previewView(p delivery.Policy, f delivery.Forecast) SchedulePreview {
	out := SchedulePreview{
		Attempts: make([]ScheduledAttempt, 0, len(f.Steps)),
		End: ScheduleEnd{
			Reason: EndExhausted, Attempts: f.Attempts, After: delivery.Duration(f.EndsAfter), Latest: delivery.Duration(f.Latest),
			Note: fmt.Sprintf("In the mean its attempt budget (%d) is spent %s after acceptance.", f.Attempts, rough(f.EndsAfter)),
		},
	}
	if f.End == delivery.Expired {
		out.End.Reason = EndExpired
		out.End.Note = fmt.Sprintf("In the mean it is given up at attempt %d, %s after acceptance: the next one would start after max_age (%s).",
			f.Attempts, rough(f.EndsAfter), time.Duration(p.MaxAge))
	}
	for _, step := range f.Steps {
		a := ScheduledAttempt{
			Attempt: step.Attempt, Earliest: delivery.Duration(step.Earliest),
			Mean: delivery.Duration(step.Mean), Latest: delivery.Duration(step.Latest),
		}
		if step.Attempt > 1 {
			a.Window = delivery.Duration(delivery.Window(p, step.Attempt-1))
		}
		out.Attempts = append(out.Attempts, a)
	}
	return out
}

// rough is a duration as a person says it.
func rough(d time.Duration) time.Duration {
	if d > time.Minute {
		return d.Round(time.Second)
	}
	return d
}

// GetSubscriberStats shows how a subscriber is doing.
func (s *server) GetSubscriberStats(w http.ResponseWriter, r *http.Request, id SubscriberID) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		sub, err := s.ownSubscriber(r.Context(), id)
		if err != nil {
			return err
		}
		standings, err := s.deps.Views.Standings(r.Context(), []string{id})
		if err != nil {
			return fmt.Errorf("stats of subscriber: %w", err)
		}
		st := standings[0]
		if st.SubscriberID == "" { // deleted since
			return subscriberError(schedule.ErrNotFound)
		}
		v := statusView(st)
		out := SubscriberStats{
			SubscriberID: sub.ID, Pending: v.Pending, Waiting: v.Waiting, InFlight: v.InFlight,
			Holds: v.Holds, LatencyMs: v.LatencyMs, Delivered: st.Delivered, DeadLetters: st.Dead,
		}
		oldest, _, err := s.deps.Deliveries.ListDeliveries(r.Context(), schedule.DeliveryQuery{SubscriberID: id}, "", 1)
		if err != nil {
			return fmt.Errorf("stats of subscriber: %w", err)
		}
		if len(oldest) > 0 {
			out.OldestPendingAt = oldest[0].AcceptedAt.UTC()
		}
		return writeJSON(w, http.StatusOK, out)
	})
}
