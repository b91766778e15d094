package schedule

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/delivery"
)

// ttlMargin is added to every lifetime that must outlive another one: more than
// any lease, settle retry and difference between two nodes' clocks.
const ttlMargin = time.Hour

// ChunkSize is the most deliveries that one Enqueue may carry: it bounds how
// long a script keeps Redis from others (about 2 ms).
const ChunkSize = 256

// Accept stores an event, its payload and its frozen plan in one step. When it
// returns nil, the event is as durable as Redis is configured to be, and on as many
// replicas as Options.WaitReplicas asks for.
//
// The same id with the same BodyHash is a duplicate and gets the first answer;
// with another hash it is ErrConflict, the first event untouched. ErrFull and
// ErrUnavailable say that Redis refused or did not answer; after the latter the
// event may be stored all the same, and posting it again tells.
func (e *Engine) Accept(ctx context.Context, ev NewEvent) (Accepted, error) {
	byPart, maxAge := e.split(ev.Targets)
	bodyTTL := maxAge + e.opts.ExpandWithin + ttlMargin
	body := encodeBody(Body{ev.Traceparent, ev.Body})
	args := make([]any, 0, 9+len(byPart))
	args = append(args, ev.ID, ev.BodyHash, ev.Meta, body, len(ev.Targets), encodePlan(byPart),
		(bodyTTL + e.opts.DeliveredRetention).Milliseconds(), bodyTTL.Milliseconds(), len(byPart))
	for p := range byPart {
		args = append(args, p)
	}
	v, err := e.gather(ctx, &ask{
		script: e.scripts.accept, prefix: e.eventPrefix(ev.ID), width: 4, weight: 1 + len(body)>>10, copies: true,
		common: []any{e.opts.ExpandWithin.Milliseconds()}, args: args,
	})
	if err != nil {
		return Accepted{}, err
	}
	r := newReply("accept", v)
	a := Accepted{At: r.time(), Deliveries: int(r.number()), Duplicate: r.number() == 1, Open: r.number() == 1}
	if r.err == nil && a.At.IsZero() {
		return Accepted{}, fmt.Errorf("accept: %w", ErrConflict)
	}
	return a, r.err
}

// split groups targets by partition and finds the longest of their ages.
func (e *Engine) split(targets []Target) (map[int][]Target, time.Duration) {
	byPart := make(map[int][]Target)
	var maxAge time.Duration
	for _, t := range targets {
		p := e.PartitionOf(t.SubscriberID)
		byPart[p] = append(byPart[p], t)
		maxAge = max(maxAge, t.MaxAge)
	}
	return byPart, maxAge
}

// Enqueue makes an event's deliveries to at most ChunkSize targets, all of one
// partition. Those that exist already are left as they are, so it may be run
// again. It returns ErrTooLate, with nothing done, once expandBy has passed.
//
// The delivery to a subscriber that is on hold and holds its fill is made a dead
// letter, held_full.
func (e *Engine) Enqueue(
	ctx context.Context, eventID string, acceptedAt, expandBy time.Time, partition int, targets []Target,
) error {
	if len(targets) == 0 {
		return nil
	}
	if len(targets) > ChunkSize {
		return fmt.Errorf("enqueue: %d targets in one call, at most %d", len(targets), ChunkSize)
	}
	enqueue := func(bury int, body []byte) (full int64, err error) {
		args := make([]any, 0, 6+3*len(targets))
		args = append(args, eventID, millis(acceptedAt), millis(expandBy), bury, body, len(targets))
		for _, t := range targets {
			args = append(args, delivery.NewID(eventID, t.SubscriberID), t.SubscriberID, millis(acceptedAt.Add(t.MaxAge)))
		}
		v, err := e.gather(ctx, &ask{
			script: e.scripts.enqueue, prefix: e.parts[partition], width: 2, weight: len(targets) + len(body)>>10,
			common: []any{e.opts.DeliveredRetention.Milliseconds()}, args: args,
		})
		if err != nil {
			return 0, err
		}
		r := newReply("enqueue", v)
		if made := r.number(); made < 0 {
			return 0, fmt.Errorf("enqueue: event %s: %w", eventID, ErrTooLate)
		}
		return r.number(), r.err
	}
	full, err := enqueue(0, nil)
	if err != nil || full == 0 {
		return err
	}
	// Their payload has to be pinned beside them, and only now is it known that it is
	// needed: one more read for what should be rare. One that is gone is no reason to
	// lose the delivery.
	body, err := e.Body(ctx, eventID)
	var pin []byte
	switch {
	case err == nil:
		pin = encodeBody(body)
	case !errors.Is(err, ErrNotFound):
		return err
	}
	_, err = enqueue(1, pin)
	return err
}

