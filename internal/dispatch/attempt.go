package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fanout/fanout/internal/crash"
	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/webhook"
)

// trial is one attempt, from its lease to what came of it.
type trial struct {
	*lease
	sub    *subscriber.Subscriber // nil if it could not be read
	class  string
	policy delivery.Policy
	// body is nil when the payload is missing.
	body      *schedule.Body
	startedAt time.Time // Redis time
	answer    webhook.Answer
	span      trace.Span // nil while tracing is off
	traceID   string
	// unsent says why the request never left and the lease is handed back; "" for
	// an attempt that has an outcome.
	unsent releaseReason
}

// attempt takes one lease to its end: a verdict on the way to Redis, or a
// release.
func (d *Dispatcher) attempt(ends life, l *lease) {
	t := d.execute(ends, l)
	d.loop.landed(l)
	if t.unsent != "" {
		t.unsaid()
		claim := l.claim()
		if least := waitAfter[t.unsent]; least > 0 {
			claim.Wait = least + rand.N(least) //nolint:gosec // jitter needs no secrecy
		}
		d.settler.giveBack(ends.settle, l.partition, []schedule.Claim{claim}, t.unsent)
		d.loop.free(l)
		return
	}
	decision := d.judge.decide(t.policy, t.Delivery, t.result(), t.clock.latest())
	t.conclude(decision)
	crash.Point("dispatcher.decide.after")
	d.observe(ends.settle, t, decision)
	d.settler.add(ends.settle, l, d.judge.verdict(t, decision))
}

// execute does what may fail in an attempt and never panics: a defect, be it in
// the subscriber's config or the sender's code, ends as an outcome of this one
// delivery, within its budget, and not as the end of the process and all leases.
func (d *Dispatcher) execute(ends life, l *lease) (t *trial) {
	t = &trial{lease: l, policy: delivery.DefaultPolicy(), startedAt: l.clock.now()}
	d.startSpan(ends.send, t)
	defer func() {
		if p := recover(); p != nil {
			d.metrics.faults.WithLabelValues(faultPanic).Inc()
			d.log.Error("attempt panicked", append(t.who(), "panic", p, "stack", string(debug.Stack()))...)
			t.unsent = ""
			t.answer = webhook.Answer{Outcome: delivery.Unknown, Err: "the dispatcher panicked in this attempt"}
		}
	}()
	sub := d.prepare(ends.lease, t)
	if t.unsent != "" || t.answer.Outcome != "" {
		return t
	}
	// Nothing has left yet, so these still cost nothing.
	timeout := time.Duration(t.policy.AttemptTimeout)
	switch {
	case ends.lease.Err() != nil:
		t.unsent = releaseStopping
	case t.clock.latest().Add(timeout).After(t.Until):
		// The lease could end, and another worker send, while this request is out.
		t.unsent = releaseLate
	default:
		d.send(ends.send, t, sub, timeout)
	}
	return t
}

// prepare reads what the request is made of, through an outage of Redis if it is
// short. It sets t.unsent if that fails, and an outcome if the payload is gone.
func (d *Dispatcher) prepare(stop context.Context, t *trial) *subscriber.Subscriber { //nolint:contextcheck // as below
	defer t.arrival.prepared()
	ctx := t.arrival.ctx
	var sub *subscriber.Subscriber
	err := persist(ctx, func() (err error) { //nolint:contextcheck // ctx descends from stop
		known, err := d.dir.At(ctx, t.SubscriberID, t.Version)
		if err != nil {
			return fmt.Errorf("read the subscriber's config: %w", err)
		}
		sub = known
		crash.Point("dispatcher.config.read")
		t.sub, t.class, t.policy = sub, sub.Class, sub.Policy
		body, err := d.bodies.of(ctx, t.Delivery)
		if err != nil {
			return err
		}
		crash.Point("dispatcher.body.read")
		t.body = body
		return nil
	}, subscriber.ErrGone, subscriber.ErrUnreadable, schedule.ErrNotFound, errAway)

	switch {
	case err == nil:
	case errors.Is(err, subscriber.ErrGone):
		// Cancelling is the scheduler's business: to it this release is the end of
		// the lease, and nothing is leased again under a tombstone.
		t.unsent = releaseGone
	case errors.Is(err, schedule.ErrNotFound):
		t.answer = webhook.Answer{Outcome: delivery.PayloadMissing, Err: "the event's stored payload is gone"}
	case stop.Err() != nil:
		t.unsent = releaseStopping
	default:
		// Our failure says nothing of the endpoint, so it must cost the delivery
		// nothing. It ends all the same: by its age.
		if sub != nil && !errors.Is(err, errAway) {
			d.bodies.wanting(t.EventID)
		}
		d.log.Warn("lease handed back: cannot prepare the request", append(t.who(), "error", err)...)
		t.unsent = releaseUnreadable
	}
	return sub
}

