package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/fanout/fanout/internal/plot"
)

// point is what one size of the queue came to. Latencies are those of one worker
// that has Redis to itself, in ms. CPU is of Redis' main thread, and the lower quartile
// over blocks: whatever else runs on the machine only adds to it.
type point struct {
	Pending  int64   `json:"pending"`
	WithWork int     `json:"subscribers_with_work"`
	RoundP50 float64 `json:"round_p50_ms"` // one batch leased and settled
	RoundP99 float64 `json:"round_p99_ms"`
	RoundUS  float64 `json:"round_redis_us_per_delivery"`
	AddP50   float64 `json:"enqueue_p50_ms"` // one call
	AddUS    float64 `json:"enqueue_redis_us_per_delivery"`
	Rate     float64 `json:"deliveries_per_s"` // four workers
	LookP50  float64 `json:"sample_p50_ms"`
	LookUS   float64 `json:"sample_redis_us"`
	Bytes    float64 `json:"bytes_per_delivery,omitempty"`
}

func (p point) String() string {
	return fmt.Sprintf("round p50 %.2f p99 %.2f ms, Redis %.1f us a delivery; %.0f/s; enqueue %.1f us; sample %.2f ms, Redis %.0f us; %.0f B",
		p.RoundP50, p.RoundP99, p.RoundUS, p.Rate, p.AddUS, p.LookP50, p.LookUS, p.Bytes)
}

const (
	roundsInBlock = 8
	scaleWorkers  = 4
	looks         = 30
)

// measure works in blocks: some rounds, and then as many new deliveries as were
// settled, so that the backlog stays what it is.
func (q *queue) measure(ctx context.Context) (p point, err error) {
	p.Pending, p.WithWork = q.pending, q.work
	if err := q.warm(ctx); err != nil {
		return p, err
	}
	var rounds, adds, seen, roundUS, addUS, lookUS []float64
	for range q.o.blocks {
		before := q.pending
		us, err := q.costs(ctx, func() error {
			for range roundsInBlock {
				start := time.Now()
				q.seq++
				got, err := q.round(ctx, "bench", q.seq)
				if err != nil {
					return err
				}
				rounds = append(rounds, time.Since(start).Seconds()*1000)
				q.pending -= int64(got)
			}
			return nil
		})
		n := float64(before - q.pending)
		if err == nil && n == 0 {
			err = errors.New("nothing was leased")
		}
		if err != nil {
			return p, err
		}
		roundUS = append(roundUS, us/n)
		us, err = q.costs(ctx, func() error {
			took, err := q.refill(ctx, p.Pending)
			adds = append(adds, took...)
			return err
		})
		if err != nil {
			return p, err
		}
		addUS = append(addUS, us/n)
	}
	p.RoundUS, p.AddUS = quantile(roundUS, 0.25), quantile(addUS, 0.25)
	p.RoundP50, p.RoundP99, p.AddP50 = quantile(rounds, 0.5), quantile(rounds, 0.99), quantile(adds, 0.5)
	if p.Rate, err = q.together(ctx, p.Pending); err != nil {
		return p, err
	}
	for range looks {
		us, err := q.costs(ctx, func() error {
			start := time.Now()
			_, err := q.engine.Sample(ctx, []string{"standard"})
			seen = append(seen, time.Since(start).Seconds()*1000)
			return err
		})
		if err != nil {
			return p, err
		}
		lookUS = append(lookUS, us)
	}
	p.LookP50, p.LookUS = quantile(seen, 0.5), quantile(lookUS, 0.25)
	return p, nil
}

// costs is what Redis spends in f, in us.
func (q *queue) costs(ctx context.Context, f func() error) (float64, error) {
	before, err := q.redis.mainThread(ctx)
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	after, err := q.redis.mainThread(ctx)
	return after - before, err
}

// warm has a block of rounds without a clock: scripts are loaded, and the first
// subscribers known.
func (q *queue) warm(ctx context.Context) error {
	want := q.pending
	for range roundsInBlock {
		q.seq++
		got, err := q.round(ctx, "bench", q.seq)
		if err != nil {
			return err
		}
		q.pending -= int64(got)
	}
	_, err := q.refill(ctx, want)
	return err
}

