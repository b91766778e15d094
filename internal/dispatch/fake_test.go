package dispatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

var _ Scheduler = (*schedule.Engine)(nil)

// skew sets the fake Redis' clock apart from the local one, so that a mix-up of
// the two shows.
const skew = 37 * time.Minute

// fake is a small model of the scheduler: fences, charges, leases that a repeated
// seq gets again, and faults to inject. It lives in one process and its time is
// the bubble's.
type fake struct {
	mu       sync.Mutex
	parts    int
	recs     map[string]*record
	caps     map[string]int           // by subscriber; 0: none
	hung     map[string]time.Duration // subscribers that were said to hang, and are slow since
	bodies   map[string]schedule.Body
	memory   map[string]grant // by worker and partition
	hearers  map[chan int]bool
	requests []schedule.LeaseRequest
	calls    map[string]int
	verdicts []schedule.Verdict
	reported schedule.WorkerReport // the last
	released []schedule.Claim

	down    bool                        // nothing is executed
	noLease bool                        // nobody gets a lease
	mute    bool                        // announcements are lost
	lose    map[string]int              // by operation: executed, but the reply is lost
	slow    map[string]time.Duration    // by operation: how long it takes to arrive
	tardy   map[string]time.Duration    // by operation: how long its reply does
	refuse  func(schedule.Verdict) bool // Redis complains of a batch with such a verdict
}

type record struct {
	delivery.Delivery
	until    time.Time
	leased   bool // a lease is open, whatever the state
	evidence [][]byte
	pinned   *schedule.Body
	reason   delivery.Outcome
}

type grant struct {
	seq    int64
	leases []schedule.Claim
}

func newFake(parts int) *fake {
	return &fake{
		parts: parts, recs: map[string]*record{}, caps: map[string]int{}, hung: map[string]time.Duration{}, bodies: map[string]schedule.Body{},
		memory: map[string]grant{}, hearers: map[chan int]bool{}, calls: map[string]int{},
		lose: map[string]int{}, slow: map[string]time.Duration{}, tardy: map[string]time.Duration{},
	}
}

func (f *fake) now() time.Time { return time.Now().Add(skew) }

// set changes the model under its lock.
func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// enqueue adds a delivery, as changed by the edits, and announces it.
func (f *fake) enqueue(event, sub string, edits ...func(*record)) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := &record{Delivery: delivery.New(event, sub, f.now(), time.Hour)}
	f.bodies[event] = schedule.Body{Bytes: []byte(`{"event":"` + event + `"}`), Traceparent: ingestTraceparent}
	for _, edit := range edits {
		edit(r)
	}
	f.recs[r.ID] = r
	f.announce(f.PartitionOf(sub))
	return r.ID
}

func (f *fake) announce(p int) {
	for ch := range f.hearers {
		if f.mute {
			continue
		}
		select {
		case ch <- p:
		default:
		}
	}
}

// get is a copy of a record.
func (f *fake) get(id string) record {
	f.mu.Lock()
	defer f.mu.Unlock()
	return *f.recs[id]
}

// openLeases lists what is leased.
func (f *fake) openLeases() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ids []string
	for id, r := range f.recs {
		if r.leased {
			ids = append(ids, id)
		}
	}
	return ids
}

// asked lists the lease requests so far.
func (f *fake) asked() []schedule.LeaseRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

func (f *fake) count(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if op != "" {
		return f.calls[op]
	}
	n := 0
	for _, k := range f.calls {
		n += k
	}
	return n
}

// call runs one operation with the faults that are set for it.
func (f *fake) call(ctx context.Context, op string, do func() error) error {
	f.mu.Lock()
	if back := f.tardy[op]; back > 0 {
		defer sleep(ctx, back) // unlocked by then
	}
	wait := f.slow[op]
	f.mu.Unlock()
	if wait > 0 && !sleep(ctx, wait) {
		return fmt.Errorf("%s: %w", op, schedule.ErrUnavailable)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[op]++
	if f.down || ctx.Err() != nil {
		return fmt.Errorf("%s: %w", op, schedule.ErrUnavailable)
	}
	err := do()
	if f.lose[op] > 0 {
		f.lose[op]--
		return fmt.Errorf("%s: reply lost: %w", op, schedule.ErrUnavailable)
	}
	return err
}

func (f *fake) Partitions() int { return f.parts }

func (f *fake) PartitionOf(id string) int { return int(delivery.Hash16(id)) % f.parts }

func (f *fake) Wake(ctx context.Context) (<-chan int, error) {
	ch := make(chan int, 1024)
	err := f.call(ctx, "wake", func() error {
		f.hearers[ch] = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { f.deafen(ch) })
	return ch, nil
}

// hearing lists who listens.
func (f *fake) hearing() []chan int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.hearers))
}

