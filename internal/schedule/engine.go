package schedule

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// schema is the version of the layout in Redis: keys, records and their meaning.
const schema = 3

// metaKey holds what every binary on one Redis must agree on.
const metaKey = "fo:meta"

// wakeChannel carries the prefix of a partition in which work became ready.
const wakeChannel = "fo:wake"

// Options of an Engine. Zero values take the defaults.
type Options struct {
	// Partitions is P: 1 suits one Redis, since a call is for one partition, and few full
	// calls cost it less than many small ones (a fifth less CPU with 1 than with 4); 48
	// suits a cluster. It is written down at the first start and cannot be changed.
	Partitions int
	// DeliveredRetention is how long the record of a delivered or cancelled
	// delivery is kept; default 24 h. It bounds how late a 2xx is still counted.
	DeliveredRetention time.Duration
	// DeadRetention is how long a dead letter is kept; default 30 days.
	DeadRetention time.Duration
	// ExpandWithin is how long after accept an event may still be expanded;
	// default 1 h, at most DeliveredRetention.
	ExpandWithin time.Duration
	// Quantum is the most deliveries a subscriber gets in one turn; default 8.
	Quantum int
	// InitialCap is how many leases a subscriber may have at once whose endpoint is not
	// known yet; default 1. It grows with every success, up to its max_in_flight.
	InitialCap int
	// AllowUnsafe makes Ready content with a Redis that may lose what it accepts:
	// for a first look, or where somebody else vouches for it.
	AllowUnsafe bool
	// WaitReplicas is how many replicas must have an event before Accept returns;
	// default 0. Without it a failover may lose what was accepted just before.
	WaitReplicas int
	// WaitTimeout is how long Accept waits for them; default 1 s, at most 2 s.
	WaitTimeout time.Duration
	// TestClock lets SetTestClock and FreezeTestClock move the scripts' clock. For
	// tests only.
	TestClock bool
}

func (o *Options) defaults() error {
	if o.Partitions == 0 {
		o.Partitions = 1
	}
	if o.DeliveredRetention == 0 {
		o.DeliveredRetention = 24 * time.Hour
	}
	if o.DeadRetention == 0 {
		o.DeadRetention = 30 * 24 * time.Hour
	}
	if o.ExpandWithin == 0 {
		o.ExpandWithin = time.Hour
	}
	if o.Quantum == 0 {
		o.Quantum = 8
	}
	if o.InitialCap == 0 {
		o.InitialCap = 1
	}
	if o.InitialCap < 1 || o.InitialCap > 1000 {
		return fmt.Errorf("initial_cap: must be from 1 to 1000, is %d", o.InitialCap)
	}
	if o.Partitions < 1 || o.Partitions > 1024 {
		return fmt.Errorf("partitions: must be from 1 to 1024, is %d", o.Partitions)
	}
	if o.ExpandWithin > o.DeliveredRetention {
		return fmt.Errorf("expand_within %s is above delivered_retention %s: a late expansion could repeat a delivery",
			o.ExpandWithin, o.DeliveredRetention)
	}
	return o.checkWait()
}

// Engine is the queue in Redis. It is safe for concurrent use and holds no state
// of its own beyond the connection, and what waits to be sent on it.
type Engine struct {
	rdb     redis.UniversalClient
	opts    Options
	scripts scripts
	parts   []string               // key prefixes of the partitions
	events  []string               // and of the event partitions
	checked atomic.Bool            // the layout in Redis is ours
	home    atomic.Pointer[string] // the name that Redis' data had when it was first seen

	gatherers sync.Map // of calls that go together: see gather.go
}

// Open returns an engine. It claims an empty Redis for this layout, or returns
// ErrLayout if another schema or number of partitions is there, or what Redis says
// of a login that it refuses. A Redis that is away, or takes no writes now, is no
// error: every call asks again until it has been seen once, and is ErrUnavailable
// or ErrFull until then.
func Open(ctx context.Context, rdb redis.UniversalClient, opts Options) (*Engine, error) {
	if err := opts.defaults(); err != nil {
		return nil, err
	}
	clock := ""
	if opts.TestClock {
		clock = testClockLua
	}
	e := &Engine{
		rdb: rdb, opts: opts, scripts: loadScripts(clock),
		parts: tags("", opts.Partitions), events: tags("e", opts.Partitions),
	}
	err := e.layout(ctx)
	if err == nil || errors.Is(err, ErrUnavailable) || errors.Is(err, ErrFull) {
		return e, nil
	}
	return nil, err
}

// layout makes sure, before the first command, that Redis holds this layout.
func (e *Engine) layout(ctx context.Context) error {
	if e.checked.Load() {
		return nil
	}
	return e.checkLayout(ctx)
}

// checkLayout looks whether Redis holds this layout, or nothing, and then claims
// it. It reads first: a Redis that is full, and holds it, has work to be done.
func (e *Engine) checkLayout(ctx context.Context) error {
	there, err := e.rdb.HMGet(ctx, metaKey, "schema", "partitions", "home").Result()
	if err == nil && (there[0] == nil || there[2] == nil) && e.home.Load() == nil {
		there, err = e.claimLayout(ctx)
	}
	if err != nil {
		return classify("open", err)
	}
	err = e.compareLayout(there)
	e.checked.Store(err == nil)
	return err
}

