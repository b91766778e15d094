package httpapi

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/fanout/fanout/internal/access"
	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/ingest"
	"github.com/fanout/fanout/internal/redrive"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
)

// Ingest takes events in; *ingest.Service is one.
type Ingest interface {
	// Submit MUST return without error only once the event is stored, and MUST
	// give a repeated post its first answer. Its errors are *fault.Invalid,
	// ingest.ErrMaxFanout, schedule.ErrConflict, schedule.ErrFull and
	// schedule.ErrUnavailable.
	Submit(ctx context.Context, p ingest.Post) (ingest.Receipt, error)
	// SubmitBatch MUST return a result for each post, in their order, as Submit would.
	SubmitBatch(ctx context.Context, posts []ingest.Post) []ingest.BatchResult
	// SubmitTo is Submit for one subscriber alone, whatever its filter.
	SubmitTo(ctx context.Context, p ingest.Post, to *subscriber.Subscriber) (ingest.Receipt, error)
}

// Subscribers is the store of subscribers; *subscriber.Store is one. Its errors
// are *fault.Invalid, subscriber.ErrNotFound, subscriber.ErrVersion,
// subscriber.ErrUnreadable, schedule.ErrFull and schedule.ErrUnavailable.
type Subscribers interface {
	SubscriberReads
	// Create MUST return the subscriber with its first secret.
	Create(ctx context.Context, d subscriber.Draft) (subscriber.Subscriber, error)
	// Patch MUST change the subscriber only at ifVersion, or at any if that is -1.
	Patch(ctx context.Context, id string, ifVersion int64, d subscriber.Draft) (subscriber.Subscriber, error)
	// RotateSecret MUST return the subscriber with the new secret first, or
	// subscriber.ErrTooManySecrets.
	RotateSecret(ctx context.Context, id string, r subscriber.Rotation) (subscriber.Subscriber, error)
	// Delete with wait MUST NOT return without error before the last request to
	// the subscriber has ended. If ctx ends first, the result says what is left,
	// beside ctx's error.
	Delete(ctx context.Context, id string, wait bool) (subscriber.DeleteResult, error)
}

// SubscriberReads is the half of Subscribers that changes nothing.
type SubscriberReads interface {
	Get(ctx context.Context, id string) (subscriber.Subscriber, error)
	// List MUST be in order of id, from the first after the given one; fewer than
	// limit are the last.
	List(ctx context.Context, f subscriber.ListFilter, after string, limit int) ([]subscriber.Subscriber, error)
	// Owners MUST say for each id, in their order, whose it was if it is deleted, and ""
	// else.
	Owners(ctx context.Context, ids []string) ([]string, error)
	// Check MUST find what Create would find wrong with a draft, or Patch with one over cur.
	Check(d subscriber.Draft, cur *subscriber.Subscriber) error
}

// Views reads what the scheduler knows; *schedule.Engine is one.
type Views interface {
	// Event MUST return schedule.ErrNotFound for an id that it has not.
	Event(ctx context.Context, id string) (schedule.Event, error)
	// Deliveries MUST return those of the ids that exist, in any order.
	Deliveries(ctx context.Context, ids []string) ([]delivery.Delivery, error)
	// Delivery MUST return schedule.ErrNotFound or delivery.ErrBadID for an id
	// that it has not.
	Delivery(ctx context.Context, id string) (schedule.Evidence, error)
	// Standings MUST return one for each id, in their order, and a zero one for an id
	// that it has not.
	Standings(ctx context.Context, ids []string) ([]schedule.Standing, error)
}

// Deliveries lists deliveries and repairs them; *schedule.Engine is one. A cursor is
// opaque, "" at the beginning and at the end; one that is none of the list's MUST be
// schedule.ErrCursor.
type Deliveries interface {
	DeadLetters
	ListDeliveries(ctx context.Context, q schedule.DeliveryQuery, after string, limit int) ([]delivery.Delivery, string, error)
	// RetryNow MUST return schedule.ErrNotScheduled for one that is leased or final.
	RetryNow(ctx context.Context, id string) (delivery.Delivery, error)
	// CancelDelivery MUST return schedule.ErrFinal for one that is delivered or dead.
	CancelDelivery(ctx context.Context, id string) (delivery.Delivery, error)
}

// DeadLetters is the part of Deliveries about those that are dead.
type DeadLetters interface {
	// DeadLettersPage MUST be newest first; of all subscribers if the id is "".
	DeadLettersPage(ctx context.Context, subscriberID, after string, limit int) ([]schedule.Evidence, string, error)
	// Pinned MUST return the payload that a dead letter keeps, or schedule.ErrNotFound.
	Pinned(ctx context.Context, subscriberID, eventID string) (schedule.Body, error)
	// CohortOf MUST return the redrive that has a dead letter, "" if none has.
	CohortOf(ctx context.Context, id string) (string, error)
	// Discard MUST return a result for each id, in their order, and leave what a redrive
	// has.
	Discard(ctx context.Context, ids []string) ([]schedule.ClaimResult, error)
}