func (f *fake) deafen(ch chan int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hearers[ch] {
		delete(f.hearers, ch)
		close(ch)
	}
}

func (f *fake) Lease(ctx context.Context, reqs []schedule.LeaseRequest) ([]schedule.LeaseReply, error) {
	replies := make([]schedule.LeaseReply, len(reqs))
	err := f.call(ctx, "lease", func() error {
		f.requests = append(f.requests, reqs...)
		for i, q := range reqs {
			replies[i] = f.lease(q)
		}
		return nil
	})
	if err != nil {
		return make([]schedule.LeaseReply, len(reqs)), err
	}
	return replies, nil
}

func (f *fake) lease(q schedule.LeaseRequest) schedule.LeaseReply {
	key := fmt.Sprint(q.Worker, q.Partition)
	reply := schedule.LeaseReply{Now: f.now()}
	past := f.memory[key]
	switch {
	case q.Seq < past.seq:
		panic("a seq went back")
	case q.Seq == past.seq:
		for _, c := range past.leases {
			if r := f.recs[c.ID]; r.leased && r.DeliveryCount == c.Fence {
				reply.Leased = append(reply.Leased, schedule.Leased{Delivery: r.Delivery, Version: 1, Until: r.until})
			}
		}
	case !f.noLease:
		reply.Leased = f.grant(key, q)
	}
	f.outlook(q.Partition, &reply)
	return reply
}

// grant leases what is due, in the order of its due time, within room and caps.
func (f *fake) grant(key string, q schedule.LeaseRequest) (out []schedule.Leased) {
	room := map[delivery.Lane]int{
		delivery.Fresh: q.Rooms.Fresh, delivery.Retry: q.Rooms.Retry, delivery.Redrive: q.Rooms.Redrive,
	}
	slowRoom := q.Rooms.Slow
	given := grant{seq: q.Seq}
	for _, r := range f.waiting(q.Partition) {
		slow := f.hung[r.SubscriberID] > 0
		if r.DueAt.After(f.now()) || len(out) == q.Rooms.Total || room[r.Lane] <= 0 || f.capped(r.SubscriberID) ||
			(slow && slowRoom <= 0) {
			continue
		}
		room[r.Lane]--
		if slow {
			slowRoom--
		}
		f.charge(r)
		out = append(out, schedule.Leased{Delivery: r.Delivery, Version: 1, Until: r.until, Slow: slow})
		given.leases = append(given.leases, schedule.Claim{ID: r.ID, Fence: r.DeliveryCount})
	}
	f.memory[key] = given
	return out
}

// charge leases one delivery.
func (f *fake) charge(r *record) {
	r.State, r.leased = delivery.Leased, true
	r.Attempts++
	r.DeliveryCount++
	r.LastAttemptAt = f.now()
	r.until = f.now().Add(25 * time.Second)
}

func (f *fake) capped(sub string) bool {
	n := 0
	for _, r := range f.recs {
		if r.SubscriberID == sub && r.leased {
			n++
		}
	}
	return f.caps[sub] > 0 && n >= f.caps[sub]
}

