package client

import (
	"context"
	"encoding/base64"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// DeadLetter is a delivery that ended without success.
type DeadLetter struct {
	Reason   string   `json:"reason"`
	Delivery Delivery `json:"delivery"`
}

// DeadLetterFilter says which dead letters; what is zero is not asked for. It is the
// filter of a list and that of a redrive.
type DeadLetterFilter struct {
	SubscriberID string `json:"subscriber_id,omitempty"`
	Class        string `json:"class,omitempty"`   // of the subscriber, now
	Outcome      string `json:"outcome,omitempty"` // of the last attempt
	Reason       string `json:"reason,omitempty"`  // of its death
	Type         string `json:"type,omitempty"`    // of the event, exactly
	// Since and Until bound when they died: at or after, and before.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

func (f DeadLetterFilter) query() url.Values {
	at := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339Nano)
	}
	return values("subscriber_id", f.SubscriberID, "class", f.Class, "outcome", f.Outcome, "reason", f.Reason, "type", f.Type,
		"since", at(f.Since), "until", at(f.Until))
}

// DeadLetterEvidence is a dead letter with all that is known of it.
type DeadLetterEvidence struct {
	Reason      string      `json:"reason"`
	Delivery    Delivery    `json:"delivery"`
	Payload     Payload     `json:"payload,omitzero"` // zero if it is kept no more
	Traceparent string      `json:"traceparent,omitempty"`
	Event       SentEvent   `json:"event,omitzero"`
	Subscriber  *Subscriber `json:"subscriber,omitempty"` // as it is now; nil if it was deleted
	RedriveID   string      `json:"redrive_id,omitempty"` // of the one that has it
}

// Payload is the body of every attempt.
type Payload struct {
	Encoding  string `json:"encoding"` // utf8 or base64
	Content   string `json:"content"`
	Length    int    `json:"bytes"`
	Truncated bool   `json:"truncated"` // Content is the beginning
}

// Bytes are the payload as it was sent, or its beginning.
func (p Payload) Bytes() ([]byte, error) {
	if p.Encoding != "base64" {
		return []byte(p.Content), nil
	}
	b, err := base64.StdEncoding.DecodeString(p.Content)
	if err != nil {
		return nil, fmt.Errorf("%w: a payload that is no base64", ErrAnswer)
	}
	return b, nil
}

// SentEvent is an event as its payload tells of it.
type SentEvent struct {
	ID         string            `json:"id"`
	Type       string            `json:"type"`
	ShipmentID string            `json:"shipment_id"`
	OccurredAt string            `json:"occurred_at"` // as the producer wrote it
	Attributes map[string]string `json:"attributes"`
}

// Discarded says what became of dead letters that were to be discarded.
type Discarded struct {
	Discarded int             `json:"discarded"`
	Results   []DiscardResult `json:"results"`
}

// DiscardResult is what became of one: discarded, in_redrive, not_dead or missing.
type DiscardResult struct {
	ID     string `json:"id"`
	Result string `json:"result"`
}

// ListDeadLetters reads a page of dead letters, newest first. A page may be short, or
// empty, and have a next.
func (c *Client) ListDeadLetters(ctx context.Context, f DeadLetterFilter, p Page) (List[DeadLetter], error) {
	return list[DeadLetter](ctx, c, "/v1/dead-letters", f.query(), p)
}

// DeadLetters goes through all pages.
func (c *Client) DeadLetters(ctx context.Context, f DeadLetterFilter) iter.Seq2[DeadLetter, error] {
	return all(ctx, func(ctx context.Context, p Page) (List[DeadLetter], error) { return c.ListDeadLetters(ctx, f, p) })
}

// GetDeadLetter reads all that is known of a dead letter. ErrNotFound: the delivery is
// not dead, or no longer.
func (c *Client) GetDeadLetter(ctx context.Context, deliveryID string) (DeadLetterEvidence, error) {
	return get[DeadLetterEvidence](ctx, c, path("/v1/dead-letters/", deliveryID, ""), nil)
}

// DiscardDeadLetters forgets up to 1000 dead letters, for good; the reason, which is
// required, goes into the audit. To discard them again is safe.
func (c *Client) DiscardDeadLetters(ctx context.Context, deliveryIDs []string, reason string) (Discarded, error) {
	in := map[string]any{"ids": deliveryIDs, "reason": reason}
	return send[Discarded](ctx, c, request{method: http.MethodPost, path: "/v1/dead-letters/discard"}, in)
}