// Redrives makes redrives and steers them; *redrive.Service is one. Its errors are
// *fault.Invalid, redrive.ErrNotFound, redrive.ErrState, redrive.ErrTooMany and
// schedule.ErrUnavailable.
type Redrives interface { //nolint:interfacebloat // it is one thing: all that can be done with a redrive
	RedriveReads
	Create(ctx context.Context, o redrive.Order, by string) (redrive.Cohort, error)
	Approve(ctx context.Context, id, by, effect string) (redrive.Cohort, error)
	Pause(ctx context.Context, id, by, why string) (redrive.Cohort, error)
	Resume(ctx context.Context, id, why string) (redrive.Cohort, error)
	Abort(ctx context.Context, id, by, why string) (redrive.Cohort, error)
}

// RedriveReads is the part of Redrives that changes nothing.
type RedriveReads interface {
	Preview(ctx context.Context, o redrive.Order) (redrive.Preview, error)
	Get(ctx context.Context, id string) (redrive.View, error)
	// List MUST be newest first, from the first that was made before the given one; fewer
	// than limit are the last.
	List(ctx context.Context, before string, limit int) ([]redrive.Cohort, error)
}

// Gate says who asks; *access.Gate is one.
type Gate interface {
	// Authenticate returns access.ErrNoToken, access.ErrBadToken,
	// *access.LimitedError or access.ErrUnavailable.
	Authenticate(ctx context.Context, token string) (access.Identity, error)
	// Open MUST be true only while there is no key at all.
	Open(ctx context.Context) (bool, error)
}

// Keys makes and revokes keys; *access.Keys is one. Its errors are *fault.Invalid,
// access.ErrNotFound and access.ErrUnavailable.
type Keys interface {
	// Create MUST return the token, which is shown this once.
	Create(ctx context.Context, k access.NewKey, by string) (access.Key, string, error)
	Get(ctx context.Context, id string) (access.Key, error)
	// List MUST be in order of id, from the first after the given one; fewer than
	// limit are the last.
	List(ctx context.Context, after string, limit int) ([]access.Key, error)
	Revoke(ctx context.Context, id string) (access.Key, error)
}

// Audit keeps who changed what; *access.Audit is one.
type Audit interface {
	// Append sets the entry's id and time. It MUST be bounded in time by itself.
	Append(ctx context.Context, e access.Entry) error
	// List MUST be newest first, with a cursor, or access.ErrCursor.
	List(ctx context.Context, f access.Filter, before string, limit int) ([]access.Entry, string, error)
}

// Deps is what the API is made of. Ingest, Subscribers, Views and Deliveries are
// required.
type Deps struct {
	Ingest      Ingest
	Subscribers Subscribers
	Views       Views
	Deliveries  Deliveries
	// Redrives, or nil for a server that has none.
	Redrives Redrives
	// Gate, or nil for a server that is open to whoever reaches it by loopback.
	Gate Gate
	// NeverOpen has the server ask for a key even while there is none: it is to be
	// set where other machines reach it.
	NeverOpen bool
	// Keyless takes a request without a key for the admin's even while there are
	// keys, as the server does while there are none; one with a key is taken for its
	// holder's. It MUST NOT be set where other machines reach it.
	Keyless bool
	// Sessions, or nil for a server that a browser cannot sign in at.
	Sessions Sessions
	// Console makes the pages for a person, under /oncall/, of the API that they show;
	// nil for none. What they ask of it they ask in the name of whom access.From tells in
	// their requests' contexts.
	Console func(api http.Handler) http.Handler
	// Keys and Audit may be nil: then there are none to be seen.
	Keys  Keys
	Audit Audit
	// OnCallJSON is /v1/oncall, OnCallPage /oncall and its static files, and
	// OnCallEvents the stream; Metrics is /metrics. Each may be nil, and is then
	// not found. An error status of theirs is rendered here, in the one form.
	OnCallJSON, OnCallPage, OnCallEvents, Metrics http.Handler
	// Ready is asked by /readyz: nil, or why the process cannot work now. It MUST
	// return when ctx ends. Nil means always ready.
	Ready func(ctx context.Context) error
	// Registerer takes the metrics; nil keeps them unregistered.
	Registerer prometheus.Registerer
	// Logger, or nil for slog.Default.
	Logger *slog.Logger
	// TracerProvider, or nil for no traces.
	TracerProvider trace.TracerProvider
	// MaxBody is the largest request body in bytes, but for a batch; 0 is
	// DefaultMaxBody.
	MaxBody int64
}
