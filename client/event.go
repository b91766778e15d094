package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"
)

// Event is what a producer posts.
type Event struct {
	// ID is your own, 1 to 64 of A-Z a-z 0-9 . _ : - ; an id is accepted once, so one
	// that is made from the thing itself (a carrier and its scan) also guards against
	// two programs that post the same. Left out, Post gives it one of NewID.
	ID string
	// Type is dotted, such as shipment.delivered. Required.
	Type string
	// ShipmentID names the shipment that it is about. Required.
	ShipmentID string
	// OccurredAt is when it happened; its offset is kept. Required: receivers order by
	// it. It is part of the body, and so must be the same when you post again.
	OccurredAt time.Time
	// Attributes are what subscribers filter on; at most 16.
	Attributes map[string]string
	// Data is any value that encoding/json can write; a json.RawMessage goes to the
	// receivers byte for byte. At most 256 KiB as JSON.
	Data any
}

// Receipt is what was accepted.
type Receipt struct {
	ID string `json:"id"`
	// Deliveries is how many subscribers it goes to.
	Deliveries int `json:"deliveries"`
	// Duplicate says that this id and body were accepted before: by an earlier post of
	// yours, or by an attempt of this one whose answer was lost.
	Duplicate  bool      `json:"duplicate"`
	AcceptedAt time.Time `json:"accepted_at"`
}

// NewID makes an event id that is used nowhere else: "evt_" and a ULID.
func NewID() string {
	return "evt_" + ulid.MustNew(ulid.Now(), rand.Reader).String()
}

// Post has an event accepted, once: each attempt carries the same id, so that one
// whose answer was lost is recognised by the next.
//
// On an error the receipt has the event's id all the same. To try again later, post
// the same event with that ID. ErrConflict says that the id was used for another
// body, ErrInvalid that this one breaks a rule.
func (c *Client) Post(ctx context.Context, e Event) (Receipt, error) {
	if e.ID == "" {
		e.ID = NewID()
	}
	body, bad := e.body()
	if bad != nil {
		return Receipt{ID: e.ID}, bad
	}
	r := Receipt{}
	if err := c.do(ctx, request{method: http.MethodPost, path: "/v1/events", body: body}, &r); err != nil {
		return Receipt{ID: e.ID}, err
	}
	return r, nil
}

// PostRaw posts an event that is JSON already, as Post does, byte for byte. It must
// have an id: ErrInvalid otherwise, without a request.
func (c *Client) PostRaw(ctx context.Context, body json.RawMessage) (Receipt, error) {
	var e struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return Receipt{}, invalid("", "is not the JSON of an event")
	}
	if e.ID == "" {
		return Receipt{}, invalid("/id", "is not set: without it a second attempt would be a second event")
	}
	r := Receipt{}
	if err := c.do(ctx, request{method: http.MethodPost, path: "/v1/events", body: body}, &r); err != nil {
		return Receipt{ID: e.ID}, err
	}
	return r, nil
}

// body writes the event as JSON, or says what keeps it from being sent. The data is
// put in by hand: encoding/json would rewrite it.
func (e Event) body() ([]byte, *Problem) {
	if e.OccurredAt.IsZero() { // valid to the server: the year 1
		return nil, invalid("/occurred_at", "is not set: say when it happened")
	}
	data, err := e.data()
	if err != nil {
		return nil, invalid("/data", "cannot be written as JSON")
	}
	head, err := json.Marshal(struct {
		ID         string            `json:"id"`
		Type       string            `json:"type"`
		ShipmentID string            `json:"shipment_id"`
		OccurredAt time.Time         `json:"occurred_at"`
		Attributes map[string]string `json:"attributes,omitempty"`
	}{e.ID, e.Type, e.ShipmentID, e.OccurredAt, e.Attributes})
	if err != nil {
		return nil, invalid("/occurred_at", "is not within the years 1 to 9999, or has an offset with seconds")
	}
	return slices.Concat(head[:len(head)-1], []byte(`,"data":`), data, []byte{'}'}), nil
}

func (e Event) data() ([]byte, error) {
	if raw, ok := e.Data.(json.RawMessage); ok {
		if !json.Valid(raw) {
			return nil, errNotJSON
		}
		return raw, nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // receivers get what you mean, not \u003c
	if err := enc.Encode(e.Data); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// StoredEvent is an event that was accepted, and where its deliveries stand.
type StoredEvent struct {
	ID         string            `json:"id"`
	Type       string            `json:"type"`
	ShipmentID string            `json:"shipment_id"`
	OccurredAt string            `json:"occurred_at"` // as it was posted
	Attributes map[string]string `json:"attributes"`
	AcceptedAt time.Time         `json:"accepted_at"`
	// Expanding says that some of its deliveries are still to be made.
	Expanding         bool              `json:"expanding"`
	DeliveriesPlanned int               `json:"deliveries_planned"`
	Deliveries        []DeliverySummary `json:"deliveries"`
}

// DeliverySummary is where one delivery stands.
type DeliverySummary struct {
	ID           string `json:"id"`
	SubscriberID string `json:"subscriber_id"`
	State        State  `json:"state"`
	Attempts     int    `json:"attempts"`
	LastOutcome  string `json:"last_outcome,omitempty"`
}

// GetEvent reads an event, and those of its deliveries that the key may see.
func (c *Client) GetEvent(ctx context.Context, id string) (StoredEvent, error) {
	return get[StoredEvent](ctx, c, path("/v1/events/", id, ""), nil)
}
