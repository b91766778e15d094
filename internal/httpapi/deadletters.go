package httpapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/fault"
	"github.com/fanout/fanout/internal/schedule"
)

// maxPayload is how many bytes of a payload are shown: above all that a body of 320 KiB
// can become.
const maxPayload = 384 << 10

// maxDiscard is how many dead letters one request discards.
const maxDiscard = 1000

// ListDeadLetters shows dead letters, newest first.
func (s *server) ListDeadLetters(w http.ResponseWriter, r *http.Request, p ListDeadLettersParams) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		limit, err := limitOf(p.Limit)
		if err != nil {
			return err
		}
		cursor, err := opaqueCursor(r, p.Cursor)
		if err != nil {
			return err
		}
		wanted, err := s.wantedOf(r, p)
		if err != nil {
			return err
		}
		// All dead letters have one order, and no account has one of its own.
		_, isBound := bound(r.Context())
		if named := r.URL.Query().Has("subscriber_id"); named {
			err = s.mayList(r, p.SubscriberID)
		} else if isBound {
			err = badParameter(ProblemCodeInvalidParameter, "subscriber_id", "is needed: a key of role subscriber lists the dead letters of one of its own")
		}
		if err != nil {
			return err
		}
		dead, next, err := wanted.page(r.Context(), p.SubscriberID, cursor, limit)
		if errors.Is(err, schedule.ErrCursor) {
			return badCursor()
		}
		if err != nil {
			return fmt.Errorf("list dead letters: %w", err)
		}
		out := DeadLetterList{Data: make([]DeadLetter, 0, len(dead)), NextCursor: nextCursor(next)}
		for _, d := range dead {
			out.Data = append(out.Data, DeadLetter{Reason: d.Reason, Delivery: evidenceView(d)})
		}
		return writeJSON(w, http.StatusOK, out)
	})
}

// GetDeadLetter shows all that is known of a dead letter.
func (s *server) GetDeadLetter(w http.ResponseWriter, r *http.Request, id DeliveryID) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		d, err := s.ownDelivery(r.Context(), id)
		if err != nil {
			return err
		}
		if d.State != delivery.Dead {
			return fail(ProblemCodeNotFound, "The delivery is no dead letter: it is %s. GET /v1/deliveries has it.", d.State)
		}
		out := DeadLetterEvidence{Reason: d.Reason, Delivery: evidenceView(d)}
		if err := s.addPayload(r.Context(), &out); err != nil {
			return err
		}
		sub, err := s.deps.Subscribers.Get(r.Context(), d.SubscriberID)
		switch {
		case err == nil:
			out.Subscriber = subscriberView(sub)
		case !errors.Is(err, schedule.ErrNotFound): // deleted: what is left of it stands in the evidence
			return fmt.Errorf("get dead letter: %w", err)
		}
		if out.RedriveID, err = s.deps.Deliveries.CohortOf(r.Context(), id); err != nil {
			return fmt.Errorf("get dead letter: %w", err)
		}
		return writeJSON(w, http.StatusOK, out)
	})
}

// addPayload adds what was sent, and the event as it stands there: the event's own
// record may be forgotten by now.
func (s *server) addPayload(ctx context.Context, out *DeadLetterEvidence) error {
	body, err := s.deps.Deliveries.Pinned(ctx, out.Delivery.SubscriberID, out.Delivery.EventID)
	if errors.Is(err, schedule.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get dead letter: %w", err)
	}
	out.Payload, out.Traceparent = payloadView(body.Bytes), body.Traceparent
	if head, ok := headOf(body.Bytes); ok {
		out.Event = SentEvent{
			ID: out.Delivery.EventID, Type: head.Type, ShipmentID: head.ShipmentID, OccurredAt: head.OccurredAt, Attributes: head.Attributes,
		}
	}
	return nil
}

// payloadHead is what a payload tells of its event; package delivery writes it.
type payloadHead struct {
	Type       string            `json:"type"`
	OccurredAt string            `json:"timestamp"`
	ShipmentID string            `json:"shipment_id"`
	Attributes map[string]string `json:"attributes"`
}

func headOf(body []byte) (h payloadHead, ok bool) {
	ok = json.Unmarshal(body, &h) == nil
	if h.Attributes == nil {
		h.Attributes = map[string]string{}
	}
	return h, ok && h.Type != ""
}

// payloadView shows bytes as text if they are text.
func payloadView(b []byte) SentPayload {
	out := SentPayload{Bytes: len(b), Encoding: PayloadUTF8}
	if out.Truncated = len(b) > maxPayload; out.Truncated {
		b = b[:maxPayload]
		for range utf8.UTFMax { // not in the middle of a character
			if utf8.Valid(b) {
				break
			}
			b = b[:len(b)-1]
		}
	}
	if out.Content = string(b); !utf8.Valid(b) {
		out.Encoding, out.Content = PayloadBase64, base64.StdEncoding.EncodeToString(b)
	}
	return out
}

