package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fanout/fanout/internal/access"
	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// GetDelivery shows a delivery with its evidence.
func (s *server) GetDelivery(w http.ResponseWriter, r *http.Request, id DeliveryID) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		d, err := s.ownDelivery(r.Context(), id)
		if err != nil {
			return err
		}
		out := evidenceView(d)
		if out.WaitsFor, err = s.waitsFor(r.Context(), d); err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, out)
	})
}

// waitsFor is what keeps a scheduled delivery beside its time: one read more, which tells
// a producer that its subscriber is on hold, and not why.
func (s *server) waitsFor(ctx context.Context, d schedule.Evidence) (DeliveryWaitsFor, error) {
	if d.State != delivery.Scheduled {
		return "", nil
	}
	standings, err := s.deps.Views.Standings(ctx, []string{d.SubscriberID})
	if err != nil {
		return "", fmt.Errorf("delivery: %w", err)
	}
	if len(standings[0].Holds) > 0 {
		return WaitsForHold, nil
	}
	return "", nil
}

// findDelivery reads a delivery, whoever asks.
func (s *server) findDelivery(ctx context.Context, id string) (schedule.Evidence, error) {
	if _, err := delivery.IDHash16(id); err != nil {
		return schedule.Evidence{}, notFound("delivery")
	}
	noteIn(ctx).id("delivery_id", id)
	d, err := s.deps.Views.Delivery(ctx, id)
	if err != nil {
		return schedule.Evidence{}, deliveryError(err)
	}
	return d, nil
}

func deliveryError(err error) error {
	if errors.Is(err, schedule.ErrNotFound) || errors.Is(err, delivery.ErrBadID) {
		return notFound("delivery")
	}
	return fmt.Errorf("delivery: %w", err)
}

// ListDeliveries shows deliveries of an event or of a subscriber.
func (s *server) ListDeliveries(w http.ResponseWriter, r *http.Request, p ListDeliveriesParams) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		limit, err := limitOf(p.Limit)
		if err != nil {
			return err
		}
		q := r.URL.Query()
		var out DeliveryList
		switch {
		case q.Has("event_id") && (q.Has("subscriber_id") || q.Has("state")):
			return badParameter(ProblemCodeInvalidParameter, "event_id", "goes without subscriber_id and state: send one or the other")
		case q.Has("event_id"):
			out, err = s.deliveriesOfEvent(r, p, limit)
		case !q.Has("subscriber_id"):
			return badParameter(ProblemCodeInvalidParameter, "subscriber_id", "is needed, or event_id: say whose deliveries to list")
		case access.From(r.Context()).Role == access.Producer:
			return fail(ProblemCodeForbidden, "Your key has the role producer, which lists deliveries by event_id only.")
		default:
			out, err = s.deliveriesOfSubscriber(r, p, limit)
		}
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, out)
	})
}

// deliveriesOfSubscriber are those of a state that has an order of its own.
func (s *server) deliveriesOfSubscriber(r *http.Request, p ListDeliveriesParams, limit int) (DeliveryList, error) {
	state := schedule.ListState(p.State)
	switch state {
	case "":
		if r.URL.Query().Has("state") {
			return DeliveryList{}, badState()
		}
		state = schedule.ListPending
	case schedule.ListPending, schedule.ListScheduled, schedule.ListLeased, schedule.ListDead:
	default:
		return DeliveryList{}, badState()
	}
	cursor, err := opaqueCursor(r, p.Cursor)
	if err != nil {
		return DeliveryList{}, err
	}
	if err := s.mayList(r, p.SubscriberID); err != nil {
		return DeliveryList{}, err
	}
	ds, next, err := s.deps.Deliveries.ListDeliveries(r.Context(),
		schedule.DeliveryQuery{SubscriberID: p.SubscriberID, State: state}, cursor, limit)
	if errors.Is(err, schedule.ErrCursor) {
		return DeliveryList{}, badCursor()
	}
	if err != nil {
		return DeliveryList{}, fmt.Errorf("list deliveries: %w", err)
	}
	return DeliveryList{Data: deliveryViews(ds), NextCursor: nextCursor(next)}, nil
}

func badState() error {
	return badParameter(ProblemCodeInvalidParameter, "state", "must be pending, scheduled, leased or dead; "+
		"those that are delivered or cancelled are listed by event_id")
}

