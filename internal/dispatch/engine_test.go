package dispatch

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/webhook"
	"github.com/fanout/fanout/test/redistest"
)

// The model of the other tests is only as good as what it models. Here is one
// delivery on the engine itself: cut off by a stop, sent again by the next
// worker, refused, and delivered.
func TestOverTheEngine(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		e, err := schedule.Open(ctx, rdb, schedule.Options{})
		must(t, err)
		_, err = e.PutConfig(ctx, "s1", 0, []byte("{}"), schedule.Terms{Class: "standard", MaxInFlight: 4, LeaseTime: 25 * time.Second}, schedule.Edited)
		must(t, err)

		first := &scripted{t: t, calls: make(chan webhook.Request, 10), answers: []delivery.Outcome{"hang"}}
		stop := startOver(t, e, first, "w1")
		id := postTo(ctx, t, e, "e1", "s1")
		first.sent(ctx)
		if err := stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
		d, err := e.Delivery(ctx, id)
		must(t, err)
		if d.State != delivery.Scheduled || d.Attempts != 0 || d.LeaseLosses != 1 {
			t.Errorf("cut off: %s, %d attempts, %d lease losses", d.State, d.Attempts, d.LeaseLosses)
		}

		second := &scripted{t: t, calls: make(chan webhook.Request, 10), answers: []delivery.Outcome{delivery.HTTP5xx, delivery.OK}}
		stop = startOver(t, e, second, "w2")
		second.sent(ctx)
		second.sent(ctx)
		if err := stop(); err != nil { // settles before it returns
			t.Errorf("stop: %v", err)
		}
		d, err = e.Delivery(ctx, id)
		must(t, err)
		if d.State != delivery.Delivered || d.Attempts != 2 || d.DeliveryCount != 3 || len(d.History) != 3 {
			t.Errorf("%s after %d attempts, delivery_count %d, %d kept", d.State, d.Attempts, d.DeliveryCount, len(d.History))
		}
		sample, err := e.Sample(ctx, nil)
		must(t, err)
		if !sample.Ledger.Balanced() || sample.Ledger.Delivered != 1 || sample.Leases != 0 {
			t.Errorf("ledger %+v, %d leases", sample.Ledger, sample.Leases)
		}
	})
}

// scripted answers each request with the next outcome; "hang" until it is cut off.
type scripted struct {
	t       *testing.T
	calls   chan webhook.Request
	answers []delivery.Outcome
}

func (s *scripted) Send(ctx context.Context, r webhook.Request) webhook.Answer {
	next := s.answers[0]
	s.answers = s.answers[1:]
	if next == "hang" {
		s.calls <- r
		<-ctx.Done()
		return webhook.Answer{Outcome: delivery.LeaseLost, Err: "cut off"}
	}
	defer func() { s.calls <- r }()
	return webhook.Answer{Outcome: next, Err: "scripted"}
}

// sent waits for a request.
func (s *scripted) sent(ctx context.Context) {
	s.t.Helper()
	select {
	case <-s.calls:
	case <-ctx.Done():
		s.t.Fatal("no request came")
	}
}

func (s *scripted) At(_ context.Context, id string, _ int64) (*subscriber.Subscriber, error) {
	known := sub(id)
	known.Policy.BackoffBase = delivery.Duration(10 * time.Millisecond)
	known.Policy.BackoffCap = known.Policy.BackoffBase
	return known, nil
}

// startOver runs a dispatcher over the engine and returns what stops it.
func startOver(t *testing.T, e *schedule.Engine, s *scripted, worker string) func() error {
	t.Helper()
	d := New(e, s, s, Options{Worker: worker, Grace: 50 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	return func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(20 * time.Second):
			return errors.New("it does not stop")
		}
	}
}

// postTo accepts and expands an event for one subscriber.
func postTo(ctx context.Context, t *testing.T, e *schedule.Engine, event, sub string) string {
	t.Helper()
	targets := []schedule.Target{{SubscriberID: sub, MaxAge: time.Hour}}
	a, err := e.Accept(ctx, schedule.NewEvent{ID: event, BodyHash: "h", Body: []byte("{}"), Targets: targets})
	must(t, err)
	must(t, e.Enqueue(ctx, event, a.At, a.At.Add(time.Hour), e.PartitionOf(sub), targets))
	return delivery.NewID(event, sub)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
