package dispatch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ingestTraceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	never             = 1000 * time.Hour // for a safety poll that must not be what helps
)

// rig is a dispatcher between a fake scheduler and a fake sender.
type rig struct {
	*fake
	t    *testing.T
	d    *Dispatcher
	reg  *prometheus.Registry
	logs *bytes.Buffer
	stop func() error // ends Run and returns what it did

	mu     sync.Mutex
	sent   []sent
	out    map[delivery.Lane]int // requests on the wire now
	peak   map[delivery.Lane]int
	answer func(ctx context.Context, r webhook.Request) webhook.Answer
	subs   map[string]*subscriber.Subscriber // nil: deleted
	dirErr error
}

type sent struct {
	webhook.Request
	at time.Time // of the fake Redis
}

// run starts a dispatcher in a bubble, hands it to the test, and stops it.
func run(t *testing.T, opts Options, test func(r *rig)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, opts)
		test(r)
		if err := r.stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
		if left := r.openLeases(); len(left) > 0 && !r.down {
			t.Errorf("leases left open after the stop: %v", left)
		}
		for _, lane := range delivery.Lanes {
			if n := r.metric("fanout_slots", string(lane)); n != 0 {
				t.Errorf("%v slots of lane %s were never freed", n, lane)
			}
		}
		for id, rec := range r.recs {
			n := len(r.requestsOf(id))
			if allowed := int(rec.DeliveryCount) - rec.Releases; n > allowed {
				t.Errorf("%s: %d requests on the wire, delivery_count - releases is %d", id, n, allowed)
			}
		}
	})
}

func newRig(t *testing.T, opts Options) *rig {
	t.Helper()
	r := &rig{
		fake: newFake(4), t: t, reg: prometheus.NewRegistry(), logs: &bytes.Buffer{},
		out: map[delivery.Lane]int{}, peak: map[delivery.Lane]int{}, subs: map[string]*subscriber.Subscriber{},
		answer: answer(delivery.OK, 200),
	}
	opts.Worker, opts.Version, opts.Classes = "w1", "v1", []string{"standard"}
	opts.Registerer = r.reg
	opts.Logger = slog.New(slog.NewTextHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r.d = New(r.fake, r, r, opts)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.d.Run(ctx) }()
	var once sync.Once
	var err error
	r.stop = func() error {
		once.Do(func() { cancel(); err = <-done })
		return err
	}
	synctest.Wait()
	return r
}

// answer is an endpoint that always answers the same, at once.
func answer(o delivery.Outcome, status int) func(context.Context, webhook.Request) webhook.Answer {
	return func(context.Context, webhook.Request) webhook.Answer {
		a := webhook.Answer{Outcome: o, Status: status}
		if o != delivery.OK {
			a.Err, a.Excerpt = "it did not work", "sorry"
		}
		return a
	}
}

// hang is an endpoint that answers 200 after a while, if it is let.
func hang(d time.Duration) func(context.Context, webhook.Request) webhook.Answer {
	return func(ctx context.Context, r webhook.Request) webhook.Answer {
		limit := min(d, r.Timeout)
		switch {
		case !sleep(ctx, limit):
			return webhook.Answer{Outcome: delivery.LeaseLost, Err: context.Cause(ctx).Error()}
		case d > r.Timeout:
			return webhook.Answer{Outcome: delivery.Timeout, Duration: r.Timeout, Err: "timeout"}
		}
		return webhook.Answer{Outcome: delivery.OK, Status: 200, Duration: d}
	}
}

func (r *rig) At(_ context.Context, id string, _ int64) (*subscriber.Subscriber, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if errors.Is(r.dirErr, subscriber.ErrUnreadable) { // all but what is sealed
		return &subscriber.Subscriber{ID: id, Class: "standard", Policy: sub(id).Policy}, r.dirErr
	}
	if r.dirErr != nil {
		return nil, r.dirErr
	}
	s, known := r.subs[id]
	if !known {
		s = sub(id)
		r.subs[id] = s
	}
	if s == nil {
		return nil, fmt.Errorf("subscriber %s: %w", id, subscriber.ErrGone)
	}
	return s, nil
}

func sub(id string) *subscriber.Subscriber {
	return &subscriber.Subscriber{
		ID: id, Class: "standard", URL: "https://example.com/hook?token=hush", Policy: delivery.DefaultPolicy(), Version: 1,
	}
}

func (r *rig) Send(ctx context.Context, req webhook.Request) webhook.Answer {
	lane := r.get(req.DeliveryID).Lane
	r.mu.Lock()
	r.sent = append(r.sent, sent{req, r.now()})
	r.out[lane]++
	r.peak[lane] = max(r.peak[lane], r.out[lane])
	respond := r.answer
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.out[lane]--
		r.mu.Unlock()
	}()
	return respond(ctx, req)
}

// endpoint changes how endpoints answer from now on.
func (r *rig) endpoint(f func(context.Context, webhook.Request) webhook.Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

// requests to one delivery, or to all for "".
func (r *rig) requestsOf(id string) []sent {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []sent
	for _, s := range r.sent {
		if id == "" || s.DeliveryID == id {
			out = append(out, s)
		}
	}
	return out
}

// onWire is how many requests of a lane are out.
func (r *rig) onWire(l delivery.Lane) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out[l]
}

// peakOf is how many there were at most.
func (r *rig) peakOf(l delivery.Lane) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.peak[l]
}

// state fails the test unless a delivery is in that state, after everything that
// can happen at this instant has.
func (r *rig) state(id string, want delivery.State) record {
	r.t.Helper()
	synctest.Wait()
	rec := r.get(id)
	if rec.State != want {
		r.t.Fatalf("%s is %s, want %s\n%s", id, rec.State, want, r.logs)
	}
	return rec
}

// after lets virtual time pass.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// metric is the sum of a family over the series that have these label values.
func (r *rig) metric(name string, labels ...string) float64 {
	r.t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	sum, found := 0.0, false
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			values := map[string]bool{}
			for _, l := range m.GetLabel() {
				values[l.GetValue()] = true
			}
			match := true
			for _, want := range labels {
				match = match && values[want]
			}
			if match {
				found = true
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	if !found {
		r.t.Fatalf("no series %s %v", name, labels)
	}
	return sum
}
