package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// TestEvent is what a test of a subscriber carries; the zero one is the server's own.
type TestEvent struct {
	Type string          `json:"type,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
}

// TestReceipt names the event and the delivery of a test.
type TestReceipt struct {
	EventID    string `json:"event_id"`
	DeliveryID string `json:"delivery_id"`
}

// TestSubscriber sends an event to this subscriber alone, on the normal road. Read
// the delivery to see what came of it. A second call sends a second event.
func (c *Client) TestSubscriber(ctx context.Context, id string, e TestEvent) (TestReceipt, error) {
	return send[TestReceipt](ctx, c, request{method: http.MethodPost, path: subscriberPath(id, "/test"), repeat: unlessDone}, e)
}

// Rotation makes a new signing secret.
type Rotation struct {
	Secret string `json:"secret,omitempty"` // your own; left out, one is made
	// Overlap is how long the older secrets go on signing beside it; nil is 24 h.
	Overlap *Duration `json:"overlap,omitempty"`
}

// RotatedSecret is the new secret, for the only time, and all that sign.
type RotatedSecret struct {
	Secret  string       `json:"secret"`
	Secrets []SecretInfo `json:"secrets"`
}

// RotateSecret makes a new secret, which signs at once, first of all. It is not made
// again after a lost answer: rotate once more then. ErrConflict: there are too many
// active ones.
func (c *Client) RotateSecret(ctx context.Context, id string, r Rotation) (RotatedSecret, error) {
	return send[RotatedSecret](ctx, c, request{method: http.MethodPost, path: subscriberPath(id, "/secrets"), repeat: unlessDone}, r)
}

// Schedule is what a policy does to a delivery whose every attempt fails. All times
// are counted from its acceptance.
type Schedule struct {
	SubscriberID string             `json:"subscriber_id"`
	Version      int64              `json:"version"`
	Attempts     []ScheduledAttempt `json:"attempts"`
	End          ScheduleEnd        `json:"end"`
}

// ScheduledAttempt is when an attempt would start: as the jitter has it, at the
// earliest, in the mean and at the latest.
type ScheduledAttempt struct {
	Attempt  int      `json:"attempt"`
	Window   Duration `json:"window"` // the wait before it is drawn from 0 to this
	Earliest Duration `json:"earliest"`
	Mean     Duration `json:"mean"`
	Latest   Duration `json:"latest"`
}

// ScheduleEnd is what ends a delivery that always fails.
type ScheduleEnd struct {
	Reason   string   `json:"reason"` // exhausted or expired: what comes first in the mean
	Attempts int      `json:"attempts"`
	After    Duration `json:"after"` // when it is dead in the mean
	Latest   Duration `json:"latest"`
	Note     string   `json:"note"` // for a person
}

// SubscriberStats is how a subscriber is doing at this moment.
type SubscriberStats struct {
	SubscriberID    string    `json:"subscriber_id"`
	Pending         int64     `json:"pending"`
	Waiting         Waiting   `json:"waiting"`
	InFlight        int       `json:"in_flight"`
	Delivered       int64     `json:"delivered"` // ever, since it was registered
	DeadLetters     int64     `json:"dead_letters"`
	OldestPendingAt time.Time `json:"oldest_pending_at,omitzero"`
	Holds           []Hold    `json:"holds"`
	LatencyMS       int64     `json:"latency_ms,omitempty"`
}

// PreviewSchedule says when a subscriber's policy would attempt a delivery, for so
// many attempts; 0 is all of its budget.
func (c *Client) PreviewSchedule(ctx context.Context, id string, attempts int) (Schedule, error) {
	var query url.Values
	if attempts != 0 {
		query = url.Values{"attempts": {strconv.Itoa(attempts)}}
	}
	return get[Schedule](ctx, c, subscriberPath(id, "/schedule"), query)
}

// GetSubscriberStats reads how a subscriber's deliveries stand.
func (c *Client) GetSubscriberStats(ctx context.Context, id string) (SubscriberStats, error) {
	return get[SubscriberStats](ctx, c, subscriberPath(id, "/stats"), nil)
}
