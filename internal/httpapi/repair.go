package httpapi

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// RetryDelivery makes a delivery due now.
func (s *server) RetryDelivery(w http.ResponseWriter, r *http.Request, id DeliveryID, _ RetryDeliveryParams) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		var in RetryInput
		if err := decodeOptional(r, &in); err != nil {
			return err
		}
		was, err := s.toRepair(r, id, in.Reason)
		if err != nil {
			return err
		}
		is, err := s.deps.Deliveries.RetryNow(r.Context(), id)
		if errors.Is(err, schedule.ErrNotScheduled) {
			return &failure{
				code: ProblemCodeNotScheduled, cause: err,
				detail: "The delivery has no next attempt to bring forward: it is " + whatNow(was.State) + ".",
			}
		}
		if err != nil {
			return deliveryError(err)
		}
		s.recordRepair(r, was, is, in.Reason)
		return writeJSON(w, http.StatusOK, deliveryView(is))
	})
}

// CancelDelivery ends a delivery without another attempt.
func (s *server) CancelDelivery(w http.ResponseWriter, r *http.Request, id DeliveryID, _ CancelDeliveryParams) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		var in CancelInput
		if err := decode(r, &in, nil); err != nil {
			return err
		}
		if in.Reason == "" {
			return invalid("/reason", "is missing or empty; say why, for the audit")
		}
		was, err := s.toRepair(r, id, in.Reason)
		if err != nil {
			return err
		}
		is, err := s.deps.Deliveries.CancelDelivery(r.Context(), id)
		if errors.Is(err, schedule.ErrFinal) {
			return &failure{
				code: ProblemCodeAlreadyFinal, cause: err,
				detail: "The delivery has ended, and stays as it is: there is nothing left to cancel.",
			}
		}
		if err != nil {
			return deliveryError(err)
		}
		if was.State != delivery.Cancelled { // again is no change
			s.recordRepair(r, was, is, in.Reason)
		}
		return writeJSON(w, http.StatusOK, deliveryView(is))
	})
}

// toRepair reads a delivery as it was, for the caller and for the audit.
func (s *server) toRepair(r *http.Request, id, reason string) (delivery.Delivery, error) {
	if reason != "" {
		if bad := unusableReason(reason); bad != "" {
			return delivery.Delivery{}, invalid("/reason", bad)
		}
	}
	was, err := s.ownDelivery(r.Context(), id)
	return was.Delivery, err
}

func (s *server) recordRepair(r *http.Request, was, is delivery.Delivery, reason string) {
	c := change{target: is.ID, reason: reason}
	c.before, c.after = deliveryFacts(was), deliveryFacts(is)
	c.account, _ = bound(r.Context())
	c.before["subscriber_id"], c.after["subscriber_id"] = is.SubscriberID, is.SubscriberID
	s.record(r, c)
}

// whatNow is a state in a sentence.
func whatNow(state delivery.State) string {
	switch state {
	case delivery.Leased:
		return "being sent at this moment"
	case delivery.Scheduled: // it was, a moment ago
		return "being sent, or has just ended"
	case delivery.Delivered, delivery.Dead, delivery.Cancelled:
	}
	return fmt.Sprintf("%s, which is final", state)
}
