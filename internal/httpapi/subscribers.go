package httpapi

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
)

// repeatCreate is what to do after a create whose fate is not known. Its id and its
// secret are made here, so nothing tells a second one from the first.
const repeatCreate = "The subscriber may have been made. List the account's subscribers (GET /v1/subscribers) before you send it again: " +
	"a second create is a second subscriber, and its endpoint gets every event twice. " +
	"If it is there, delete it and create it anew, for its secret is not shown again."

// CreateSubscriber registers a subscriber and shows its secret for the only time.
func (s *server) CreateSubscriber(w http.ResponseWriter, r *http.Request, _ CreateSubscriberParams) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		var draft SubscriberInput
		if err := decode(r, &draft); err != nil {
			return err
		}
		noteOf(r).repeat = repeatCreate
		sub, err := s.deps.Subscribers.Create(r.Context(), draft)
		if err != nil {
			return fmt.Errorf("create subscriber: %w", err)
		}
		noteOf(r).id("subscriber_id", sub.ID)
		w.Header().Set("Location", "/v1/subscribers/"+sub.ID)
		w.Header().Set("ETag", etag(sub.Version))
		return writeJSON(w, http.StatusCreated, createdView(sub))
	})
}

// ListSubscribers shows a page of subscribers.
func (s *server) ListSubscribers(w http.ResponseWriter, r *http.Request, p ListSubscribersParams) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		limit, err := limitOf(p.Limit)
		if err != nil {
			return err
		}
		after := ""
		if r.URL.Query().Has("cursor") {
			if after, err = readCursor(p.Cursor); err != nil {
				return err
			}
		}
		// One more than asked for tells whether there is a next page, so that the
		// last one never leads to an empty one.
		subs, err := s.deps.Subscribers.List(r.Context(), subscriber.ListFilter{}, after, limit+1)
		if err != nil {
			return fmt.Errorf("list subscribers: %w", err)
		}
		var out SubscriberList
		if len(subs) > limit {
			subs = subs[:limit]
			next := makeCursor(subs[limit-1].ID)
			out.NextCursor = &next
		}
		if out.Data, err = s.withStatus(r.Context(), subs); err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, out)
	})
}

// GetSubscriber shows a subscriber.
func (s *server) GetSubscriber(w http.ResponseWriter, r *http.Request, id SubscriberID) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		if !usableID(id, "_") {
			return notFound("subscriber")
		}
		noteOf(r).id("subscriber_id", id)
		sub, err := s.deps.Subscribers.Get(r.Context(), id)
		if err != nil {
			return subscriberError(err)
		}
		views, err := s.withStatus(r.Context(), []subscriber.Subscriber{sub})
		if err != nil {
			return err
		}
		return writeSubscriber(w, views[0])
	})
}

// PatchSubscriber changes a subscriber.
func (s *server) PatchSubscriber(w http.ResponseWriter, r *http.Request, id SubscriberID, _ PatchSubscriberParams) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		var draft SubscriberPatch
		if err := decode(r, &draft); err != nil {
			return err
		}
		return s.change(w, r, id, draft)
	})
}

// PauseSubscriber holds a subscriber until it is resumed.
func (s *server) PauseSubscriber(w http.ResponseWriter, r *http.Request, id SubscriberID, _ PauseSubscriberParams) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		return s.change(w, r, id, subscriber.Draft{Paused: new(true)})
	})
}

// ResumeSubscriber ends the holds that a person can end.
func (s *server) ResumeSubscriber(w http.ResponseWriter, r *http.Request, id SubscriberID, _ ResumeSubscriberParams) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		return s.change(w, r, id, subscriber.Draft{Paused: new(false)})
	})
}

// change lays a draft over a subscriber, at the version of If-Match if there is
// one, and answers with what it has become.
func (s *server) change(w http.ResponseWriter, r *http.Request, id string, draft subscriber.Draft) error {
	if !usableID(id, "_") {
		return notFound("subscriber")
	}
	noteOf(r).id("subscriber_id", id)
	cond := ifMatch(r)
	version, err := s.atVersion(r.Context(), id, cond)
	if err != nil {
		return subscriberError(err)
	}
	sub, err := s.deps.Subscribers.Patch(r.Context(), id, version, draft)
	if cond.given && errors.Is(err, schedule.ErrVersion) {
		return preconditionFailed(err)
	}
	if err != nil {
		return subscriberError(err)
	}
	// The change is made, whether its effect can be read or not: a client that is told
	// to try again would be refused under If-Match.
	views, err := s.withStatus(r.Context(), []subscriber.Subscriber{sub})
	if err != nil {
		s.log.WarnContext(r.Context(), "subscriber changed, its status cannot be read", "subscriber_id", id, "error", err)
		views = []Subscriber{subscriberView(sub)}
	}
	return writeSubscriber(w, views[0])
}

