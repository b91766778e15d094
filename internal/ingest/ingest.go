package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/fanout/fanout/internal/crash"
	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
)

// ErrMaxFanout says that an event matches more subscribers than
// Options.MaxFanout. Nothing was stored. Narrow the subscribers' filters or raise the limit.
var ErrMaxFanout = errors.New("event matches too many subscribers")

// Store is the part of the scheduler that ingest needs; *schedule.Engine is
// one. It is also the seam for group commit: an implementation MAY let
// concurrent calls share a round trip. Every call MUST be safe to repeat with
// the same arguments, since a lost reply is made good by doing so.
type Store interface {
	Partitions
	Plans
	// Accept MUST store the event with its plan in one step, or nothing of it.
	// A second Accept of an id MUST change nothing: it gives the first answer
	// with Duplicate set, or schedule.ErrConflict when the body hash differs.
	// An event without targets MUST NOT stay open.
	Accept(ctx context.Context, e schedule.NewEvent) (schedule.Accepted, error)
	// Event MUST return schedule.ErrNotFound for an id that it has not.
	Event(ctx context.Context, id string) (schedule.Event, error)
	// Enqueue MUST create each target's delivery exactly once, however often
	// and by however many processes it is called, and MUST refuse with
	// schedule.ErrTooLate past expandBy. At most schedule.ChunkSize targets, all
	// of that partition.
	Enqueue(ctx context.Context, eventID string, acceptedAt, expandBy time.Time, partition int, targets []schedule.Target) error
}

// Partitions says how the state is cut up, alike for events and subscribers.
type Partitions interface {
	// Partitions is their number.
	Partitions() int
	// PartitionOf an id, 0 to Partitions()-1, MUST never change.
	PartitionOf(id string) int
}

// Plans is who is still to get an accepted event.
type Plans interface {
	// Plan MUST return what is left to expand; no parts when nothing is.
	Plan(ctx context.Context, eventID string) (schedule.Plan, error)
	// Strike MUST take these partitions off the plan, and close the event when
	// none is left.
	Strike(ctx context.Context, eventID string, partitions ...int) (open bool, err error)
	// ClaimOpen MUST return plans that stood open for longer than after, and
	// MUST NOT return one again, to anybody, until after has passed anew.
	ClaimOpen(ctx context.Context, eventPartition, limit int, after time.Duration) ([]schedule.Plan, error)
}

// Directory says who wants an event; *subscriber.Directory is one.
type Directory interface {
	// Refresh MUST take in every change of a subscriber that was answered
	// before the call.
	Refresh(ctx context.Context) error
	// Match MUST return each matching subscriber once.
	Match(e delivery.Event) []*subscriber.Subscriber
}

// Options tunes a Service; the zero value is what production uses.
type Options struct {
	// MaxFanout is the most deliveries that one event may lead to; 0 means
	// 10,000, which keeps a plan and its expansion within a second or so.
	MaxFanout int
	// ResumeAfter is how long a plan may stand open before another process
	// takes it over; 0 means 10s. Whoever accepted the event stops after half
	// of it, so in the usual case nobody works on a plan twice.
	ResumeAfter time.Duration
	// Logger, or nil for slog.Default.
	Logger *slog.Logger
	// Registerer takes the metrics; nil keeps them unregistered.
	Registerer prometheus.Registerer
	// TracerProvider takes a span for each post; nil for none.
	TracerProvider trace.TracerProvider
}

// Service accepts events and expands them. It is safe for concurrent use.
type Service struct {
	store   Store
	dir     Directory
	opts    Options
	log     *slog.Logger
	metrics *metrics
	tracer  trace.Tracer // nil: off
	strikes strikes
	unready atomic.Pointer[error] // of the last sweep; nil when it got an answer
}

