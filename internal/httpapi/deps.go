package httpapi

import (
	"context"
	"log/slog"
	"net/http"

	"go.opentelemetry.io/otel/trace"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/ingest"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
)

// Ingest takes events in; *ingest.Service is one.
type Ingest interface {
	// Submit MUST return without error only once the event is stored, and MUST
	// give a repeated post its first answer. Its errors are *ingest.Invalid,
	// ingest.ErrMaxFanout, schedule.ErrConflict, schedule.ErrFull and
	// schedule.ErrUnavailable.
	Submit(ctx context.Context, p ingest.Post) (ingest.Receipt, error)
}

// Subscribers is the store of subscribers; *subscriber.Store is one. Its errors
// are *subscriber.Invalid, subscriber.ErrNotFound, subscriber.ErrVersion,
// schedule.ErrFull and schedule.ErrUnavailable.
type Subscribers interface {
	// Create MUST return the subscriber with its first secret.
	Create(ctx context.Context, d subscriber.Draft) (subscriber.Subscriber, error)
	Get(ctx context.Context, id string) (subscriber.Subscriber, error)
	// List MUST be in order of id, from the first after the given one; fewer than
	// limit are the last.
	List(ctx context.Context, f subscriber.ListFilter, after string, limit int) ([]subscriber.Subscriber, error)
	// Patch MUST change the subscriber only at ifVersion, or at any if that is -1.
	Patch(ctx context.Context, id string, ifVersion int64, d subscriber.Draft) (subscriber.Subscriber, error)
	// Delete with wait MUST NOT return without error before the last request to
	// the subscriber has ended. If ctx ends first, the result says what is left,
	// beside ctx's error.
	Delete(ctx context.Context, id string, wait bool) (subscriber.DeleteResult, error)
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
	// DeadLetters MUST return at most limit, newest first.
	DeadLetters(ctx context.Context, limit int) ([]schedule.Evidence, error)
}

// Deps is what the API is made of. Ingest, Subscribers and Views are required.
type Deps struct {
	Ingest      Ingest
	Subscribers Subscribers
	Views       Views
	// OnCallJSON is /v1/oncall, OnCallPage /oncall and its static files, and
	// OnCallEvents the stream; Metrics is /metrics. Each may be nil, and is then
	// not found. An error status of theirs is rendered here, in the one form.
	OnCallJSON, OnCallPage, OnCallEvents, Metrics http.Handler
	// Ready is asked by /readyz: nil, or why the process cannot work now. It MUST
	// return when ctx ends. Nil means always ready.
	Ready func(ctx context.Context) error
	// Logger, or nil for slog.Default.
	Logger *slog.Logger
	// TracerProvider, or nil for no traces.
	TracerProvider trace.TracerProvider
	// MaxBody is the largest request body in bytes; 0 is DefaultMaxBody.
	MaxBody int64
}
