package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
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
		rules := func() error { return errors.Join(notMasked(draft), s.deps.Subscribers.Check(draft, nil)) }
		if err := decode(r, &draft, rules); err != nil {
			return err
		}
		if err := notMasked(draft); err != nil {
			return with(err, rules())
		}
		named := ""
		if draft.Account != nil {
			named = *draft.Account
		}
		account, ok := forAccount(r.Context(), named)
		if !ok {
			return otherAccount()
		}
		if account != "" {
			draft.Account = &account
		}
		noteOf(r).repeat = repeatCreate
		sub, err := s.deps.Subscribers.Create(r.Context(), draft)
		if err != nil {
			return fmt.Errorf("create subscriber: %w", err)
		}
		noteOf(r).id("subscriber_id", sub.ID)
		s.record(r, change{target: sub.ID, account: sub.Account, after: subscriberFacts(sub)})
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
		after, err := afterID(r, p.Cursor)
		if err != nil {
			return err
		}
		if err := checkFilters(r, map[string]string{"account": p.Account, "class": p.Class}); err != nil {
			return err
		}
		account, ok := forAccount(r.Context(), p.Account)
		if !ok {
			return badParameter(ProblemCodeForbidden, "account", "is not the account of your key, which sees no other; leave it out")
		}
		// One more than asked for tells whether there is a next page.
		subs, err := s.deps.Subscribers.List(r.Context(), subscriber.ListFilter{Account: account, Class: p.Class}, after, limit+1)
		if err != nil {
			return fmt.Errorf("list subscribers: %w", err)
		}
		var out SubscriberList
		subs, out.NextCursor = page(subs, limit, func(sub subscriber.Subscriber) string { return sub.ID })
		if out.Data, err = s.withStatus(r.Context(), subs); err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, out)
	})
}

// GetSubscriber shows a subscriber.
func (s *server) GetSubscriber(w http.ResponseWriter, r *http.Request, id SubscriberID) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		sub, err := s.ownSubscriber(r.Context(), id)
		if err != nil {
			return err
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
		rules := func() error {
			cur, err := s.ownSubscriber(r.Context(), id)
			if err != nil {
				return nil //nolint:nilerr // of one that the caller may not know there is nothing to tell
			}
			return errors.Join(notMasked(draft), s.deps.Subscribers.Check(draft, &cur))
		}
		removed, err := decodeRemoving(r, &draft, removable, rules)
		if err != nil {
			return err
		}
		if slices.Contains(removed, "/name") {
			draft.Name = new("")
		}
		draft.NoHeaders = slices.Contains(removed, "/headers")
		if err := notMasked(draft); err != nil {
			return with(err, rules())
		}
		return s.change(w, r, id, draft)
	})
}

// removable is what a patch takes away by a null (RFC 7396).
var removable = map[string]bool{"/name": true, "/headers": true}

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
	cond, err := ifMatch(r)
	if err != nil {
		return err
	}
	was, err := s.ownSubscriber(r.Context(), id)
	if err != nil {
		return err
	}
	version, err := cond.atVersion(was)
	if err != nil {
		return err
	}
	sub, err := s.deps.Subscribers.Patch(r.Context(), id, version, draft)
	if cond.given && errors.Is(err, schedule.ErrVersion) {
		return preconditionFailed(err)
	}
	if err != nil {
		return subscriberError(err)
	}
	s.recordSubscriber(r, was, sub)
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
		was, err := s.toDelete(r, id)
		if err != nil {
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
		if was.ID != "" { // to finish a delete is no change
			s.record(r, change{target: id, account: was.Account, before: subscriberFacts(was)})
		}
		return writeJSON(w, status, SubscriberDeleted{
			ID: id, Cancelled: res.Cancelled, Remaining: res.Remaining, Leases: res.Leases,
		})
	})
}

// toDelete reads the subscriber that is to be deleted, and compares If-Match with it.
// One that is deleted already has no version any more: to delete it again is to finish
// the delete, and must not fail for a condition that held the first time. It is the
// zero Subscriber; to a bound caller whose it was not it is not there.
func (s *server) toDelete(r *http.Request, id string) (subscriber.Subscriber, error) {
	cond, err := ifMatch(r)
	if err != nil {
		return subscriber.Subscriber{}, err
	}
	was, err := s.ownSubscriber(r.Context(), id)
	known, is := errors.AsType[*failure](err)
	_, isBound := bound(r.Context())
	if is && known.code == ProblemCodeNotFound && usableID(id, "_") {
		if !isBound {
			return subscriber.Subscriber{}, nil // the delete knows whether it ever was
		}
		if was, lost := s.had(r.Context(), id); was || lost != nil {
			return subscriber.Subscriber{}, lost
		}
	}
	switch {
	case errors.Is(err, subscriber.ErrUnreadable) && !isBound && !cond.given:
		return subscriber.Subscriber{ID: id}, nil // it may go without being read
	case err != nil:
		return subscriber.Subscriber{}, err
	}
	if cond.given && !slices.Contains(cond.versions, was.Version) {
		return subscriber.Subscriber{}, preconditionFailed(nil)
	}
	return was, nil
}

// recordSubscriber writes a change of a subscriber into the audit. A resume changes
// what the scheduler knows of it and perhaps nothing else, and is a change all the same.
func (s *server) recordSubscriber(r *http.Request, was, is subscriber.Subscriber) {
	c := change{target: is.ID, account: is.Account}
	c.before, c.after = subscriberChange(was, is)
	if was.Version != is.Version {
		s.record(r, c)
	}
}

func otherAccount() error {
	pointer := "/account"
	return &failure{
		code: ProblemCodeForbidden, detail: "Your key is bound to its own account; see errors.",
		fields: []FieldProblem{{Pointer: &pointer, Detail: "is not the account of your key; leave it out"}},
	}
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

// notMasked refuses a URL as answers show it: stored, it would lose the query that
// whoever sends it back has never seen.
func notMasked(draft subscriber.Draft) error {
	if draft.URL == nil || !strings.HasSuffix(*draft.URL, maskedQuery) {
		return nil
	}
	return invalid("/url", "ends with the "+maskedQuery+" that answers show for a query; send the whole URL, or leave it out to keep it")
}

// subscriberView is what is stored of a subscriber as anybody sees it, its owner too:
// without its secrets, and without the query of its URL, which often is one.
func subscriberView(sub subscriber.Subscriber) Subscriber {
	return Subscriber{
		ID: sub.ID, Account: sub.Account, Name: sub.Name, URL: withoutQuery(sub.URL), Class: sub.Class,
		Filter: sub.Filter, Policy: sub.Policy, Paused: sub.Paused, Version: sub.Version,
		Headers: sub.Headers, Secrets: secretViews(sub.Secrets),
		CreatedAt: sub.CreatedAt.UTC(), UpdatedAt: sub.UpdatedAt.UTC(), Warnings: sub.Policy.Warnings(),
	}
}

func createdView(sub subscriber.Subscriber) SubscriberCreated {
	v := subscriberView(sub)
	return SubscriberCreated{
		ID: v.ID, Account: v.Account, Name: v.Name, URL: v.URL, Class: v.Class,
		Filter: v.Filter, Policy: v.Policy, Paused: v.Paused, Version: v.Version,
		Headers: v.Headers, Secrets: v.Secrets,
		CreatedAt: v.CreatedAt, UpdatedAt: v.UpdatedAt, Warnings: v.Warnings,
		Secret: sub.Secrets[0].Value,
	}
}
