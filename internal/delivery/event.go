package delivery

import (
	"encoding/json"
	"time"
)

// Event is what a producer posts.
type Event struct {
	// ID is the producer's own, or a ULID given at ingest; 1 to 64 characters
	// of A-Z a-z 0-9 . _ : -
	ID string
	// Type is dotted, as in "shipment.delivered".
	Type string
	// ShipmentID names the shipment that the event is about.
	ShipmentID string
	// OccurredAt is RFC 3339 exactly as the producer sent it, offset included:
	// receivers order by it, so it is never reformatted.
	OccurredAt string
	// Attributes are what subscribers filter on; at most 16.
	Attributes map[string]string
	// Data is raw JSON, kept byte for byte: key order, duplicate keys and
	// numbers beyond 2^53 reach the receiver as they were sent.
	Data []byte
}

// Body builds what goes on the wire: one JSON object with the event's fields
// and its data verbatim. It is built once, at ingest, and every attempt to
// every subscriber sends these same bytes. The names type, timestamp and data
// are those of the Standard Webhooks specification ("Payload structure").
//
// encoding/json is used for the small fields only: it compacts and
// HTML-escapes a RawMessage, so data is appended by hand.
func (e Event) Body() []byte {
	attrs := e.Attributes
	if attrs == nil {
		attrs = map[string]string{}
	}
	b := make([]byte, 0, len(e.Data)+256)
	b = append(b, `{"type":`...)
	b = appendJSON(b, e.Type)
	b = append(b, `,"timestamp":`...)
	b = appendJSON(b, e.OccurredAt)
	b = append(b, `,"event_id":`...)
	b = appendJSON(b, e.ID)
	b = append(b, `,"shipment_id":`...)
	b = appendJSON(b, e.ShipmentID)
	b = append(b, `,"attributes":`...)
	b = appendJSON(b, attrs)
	b = append(b, `,"data":`...)
	b = append(b, e.Data...)
	return append(b, '}')
}

// appendJSON appends the JSON of a string or a map of strings, which cannot
// fail to marshal.
func appendJSON(b []byte, v any) []byte {
	j, err := json.Marshal(v)
	if err != nil {
		panic("delivery: strings always marshal: " + err.Error())
	}
	return append(b, j...)
}

// Attempt is the record of one execution of a delivery, kept as evidence.
type Attempt struct {
	// Number is the attempt as charged, from 1; it goes on over redrives.
	Number int `json:"attempt"`
	// Fence is the delivery_count that the attempt was leased at.
	Fence int64 `json:"fence"`
	// StartedAt is Redis time in ms since the epoch.
	StartedAt int64 `json:"started_at_ms"`
	// Duration is how long the request took, in ms.
	Duration int64 `json:"duration_ms"`
	// Outcome is what it came to; Status is 0 when no answer came.
	Outcome Outcome `json:"outcome"`
	Status  int     `json:"status,omitempty"`
	// Error says in words what went wrong, without the URL's query.
	Error string `json:"error,omitempty"`
	// Excerpt is at most 1 KiB of the answer's body.
	Excerpt string `json:"excerpt,omitempty"`
	// RetryAfter is what the endpoint asked for, clamped, in ms.
	RetryAfter int64 `json:"retry_after_ms,omitempty"`
	// Worker, Version and TraceID say who made the attempt and where its trace is.
	Worker  string `json:"worker,omitempty"`
	Version string `json:"version,omitempty"`
	TraceID string `json:"trace_id,omitempty"`
	// Phases say where the time went; nil if no request was made.
	Phases *Phases `json:"phases,omitempty"`
	// Terms are what held for it. They are kept with the attempt that a delivery died of.
	Terms *Terms `json:"terms,omitempty"`
}

// Phases of a request, in ms. One that did not happen, as on a connection that was kept
// alive, is 0.
type Phases struct {
	DNS       float64 `json:"dns_ms"`
	Dial      float64 `json:"dial_ms"`
	TLS       float64 `json:"tls_ms"`
	FirstByte float64 `json:"first_byte_ms"` // from the request written to the answer's first byte
	Body      float64 `json:"body_ms"`
	Reused    bool    `json:"reused"` // the connection
}

// Terms are what held for an attempt: where it was sent, with which headers, and under
// which policy.
type Terms struct {
	Origin  string            `json:"origin"`  // scheme and host of the endpoint
	Headers map[string]string `json:"headers"` // as sent, the subscriber's own without their values
	Class   string            `json:"class"`
	Version int64             `json:"subscriber_version"`
	Policy  Policy            `json:"policy"`
}

// Lane is the queue that a delivery waits in; each lane has its own share of a
// dispatcher's slots.
type Lane string

// The lanes, in the order in which they are served.
const (
	Fresh   Lane = "fresh"   // first attempt
	Retry   Lane = "retry"   // attempt after a failure
	Redrive Lane = "redrive" // replayed by an operator, and its retries
)

// Lanes lists every lane in its order of service.
var Lanes = []Lane{Fresh, Retry, Redrive}

// State is where a delivery stands. Scheduled and leased together are pending.
type State string

// The states. Delivered, dead and cancelled are final; an operator's redrive
// takes a dead delivery back to scheduled.
const (
	Scheduled State = "scheduled"
	Leased    State = "leased"
	Delivered State = "delivered"
	Dead      State = "dead"
	Cancelled State = "cancelled"
)

// Delivery is one event for one subscriber.
type Delivery struct {
	ID           string
	EventID      string
	SubscriberID string
	State        State
	Lane         Lane

	DueAt          time.Time // next attempt, while scheduled
	ExpiresAt      time.Time // frozen at accept, and again per redrive generation
	AcceptedAt     time.Time
	FirstAttemptAt time.Time // zero before the first
	LastAttemptAt  time.Time
	EndedAt        time.Time // when it became final

	// Attempts are those charged. A charge is given back when the request never
	// left (a release) or when a worker died in it (up to MaxLeaseLosses).
	Attempts int
	// DeliveryCount is leases ever taken. It never goes down; it is the fence.
	DeliveryCount int64
	// Settled is the highest fence at which a worker's verdict was applied.
	Settled     int64
	Releases    int
	LeaseLosses int

	// RedriveGeneration counts approved redrives; history is never reset.
	RedriveGeneration int
	// BudgetBase is Attempts when the generation began; Budget is what its
	// cohort granted. A Budget of 0 means the policy's max_attempts.
	BudgetBase int
	Budget     int

	LastOutcome Outcome
	LastStatus  int
}

// New is a delivery as it is enqueued: scheduled, due at once, in the fresh
// lane, to expire maxAge after the event was accepted.
func New(eventID, subscriberID string, acceptedAt time.Time, maxAge time.Duration) Delivery {
	return Delivery{
		ID: NewID(eventID, subscriberID), EventID: eventID, SubscriberID: subscriberID,
		State: Scheduled, Lane: Fresh,
		DueAt: acceptedAt, AcceptedAt: acceptedAt, ExpiresAt: acceptedAt.Add(maxAge),
	}
}

// AttemptLimit is the value of Attempts at which the delivery is exhausted: the
// budget of its redrive cohort, else of the policy, from where its generation
// began.
func (d Delivery) AttemptLimit(p Policy) int {
	if d.Budget > 0 {
		return d.BudgetBase + d.Budget
	}
	return d.BudgetBase + p.MaxAttempts
}