// Strike notes that partitions of a plan are enqueued. The last one closes the
// event; open says whether something is left.
func (e *Engine) Strike(ctx context.Context, eventID string, partitions ...int) (open bool, err error) {
	args := []any{eventID, len(partitions)}
	for _, p := range partitions {
		args = append(args, p)
	}
	v, err := e.gather(ctx, &ask{
		script: e.scripts.strike, prefix: e.eventPrefix(eventID), width: 1, weight: 1, args: args,
	})
	return err == nil && v[0] == int64(1), err
}

// ExpandBy is when an event accepted at the given time may no longer be expanded.
func (e *Engine) ExpandBy(acceptedAt time.Time) time.Time {
	return acceptedAt.Add(e.opts.ExpandWithin)
}

// ClaimOpen takes over plans of one event partition that stood open for longer
// than after, at most limit of them; nobody else gets them for that long. Those
// past their ExpandBy are handed out one last time and set aside. A plan that
// cannot be read is in the error, and does not keep the others back.
func (e *Engine) ClaimOpen(ctx context.Context, eventPartition, limit int, after time.Duration) ([]Plan, error) {
	v, err := e.run1(ctx, e.scripts.claimOpen, e.events[eventPartition], limit, after.Milliseconds())
	if err != nil {
		return nil, err
	}
	var plans []Plan
	var bad []error
	r := newReply("claim_open", v)
	for r.more() {
		plan, err := claimed(r.list())
		if err != nil {
			bad = append(bad, fmt.Errorf("claim_open: event %s: %w", plan.EventID, err))
			continue
		}
		plans = append(plans, plan)
	}
	return plans, errors.Join(append(bad, r.err)...)
}

// claimed reads id, accepted_at, expand_by, subs, partition...
func claimed(r *reply) (Plan, error) {
	plan := Plan{EventID: r.text(), AcceptedAt: r.time(), ExpandBy: r.time()}
	subs := r.text()
	var left []int
	for r.more() {
		left = append(left, int(r.number()))
	}
	if r.err != nil {
		return plan, r.err
	}
	var err error
	plan.Parts, err = decodePlan(subs, left)
	return plan, err
}

// Plan returns what remains to be expanded of one event; no Parts if nothing
// does. ErrNotFound if there is no such event.
func (e *Engine) Plan(ctx context.Context, eventID string) (Plan, error) {
	prefix := e.eventPrefix(eventID)
	var hash *redis.SliceCmd
	var left *redis.StringSliceCmd
	err := e.read(ctx, "plan", func(p redis.Pipeliner) {
		hash = p.HMGet(ctx, prefix+"ev:"+eventID, "at", "eb", "subs")
		left = p.SMembers(ctx, prefix+"left:"+eventID)
	})
	if err != nil {
		return Plan{}, err
	}
	if hash.Val()[0] == nil {
		return Plan{}, fmt.Errorf("plan: event %s: %w", eventID, ErrNotFound)
	}
	r := newReply("plan", hash.Val())
	plan := Plan{EventID: eventID, AcceptedAt: r.time(), ExpandBy: r.time()}
	subs := r.text()
	if r.err != nil {
		return Plan{}, r.err
	}
	var parts []int
	for _, p := range left.Val() {
		n, err := strconv.Atoi(p)
		if err != nil {
			return Plan{}, fmt.Errorf("plan: event %s: %w", eventID, err)
		}
		parts = append(parts, n)
	}
	plan.Parts, err = decodePlan(subs, parts)
	return plan, err
}

