package schedule

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// Lease asks partitions for work, all in one round trip, and returns a reply for
// each request, in order. If any of them failed, the error is non-nil and that
// reply is zero; asking again with the same Seq gets the leases of a lost reply.
func (e *Engine) Lease(ctx context.Context, reqs []LeaseRequest) ([]LeaseReply, error) {
	calls := make([]call, len(reqs))
	for i, q := range reqs {
		if q.Worker == "" || strings.ContainsAny(q.Worker, " \t\n=") {
			return nil, fmt.Errorf("lease: worker %q must be one word without '='", q.Worker)
		}
		args := []any{
			q.Worker, q.Seq, q.Rooms.Total, q.Rooms.Fresh, q.Rooms.Retry, q.Rooms.Redrive, q.Rooms.Slow,
			max(q.Free, q.Rooms.Total), e.opts.Quantum,
		}
		for _, h := range q.Holds {
			args = append(args, h.SubscriberID, h.Slots)
		}
		calls[i] = call{e.scripts.lease, e.parts[q.Partition], args}
	}
	out := make([]LeaseReply, len(reqs))
	cmds, failed := e.run(ctx, calls)
	for i, cmd := range cmds {
		v, err := cmd.Result()
		if err == nil {
			out[i], err = leaseReply(v)
		} else {
			err = classify("lease", err)
		}
		if err != nil && failed == nil {
			failed = fmt.Errorf("partition %d: %w", reqs[i].Partition, err)
		}
	}
	return out, failed
}

func leaseReply(v any) (LeaseReply, error) {
	r := newReply("lease", v)
	rep := LeaseReply{Now: r.time(), Ready: int(r.number()), Slow: int(r.number()), NextDue: r.time()}
	for r.more() {
		l, err := leased(r)
		if err != nil {
			return LeaseReply{}, err
		}
		rep.Leased = append(rep.Leased, l)
	}
	return rep, r.err
}

// leased reads id, record, version, until, slow.
func leased(r *reply) (Leased, error) {
	id := r.text()
	rec, err := decode(id, r.text())
	l := Leased{Delivery: rec.Delivery, Version: r.number(), Until: r.time(), Slow: r.number() == 1}
	if err == nil {
		err = r.err
	}
	return l, err
}

// Settle applies verdicts in one partition, and says what each did. On an error
// some may have been applied: settle the same batch again, with any verdicts
// added, and those report Already.
func (e *Engine) Settle(ctx context.Context, partition int, verdicts []Verdict) (Settled, error) {
	args := make([]any, 0, 2+12*len(verdicts))
	args = append(args, e.opts.DeliveredRetention.Milliseconds(), rand.IntN(1_000_000)) //nolint:gosec // jitter needs no secrecy
	for _, v := range verdicts {
		next, ok := letterOf[v.Next]
		if !ok {
			return Settled{}, fmt.Errorf("settle: %s: %q is no verdict", v.ID, v.Next)
		}
		args = append(args, v.ID, v.Fence, next, millis(v.DueAt), v.flags(), orDash(v.Outcome), v.Status,
			orDash(v.Reason), v.Attempt, bodyArg(v.Body), v.Took.Milliseconds(), v.RetryAfter.Milliseconds())
	}
	reply, err := e.run1(ctx, e.scripts.settle, e.parts[partition], args...)
	if err != nil {
		return Settled{}, err
	}
	r := newReply("settle", reply)
	r.time() // now
	s := Settled{NextDue: r.time()}
	s.Results, err = results("settle", r, len(verdicts))
	return s, err
}

// flags are the letters that settle.lua reads.
func (v Verdict) flags() string {
	flags := letterOfBlame[v.Outcome.Blame()]
	if v.GiveBack {
		flags += "g"
	}
	if v.Reclaim {
		flags += "r"
	}
	if v.Disable {
		flags += "x"
	}
	return flags
}

// Slow notes that attempts of subscribers of one partition have been out for this
// long already.
func (e *Engine) Slow(ctx context.Context, partition int, out map[string]time.Duration) error {
	args := make([]any, 0, 2*len(out))
	for id, d := range out {
		args = append(args, id, d.Milliseconds())
	}
	_, err := e.run1(ctx, e.scripts.slow, e.parts[partition], args...)
	return err
}