// send puts the request on the wire and takes down the answer.
func (d *Dispatcher) send(ctx context.Context, t *trial, sub *subscriber.Subscriber, timeout time.Duration) {
	ctx, span := d.startRequest(ctx, t)
	defer func() { endRequest(span, t.answer) }()
	t.startedAt = t.clock.now()
	t.traceID = traceID(span)
	begun := time.Now()
	crash.Point("dispatcher.send.before")
	t.answer = d.sender.Send(ctx, webhook.Request{
		URL: sub.URL, Secrets: sub.Secrets, Headers: sub.Headers,
		DeliveryID: t.ID, Attempt: t.Attempts, DeliveryCount: t.DeliveryCount, Generation: t.RedriveGeneration,
		Timestamp: t.startedAt, Body: t.body.Bytes, Traceparent: traceparent(ctx, t.body.Traceparent),
		Timeout: timeout, RetryAfterCap: time.Duration(t.policy.RetryAfterCap),
	})
	crash.Point("dispatcher.send.after")
	if t.answer.Status == 0 && t.answer.Outcome.Blame() == delivery.Endpoint && d.loop.pulse.stoodStillSince(begun) {
		t.answer.Outcome = delivery.LeaseLost
		t.answer.Err = "the dispatcher stood still meanwhile, and the endpoint may have answered: " + t.answer.Err
	}
	t.clocked(d.metrics.class(t.class).duration)
}

func (t *trial) result() delivery.Result {
	return delivery.Result{Outcome: t.answer.Outcome, Status: t.answer.Status, RetryAfter: t.answer.RetryAfter}
}

// who names the attempt in a log line.
func (t *trial) who() []any {
	return []any{
		"delivery_id", t.ID, "subscriber_id", t.SubscriberID, "event_id", t.EventID,
		"attempt", t.Attempts, "fence", t.Fence(),
	}
}

// observe counts an attempt and writes its one log line. The debug level has all
// attempts; info those that somebody may ask about, failures and what came after
// one; warn those that end a delivery undelivered.
func (d *Dispatcher) observe(ctx context.Context, t *trial, decision delivery.Decision) {
	class := d.metrics.class(t.class)
	class.attempt(t.answer.Outcome, t.Attempts)
	if d.metrics.failing.wants(t.answer.Outcome) {
		d.metrics.failing.note(t.lease, t.class, t.answer.Outcome, time.Now(), t.clock.now())
	}
	level := slog.LevelInfo
	switch decision.Next {
	case delivery.Delivered:
		class.age.Observe(t.clock.now().Sub(t.AcceptedAt).Seconds())
		if !t.again() {
			level = slog.LevelDebug
		}
	case delivery.Dead:
		level = slog.LevelWarn
	default:
	}
	if !d.log.Enabled(ctx, level) { // as for nearly all: a line is 20 allocations before it is dropped
		return
	}
	line := append(t.who(),
		"outcome", t.answer.Outcome, "status", t.answer.Status, "next", decision.Next,
		"duration_ms", t.answer.Duration.Milliseconds(), "lane", t.Lane, "trace_id", t.traceID)
	switch decision.Next {
	case delivery.Delivered:
	case delivery.Dead:
		line = append(line, "reason", decision.Reason)
	default:
		line = append(line, "due_at", decision.DueAt)
	}
	if t.answer.Err != "" {
		line = append(line, "error", t.answer.Err)
	}
	d.log.Log(ctx, level, "attempt", line...)
}

// again says whether an earlier attempt of this delivery failed.
func (t *trial) again() bool { return t.Attempts > 1 || t.LeaseLosses > 0 }