// refill enqueues, one call after the other, and says how long each took in ms.
func (q *queue) refill(ctx context.Context, want int64) (took []float64, err error) {
	now, err := q.engine.Now(ctx)
	if err != nil {
		return nil, err
	}
	for q.pending < want {
		for _, c := range q.take(want - q.pending) {
			start := time.Now()
			if err := q.engine.Enqueue(ctx, c.event, now, now.Add(time.Hour), c.partition, c.targets); err != nil {
				return nil, err
			}
			took = append(took, time.Since(start).Seconds()*1000)
			q.pending += int64(len(c.targets))
		}
	}
	return took, nil
}

// together is the deliveries a second that several workers lease and settle.
func (q *queue) together(ctx context.Context, want int64) (float64, error) {
	var worker atomic.Int64
	var n atomic.Int64
	spent := time.Duration(0)
	first := q.seq + 1
	q.seq += int64(q.o.blocks * roundsInBlock)
	for block := range q.o.blocks {
		start, before := time.Now(), n.Load()
		err := inParallel(scaleWorkers, func() error {
			name := "bench-" + strconv.FormatInt(worker.Add(1)%scaleWorkers, 10)
			for i := range roundsInBlock / scaleWorkers {
				got, err := q.round(ctx, name, first+int64(block*roundsInBlock+i))
				if err != nil {
					return err
				}
				n.Add(int64(got))
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
		spent += time.Since(start)
		q.pending -= n.Load() - before
		if _, err := q.refill(ctx, want); err != nil {
			return 0, err
		}
	}
	return float64(n.Load()) / spent.Seconds(), nil
}

// byLogarithm is what a logarithm grows by: 1.5 from 10,000 to 1,000,000. A tree of that
// size is so much deeper.
func byLogarithm(from, to int64) float64 { return math.Log(float64(to)) / math.Log(float64(from)) }

// report prints the tables, draws, and ends in the line of figures. It fails if the
// cost grows faster than a logarithm.
func (r *scaleRun) report(w io.Writer) error {
	var md strings.Builder
	fmt.Fprintf(&md, "%d subscribers, batches of %d, %d partitions.\n\n", r.o.subscribers, r.o.batch, r.o.partitions)
	md.WriteString("| waiting | subscribers with work | lease and settle p50, p99 ms | Redis us per delivery | deliveries/s | enqueue, Redis us per delivery | one sample ms |\n|---|---|---|---|---|---|---|\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nwaiting\twith work\tround p50 ms\tp99 ms\tRedis us/delivery\tdeliveries/s\tenqueue us\tone call ms\tsample ms\tsample us\tbytes")
	for _, p := range slices.Concat(r.backlog, r.crowd) {
		fmt.Fprintf(t, "%d\t%d\t%.2f\t%.2f\t%.1f\t%.0f\t%.1f\t%.2f\t%.2f\t%.0f\t%.0f\n",
			p.Pending, p.WithWork, p.RoundP50, p.RoundP99, p.RoundUS, p.Rate, p.AddUS, p.AddP50, p.LookP50, p.LookUS, p.Bytes)
		fmt.Fprintf(&md, "| %d | %d | %.2f, %.2f | %.1f | %.0f | %.1f | %.2f |\n",
			p.Pending, p.WithWork, p.RoundP50, p.RoundP99, p.RoundUS, p.Rate, p.AddUS, p.LookP50)
	}
	line, failed := r.verdict()
	err := errors.Join(t.Flush(), r.b.saveAs("scale", md.String(), map[string]any{
		"line": strings.Join(line, " "), "machine": r.b.machine(), "took_at": time.Now().UTC().Format(time.RFC3339),
		"subscribers": r.o.subscribers, "batch": r.o.batch, "partitions": r.o.partitions,
		"over_backlog": r.backlog, "over_subscribers": r.crowd, "fork_ms": r.fork, "rewrite_ms": r.rewrite,
	}), r.charts())
	fmt.Fprintf(w, "\nover %d waiting deliveries Redis forks in %.0f ms and rewrites its file in %.1f s\n", r.o.pending, r.fork, r.rewrite/1000)
	_, _ = fmt.Fprintln(w, strings.Join(line, " "))
	return errors.Join(err, failed)
}

// verdict compares the largest with what is a hundredth of it, or less.
func (r *scaleRun) verdict() (line []string, failed error) {
	last := r.backlog[len(r.backlog)-1]
	base := hundredth(r.backlog, last.Pending, func(p point) int64 { return p.Pending })
	line = append(line, fmt.Sprintf("pending=%d round_p50_ms=%.2f round_p99_ms=%.2f redis_us_per_delivery=%.1f backlog_p50_ratio=%.2f backlog_cpu_ratio=%.2f backlog_sample_ratio=%.2f",
		last.Pending, last.RoundP50, last.RoundP99, last.RoundUS, last.RoundP50/base.RoundP50, last.RoundUS/base.RoundUS, last.LookUS/base.LookUS))
	if ratio := last.RoundUS / base.RoundUS; ratio > byLogarithm(base.Pending, last.Pending) {
		failed = fmt.Errorf("%d waiting deliveries cost %.2f times what %d do: faster than a logarithm", last.Pending, ratio, base.Pending)
	}
	spread := r.crowd[:len(r.crowd)-1] // the last is of another kind
	last = spread[len(spread)-1]
	base = hundredth(spread, int64(last.WithWork), func(p point) int64 { return int64(p.WithWork) })
	line = append(line, fmt.Sprintf("subscribers=%d subscribers_p50_ratio=%.2f subscribers_cpu_ratio=%.2f subscribers_sample_ratio=%.2f bytes_per_waiting=%.0f fork_ms=%.0f",
		last.WithWork, last.RoundP50/base.RoundP50, last.RoundUS/base.RoundUS, last.LookUS/base.LookUS, r.bytes, r.fork))
	return line, failed
}

func hundredth(all []point, most int64, of func(point) int64) point {
	base := all[0]
	for _, p := range all {
		if of(p)*100 <= most {
			base = p
		}
	}
	return base
}

// charts draws latency and cost over both.
func (r *scaleRun) charts() error {
	var errs []error
	spread := r.crowd[:len(r.crowd)-1]
	for _, one := range []struct {
		name, title, label string
		points             []point
		of                 func(point) float64
	}{
		{"backlog", "what a backlog costs", "deliveries that wait", r.backlog, func(p point) float64 { return float64(p.Pending) }},
		{"subscribers", "what a crowd costs", "subscribers with work", spread, func(p point) float64 { return float64(p.WithWork) }},
	} {
		line := func(name string, of func(point) float64) plot.Series {
			s := plot.Series{Name: name}
			for _, p := range one.points {
				s.Points = append(s.Points, plot.Point{X: one.of(p), Y: of(p)})
			}
			return s
		}
		x := plot.Axis{Label: one.label, Log: true}
		errs = append(errs, r.b.draw("scale-"+one.name+"-latency.svg", plot.Chart{
			Title: fmt.Sprintf("Leasing and settling %d deliveries: %s", r.o.batch, one.title), X: x, Y: plot.Axis{Label: "latency", Unit: "ms"},
			Series: []plot.Series{
				line("p50", func(p point) float64 { return p.RoundP50 }), line("p99", func(p point) float64 { return p.RoundP99 }),
				line("one sample, p50", func(p point) float64 { return p.LookP50 }),
			},
		}), r.b.draw("scale-"+one.name+"-cpu.svg", plot.Chart{
			Title: "Redis CPU: " + one.title, X: x, Y: plot.Axis{Label: "CPU", Unit: "us"},
			Series: []plot.Series{
				line("lease and settle, per delivery", func(p point) float64 { return p.RoundUS }),
				line("enqueue, per delivery", func(p point) float64 { return p.AddUS }),
				line("one sample", func(p point) float64 { return p.LookUS }),
			},
		}))
	}
	return errors.Join(errs...)
}