// mayList says whether the caller may list what belongs to a subscriber. One that is
// not there has an empty list to who sees all accounts: what a deleted one left.
func (s *server) mayList(r *http.Request, subscriberID string) error {
	if !usableID(subscriberID, "_") {
		return badParameter(ProblemCodeInvalidParameter, "subscriber_id", "is no subscriber's id: it has 1 to 64 of A-Z a-z 0-9 _")
	}
	noteOf(r).id("subscriber_id", subscriberID)
	may, err := s.mayKnow(r.Context(), subscriberID)
	if err == nil && !may {
		err = subscriberError(schedule.ErrNotFound)
	}
	return err
}

// deliveriesOfEvent are a page of an event's, by subscriber id. The cursor is the
// last subscriber's: the plan is frozen, so it points at the same place for ever.
func (s *server) deliveriesOfEvent(r *http.Request, p ListDeliveriesParams, limit int) (DeliveryList, error) {
	after, err := afterID(r, p.Cursor)
	if err != nil {
		return DeliveryList{}, err
	}
	e, subs, err := s.ownEvent(r, p.EventID)
	if err != nil {
		return DeliveryList{}, err
	}
	slices.Sort(subs)
	first, found := slices.BinarySearch(subs, after)
	if found {
		first++
	}
	subs, next := page(subs[first:], limit, func(id string) string { return id })
	ids := make([]string, len(subs))
	for i, sub := range subs {
		ids[i] = delivery.NewID(e.ID, sub)
	}
	ds, err := s.deps.Views.Deliveries(r.Context(), ids)
	if err != nil {
		return DeliveryList{}, fmt.Errorf("list the deliveries of event %s: %w", e.ID, err)
	}
	slices.SortFunc(ds, func(a, b delivery.Delivery) int { return strings.Compare(a.SubscriberID, b.SubscriberID) })
	return DeliveryList{Data: deliveryViews(ds), NextCursor: next}, nil
}

func deliveryViews(ds []delivery.Delivery) []Delivery {
	out := make([]Delivery, 0, len(ds))
	for _, d := range ds {
		out = append(out, deliveryView(d))
	}
	return out
}

// evidenceView is a delivery with its attempts.
func evidenceView(d schedule.Evidence) Delivery {
	out := deliveryView(d.Delivery)
	if d.State == delivery.Dead {
		out.Reason = d.Reason
	}
	out.Evidence = make([]Attempt, 0, len(d.History))
	for _, a := range d.History {
		out.Evidence = append(out.Evidence, attemptView(a))
	}
	return out
}

// deliveryView is a delivery in the contract's words.
func deliveryView(d delivery.Delivery) Delivery {
	out := Delivery{
		ID: d.ID, EventID: d.EventID, SubscriberID: d.SubscriberID,
		State: d.State, Lane: d.Lane,
		AcceptedAt: d.AcceptedAt.UTC(), ExpiresAt: d.ExpiresAt.UTC(),
		FirstAttemptAt: d.FirstAttemptAt.UTC(), LastAttemptAt: d.LastAttemptAt.UTC(), EndedAt: d.EndedAt.UTC(),
		Attempts: d.Attempts, DeliveryCount: d.DeliveryCount,
		Releases: d.Releases, LeaseLosses: d.LeaseLosses, RedriveGeneration: d.RedriveGeneration,
		LastOutcome: d.LastOutcome, LastStatus: d.LastStatus,
	}
	if d.State == delivery.Scheduled {
		out.NextAttemptAt = d.DueAt.UTC()
	}
	return out
}

func attemptView(a delivery.Attempt) Attempt {
	out := Attempt{
		Attempt: a.Number, DeliveryCount: a.Fence,
		StartedAt: time.UnixMilli(a.StartedAt).UTC(), Duration: milliseconds(a.Duration),
		Outcome: a.Outcome, Status: a.Status,
		Error: clip(a.Error, maxDetail), Excerpt: clip(a.Excerpt, maxDetail),
		RetryAfter: milliseconds(a.RetryAfter),
		Worker:     a.Worker, Version: a.Version, TraceID: a.TraceID,
	}
	if a.Phases != nil {
		out.Phases = *a.Phases
	}
	if a.Terms != nil {
		out.Terms = *a.Terms
	}
	return out
}

func milliseconds(ms int64) delivery.Duration {
	return delivery.Duration(time.Duration(ms) * time.Millisecond)
}
