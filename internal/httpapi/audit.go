package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fanout/fanout/internal/access"
	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/subscriber"
)

func newAuditFailures(reg prometheus.Registerer) prometheus.Counter {
	return promauto.With(reg).NewCounter(prometheus.CounterOpts{
		Name: "fanout_audit_failures_total",
		Help: "Changes that the API made and could not write into the audit.",
	})
}

// change is what an operation has done, for the audit.
type change struct {
	target, account string
	// reason goes before the request's header.
	reason        string
	before, after facts
}

// record writes a change that was made into the audit: who, when, what and why. If
// that fails the change stands all the same, and so does the answer: the failure is
// counted, and the log line has what the entry would have had.
func (s *server) record(r *http.Request, c change) {
	if s.deps.Audit == nil {
		return
	}
	e := access.Entry{
		Actor: access.From(r.Context()), Action: operationOf(r).id, Target: c.target, Account: c.account,
		Reason: c.reason, RequestID: noteOf(r).requestID,
		Before: c.before.json(), After: c.after.json(),
	}
	if e.Reason == "" {
		e.Reason = r.Header.Get(reasonHeader)
	}
	if err := s.deps.Audit.Append(r.Context(), e); err != nil {
		s.auditFailures.Inc()
		s.log.ErrorContext(r.Context(), "change made, but not in the audit", "request_id", e.RequestID,
			"key_id", e.Actor.KeyID, "role", e.Actor.Role, "action", e.Action, "target", e.Target, "reason", e.Reason, "error", err)
	}
}

// facts are what is told of a thing, by the names of the contract; nil for nothing.
type facts map[string]any

func (f facts) json() json.RawMessage {
	if len(f) == 0 {
		return nil
	}
	raw, err := json.Marshal(f)
	if err != nil { // they are made here, of what marshals
		panic("httpapi: marshal an audit entry: " + err.Error())
	}
	return raw
}

// differing leaves in two facts what is not the same in both. What is told of a
// secret may be alike where the secret is not: those stay, if told to.
func differing(before, after facts, keep ...string) (facts, facts) {
	was, is := maps.Clone(before), maps.Clone(after)
	for name := range before {
		if reflect.DeepEqual(before[name], after[name]) {
			delete(was, name)
			delete(is, name)
		}
	}
	for _, name := range keep {
		was[name], is[name] = before[name], after[name]
	}
	return was, is
}

// subscriberFacts tell of a subscriber without anything that opens a door: of its
// URL the host alone (a path is a token as often as a query is, and the audit lies in
// Redis unsealed), no secret, no header's value.
func subscriberFacts(sub subscriber.Subscriber) facts {
	secrets := make([]string, len(sub.Secrets))
	for i, secret := range sub.Secrets {
		secrets[i] = secret.ID
		if !secret.ExpiresAt.IsZero() {
			secrets[i] += " until " + secret.ExpiresAt.UTC().Format(time.RFC3339)
		}
	}
	return facts{
		"account": sub.Account, "name": sub.Name, "url": hostOf(sub.URL), "class": sub.Class, "filter": sub.Filter,
		"policy": sub.Policy, "paused": sub.Paused, "headers": sub.Headers.Names(), "secrets": secrets,
	}
}

// subscriberChange tells what has become different. A URL of which only what is hidden
// changed, and a header of which only the value did, are told as changed too.
func subscriberChange(before, after subscriber.Subscriber) (was, is facts) {
	var keep []string
	if before.URL != after.URL {
		keep = append(keep, "url")
	}
	if !maps.Equal(before.Headers, after.Headers) {
		keep = append(keep, "headers")
	}
	return differing(subscriberFacts(before), subscriberFacts(after), keep...)
}

// hostOf says where a URL leads, and that there is more of it.
func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "***"
	}
	at := u.Scheme + "://" + u.Host
	if u.RequestURI() != "/" {
		at += "/***"
	}
	return at
}

// maskedQuery stands for a query.
const maskedQuery = "?***"

// withoutQuery says that there was one, and not what.
func withoutQuery(raw string) string {
	plain, _, found := strings.Cut(raw, "?")
	if found {
		return plain + maskedQuery
	}
	return plain
}

func deliveryFacts(d delivery.Delivery) facts {
	f := facts{"state": d.State}
	if d.State == delivery.Scheduled {
		f["next_attempt_at"] = d.DueAt.UTC()
	}
	return f
}

// ListAudit shows who changed what.
func (s *server) ListAudit(w http.ResponseWriter, r *http.Request, p ListAuditParams) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		return s.listAudit(r.Context(), w, r, p)
	})
}

func (s *server) listAudit(ctx context.Context, w http.ResponseWriter, r *http.Request, p ListAuditParams) error {
	if s.deps.Audit == nil {
		return noStore()
	}
	limit, err := limitOf(p.Limit)
	if err != nil {
		return err
	}
	cursor, err := opaqueCursor(r, p.Cursor)
	if err != nil {
		return err
	}
	if _, known := roles[p.Action]; r.URL.Query().Has("action") && !known && !byItself(p.Action) {
		return badParameter(ProblemCodeInvalidParameter, "action", "is not an operationId of this API, such as pauseSubscriber")
	}
	if err := checkFilters(r, map[string]string{"target": p.Target, "key_id": p.KeyID}); err != nil {
		return err
	}
	entries, next, err := s.deps.Audit.List(ctx, access.Filter{Action: p.Action, Target: p.Target, KeyID: p.KeyID}, cursor, limit)
	if errors.Is(err, access.ErrCursor) {
		return badCursor()
	}
	if err != nil {
		return fmt.Errorf("list the audit: %w", err)
	}
	out := AuditList{Data: make([]AuditEntry, 0, len(entries)), NextCursor: nextCursor(next)}
	for _, e := range entries {
		out.Data = append(out.Data, AuditEntry{
			ID: e.ID, At: e.At.UTC(), Action: e.Action, Target: e.Target, Account: e.Account,
			Actor:  Actor{ID: e.Actor.KeyID, Name: e.Actor.Name, Role: Role(e.Actor.Role), Account: e.Actor.Account},
			Reason: e.Reason, RequestID: e.RequestID, Before: e.Before, After: e.After,
		})
	}
	return writeJSON(w, http.StatusOK, out)
}