// New is a Service over a store and a directory.
func New(store Store, dir Directory, opts Options) *Service {
	if opts.MaxFanout <= 0 {
		opts.MaxFanout = 10_000
	}
	if opts.ResumeAfter <= 0 {
		opts.ResumeAfter = 10 * time.Second
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	return &Service{
		store: store, dir: dir, opts: opts, log: opts.Logger,
		metrics: newMetrics(opts.Registerer),
		tracer:  tracerOf(opts.TracerProvider),
	}
}

// Submit makes an event of a post. A nil error means that the event is stored
// with its plan and will reach every subscriber that matched, come what may.
//
// The same id with the same body gets the first answer again, with Duplicate
// set. Errors: *fault.Invalid (nothing stored; the post must change),
// schedule.ErrConflict (the id is taken by another body; a *ConflictError if it is known
// what differs), ErrMaxFanout,
// schedule.ErrFull (nothing stored), schedule.ErrUnavailable (stored or not:
// post again with the same id).
func (s *Service) Submit(ctx context.Context, p Post) (Receipt, error) {
	return s.submit(ctx, p, true, s.match)
}

// SubmitTo is Submit for one subscriber alone, whatever its filter says: it is how an
// endpoint is tried, by an event of a type that may be reserved.
func (s *Service) SubmitTo(ctx context.Context, p Post, sub *subscriber.Subscriber) (Receipt, error) {
	return s.submit(ctx, p, false, func(context.Context, delivery.Event) ([]*subscriber.Subscriber, error) {
		return []*subscriber.Subscriber{sub}, nil
	})
}

// batchParallel is how many posts of a batch are under way at once. The scheduler
// makes few calls of them: see schedule's gatherer.
const batchParallel = 64

// BatchResult is what became of one post of a batch.
type BatchResult struct {
	Receipt Receipt
	Err     error // as of Submit
}

// SubmitBatch is Submit for each post, in no order but among those of one id: one that is refused keeps no other
// from being accepted. The results are in the order of the posts.
func (s *Service) SubmitBatch(ctx context.Context, posts []Post) []BatchResult {
	results := make([]BatchResult, len(posts))
	var all errgroup.Group
	all.SetLimit(batchParallel)
	for _, group := range sameID(posts) {
		all.Go(func() error {
			for _, i := range group {
				results[i].Receipt, results[i].Err = s.Submit(ctx, posts[i])
			}
			return nil
		})
	}
	_ = all.Wait() // each says its own error
	return results
}

// sameID groups posts by their id, in their order: of two with one id the first is the
// event, and the other its repeat or its conflict.
func sameID(posts []Post) [][]int {
	var groups [][]int
	at := map[string]int{}
	for i, p := range posts {
		g, known := at[p.ID]
		if !known || p.ID == "" {
			g = len(groups)
			groups = append(groups, nil)
			at[p.ID] = g
		}
		groups[g] = append(groups[g], i)
	}
	return groups
}

// recipients finds those who get an event.
type recipients func(context.Context, delivery.Event) ([]*subscriber.Subscriber, error)

// match finds those whose filters take it, as of now.
func (s *Service) match(ctx context.Context, e delivery.Event) ([]*subscriber.Subscriber, error) {
	if err := s.dir.Refresh(ctx); err != nil {
		return nil, fmt.Errorf("refresh the subscribers: %w", err)
	}
	return s.dir.Match(e), nil
}

func (s *Service) submit(ctx context.Context, p Post, reserved bool, to recipients) (Receipt, error) {
	start := time.Now()
	ctx, span := s.startSpan(ctx, p)
	r, err := s.take(ctx, p, reserved, to)
	endSpan(span, r, err)
	s.metrics.observe(r, err, time.Since(start))
	return r, err
}

func (s *Service) take(ctx context.Context, p Post, reserved bool, to recipients) (Receipt, error) {
	if err := p.problems(reserved).Err(judged); err != nil {
		return Receipt{}, err
	}
	hash := p.hash() // before the id is given: a hash says what was sent
	given := p.ID != ""
	if !given {
		id, err := newEventID(time.Now())
		if err != nil {
			return Receipt{}, err
		}
		p.ID = id
	}
	acc, targets, err := s.accept(ctx, p, hash, to)
	if err != nil {
		return Receipt{}, fmt.Errorf("accept event %s: %w", p.ID, err)
	}

	// An id made here is nobody else's: "duplicate" then speaks of our own first
	// try, whose reply was lost on the way.
	dup := acc.Duplicate && given
	if acc.Open {
		s.expandAccepted(ctx, p.ID, acc, dup, targets)
	}
	return Receipt{ID: p.ID, Deliveries: acc.Deliveries, Duplicate: dup, AcceptedAt: acc.At}, nil
}

// accept finds the targets and stores the event with them.
func (s *Service) accept(ctx context.Context, p Post, hash string, to recipients) (schedule.Accepted, []schedule.Target, error) {
	ctx, cancel := context.WithTimeout(ctx, s.patience())
	defer cancel()

	e := p.event()
	subs, err := to(ctx, e)
	if err != nil {
		return schedule.Accepted{}, nil, err
	}
	if len(subs) > s.opts.MaxFanout {
		if err := s.repeated(ctx, p.ID); err != nil {
			return schedule.Accepted{}, nil, fmt.Errorf("%d subscribers match, max_fanout is %d: %w",
				len(subs), s.opts.MaxFanout, err)
		}
	}
	targets := make([]schedule.Target, len(subs))
	for i, sub := range subs {
		targets[i] = schedule.Target{SubscriberID: sub.ID, MaxAge: time.Duration(sub.Policy.MaxAge)}
	}
	crash.Point("api.accept.before")
	acc, err := s.store.Accept(ctx, schedule.NewEvent{
		ID: p.ID, BodyHash: hash, Meta: p.meta(), Body: e.Body(),
		Traceparent: traceparent(ctx), Targets: targets,
	})
	crash.Point("api.accept.after")
	if errors.Is(err, schedule.ErrConflict) {
		err = s.conflict(ctx, p, err)
	}
	return acc, targets, err //nolint:wrapcheck // Submit wraps it, with the event's id
}

// repeated is nil if the id is that of a stored event. Its plan was frozen when it
// was accepted, so it is no matter how many match today: a repeat MUST get its
// first answer, or its conflict, which is Accept's to say. It returns
// ErrMaxFanout for a new one.
func (s *Service) repeated(ctx context.Context, id string) error {
	_, err := s.store.Event(ctx, id)
	if errors.Is(err, schedule.ErrNotFound) {
		return ErrMaxFanout
	}
	return err //nolint:wrapcheck // accept wraps it
}

// patience is how long one Submit or one resumed plan may work. Half of
// ResumeAfter: whoever gave up is done before anybody takes over.
func (s *Service) patience() time.Duration { return s.opts.ResumeAfter / 2 }
