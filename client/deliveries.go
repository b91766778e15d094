package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// State is where a delivery stands.
type State string

// The states. Scheduled and leased ones are pending; the others are final, but for a
// redrive of a dead one.
const (
	Scheduled State = "scheduled"
	Leased    State = "leased"
	Delivered State = "delivered"
	Dead      State = "dead"
	Cancelled State = "cancelled"
)

// Pending asks a list for both kinds of pending deliveries.
const Pending State = "pending"

// Delivery is one event for one subscriber. Its id is what receivers know as
// webhook-id.
type Delivery struct {
	ID            string    `json:"id"`
	EventID       string    `json:"event_id"`
	SubscriberID  string    `json:"subscriber_id"`
	State         State     `json:"state"`
	Lane          string    `json:"lane"` // fresh, retry or redrive
	AcceptedAt    time.Time `json:"accepted_at"`
	ExpiresAt     time.Time `json:"expires_at"`
	NextAttemptAt time.Time `json:"next_attempt_at,omitzero"`
	// WaitsFor is "hold" if the subscriber is on hold, whatever the time; GetDelivery
	// alone tells.
	WaitsFor       string    `json:"waits_for,omitempty"`
	FirstAttemptAt time.Time `json:"first_attempt_at,omitzero"`
	LastAttemptAt  time.Time `json:"last_attempt_at,omitzero"`
	EndedAt        time.Time `json:"ended_at,omitzero"`
	// Attempts are those charged to the budget; DeliveryCount is leases ever taken.
	Attempts          int    `json:"attempts"`
	DeliveryCount     int64  `json:"delivery_count"`
	Releases          int    `json:"releases"`
	LeaseLosses       int    `json:"lease_losses"`
	RedriveGeneration int    `json:"redrive_generation"`
	Reason            string `json:"reason,omitempty"` // of a dead one; lists of deliveries leave it out
	LastOutcome       string `json:"last_outcome,omitempty"`
	LastStatus        int    `json:"last_status,omitempty"`
	// Evidence has the failed attempts as far as they are kept, oldest first. Lists
	// leave it out, but for those of dead letters.
	Evidence []Attempt `json:"evidence,omitempty"`
}

// Attempt is the evidence of one attempt.
type Attempt struct {
	Attempt       int       `json:"attempt"`
	DeliveryCount int64     `json:"delivery_count"`
	StartedAt     time.Time `json:"started_at"`
	Duration      Duration  `json:"duration"`
	Outcome       string    `json:"outcome"`
	Status        int       `json:"status,omitempty"` // 0 if no answer came
	Error         string    `json:"error,omitempty"`
	Excerpt       string    `json:"excerpt,omitempty"` // of the answer's body
	RetryAfter    Duration  `json:"retry_after,omitempty"`
	Worker        string    `json:"worker,omitempty"`
	Version       string    `json:"version,omitempty"`
	TraceID       string    `json:"trace_id,omitempty"`
	// Phases say where the time went; nil if no request was made.
	Phases *Phases `json:"phases,omitempty"`
	// Terms are what held for it; they are kept with the attempt that a delivery died of.
	Terms *Terms `json:"terms,omitempty"`
}

// Phases of a request, in ms; 0 is one that did not happen.
type Phases struct {
	DNS       float64 `json:"dns_ms"`
	Dial      float64 `json:"dial_ms"`
	TLS       float64 `json:"tls_ms"`
	FirstByte float64 `json:"first_byte_ms"`
	Body      float64 `json:"body_ms"`
	Reused    bool    `json:"reused"` // the connection
}

// Terms are where an attempt was sent, with which headers, and under which policy.
type Terms struct {
	Origin            string            `json:"origin"`  // scheme and host
	Headers           map[string]string `json:"headers"` // the subscriber's own without their values
	Class             string            `json:"class"`
	SubscriberVersion int64             `json:"subscriber_version"`
	Policy            Policy            `json:"policy"`
}

// DeliveryFilter says which deliveries: those of an event, or those of a subscriber
// in a state (pending, scheduled, leased or dead).
type DeliveryFilter struct {
	EventID      string
	SubscriberID string
	State        State
}

func (f DeliveryFilter) query() url.Values {
	return values("event_id", f.EventID, "subscriber_id", f.SubscriberID, "state", string(f.State))
}

// ListDeliveries reads a page of deliveries.
func (c *Client) ListDeliveries(ctx context.Context, f DeliveryFilter, p Page) (List[Delivery], error) {
	return list[Delivery](ctx, c, "/v1/deliveries", f.query(), p)
}

// Deliveries goes through all pages.
func (c *Client) Deliveries(ctx context.Context, f DeliveryFilter) iter.Seq2[Delivery, error] {
	return all(ctx, func(ctx context.Context, p Page) (List[Delivery], error) { return c.ListDeliveries(ctx, f, p) })
}

// GetDelivery reads a delivery with its evidence.
func (c *Client) GetDelivery(ctx context.Context, id string) (Delivery, error) {
	return get[Delivery](ctx, c, path("/v1/deliveries/", id, ""), nil)
}

// RetryDelivery makes a scheduled delivery due now, under its holds and caps as ever.
// ErrConflict: it is not scheduled.
func (c *Client) RetryDelivery(ctx context.Context, id string) (Delivery, error) {
	return send[Delivery](ctx, c, request{method: http.MethodPost, path: path("/v1/deliveries/", id, "/retry"), repeat: unlessDone}, nil)
}

// CancelDelivery ends a delivery that has not ended; the reason, which is required,
// goes into the audit. ErrConflict: it is delivered or dead.
func (c *Client) CancelDelivery(ctx context.Context, id, reason string) (Delivery, error) {
	in := map[string]string{"reason": reason}
	return send[Delivery](ctx, c, request{method: http.MethodPost, path: path("/v1/deliveries/", id, "/cancel")}, in)
}
