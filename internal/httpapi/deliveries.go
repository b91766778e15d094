package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// Bounds of the lists.
const (
	defaultLimit = 50
	maxLimit     = 200
)

// GetDelivery shows a delivery with its evidence.
func (s *server) GetDelivery(w http.ResponseWriter, r *http.Request, id DeliveryID) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		if _, err := delivery.IDHash16(id); err != nil {
			return notFound("delivery")
		}
		noteOf(r).id("delivery_id", id)
		d, err := s.deps.Views.Delivery(r.Context(), id)
		if errors.Is(err, schedule.ErrNotFound) || errors.Is(err, delivery.ErrBadID) {
			return notFound("delivery")
		}
		if err != nil {
			return fmt.Errorf("get delivery: %w", err)
		}
		return writeJSON(w, http.StatusOK, deliveryView(d))
	})
}

// ListDeadLetters shows the newest dead letters.
func (s *server) ListDeadLetters(w http.ResponseWriter, r *http.Request, p ListDeadLettersParams) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		limit, err := limitOf(p.Limit)
		if err != nil {
			return err
		}
		dead, err := s.deps.Views.DeadLetters(r.Context(), limit)
		if err != nil {
			return fmt.Errorf("list dead letters: %w", err)
		}
		out := DeadLetterList{Data: make([]DeadLetter, 0, len(dead))}
		for _, d := range dead {
			out.Data = append(out.Data, DeadLetter{Reason: d.Reason, Delivery: deliveryView(d)})
		}
		return writeJSON(w, http.StatusOK, out)
	})
}

func limitOf(given *int) (int, error) {
	switch {
	case given == nil:
		return defaultLimit, nil
	case *given < 1 || *given > maxLimit:
		return 0, badParameter(ProblemCodeInvalidParameter, "limit", fmt.Sprintf("must be from 1 to %d", maxLimit))
	}
	return *given, nil
}

// deliveryView is a delivery in the contract's words.
func deliveryView(d schedule.Evidence) Delivery {
	out := Delivery{
		ID: d.ID, EventID: d.EventID, SubscriberID: d.SubscriberID,
		State: d.State, Lane: d.Lane,
		AcceptedAt: d.AcceptedAt.UTC(), ExpiresAt: d.ExpiresAt.UTC(),
		FirstAttemptAt: d.FirstAttemptAt.UTC(), LastAttemptAt: d.LastAttemptAt.UTC(), EndedAt: d.EndedAt.UTC(),
		Attempts: d.Attempts, DeliveryCount: d.DeliveryCount,
		Releases: d.Releases, LeaseLosses: d.LeaseLosses, RedriveGeneration: d.RedriveGeneration,
		LastOutcome: d.LastOutcome, LastStatus: d.LastStatus,
	}
	attempts := make([]Attempt, 0, len(d.History))
	if d.State == delivery.Scheduled {
		out.NextAttemptAt = d.DueAt.UTC()
	}
	for _, a := range d.History {
		attempts = append(attempts, attemptView(a))
	}
	out.Evidence = &attempts
	return out
}

func attemptView(a delivery.Attempt) Attempt {
	return Attempt{
		Attempt: a.Number, DeliveryCount: a.Fence,
		StartedAt: time.UnixMilli(a.StartedAt).UTC(), Duration: milliseconds(a.Duration),
		Outcome: a.Outcome, Status: a.Status,
		Error: clip(a.Error, maxDetail), Excerpt: clip(a.Excerpt, maxDetail),
		RetryAfter: milliseconds(a.RetryAfter),
		Worker:     a.Worker, Version: a.Version, TraceID: a.TraceID,
	}
}

func milliseconds(ms int64) delivery.Duration {
	return delivery.Duration(time.Duration(ms) * time.Millisecond)
}