// DiscardDeadLetters forgets dead letters.
func (s *server) DiscardDeadLetters(w http.ResponseWriter, r *http.Request, _ DiscardDeadLettersParams) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		var in DiscardInput
		rules := func() error {
			_, err := discardable(in)
			return err
		}
		if err := decode(r, &in, rules); err != nil {
			return err
		}
		ids, err := discardable(in)
		if err != nil {
			return err
		}
		was, err := s.deps.Views.Deliveries(r.Context(), ids) // for the audit: nothing will be left to tell of them
		if err != nil {
			return fmt.Errorf("discard dead letters: %w", err)
		}
		results, err := s.deps.Deliveries.Discard(r.Context(), ids)
		if err != nil {
			return fmt.Errorf("discard dead letters: %w", err)
		}
		out := DiscardResults{Results: make([]DiscardResult, len(ids))}
		gone := map[string]bool{}
		for i, id := range ids {
			out.Results[i] = DiscardResult{ID: id, Result: discardWord(results[i])}
			if results[i] == schedule.Discarded {
				out.Discarded++
				gone[id] = true
			}
		}
		s.recordDiscard(r, in, was, gone)
		return writeJSON(w, http.StatusOK, out)
	})
}

// discardable are the ids that are to be forgotten, each once.
func discardable(in DiscardInput) ([]string, error) {
	var bad fault.List
	switch {
	case in.Reason == "":
		bad.Addf("/reason", "is missing or empty; say why, for the audit")
	case unusableReason(in.Reason) != "":
		bad.Addf("/reason", "%s", unusableReason(in.Reason))
	}
	switch {
	case len(in.Ids) == 0:
		bad.Addf("/ids", "is missing or empty; name 1 to %d deliveries", maxDiscard)
	case len(in.Ids) > maxDiscard:
		bad.Addf("/ids", "must have at most %d, has %d; name the rest in another request", maxDiscard, len(in.Ids))
		return nil, bad.Err("discard")
	}
	var ids []string
	seen := map[string]bool{}
	for i, id := range in.Ids {
		if _, err := delivery.IDHash16(id); err != nil {
			bad.Addf(fmt.Sprintf("/ids/%d", i), "is not the id of a delivery")
		}
		if !seen[id] {
			ids = append(ids, id)
		}
		seen[id] = true
	}
	return ids, bad.Err("discard")
}

func discardWord(r schedule.ClaimResult) DiscardResultResult {
	switch r {
	case schedule.Discarded:
		return DiscardDone
	case schedule.Claimed, schedule.Taken:
		return DiscardInRedrive
	case schedule.NotDead:
		return DiscardNotDead
	default:
		return DiscardMissing
	}
}

// discardEntry is how many ids an entry of the audit has room for.
const discardEntry = 400

// recordDiscard writes down which are gone: an entry for the delivery if the request
// named one, else for each subscriber. One for each of a thousand would push others out
// of the audit.
func (s *server) recordDiscard(r *http.Request, in DiscardInput, was []delivery.Delivery, gone map[string]bool) {
	bySubscriber := map[string][]string{}
	for _, d := range was {
		if gone[d.ID] {
			bySubscriber[d.SubscriberID] = append(bySubscriber[d.SubscriberID], d.ID)
		}
	}
	for _, sub := range slices.Sorted(maps.Keys(bySubscriber)) {
		for ids := range slices.Chunk(bySubscriber[sub], discardEntry) {
			c := change{target: sub, reason: in.Reason, before: facts{"dead_letters": len(ids), "ids": ids, "subscriber_id": sub}}
			if len(gone) == 1 {
				c.target = ids[0]
			}
			s.record(r, c)
		}
	}
}

// wanted says which dead letters a list is for; what is zero is not asked for.
type wanted struct {
	s               *server
	class, kind     string
	outcome, reason delivery.Outcome
	since, until    time.Time

	classes, kinds map[string]string // known so far, by subscriber and by event
}

func (s *server) wantedOf(r *http.Request, p ListDeadLettersParams) (*wanted, error) {
	f := &wanted{
		s: s, class: p.Class, kind: p.Type, outcome: p.Outcome, reason: p.Reason,
		classes: map[string]string{}, kinds: map[string]string{},
	}
	if err := checkFilters(r, map[string]string{"class": p.Class}); err != nil {
		return nil, err
	}
	q := r.URL.Query()
	for name, o := range map[string]delivery.Outcome{"outcome": p.Outcome, "reason": p.Reason} {
		if _, known := delivery.Facts[o]; q.Has(name) && !known {
			return nil, badParameter(ProblemCodeInvalidParameter, name, "must be an outcome, such as http_5xx or exhausted; leave it out for all")
		}
	}
	if q.Has("type") && !eventType(p.Type) {
		return nil, badParameter(ProblemCodeInvalidParameter, "type", "must be the type of an event, such as shipment.delivered; leave it out for all")
	}
	for name, at := range map[string]*time.Time{"since": &f.since, "until": &f.until} {
		// RFC 3339 has t and z too.
		if q.Has(name) && at.UnmarshalText([]byte(strings.ToUpper(q.Get(name)))) != nil {
			return nil, badParameter(ProblemCodeInvalidParameter, name, `must be a time in RFC 3339, such as 2026-11-30T13:00:00Z; write + as %2B`)
		}
	}
	if !f.since.IsZero() && !f.until.IsZero() && !f.since.Before(f.until) {
		return nil, badParameter(ProblemCodeInvalidParameter, "until", "must be after since")
	}
	return f, nil
}