// DeleteSubscriber ends a subscriber. If-Match is compared before the tombstone is
// written and not with it: a change that is made between the two, within a
// millisecond or so, is deleted unseen.
func (s *server) DeleteSubscriber(w http.ResponseWriter, r *http.Request, id SubscriberID, p DeleteSubscriberParams) {
	wait, limit := true, deleteTimeout
	if p.Wait != nil && *p.Wait == 0 {
		wait, limit = false, workTimeout
	}
	s.run(w, r, limit, func(w http.ResponseWriter, r *http.Request) error {
		if p.Wait != nil && *p.Wait != 0 && *p.Wait != 1 {
			return badParameter(ProblemCodeInvalidParameter, "wait", "must be 0 or 1")
		}
		if !usableID(id, "_") {
			return notFound("subscriber")
		}
		noteOf(r).id("subscriber_id", id)
		if err := s.mayDelete(r.Context(), id, ifMatch(r)); err != nil {
			return err
		}
		res, err := s.deps.Subscribers.Delete(r.Context(), id, wait)
		status := http.StatusOK
		switch {
		case errors.Is(err, schedule.ErrRefused):
			// Perhaps with its tombstone written: "nothing was stored" may be untrue.
			f := unavailable("Redis refuses to work for now. The delete may have begun; send the same request again to finish it.")
			f.cause = err
			return f
		case errors.Is(err, context.DeadlineExceeded) && r.Context().Err() != nil && !res.Done():
			// The time of this request is up, not the patience of Redis: the
			// tombstone stands, and what is left ends by itself.
			status = http.StatusAccepted
		case err != nil:
			return fmt.Errorf("delete subscriber: %w", err)
		case !wait:
			status = http.StatusAccepted
		}
		return writeJSON(w, status, SubscriberDeleted{
			ID: id, Cancelled: res.Cancelled, Remaining: res.Remaining, Leases: res.Leases,
		})
	})
}

func writeSubscriber(w http.ResponseWriter, v Subscriber) error {
	w.Header().Set("ETag", etag(v.Version))
	return writeJSON(w, http.StatusOK, v)
}

func subscriberError(err error) error {
	if errors.Is(err, schedule.ErrNotFound) {
		return &failure{code: ProblemCodeNotFound, detail: "There is no subscriber with this id, or it was deleted.", cause: err}
	}
	return err
}

// subscriberView is what is stored of a subscriber as its owner sees it: its URL
// whole, its secrets never.
func subscriberView(sub subscriber.Subscriber) Subscriber {
	return Subscriber{
		ID: sub.ID, Account: sub.Account, Name: sub.Name, URL: sub.URL, Class: sub.Class,
		Filter: sub.Filter, Policy: sub.Policy, Paused: sub.Paused, Version: sub.Version,
		CreatedAt: sub.CreatedAt.UTC(), UpdatedAt: sub.UpdatedAt.UTC(), Warnings: sub.Policy.Warnings(),
	}
}

func createdView(sub subscriber.Subscriber) SubscriberCreated {
	v := subscriberView(sub)
	return SubscriberCreated{
		ID: v.ID, Account: v.Account, Name: v.Name, URL: v.URL, Class: v.Class,
		Filter: v.Filter, Policy: v.Policy, Paused: v.Paused, Version: v.Version,
		CreatedAt: v.CreatedAt, UpdatedAt: v.UpdatedAt, Warnings: v.Warnings,
		Secret: sub.Secrets[0].Value,
	}
}

// cursorPrefix names what a cursor is made of, so that another form can follow.
const cursorPrefix = "1:"

func makeCursor(lastID string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(cursorPrefix + lastID))
}

func readCursor(cursor string) (string, error) {
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	id, ok := strings.CutPrefix(string(raw), cursorPrefix)
	if err != nil || !ok || !usableID(id, "_") {
		return "", badParameter(ProblemCodeInvalidCursor, "cursor", "is not a next_cursor of this list; leave it out to begin at the start")
	}
	return id, nil
}
