package schedule

import (
	"errors"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// What callers branch on. Everything else that an Engine returns is a Redis
// error, wrapped.
var (
	// ErrUnavailable: Redis did not answer, or not in time. The transition may or
	// may not have happened; running it again with the same arguments is safe.
	ErrUnavailable = errors.New("redis is unavailable")
	// ErrRefused comes with ErrUnavailable: Redis is there and refuses the call, for
	// it is starting, read-only, without its replicas or its disk, or without a part
	// of its cluster. Nothing was changed.
	ErrRefused = errors.New("redis refuses it now")
	// ErrFull: Redis is over maxmemory and refused to add. Nothing was changed.
	ErrFull = errors.New("redis is out of memory")
	// ErrConflict: the event id is taken by an event with another body.
	ErrConflict = errors.New("event id already used with another body")
	// ErrNotFound: no such event, delivery or subscriber.
	ErrNotFound = errors.New("not found")
	// ErrVersion: the subscriber is not at the version that the caller expected.
	ErrVersion = errors.New("subscriber was changed by someone else")
	// ErrTooLate: the plan's expand_by has passed, so enqueueing could repeat a
	// delivery whose record is gone already.
	ErrTooLate = errors.New("too late to expand the event")
	// ErrCursor: the cursor is none that this list gave.
	ErrCursor = errors.New("not a cursor of this list")
	// ErrNotScheduled: the delivery is leased or final, so it has no next attempt to
	// move.
	ErrNotScheduled = errors.New("delivery is not scheduled")
	// ErrFinal: the delivery is delivered or dead, and stays that.
	ErrFinal = errors.New("delivery is final")
	// ErrLayout: the data in Redis has another schema or number of partitions.
	ErrLayout = errors.New("redis holds another layout")
)

// Target is one subscriber of an event's plan. MaxAge is its policy's, frozen
// here, so that a delivery expires at the same instant whoever expands the plan.
type Target struct {
	SubscriberID string
	MaxAge       time.Duration
}

// NewEvent is what Accept stores.
type NewEvent struct {
	ID string
	// BodyHash tells a repeated post from a conflicting one; at most 64 bytes.
	BodyHash string
	// Meta is opaque, and comes back from Event.
	Meta []byte
	// Body is what every attempt sends. It is stored once.
	Body []byte
	// Traceparent of the ingest span, or "".
	Traceparent string
	// Targets are the matching subscribers, each once, in any order.
	Targets []Target
}

// Accepted is the answer to Accept. For a duplicate all of it is what the first
// post was answered.
type Accepted struct {
	At         time.Time // Redis time
	Deliveries int
	Duplicate  bool
	// Open says that the plan is not expanded yet: the caller does it, or leaves
	// it to whoever claims open plans.
	Open bool
}

// Plan is what remains to be expanded of an event.
type Plan struct {
	EventID    string
	AcceptedAt time.Time
	ExpandBy   time.Time
	// Parts are the targets that remain, by partition.
	Parts map[int][]Target
}

// Event is a stored event, as its view needs it.
type Event struct {
	ID         string
	Meta       []byte
	AcceptedAt time.Time
	Deliveries int
	Open       bool
	// SubscriberIDs are those that the event was planned for.
	SubscriberIDs []string
}

// Body is an event's payload.
type Body struct {
	Traceparent string
	Bytes       []byte
}

// Terms is what the scheduler itself must know of a subscriber.
type Terms struct {
	Class       string
	MaxInFlight int
	// LeaseTime is attempt_timeout plus the settle margin.
	LeaseTime time.Duration
	// RatePerSecond is how many attempts may begin a second, by all dispatchers
	// together; 0 for no limit. Burst is how many at once; at least 1 with a rate.
	RatePerSecond float64
	Burst         int
	// BreakerFailures in a row open the breaker; 0 stands for 5.
	BreakerFailures int
	// MaxHeld is how many deliveries may be pending while it is on hold; 0 stands
	// for 100,000.
	MaxHeld int
	Paused  bool
}

// Change is what a new config means for the subscriber's holds.
type Change string

// The changes.
const (
	// Edited leaves them: the config changed, the endpoint did not.
	Edited Change = ""
	// Lifted ends what somebody can end: disabled ends, and an open breaker probes
	// at once. What the endpoint asked for (throttled) stands.
	Lifted Change = "lift"
	// Moved forgets all that is known of the endpoint, for it is another one.
	Moved Change = "moved"
)

// Config is a subscriber as stored: a blob that only package subscriber reads,
// and the terms that only the scheduler does, under one version.
type Config struct {
	ID      string
	Version int64
	Blob    []byte
	Deleted bool // a tombstone, Blob empty
}

// Rooms says how many deliveries a lease call may take, by lane, and of all those
// how many of slow subscribers.
type Rooms struct {
	Total, Fresh, Retry, Redrive, Slow int
}

// LeaseRequest asks one partition for work.
type LeaseRequest struct {
	Partition int
	// Worker is unique to a process's life.
	Worker string
	// Seq grows with every new request of this worker to this partition. The same
	// Seq again gets the same leases: that is how a lost reply is made good.
	Seq   int64
	Rooms Rooms
	// Free is how many slots of the worker are free, for whichever partition. A
	// subscriber may hold as many as are free, and no more.
	Free int
	// Holds are the slots that subscribers of this partition hold. One that is left
	// out is taken to hold none.
	Holds []Holding
}

// Holding is the slots of a worker that a subscriber holds.
type Holding struct {
	SubscriberID string
	Slots        int
}

// Leased is a delivery as handed to a worker, its attempt charged.
type Leased struct {
	delivery.Delivery
	// Version is the subscriber's config version at the time of the lease.
	Version int64
	// Until is when the lease expires, Redis time.
	Until time.Time
	// Slow says that its subscriber takes long to answer, or is not known yet: it
	// counts against the slots for such.
	Slow bool
}

// Fence is what a verdict on this lease must carry.
func (l Leased) Fence() int64 { return l.DeliveryCount }

// LeaseReply is what a partition gave.
type LeaseReply struct {
	Now    time.Time // Redis time; add monotonic elapsed time for a current one
	Leased []Leased
	// Ready is how many subscribers still wait for a turn; Slow how many more that
	// are slow.
	Ready, Slow int
	// NextDue is when the next delivery falls due, or a hold or a rate may end;
	// zero if nothing is scheduled.
	NextDue time.Time
}

// Verdict is one settlement: what Decide said of a lease.
type Verdict struct {
	ID    string
	Fence int64
	delivery.Decision
	Outcome delivery.Outcome
	Status  int
	// Attempt is the evidence, JSON; nil for a success at once.
	Attempt []byte
	// Body pins the payload of one that dies; required when Next is Dead, unless
	// the payload is missing.
	Body *Body
	// Reclaim settles a lease in place of its worker: it is refused while the
	// lease is not expired.
	Reclaim bool
	// Took is how long the attempt took, and RetryAfter for how long the endpoint
	// asked to be left alone; 0 if it did not. Both speak of the endpoint, as Blame
	// of Outcome does.
	Took       time.Duration
	RetryAfter time.Duration
}

// SettleResult says what a verdict did.
type SettleResult string

// The results of a settlement.
const (
	Applied    SettleResult = "applied"
	AppliedOld SettleResult = "applied_late" // a late 2xx, which is a fact and won
	Already    SettleResult = "already"      // the same verdict, or one past it, was applied before
	Stale      SettleResult = "stale"        // a late failure, dropped
	NotExpired SettleResult = "not_expired"  // a reclaim of a lease that is alive
	Missing    SettleResult = "missing"      // no such delivery
)

// Claim names one lease.
type Claim struct {
	ID    string
	Fence int64
	// Wait has a released delivery fall due that long from now, so that others have
	// their turn first; 0 leaves it due when it was.
	Wait time.Duration
}

// Settled is what a settlement did.
type Settled struct {
	// Results are those of the verdicts, in order.
	Results []SettleResult
	// NextDue is as in LeaseReply, after it.
	NextDue time.Time
}

// Ledger counts deliveries. Accepted = Pending + Delivered + Dead + Cancelled at
// every instant, per partition and so in sum.
type Ledger struct {
	Accepted, Pending, Delivered, Dead, Cancelled int64
}

// Balanced says whether the ledger adds up.
func (l Ledger) Balanced() bool {
	return l.Accepted == l.Pending+l.Delivered+l.Dead+l.Cancelled
}

// Ages are the due times of the oldest head in one class and lane, of eligible ones since
// when they wait; zero if there is none.
type Ages struct {
	Class string
	Lane  delivery.Lane
	// Eligible heads wait for their time or a worker only: since they fell due, or since
	// their subscriber was let off a hold, its cap or its rate, if that was later. Limited
	// ones wait for their subscriber's cap; Held ones for its hold to end. A head in the
	// future has no age yet.
	Eligible, Limited, Held time.Time
}

// OtherClass stands for all classes that a sample was not asked for: subscribers
// keep the class that they were registered with, whatever a process is told.
const OtherClass = "other"

// DueMinutes is how far a sample looks ahead.
const DueMinutes = 15

// Sample is one look at the whole engine. Ages are those of the classes asked for
// and, if anything waits there, of OtherClass.
type Sample struct {
	Now    time.Time
	Ages   []Ages
	Ledger Ledger
	Leases int64
	// ExpiredLeases are those whose worker did not settle in time, and that nobody
	// has reclaimed yet.
	ExpiredLeases int64
	// Ready is subscribers awaiting a turn; Scheduled ones with work not due yet;
	// one that has work in two lanes counts in each.
	Ready, Scheduled int64
	// Limited is those whose head is due while the subscriber is at its cap or rate.
	Limited    int64
	Dead       int64     // dead letters kept
	OldestDead time.Time // when the oldest of them died; zero if there is none
	// Due is how many deliveries fall due in each of 15 minutes, of which the first began
	// at DueFrom: those that are not due when they are put in the retry or redrive lane.
	// Of that minute also those that fell due already.
	DueFrom time.Time
	Due     [DueMinutes]int64
	// OnHold is how many subscribers are, and Held the deliveries that wait for them.
	OnHold, Held int64
	OpenEvents   int64 // accepted, not expanded yet
	// LateEvents were not expanded in time, and are set aside: accepted
	// deliveries that nobody will make. Anything but 0 is for a person.
	LateEvents int64
}

// Evidence is a delivery with what is known of its attempts: the failed ones, and
// a success after failures, oldest first. A delivery that succeeded at once has no
// history beyond its record.
type Evidence struct {
	delivery.Delivery
	History []delivery.Attempt
	// Reason of a dead one: a terminal outcome, exhausted or expired.
	Reason delivery.Outcome
}

// DeadLetter is a dead delivery with its evidence.
type DeadLetter = Evidence