// eventType says whether a text can be an event's type: dotted words of a-z 0-9 _ -.
func eventType(text string) bool {
	if len(text) > 128 || !only(text, "._-") {
		return false
	}
	last := '.'
	for _, c := range text {
		if c == '.' && last == '.' || 'A' <= c && c <= 'Z' {
			return false
		}
		last = c
	}
	return last != '.'
}

// Bounds of the search for what has no list of its own: dead letters that a request
// looks at, and payloads that it reads for an event's type.
const (
	lookMost = 2000
	readMost = 500
)

// page is a page of those that are wanted. It may be short, and have a next: the
// cursor of the last that was looked at.
func (f *wanted) page(ctx context.Context, subscriberID, cursor string, limit int) (found []schedule.Evidence, next string, err error) {
	most := limit
	if f.picks() {
		most = maxLimit
	}
	for looked, size := 0, most; ; {
		page, after, err := f.s.deps.Deliveries.DeadLettersPage(ctx, subscriberID, cursor, size)
		if err != nil {
			return nil, "", err //nolint:wrapcheck // the caller says what it was for
		}
		kept, seen, err := f.pick(ctx, page, limit-len(found))
		switch {
		case err != nil:
			return nil, "", err
		case seen < 0: // those that follow died too early
			return append(found, kept...), "", nil
		case seen < len(page):
			size = seen // again, up to the last that there is room for: its cursor is the one to give
			continue
		}
		found, cursor = append(found, kept...), after
		looked += len(page)
		if size = most; after == "" || len(found) == limit || looked >= lookMost || len(f.kinds) >= readMost {
			return found, cursor, nil
		}
	}
}

// picks says whether anything is asked for beside the subscriber.
func (f *wanted) picks() bool {
	return f.class+f.kind != "" || f.outcome+f.reason != "" || !f.since.IsZero() || !f.until.IsZero()
}

// pick takes up to room of a page, newest first, and says how many it has seen; -1 if
// none that follows can be wanted.
func (f *wanted) pick(ctx context.Context, page []schedule.Evidence, room int) (kept []schedule.Evidence, seen int, err error) {
	for i, d := range page {
		if !f.since.IsZero() && d.EndedAt.Before(f.since) {
			return kept, -1, nil
		}
		ok, err := f.takes(ctx, d)
		if err != nil {
			return nil, 0, err
		}
		if ok {
			kept = append(kept, d)
		}
		if len(kept) == room {
			return kept, i + 1, nil
		}
	}
	return kept, len(page), nil
}

// takes says whether a dead letter is wanted: by what costs nothing first.
func (f *wanted) takes(ctx context.Context, d schedule.Evidence) (bool, error) {
	switch {
	case f.outcome != "" && d.LastOutcome != f.outcome,
		f.reason != "" && d.Reason != f.reason,
		!f.until.IsZero() && !d.EndedAt.Before(f.until):
		return false, nil
	}
	if f.class != "" {
		class, err := readOnce(f.classes, d.SubscriberID, func() (string, error) {
			sub, err := f.s.deps.Subscribers.Get(ctx, d.SubscriberID)
			return sub.Class, err //nolint:wrapcheck // readOnce looks at it
		})
		if err != nil || class != f.class {
			return false, err
		}
	}
	if f.kind != "" {
		kind, err := readOnce(f.kinds, d.EventID, func() (string, error) {
			body, err := f.s.deps.Deliveries.Pinned(ctx, d.SubscriberID, d.EventID)
			head, _ := headOf(body.Bytes)
			return head.Type, err //nolint:wrapcheck // readOnce looks at it
		})
		if err != nil || kind != f.kind {
			return false, err
		}
	}
	return true, nil
}

// readOnce reads what was not read before; "" for what is not there.
func readOnce(have map[string]string, id string, read func() (string, error)) (string, error) {
	v, there := have[id]
	if there {
		return v, nil
	}
	v, err := read()
	if err != nil && !errors.Is(err, schedule.ErrNotFound) {
		return "", err
	}
	have[id] = v
	return v, nil
}