func (f *fake) waiting(p int) []*record {
	var out []*record
	for _, r := range f.recs {
		if r.State == delivery.Scheduled && f.PartitionOf(r.SubscriberID) == p {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *record) int {
		if c := a.DueAt.Compare(b.DueAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return out
}

// outlook fills in who is ready and what is due next.
func (f *fake) outlook(p int, reply *schedule.LeaseReply) {
	ready, slow := map[string]bool{}, map[string]bool{}
	for _, r := range f.waiting(p) {
		switch {
		case r.DueAt.After(f.now()):
			if reply.NextDue.IsZero() {
				reply.NextDue = r.DueAt
			}
		case f.capped(r.SubscriberID):
		case f.hung[r.SubscriberID] > 0:
			slow[r.SubscriberID] = true
		default:
			ready[r.SubscriberID] = true
		}
	}
	reply.Ready, reply.Slow = len(ready), len(slow)
}

func (f *fake) Slow(ctx context.Context, _ int, out map[string]time.Duration) error {
	return f.call(ctx, "slow", func() error {
		for id, d := range out {
			f.hung[id] = max(f.hung[id], d)
		}
		return nil
	})
}

func (f *fake) Settle(ctx context.Context, p int, verdicts []schedule.Verdict) (schedule.Settled, error) {
	results := make([]schedule.SettleResult, len(verdicts))
	var next schedule.LeaseReply
	err := f.call(ctx, "settle", func() error {
		if f.refuse != nil && slices.ContainsFunc(verdicts, f.refuse) {
			return errors.New("ERR the script does not like this")
		}
		for i, v := range verdicts {
			if f.PartitionOf(f.recs[v.ID].SubscriberID) != p {
				panic("settled in a foreign partition")
			}
			results[i] = f.settle(v)
		}
		f.outlook(p, &next)
		return nil
	})
	return schedule.Settled{Results: results, NextDue: next.NextDue}, err
}

func (f *fake) settle(v schedule.Verdict) schedule.SettleResult {
	r := f.recs[v.ID]
	atFence := v.Fence == r.DeliveryCount
	switch {
	case v.Reclaim && (!atFence || !r.leased):
		return schedule.Stale
	case v.Reclaim && r.until.After(f.now()):
		return schedule.NotExpired
	case !atFence || r.State != delivery.Leased:
		r.leased = r.leased && !atFence
		if v.Fence <= r.Settled || r.State == delivery.Cancelled || r.State == delivery.Delivered {
			return schedule.Already
		}
		return schedule.Stale
	}
	f.verdicts = append(f.verdicts, v)
	r.leased = false
	r.LastOutcome, r.LastStatus = v.Outcome, v.Status
	if !v.Reclaim {
		r.Settled = v.Fence
	}
	if v.Outcome == delivery.LeaseLost {
		r.LeaseLosses++
	}
	if v.GiveBack {
		r.Attempts--
	}
	if v.Attempt != nil {
		r.evidence = append(r.evidence, v.Attempt)
	}
	r.State, r.DueAt, r.pinned, r.reason = v.Next, v.DueAt, v.Body, v.Reason
	if v.Next == delivery.Scheduled && r.Lane == delivery.Fresh {
		r.Lane = delivery.Retry
	}
	f.announceCapped(r.SubscriberID)
	return schedule.Applied
}

// announceCapped tells of a subscriber that has room again, as the engine does.
func (f *fake) announceCapped(sub string) {
	if f.caps[sub] > 0 {
		f.announce(f.PartitionOf(sub))
	}
}

func (f *fake) Release(ctx context.Context, _ int, claims []schedule.Claim) error {
	return f.call(ctx, "release", func() error {
		for _, c := range claims {
			r := f.recs[c.ID]
			if !r.leased || r.DeliveryCount != c.Fence {
				continue
			}
			r.leased = false
			f.released = append(f.released, c)
			if r.State == delivery.Leased {
				r.State = delivery.Scheduled
				r.Attempts--
				r.Releases++
				if c.Wait > 0 {
					r.DueAt = f.now().Add(c.Wait)
				}
				f.announce(f.PartitionOf(r.SubscriberID))
			}
		}
		return nil
	})
}

func (f *fake) ExpiredLeases(ctx context.Context, limit int) (out []schedule.Leased, now time.Time, err error) {
	err = f.call(ctx, "expired_leases", func() error {
		now = f.now()
		for _, id := range slices.Sorted(maps.Keys(f.recs)) {
			if r := f.recs[id]; r.leased && !r.until.After(now) && len(out) < limit {
				out = append(out, schedule.Leased{Delivery: r.Delivery, Until: r.until})
			}
		}
		return nil
	})
	return out, now, err
}

func (f *fake) ExpiredDeliveries(ctx context.Context, limit int) (out []delivery.Delivery, now time.Time, err error) {
	err = f.call(ctx, "expired_deliveries", func() error {
		now = f.now()
		for _, id := range slices.Sorted(maps.Keys(f.recs)) {
			if r := f.recs[id]; r.State == delivery.Scheduled && !r.ExpiresAt.After(now) && len(out) < limit {
				out = append(out, r.Delivery)
			}
		}
		return nil
	})
	return out, now, err
}

func (f *fake) Expire(ctx context.Context, _ int, verdicts []schedule.Verdict) ([]schedule.SettleResult, error) {
	results := make([]schedule.SettleResult, len(verdicts))
	return results, f.call(ctx, "expire", func() error {
		for i, v := range verdicts {
			r := f.recs[v.ID]
			results[i] = schedule.Stale
			if r.State == delivery.Scheduled {
				r.State, r.reason, r.pinned = delivery.Dead, v.Reason, v.Body
				results[i] = schedule.Applied
			}
		}
		return nil
	})
}

func (f *fake) Body(ctx context.Context, event string) (body schedule.Body, err error) {
	err = f.call(ctx, "body", func() error {
		var ok bool
		if body, ok = f.bodies[event]; !ok {
			return schedule.ErrNotFound
		}
		return nil
	})
	return body, err
}

func (f *fake) Pinned(ctx context.Context, subscriber, event string) (body schedule.Body, err error) {
	err = f.call(ctx, "pinned", func() error {
		rec := f.recs[delivery.NewID(event, subscriber)]
		if rec == nil || rec.pinned == nil {
			return schedule.ErrNotFound
		}
		body = *rec.pinned
		return nil
	})
	return body, err
}

func (f *fake) Report(ctx context.Context, r schedule.WorkerReport) error {
	return f.call(ctx, "report", func() error {
		f.reported = r
		return nil
	})
}
