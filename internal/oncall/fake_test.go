package oncall

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The engine is what cmd hands in.
var _ Source = (*schedule.Engine)(nil)

var errDown = errors.New("connection refused")

// fakeSource is a Source that a test sets, and that counts its round trips.
type fakeSource struct {
	mu      sync.Mutex
	sample  schedule.Sample
	dead    []schedule.DeadLetter
	err     error // of Sample
	deadErr error
	onHold  []schedule.Standing
	holdErr error
	holds   int // calls of OnHold
	workers []schedule.WorkerReport
	samples int
	lists   int
}

func (f *fakeSource) Sample(context.Context, []string) (schedule.Sample, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.samples++
	return f.sample, f.err
}

func (f *fakeSource) DeadLetters(_ context.Context, limit int) ([]schedule.DeadLetter, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	return f.dead[:min(limit, len(f.dead))], f.deadErr
}

func (f *fakeSource) OnHold(_ context.Context, limit int) ([]schedule.Standing, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holds++
	return f.onHold[:min(limit, len(f.onHold))], f.holdErr
}

func (f *fakeSource) Workers(context.Context) ([]schedule.WorkerReport, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.workers, f.err
}

func (f *fakeSource) set(change func(*fakeSource)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fakeSource) counts() (samples, lists int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.samples, f.lists
}

// redisNow is far from the local clock, so that a test which mixes the two fails.
var redisNow = time.Date(2031, 5, 4, 14, 3, 2, 0, time.UTC)

func ago(d time.Duration) time.Time { return redisNow.Add(-d) }

var twoClasses = map[string]time.Duration{"standard": 30 * time.Second, "express": 5 * time.Second}

// calm is a busy and healthy service.
func calm() schedule.Sample {
	return schedule.Sample{
		Now: redisNow,
		Ages: []schedule.Ages{
			{Class: "standard", Lane: delivery.Fresh, Eligible: ago(400 * time.Millisecond)},
			{Class: "standard", Lane: delivery.Retry, Limited: ago(3 * time.Second), Held: ago(2 * time.Hour)},
			{Class: "express", Lane: delivery.Fresh, Eligible: ago(12 * time.Millisecond)},
		},
		Ledger: schedule.Ledger{Accepted: 18_204, Pending: 231, Delivered: 17_966, Dead: 4, Cancelled: 3},
		Leases: 64, Ready: 12, Scheduled: 9, Dead: 4, OpenEvents: 1, LateEvents: 2,
	}
}

// late is calm with one class past its SLO.
func late() schedule.Sample {
	s := calm()
	s.Ages = append(s.Ages, schedule.Ages{Class: "standard", Lane: delivery.Retry, Eligible: ago(48 * time.Second)})
	return s
}

func deadLetter(reason delivery.Outcome, excerpt string) schedule.DeadLetter {
	d := delivery.New("evt_01JDN9Q4R6S8V0W2X4Y6Z8A0BC", "sub_01JDN8ZKQ2M4T7V9X1B3C5D7EF", ago(time.Hour), 24*time.Hour)
	d.State, d.Attempts, d.LastOutcome, d.LastStatus, d.EndedAt = delivery.Dead, 15, delivery.HTTP5xx, 503, ago(time.Minute)
	return schedule.DeadLetter{
		Delivery: d, Reason: reason,
		History: []delivery.Attempt{{Number: 15, Outcome: delivery.HTTP5xx, Status: 503, Error: "answered 503", Excerpt: excerpt}},
	}
}

// newOnCall is one over source whose Run the test starts itself.
func newOnCall(t *testing.T, source Source, opts Options) *OnCall {
	t.Helper()
	if opts.Classes == nil {
		opts.Classes = twoClasses
	}
	o, err := New(source, opts)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// run starts Run and returns what stops it and waits for its end.
func run(t *testing.T, o *OnCall) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- o.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// sampled is an OnCall with one sample taken and no loop.
func sampled(t *testing.T, s schedule.Sample, dead ...schedule.DeadLetter) *OnCall {
	t.Helper()
	o := newOnCall(t, &fakeSource{sample: s, dead: dead}, Options{})
	o.sample(t.Context())
	return o
}