// Expire buries waiting deliveries of one partition whose expires_at has passed,
// with the payload of each pinned if given. Only ID and Body of a verdict count.
func (e *Engine) Expire(ctx context.Context, partition int, verdicts []Verdict) ([]SettleResult, error) {
	args := make([]any, 0, 2*len(verdicts))
	for _, v := range verdicts {
		args = append(args, v.ID, bodyArg(v.Body))
	}
	reply, err := e.run1(ctx, e.scripts.expire, e.parts[partition], args...)
	if err != nil {
		return nil, err
	}
	return results("expire", newReply("expire", reply), len(verdicts))
}

func results(op string, r *reply, want int) ([]SettleResult, error) {
	out := make([]SettleResult, 0, want)
	for r.more() {
		out = append(out, SettleResult(r.text()))
	}
	if r.err == nil && len(out) != want {
		r.err = fmt.Errorf("%s: %d results for %d verdicts", op, len(out), want)
	}
	return out, r.err
}

// Release hands back leases of one partition whose requests never left. A lease
// that is not held at its fence any more is left alone.
func (e *Engine) Release(ctx context.Context, partition int, claims []Claim) error {
	args := make([]any, 0, 3*len(claims))
	for _, c := range claims {
		args = append(args, c.ID, c.Fence, c.Wait.Milliseconds())
	}
	_, err := e.run1(ctx, e.scripts.release, e.parts[partition], args...)
	return err
}

// ExpiredLeases lists, over all partitions and in one round trip, up to limit
// leases a partition whose time is over, and Redis' clock. One whose state is not
// Leased was cancelled or delivered meanwhile: Release ends its lease.
func (e *Engine) ExpiredLeases(ctx context.Context, limit int) ([]Leased, time.Time, error) {
	var out []Leased
	now, err := e.each(ctx, e.scripts.expiredLeases, limit, func(r *reply) error {
		l, err := leased(r)
		if err == nil {
			out = append(out, l)
		}
		return err
	})
	return out, now, err
}

// ExpiredDeliveries lists, likewise, deliveries that wait past their expires_at.
func (e *Engine) ExpiredDeliveries(ctx context.Context, limit int) ([]delivery.Delivery, time.Time, error) {
	var out []delivery.Delivery
	now, err := e.each(ctx, e.scripts.expiredDeliveries, limit, func(r *reply) error {
		id := r.text()
		rec, err := decode(id, r.text())
		if err == nil {
			out = append(out, rec.Delivery)
		}
		return err
	})
	return out, now, err
}

// each runs a listing script on every partition in one round trip and reads what
// follows the clock in each answer. A partition that fails is in the error, and
// does not keep the others' answers back.
func (e *Engine) each(ctx context.Context, s script, limit int, read func(*reply) error) (time.Time, error) {
	calls := make([]call, len(e.parts))
	for p, prefix := range e.parts {
		calls[p] = call{s, prefix, []any{limit}}
	}
	var now time.Time
	cmds, err := e.run(ctx, calls)
	if err != nil {
		return now, err
	}
	var failed []error
	for _, cmd := range cmds {
		v, err := cmd.Result()
		if err != nil {
			failed = append(failed, classify(s.name, err))
			continue
		}
		r := newReply(s.name, v)
		now = r.time()
		for r.more() {
			if err := read(r); err != nil {
				failed = append(failed, err)
			}
		}
		failed = append(failed, r.err)
	}
	return now, errors.Join(failed...)
}

// Trim forgets up to limit dead letters a partition that are past their
// retention, and says how many.
func (e *Engine) Trim(ctx context.Context, limit int) (int, error) {
	calls := make([]call, len(e.parts))
	for p, prefix := range e.parts {
		calls[p] = call{e.scripts.trim, prefix, []any{e.opts.DeadRetention.Milliseconds(), limit}}
	}
	cmds, err := e.run(ctx, calls)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, cmd := range cmds {
		trimmed, err := cmd.Int()
		if err != nil {
			return n, classify("trim", err)
		}
		n += trimmed
	}
	return n, nil
}

// orDash keeps a record's words apart: an empty one would be none.
func orDash(o delivery.Outcome) string {
	if o == "" {
		return "-"
	}
	return string(o)
}

func bodyArg(b *Body) []byte {
	if b == nil {
		return nil
	}
	return encodeBody(*b)
}
