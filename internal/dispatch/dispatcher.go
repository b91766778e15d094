package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/webhook"
)

// ErrUnsettled is returned by Run when the stop ended with verdicts that Redis
// had not taken. Their leases expire, and another worker's reaper settles them.
var ErrUnsettled = errors.New("stopped with unsettled verdicts")

// What Ready wraps.
var (
	errNotAnswered = errors.New("no lease call was answered yet")
	errStopping    = errors.New("the dispatcher is stopping")
	errGraceOver   = errors.New("the dispatcher is stopping and its grace is over")
	errRunTwice    = errors.New("dispatcher: Run was called twice")
)

// Leaser gives work.
type Leaser interface {
	// Partitions is how many there are, numbered from 0. It MUST NOT change.
	Partitions() int
	// Lease asks several partitions in one round trip. Replies MUST be in the
	// order of the requests. The same (Worker, Seq) of a partition MUST get the
	// same leases again, with a current Now. On an error the replies that did
	// arrive SHOULD be returned beside it, in their places; one that did not MUST
	// have a zero Now.
	Lease(ctx context.Context, reqs []schedule.LeaseRequest) ([]schedule.LeaseReply, error)
	// Slow notes that attempts of subscribers of a partition have been out for this
	// long already.
	Slow(ctx context.Context, partition int, out map[string]time.Duration) error
	// Wake sends partitions that got work. The channel MUST close when ctx ends,
	// or when announcements may have been missed.
	Wake(ctx context.Context) (<-chan int, error)
}

// Settler ends leases. Both methods MUST be safe to repeat with the same
// arguments, and MUST be all or nothing as far as the caller can see: on an error
// everything is sent again.
type Settler interface {
	// Settle MUST return one result per verdict, in order.
	Settle(ctx context.Context, partition int, verdicts []schedule.Verdict) (schedule.Settled, error)
	// Release hands back leases whose request never left. For a delivery that was
	// cancelled meanwhile it MUST end the lease and nothing else.
	Release(ctx context.Context, partition int, claims []schedule.Claim) error
}

// Overdue finds what nobody will settle. Times are Redis time.
type Overdue interface {
	PartitionOf(subscriberID string) int
	// ExpiredLeases and ExpiredDeliveries look at all partitions in one round trip,
	// up to limit in each. What they return beside an error MUST be right, and the
	// time that of the same reading.
	ExpiredLeases(ctx context.Context, limit int) ([]schedule.Leased, time.Time, error)
	ExpiredDeliveries(ctx context.Context, limit int) ([]delivery.Delivery, time.Time, error)
	// Expire MUST end only deliveries that still wait, past their time.
	Expire(ctx context.Context, partition int, verdicts []schedule.Verdict) ([]schedule.SettleResult, error)
	// Settle as in Settler. A reclaim MUST be refused while its lease is alive.
	Settle(ctx context.Context, partition int, verdicts []schedule.Verdict) (schedule.Settled, error)
}

// Bodies reads payloads. A payload that is not there MUST give
// schedule.ErrNotFound, and nothing else may.
type Bodies interface {
	Body(ctx context.Context, eventID string) (schedule.Body, error)
	// Pinned MUST return the payload that a dead letter has kept beside itself, for as
	// long as it is being redriven; else schedule.ErrNotFound.
	Pinned(ctx context.Context, subscriberID, eventID string) (schedule.Body, error)
}

// Scheduler is all that a dispatcher asks of the scheduler; each part of it is
// handed to its one user. It MUST be safe for concurrent use, and every call MUST
// end soon after its context's deadline.
type Scheduler interface {
	Leaser
	Settler
	Overdue
	Bodies
	Reports
}

// Directory knows the subscribers.
type Directory interface {
	// At returns the subscriber at this version or a later one; version 0 takes
	// any. It MUST return subscriber.ErrGone for one that was deleted, and any
	// other error only for what may be better a moment later.
	At(ctx context.Context, id string, version int64) (*subscriber.Subscriber, error)
}

// Sender makes one request and says what came of it.
type Sender interface {
	// Send MUST return within Request.Timeout and put at most one request on the
	// wire. When ctx is cancelled before a status line came, the outcome MUST be
	// lease_lost. Err and Excerpt MUST hold no secret and no URL query.
	Send(ctx context.Context, r webhook.Request) webhook.Answer
}