// Event returns a stored event, or ErrNotFound.
func (e *Engine) Event(ctx context.Context, id string) (Event, error) {
	prefix := e.eventPrefix(id)
	var hash *redis.SliceCmd
	var left *redis.IntCmd
	err := e.read(ctx, "event", func(p redis.Pipeliner) {
		hash = p.HMGet(ctx, prefix+"ev:"+id, "at", "n", "m", "subs")
		left = p.Exists(ctx, prefix+"left:"+id)
	})
	if err != nil {
		return Event{}, err
	}
	if hash.Val()[0] == nil {
		return Event{}, fmt.Errorf("event %s: %w", id, ErrNotFound)
	}
	r := newReply("event", hash.Val())
	ev := Event{ID: id, AcceptedAt: r.time(), Deliveries: int(r.number()), Meta: []byte(r.text()), Open: left.Val() == 1}
	subs := r.text()
	if r.err != nil {
		return Event{}, r.err
	}
	parts, err := decodePlan(subs, nil)
	if err != nil {
		return Event{}, fmt.Errorf("event %s: %w", id, err)
	}
	for _, targets := range parts {
		for _, t := range targets {
			ev.SubscriberIDs = append(ev.SubscriberIDs, t.SubscriberID)
		}
	}
	slices.Sort(ev.SubscriberIDs)
	return ev, nil
}

// Body returns an event's payload, or ErrNotFound once its lifetime, which
// outlives every delivery of the event, has passed.
func (e *Engine) Body(ctx context.Context, eventID string) (Body, error) {
	var cmd *redis.StringCmd
	err := e.read(ctx, "body", func(p redis.Pipeliner) {
		cmd = p.Get(ctx, e.eventPrefix(eventID)+"body:"+eventID)
	})
	if err != nil {
		return Body{}, err
	}
	b, err := cmd.Bytes()
	if err != nil {
		return Body{}, fmt.Errorf("body of event %s: %w", eventID, ErrNotFound)
	}
	return decodeBody(b)
}

// A body is stored as one value, its traceparent on the first line, so that an
// attempt needs one read.
func encodeBody(b Body) []byte {
	out := make([]byte, 0, len(b.Traceparent)+1+len(b.Bytes))
	out = append(out, b.Traceparent...)
	out = append(out, '\n')
	return append(out, b.Bytes...)
}

func decodeBody(v []byte) (Body, error) {
	head, rest, ok := bytes.Cut(v, []byte{'\n'})
	if !ok {
		return Body{}, fmt.Errorf("body: no first line: %w", errRecord)
	}
	return Body{Traceparent: string(head), Bytes: rest}, nil
}

// A plan is stored as text: "0:sub_a 86400000,sub_b 3600000;3:sub_c 86400000".
func encodePlan(byPart map[int][]Target) string {
	var b strings.Builder
	for p, targets := range byPart {
		if b.Len() > 0 {
			b.WriteByte(';')
		}
		b.WriteString(strconv.Itoa(p))
		sep := byte(':')
		for _, t := range targets {
			b.WriteByte(sep)
			b.WriteString(t.SubscriberID)
			b.WriteByte(' ')
			b.WriteString(strconv.FormatInt(t.MaxAge.Milliseconds(), 10))
			sep = ','
		}
	}
	return b.String()
}

// decodePlan reads a plan, as far as its partitions are in only (nil: all).
func decodePlan(text string, only []int) (map[int][]Target, error) {
	out := make(map[int][]Target)
	if text == "" {
		return out, nil
	}
	for part := range strings.SplitSeq(text, ";") {
		num, list, _ := strings.Cut(part, ":")
		p, err := strconv.Atoi(num)
		if err != nil {
			return nil, fmt.Errorf("plan %q: %w", part, err)
		}
		if only != nil && !slices.Contains(only, p) {
			continue
		}
		for item := range strings.SplitSeq(list, ",") {
			id, age, _ := strings.Cut(item, " ")
			ms, err := strconv.ParseInt(age, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("plan %q: %w", item, err)
			}
			out[p] = append(out[p], Target{SubscriberID: id, MaxAge: time.Duration(ms) * time.Millisecond})
		}
	}
	return out, nil
}
