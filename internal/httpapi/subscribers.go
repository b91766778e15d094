package httpapi

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
)

// anyVersion is the store's word for a change without If-Match.
const anyVersion = -1

// CreateSubscriber registers a subscriber and shows its secret for the only time.
func (s *server) CreateSubscriber(w http.ResponseWriter, r *http.Request) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		var draft SubscriberInput
		if err := decode(r, &draft); err != nil {
			return err
		}
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
		subs, err := s.deps.Subscribers.List(r.Context(), after, limit+1)
		if err != nil {
			return fmt.Errorf("list subscribers: %w", err)
		}
		out := SubscriberList{Data: make([]Subscriber, 0, limit)}
		if len(subs) > limit {
			subs = subs[:limit]
			next := makeCursor(subs[limit-1].ID)
			out.NextCursor = &next
		}
		for _, sub := range subs {
			out.Data = append(out.Data, subscriberView(sub))
		}
		return writeJSON(w, http.StatusOK, out)
	})
}

// GetSubscriber shows a subscriber.
func (s *server) GetSubscriber(w http.ResponseWriter, r *http.Request, id SubscriberID) {
	s.answerSubscriber(w, r, id, func(ctx context.Context) (subscriber.Subscriber, error) {
		return s.deps.Subscribers.Get(ctx, id)
	})
}

// PatchSubscriber changes a subscriber.
func (s *server) PatchSubscriber(w http.ResponseWriter, r *http.Request, id SubscriberID, p PatchSubscriberParams) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		version, err := ifMatch(r, p.IfMatch)
		if err != nil {
			return err
		}
		var draft SubscriberPatch
		if err := decode(r, &draft); err != nil {
			return err
		}
		if !usableID(id, "_") {
			return notFound("subscriber")
		}
		noteOf(r).id("subscriber_id", id)
		sub, err := s.deps.Subscribers.Patch(r.Context(), id, version, draft)
		if version != anyVersion && errors.Is(err, schedule.ErrVersion) {
			return &failure{
				code: ProblemCodePreconditionFailed, cause: err,
				detail: "The subscriber is not at the version of If-Match any more. Get it, look, and change it again.",
			}
		}
		return writeSubscriber(w, sub, err)
	})
}

// PauseSubscriber puts a subscriber on hold.
func (s *server) PauseSubscriber(w http.ResponseWriter, r *http.Request, id SubscriberID) {
	s.setPaused(w, r, id, true)
}

// ResumeSubscriber ends a pause.
func (s *server) ResumeSubscriber(w http.ResponseWriter, r *http.Request, id SubscriberID) {
	s.setPaused(w, r, id, false)
}

func (s *server) setPaused(w http.ResponseWriter, r *http.Request, id string, paused bool) {
	s.answerSubscriber(w, r, id, func(ctx context.Context) (subscriber.Subscriber, error) {
		return s.deps.Subscribers.Patch(ctx, id, anyVersion, subscriber.Draft{Paused: &paused})
	})
}

// DeleteSubscriber ends a subscriber.
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
		res, err := s.deps.Subscribers.Delete(r.Context(), id, wait)
		status := http.StatusOK
		switch {
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

// answerSubscriber runs what needs no body and answers with the subscriber.
func (s *server) answerSubscriber(w http.ResponseWriter, r *http.Request, id string,
	do func(context.Context) (subscriber.Subscriber, error),
) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		if !usableID(id, "_") {
			return notFound("subscriber")
		}
		noteOf(r).id("subscriber_id", id)
		sub, err := do(r.Context())
		return writeSubscriber(w, sub, err)
	})
}

func writeSubscriber(w http.ResponseWriter, sub subscriber.Subscriber, err error) error {
	if errors.Is(err, schedule.ErrNotFound) {
		return &failure{code: ProblemCodeNotFound, detail: "There is no subscriber with this id, or it was deleted.", cause: err}
	}
	if err != nil {
		return err
	}
	w.Header().Set("ETag", etag(sub.Version))
	return writeJSON(w, http.StatusOK, subscriberView(sub))
}

// subscriberView is what a subscriber looks like to its owner: its URL whole, its
// secrets never.
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

func etag(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

// ifMatch reads the version that a change is based on (RFC 9110, 13.1.1). "*"
// asks only that the subscriber is there, as any change does. A weak tag never
// matches, nor does one that was never given out: both are a version that is not.
func ifMatch(r *http.Request, header string) (int64, error) {
	if _, given := r.Header["If-Match"]; !given || header == "*" {
		return anyVersion, nil
	}
	if strings.Contains(header, ",") {
		return 0, badParameter(ProblemCodeInvalidParameter, "If-Match", "holds several tags; send the one that the change is based on")
	}
	inner, ok := strings.CutPrefix(header, `"`)
	inner, closed := strings.CutSuffix(inner, `"`)
	version, err := strconv.ParseInt(inner, 10, 64)
	if !ok || !closed || err != nil || version < 0 || etag(version) != header {
		return 0, fail(ProblemCodePreconditionFailed, "If-Match is not an ETag of this subscriber. Get it and send its ETag as it came.")
	}
	return version, nil
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
