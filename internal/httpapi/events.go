package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/fanout/fanout/internal/crash"
	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/ingest"
	"github.com/fanout/fanout/internal/schedule"
)

// viewChunk is how many deliveries of an event are read at once: an event may
// have 10,000, and one pipeline of those would hold up everyone else's.
const viewChunk = 500

// What to do after a post whose fate is not known.
const (
	repeatEvent         = "Whether the event was stored is not known. Send the same one again with the same id: it is stored once."
	repeatNamelessEvent = "Whether the event was stored is not known, and it has no id to tell it by: sent again it may be a second event. " +
		"Send an id with every event, and posting again is safe."
)

// PostEvent accepts an event.
func (s *server) PostEvent(w http.ResponseWriter, r *http.Request) {
	s.run(w, r, workTimeout, s.postEvent)
}

func (s *server) postEvent(w http.ResponseWriter, r *http.Request) error {
	var in EventInput
	if err := decode(r, &in, func() error { return checkPost(in) }); err != nil {
		return err
	}
	p, err := postOf(in)
	if err != nil {
		return err
	}
	noteOf(r).repeat = repeatEvent
	if in.ID == nil {
		noteOf(r).repeat = repeatNamelessEvent
	}
	receipt, err := s.deps.Ingest.Submit(r.Context(), p)
	if err != nil {
		return fmt.Errorf("post event: %w", err)
	}
	crash.Point("api.answer.before")
	noteOf(r).id("event_id", receipt.ID)
	w.Header().Set("Location", "/v1/events/"+url.PathEscape(receipt.ID))
	return writeJSON(w, http.StatusAccepted, receiptView(receipt))
}

// postOf is what ingest is given of an event.
func postOf(in EventInput) (ingest.Post, error) {
	p := ingest.Post{
		Type: in.Type, ShipmentID: in.ShipmentID, OccurredAt: in.OccurredAt,
		Attributes: in.Attributes, Data: in.Data,
	}
	if in.ID != nil {
		if p.ID = *in.ID; p.ID == "" {
			// To ingest an empty id means none, and a producer that sends one
			// believes that its posts can be repeated.
			return p, with(badField("/id", "is empty; send 1 to 64 characters, or leave it out to be given an id"), p.Check())
		}
	}
	return p, nil
}

// checkPost is what is wrong with an event as far as it could be read.
func checkPost(in EventInput) error {
	p, err := postOf(in)
	if err != nil {
		return err
	}
	return p.Check() //nolint:wrapcheck // besides looks at it
}

func receiptView(receipt ingest.Receipt) EventReceipt {
	return EventReceipt{
		ID: receipt.ID, Deliveries: receipt.Deliveries, Duplicate: receipt.Duplicate,
		AcceptedAt: receipt.AcceptedAt.UTC(),
	}
}

// GetEvent shows an event and where its deliveries stand.
func (s *server) GetEvent(w http.ResponseWriter, r *http.Request, id EventID) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error { return s.getEvent(w, r, id) })
}

func (s *server) getEvent(w http.ResponseWriter, r *http.Request, id string) error {
	e, subs, err := s.ownEvent(r, id)
	if err != nil {
		return err
	}
	meta, err := ingest.DecodeMeta(e.Meta)
	if err != nil {
		return fmt.Errorf("get event %s: %w", id, err)
	}
	out := Event{
		ID: e.ID, Type: meta.Type, ShipmentID: meta.ShipmentID, OccurredAt: meta.OccurredAt,
		Attributes: meta.Attributes, AcceptedAt: e.AcceptedAt.UTC(),
		Expanding: e.Open, DeliveriesPlanned: e.Deliveries,
	}
	if out.Attributes == nil {
		out.Attributes = Attributes{}
	}
	if _, is := bound(r.Context()); is {
		out.DeliveriesPlanned = len(subs) // how many others get it is not his to know
	}
	out.Deliveries, err = s.summaries(r.Context(), e.ID, subs)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, out)
}

// ownEvent reads an event and the ids of those of its subscribers that the caller may
// know of. To a bound caller an event that goes to none of his is not there.
func (s *server) ownEvent(r *http.Request, id string) (schedule.Event, []string, error) {
	if !usableID(id, "._:-") {
		return schedule.Event{}, nil, notFound("event")
	}
	noteOf(r).id("event_id", id)
	e, err := s.deps.Views.Event(r.Context(), id)
	if errors.Is(err, schedule.ErrNotFound) {
		return schedule.Event{}, nil, notFound("event") // the words of below: they must not tell the two apart
	}
	if err != nil {
		return schedule.Event{}, nil, fmt.Errorf("get event: %w", err)
	}
	subs, err := s.own(r.Context(), e.SubscriberIDs)
	if err != nil {
		return schedule.Event{}, nil, err
	}
	if _, is := bound(r.Context()); is && len(subs) == 0 {
		return schedule.Event{}, nil, notFound("event")
	}
	return e, subs, nil
}

// summaries reads an event's deliveries by the ids that they must have. One that
// is not there yet, or no longer, is left out.
func (s *server) summaries(ctx context.Context, eventID string, subscriberIDs []string) ([]DeliverySummary, error) {
	ids := make([]string, len(subscriberIDs))
	for i, sub := range subscriberIDs {
		ids[i] = delivery.NewID(eventID, sub)
	}
	out := make([]DeliverySummary, 0, len(ids))
	for chunk := range slices.Chunk(ids, viewChunk) {
		ds, err := s.deps.Views.Deliveries(ctx, chunk)
		if err != nil {
			return nil, fmt.Errorf("get the deliveries of event %s: %w", eventID, err)
		}
		for _, d := range ds {
			out = append(out, DeliverySummary{
				ID: d.ID, SubscriberID: d.SubscriberID, State: d.State,
				Attempts: d.Attempts, LastOutcome: d.LastOutcome,
			})
		}
	}
	slices.SortFunc(out, func(a, b DeliverySummary) int { return strings.Compare(a.SubscriberID, b.SubscriberID) })
	return out, nil
}

// usableID spares Redis, and the log, what cannot be an id.
func usableID(id, extra string) bool { return len(id) >= 1 && len(id) <= 64 && only(id, extra) }

func notFound(what string) error {
	return fail(ProblemCodeNotFound, "There is no %s with this id, or its retention has passed.", what)
}
