//go:build unix

package dispatch

import (
	"context"
	"log/slog"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/webhook"
)

// batch is how many attempts there are at once.
const batch = 128

// stub stands for everything around a dispatcher, and costs next to nothing.
type stub struct {
	Scheduler // what is not below is never called
	sub       *subscriber.Subscriber
	settled   atomic.Int64
	home      chan struct{} // a batch is
}

func (*stub) Partitions() int        { return 1 }
func (*stub) PartitionOf(string) int { return 0 }
func (s *stub) Settle(_ context.Context, _ int, verdicts []schedule.Verdict) (schedule.Settled, error) {
	done := schedule.Settled{Results: make([]schedule.SettleResult, len(verdicts))}
	for i := range verdicts {
		done.Results[i] = schedule.Applied
	}
	if s.settled.Add(int64(len(verdicts)))%batch == 0 {
		s.home <- struct{}{}
	}
	return done, nil
}

func (*stub) Pinned(context.Context, string, string) (schedule.Body, error) {
	return schedule.Body{}, schedule.ErrNotFound
}

func (*stub) Report(context.Context, schedule.WorkerReport) error { return nil }

func (*stub) Body(context.Context, string) (schedule.Body, error) {
	return schedule.Body{Bytes: []byte(`{}`), Traceparent: ingestTraceparent}, nil
}

func (s *stub) At(context.Context, string, int64) (*subscriber.Subscriber, error) { return s.sub, nil }

func (*stub) Send(ctx context.Context, r webhook.Request) webhook.Answer {
	_, cancel := context.WithTimeout(ctx, r.Timeout) // what any sender must do
	defer cancel()
	return webhook.Answer{Outcome: delivery.OK, Status: 200, Duration: time.Millisecond}
}

// BenchmarkAttempt is what an attempt costs beside its request and Redis: from the
// lease to the freed slot, 128 at a time. Verdicts wait for their rhythm, so the time
// that passes says little; cpu-ns/op is what the process spent.
func BenchmarkAttempt(b *testing.B) {
	s := &stub{sub: sub("s1"), home: make(chan struct{}, 1)}
	d := New(s, s, s, Options{Slots: batch, Logger: slog.New(slog.DiscardHandler), Classes: []string{"standard"}})
	ends := life{lease: b.Context(), send: b.Context(), settle: b.Context()}
	now := time.Now()
	reply := schedule.LeaseReply{Now: now}
	for range batch {
		l := schedule.Leased{Delivery: delivery.New("e1", "s1", now, time.Hour), Version: 1, Until: now.Add(time.Hour)}
		l.State, l.Attempts, l.DeliveryCount = delivery.Leased, 1, 1
		reply.Leased = append(reply.Leased, l)
	}
	b.ReportAllocs()
	before := cpu(b)
	n := 0
	for b.Loop() {
		n++
		if n%batch != 0 { // one attempt is one operation
			continue
		}
		got, _, _ := d.loop.answered([]schedule.LeaseRequest{{}}, []schedule.LeaseReply{reply}, false, now, now)
		if len(got) != batch {
			b.Fatalf("%d slots were free", len(got))
		}
		d.begin(ends, got)
		<-s.home
		d.settler.flushes.Wait()
	}
	d.crew.end()
	b.ReportMetric(float64(cpu(b)-before)/float64(n), "cpu-ns/op")
	if got := s.settled.Load(); got != int64(n/batch*batch) {
		b.Errorf("%d settled of %d", got, n)
	}
}

// cpu is the time that this process has spent, in user and system.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
