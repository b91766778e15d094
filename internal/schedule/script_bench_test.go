package schedule_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/test/redistest"
)

// BenchmarkScripts has deliveries go their whole road over a real Redis and reports
// what each step costs Redis, in microseconds of its one core per delivery: all of the
// process' CPU time, its network included. batch is how many deliveries a call carries.
func BenchmarkScripts(b *testing.B) {
	for _, batch := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) { benchmarkRoad(b, batch) })
	}
}

// benchmarkRoad uses 10 subscribers in one partition, as known as can be.
func benchmarkRoad(b *testing.B, batch int) {
	b.Helper()
	const all, subs = 512, 10
	r := benchRoad{B: b, ctx: b.Context(), rdb: redistest.Server(b).Client(), cost: map[string]float64{}}
	var err error
	r.Engine, err = schedule.Open(r.ctx, r.rdb, schedule.Options{Partitions: 1, InitialCap: 1000})
	r.must(err)
	for i := range subs {
		_, err := r.PutConfig(r.ctx, benchSub(i), 0, []byte("{}"), schedule.Terms{
			Class: "standard", MaxInFlight: 1000, LeaseTime: 25 * time.Second,
		}, schedule.Edited)
		r.must(err)
	}
	rounds := 0
	for b.Loop() {
		now, err := r.Now(r.ctx)
		r.must(err)
		r.measure("enqueue", func() {
			for n := 0; n < all; n += batch { // an event has up to 10
				for k := 0; k < batch; k += subs {
					r.enqueue(fmt.Sprintf("evt_%06d%06d%06d", rounds, n, k), now, min(subs, batch-k), n)
				}
			}
		})
		var batches [][]schedule.Leased
		r.measure("lease", func() {
			for got := 0; got < all; {
				batches = append(batches, r.lease(batch))
				got += len(batches[len(batches)-1])
			}
		})
		r.measure("settle", func() {
			for _, leased := range batches {
				r.settle(leased)
			}
		})
		rounds++
	}
	for name, us := range r.cost {
		b.ReportMetric(us/float64(rounds*all), name+"-us/item")
	}
}

func benchSub(i int) string { return "sub_01K0000000000000000000000" + strconv.Itoa(i%10) }

type benchRoad struct {
	*testing.B
	*schedule.Engine
	ctx  context.Context
	rdb  redis.UniversalClient
	seq  int64
	cost map[string]float64
}

func (r *benchRoad) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *benchRoad) enqueue(event string, now time.Time, n, first int) {
	r.Helper()
	var ts []schedule.Target
	for i := range n {
		ts = append(ts, schedule.Target{SubscriberID: benchSub(first + i), MaxAge: 24 * time.Hour})
	}
	r.must(r.Enqueue(r.ctx, event, now, now.Add(time.Hour), 0, ts))
}

func (r *benchRoad) lease(n int) []schedule.Leased {
	r.Helper()
	r.seq++
	reps, err := r.Lease(r.ctx, []schedule.LeaseRequest{{
		Worker: "host-1234-abcdefghij", Seq: r.seq, Free: 1000,
		Rooms: schedule.Rooms{Total: n, Fresh: n, Retry: n, Redrive: n, Slow: n},
	}})
	r.must(err)
	return reps[0].Leased
}

func (r *benchRoad) settle(leased []schedule.Leased) {
	r.Helper()
	vs := make([]schedule.Verdict, len(leased))
	for i, l := range leased {
		vs[i] = schedule.Verdict{
			ID: l.ID, Fence: l.Fence(), Decision: delivery.Decision{Next: delivery.Delivered},
			Outcome: delivery.OK, Status: 200, Took: 5 * time.Millisecond,
		}
	}
	_, err := r.Settle(r.ctx, 0, vs)
	r.must(err)
}

// measure adds what Redis spends in f.
func (r *benchRoad) measure(name string, f func()) {
	r.Helper()
	before := r.micros()
	f()
	r.cost[name] += r.micros() - before
}

// micros is the CPU time that Redis' main thread has had.
func (r *benchRoad) micros() float64 {
	r.Helper()
	info, err := r.rdb.Info(r.ctx, "cpu").Result()
	r.must(err)
	sum := 0.0
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys_main_thread" || name == "used_cpu_user_main_thread" {
			s, err := strconv.ParseFloat(value, 64)
			r.must(err)
			sum += s * 1e6
		}
	}
	return sum
}