// Dispatcher is one worker: it leases, sends and settles.
type Dispatcher struct {
	opts    Options
	sender  Sender
	dir     Directory
	bodies  *bodies
	loop    *loop
	settler *settler
	reaper  *reaper
	judge   *judge
	health  *health
	reports Reports
	redis   *timed
	metrics *metrics
	log     *slog.Logger
	tracer  trace.Tracer // nil: off

	started atomic.Bool
	crew    *crew
}

// life is the three ends of a run, in the order in which a stop lets them come.
type life struct {
	lease  context.Context // no lease call and no request is begun after it
	send   context.Context // requests on the wire are cut off when it ends
	settle context.Context // verdicts that are not home by then are dropped
}

// New builds a dispatcher. It does nothing until Run.
func New(s Scheduler, dir Directory, send Sender, opts Options) *Dispatcher {
	opts = opts.withDefaults()
	counts := newMetrics(opts.Registerer, opts.Classes, opts.Slots)
	redis := &timed{Scheduler: s, took: counts.redis}
	s = redis
	d := &Dispatcher{
		opts: opts, sender: send, dir: dir, bodies: newBodies(s), reports: s, redis: redis,
		metrics: counts,
		log:     opts.Logger.With("worker", opts.Worker),
		tracer:  tracerOf(opts.TracerProvider),
	}
	d.crew = newCrew(d.attempt)
	d.health = newHealth(d.log)
	d.judge = &judge{worker: opts.Worker, version: opts.Version, metrics: d.metrics, log: d.log}
	d.loop = newLoop(s, opts, d)
	d.settler = newSettler(s, s.Partitions(), d.loop, d)
	d.reaper = &reaper{
		sched: s, dir: dir, bodies: d.bodies, judge: d.judge, settler: d.settler, board: d.loop.board,
		every: opts.ReapEvery, health: d.health, metrics: d.metrics, log: d.log,
	}
	return d
}

// Run leases and sends until ctx ends, then stops as the package doc says. It
// takes up to Options.Grace plus settleGrace, and one Redis call, to do so. It
// returns nil after a clean stop, else ErrUnsettled. It may be called once.
func (d *Dispatcher) Run(ctx context.Context) error {
	if d.started.Swap(true) {
		return errRunTwice
	}
	detached := context.WithoutCancel(ctx)
	send, cut := context.WithCancelCause(detached)
	defer cut(nil)
	settle, giveUp := context.WithCancel(detached)
	defer giveUp()
	ends := life{lease: ctx, send: send, settle: settle}

	var loops sync.WaitGroup
	loops.Go(func() { d.loop.run(ends) }) //nolint:contextcheck // ends holds ctx, and what outlives it
	loops.Go(func() { d.loop.listen(ctx) })
	loops.Go(func() { d.loop.watch(ctx) })
	loops.Go(func() { d.report(ctx) })
	loops.Go(func() { d.reaper.run(ends) }) //nolint:contextcheck // as above

	<-ctx.Done()
	d.health.set("stop", errStopping)
	before := d.settler.dropped.Load()
	defer time.AfterFunc(d.opts.Grace, func() { cut(errGraceOver) }).Stop()
	defer time.AfterFunc(d.opts.Grace+settleGrace, giveUp).Stop()

	// Each wait lets nobody add to the next: loops begin attempts, and attempts
	// begin flushes.
	loops.Wait()
	d.crew.end()
	d.settler.flushes.Wait()
	if n := d.settler.dropped.Load() - before; n > 0 {
		return fmt.Errorf("%w: %d", ErrUnsettled, n)
	}
	return nil
}

// Ready is nil while Redis takes and answers what the loops ask, else what fails.
// It is not nil before the first answer, nor once a stop began.
func (d *Dispatcher) Ready() error { return d.health.err() }

// begin starts one attempt per lease. Their slots are taken already.
func (d *Dispatcher) begin(ends life, leases []*lease) {
	if len(leases) == 0 {
		return
	}
	a := newArrival(ends.lease, len(leases))
	for _, l := range leases {
		l.arrival = a
		d.crew.begin(ends, l)
	}
}