// claimLayout writes schema and P, and a name for the data to come, unless another
// process was faster, and reads what stands there.
func (e *Engine) claimLayout(ctx context.Context) ([]any, error) {
	var set *redis.BoolCmd
	var got *redis.SliceCmd
	_, err := e.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		set = p.HSetNX(ctx, metaKey, "schema", schema)
		p.HSetNX(ctx, metaKey, "partitions", e.opts.Partitions)
		p.HSetNX(ctx, metaKey, "home", rand.Text())
		got = p.HMGet(ctx, metaKey, "schema", "partitions", "home")
		return nil
	})
	if err != nil {
		// The transaction was discarded for what its first command was refused for.
		return nil, errors.Join(set.Err(), err)
	}
	return got.Val(), nil
}

// compareLayout says whether what stands in Redis is ours, and still what it was. A
// Redis without its data (emptied, failed over to an empty replica, restarted without
// its files) answers as if all were well, with a ledger of noughts that balances: so
// nothing more is written there until a person has looked and restarts the processes.
func (e *Engine) compareLayout(there []any) error {
	home, _ := there[2].(string)
	if before := e.home.Load(); before != nil && *before != home {
		return fmt.Errorf("%w: what this process wrote to it is gone. It was emptied, or another Redis stands at its address; "+
			"bring the data back, or restart all fanout processes to begin with none", ErrLayout)
	}
	if there[0] != strconv.Itoa(schema) {
		return fmt.Errorf("%w: what is in it was written by a version of schema %v, and this binary knows schema %d only; "+
			"run that version until nothing is pending, and start this one on an empty Redis", ErrLayout, there[0], schema)
	}
	if there[1] != strconv.Itoa(e.opts.Partitions) {
		return fmt.Errorf("%w: it has %v partitions, this binary was told %d; start it with --redis-partitions=%v",
			ErrLayout, there[1], e.opts.Partitions, there[1])
	}
	e.home.CompareAndSwap(nil, &home)
	return nil
}

// pipe sends commands in one round trip (one per primary in a cluster). Its error
// says that none was sent, because Redis is away or holds another layout; else
// each command has its own.
func (e *Engine) pipe(ctx context.Context, queue func(p redis.Pipeliner)) ([]redis.Cmder, error) {
	if err := e.layout(ctx); err != nil {
		return nil, err
	}
	return e.pipelined(ctx, queue), nil
}

// read sends commands in one round trip and returns the first failure of any. What
// is not there is no failure: its command holds the empty value.
func (e *Engine) read(ctx context.Context, op string, queue func(p redis.Pipeliner)) error {
	cmds, err := e.pipe(ctx, queue)
	for _, cmd := range cmds {
		if err == nil && !errors.Is(cmd.Err(), redis.Nil) {
			err = classify(op, cmd.Err())
		}
	}
	return err
}

// Ping says whether Redis answers and holds this layout: nil, ErrUnavailable or
// ErrLayout.
func (e *Engine) Ping(ctx context.Context) error {
	if err := e.layout(ctx); err != nil {
		return err
	}
	return classify("ping", e.rdb.Ping(ctx).Err())
}

// Wake delivers the partitions in which work became ready, until ctx ends; then
// it closes the channel. It is a hint: one may be lost with a connection, and so
// a slow poll must stand behind it. On a reconnect every partition is announced,
// because what was published meanwhile is gone.
func (e *Engine) Wake(ctx context.Context) (<-chan int, error) {
	sub := e.rdb.Subscribe(ctx, wakeChannel)
	if _, err := sub.Receive(ctx); err != nil { // the subscription stands
		return nil, errors.Join(classify("wake", err), sub.Close())
	}
	out := make(chan int)
	go func() {
		defer close(out)
		defer sub.Close() //nolint:errcheck // nothing left to do with it
		e.announce(ctx, sub.ChannelWithSubscriptions(), out)
	}()
	return out, nil
}

// announce hands on which partitions were named, each once however often that
// was before the reader came to it, and none is forgotten for the sake of another.
func (e *Engine) announce(ctx context.Context, msgs <-chan any, out chan<- int) {
	var waiting []int // partitions, in the order of their first announcement
	add := func(p int) {
		if p >= 0 && !slices.Contains(waiting, p) {
			waiting = append(waiting, p)
		}
	}
	for {
		var next chan<- int
		var head int
		if len(waiting) > 0 {
			next, head = out, waiting[0]
		}
		select {
		case <-ctx.Done():
			return
		case next <- head:
			waiting = waiting[1:]
		case msg, open := <-msgs:
			if !open {
				return
			}
			switch m := msg.(type) {
			case *redis.Message:
				add(slices.Index(e.parts, m.Payload))
			case *redis.Subscription: // connected again: what was published meanwhile is gone
				for p := range e.parts {
					add(p)
				}
			}
		}
	}
}
