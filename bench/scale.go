package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// scaleOptions are the flags of the scale run.
type scaleOptions struct {
	options
	pending     int64 // most deliveries that wait
	subscribers int   // registered, whether or not they have work
	partitions  int
	batch       int
	blocks      int
}

// scaleMain asks the engine itself, over a real Redis, whether a round of lease and
// settle costs more when more is waiting, or more subscribers wait.
func scaleMain(args []string) error {
	var o scaleOptions
	fs := flag.NewFlagSet("scale", flag.ExitOnError)
	fs.Int64Var(&o.pending, "pending", 1_000_000, "most deliveries that wait: 1000 and its decades up to here, at most 10000000 (0.5 KB each)")
	fs.IntVar(&o.subscribers, "subscribers", 100_000, "subscribers that are registered")
	fs.IntVar(&o.partitions, "partitions", 1, "partitions; what is measured is one of them, so more make each smaller")
	fs.IntVar(&o.batch, "batch", 32, "deliveries in a round of lease and settle")
	fs.IntVar(&o.blocks, "blocks", 40, "blocks of eight rounds measured at each point")
	fs.StringVar(&o.root, "root", "..", "the product's folder")
	fs.StringVar(&o.dir, "dir", "", "where Redis keeps its files: a disk, not memory; default a new temporary folder")
	fs.StringVar(&o.out, "out", "results", "folder of scale.json, scale.md and the charts")
	_ = fs.Parse(args) // it exits by itself
	if o.pending < 1000 || o.pending > 10_000_000 || o.subscribers < 1000 || o.batch < 1 || o.batch > 128 || o.blocks < 1 {
		return errors.New("-pending must be from 1000 to 10000000, -subscribers at least 1000, -batch from 1 to 128, -blocks positive")
	}
	ctx, cancel := untilStopped()
	defer cancel()
	dir, err := os.MkdirTemp(o.dir, "fanout-bench-")
	if err != nil {
		return err
	}
	b := &bench{o: o.options, dir: dir}
	defer b.close()
	r := scaleRun{b: b, o: o}
	if err := r.overBacklog(ctx); err != nil {
		return err
	}
	if err := r.overSubscribers(ctx); err != nil {
		return err
	}
	return r.report(os.Stdout)
}

// scaleRun is what was measured.
type scaleRun struct {
	b *bench
	o scaleOptions
	// backlog is by pending deliveries, crowd by subscribers with work.
	backlog, crowd []point
	// fork and rewrite are what Redis needs to rewrite its file over the largest
	// backlog, ms: it answers nobody during the fork.
	fork, rewrite float64
	bytes         float64 // a waiting delivery, at the largest backlog
}

const (
	// withWork is how many subscribers the backlog is spread over: ten deliveries each
	// at the least, so that a turn is a full one at every point.
	withWork = 100
	// toEach is how many deliveries each has while the subscribers become more.
	toEach = 10
)

// decades are 1000, 10,000 and so on up to most, and 3/10 of a last one above a million:
// where a slope would show.
func decades(from, most int64) (all []int64) {
	for n := from; n < most; n *= 10 {
		all = append(all, n)
		if n >= 1_000_000 && 3*n < most {
			all = append(all, 3*n)
		}
	}
	return append(all, most)
}

// overBacklog lets the backlog of a hundred subscribers grow, beside all the others
// who have nothing.
func (r *scaleRun) overBacklog(ctx context.Context) error {
	q, err := r.newQueue(ctx, withWork)
	if err != nil {
		return err
	}
	defer q.redis.stop()
	for _, n := range decades(1000, r.o.pending) {
		start, added := time.Now(), n-q.pending
		before, err := q.redis.used(ctx)
		if err != nil {
			return err
		}
		if err := q.fill(ctx, n); err != nil {
			return err
		}
		r.b.say("%d deliveries wait: %d added in %.1f s", n, added, time.Since(start).Seconds())
		full, err := q.redis.used(ctx)
		if err != nil {
			return err
		}
		p, err := q.measure(ctx)
		if err != nil {
			return err
		}
		p.Bytes = (full - before) / float64(added)
		r.backlog = append(r.backlog, p)
		r.b.say("  %s", p)
	}
	r.bytes = r.backlog[len(r.backlog)-1].Bytes
	r.fork, r.rewrite, err = q.redis.rewriteFile(ctx)
	return err
}

// overSubscribers gives work to ever more subscribers, ten deliveries each, every time
// from an empty Redis. At last all of them have one delivery: nothing is shared then
// between two deliveries of a batch, which is the dearest that a batch can be.
func (r *scaleRun) overSubscribers(ctx context.Context) error {
	steps := decades(100, int64(r.o.subscribers))
	for i := 0; i <= len(steps); i++ {
		n, each := int64(r.o.subscribers), int64(1)
		if i < len(steps) {
			n, each = steps[i], toEach
		}
		p, err := r.crowdOf(ctx, int(n), n*each)
		if err != nil {
			return err
		}
		r.crowd = append(r.crowd, p)
		r.b.say("%d subscribers with work, %d deliveries\n  %s", n, n*each, p)
	}
	return nil
}

func (r *scaleRun) crowdOf(ctx context.Context, n int, pending int64) (point, error) {
	q, err := r.newQueue(ctx, n)
	if err != nil {
		return point{}, err
	}
	defer q.redis.stop()
	if err := q.fill(ctx, pending); err != nil {
		return point{}, err
	}
	return q.measure(ctx)
}

// queue is an engine over a Redis of its own, with subscribers and a backlog.
type queue struct {
	o       scaleOptions
	redis   *store
	engine  *schedule.Engine
	parts   [][]schedule.Target // subscribers with work, by partition
	work    int
	pending int64
	events  int
	offsets []int // in each partition, whose turn it is to get one more
	seq     int64
}

const scaleLoaders = 16

// newQueue registers all subscribers, of which the first n will have work.
func (r *scaleRun) newQueue(ctx context.Context, n int) (q *queue, err error) {
	r.b.made++
	q = &queue{o: r.o, work: n}
	if q.redis, err = startRedis(ctx, filepath.Join(r.b.dir, fmt.Sprintf("scale-%d", r.b.made)), "everysec"); err != nil {
		q.redis.stop()
		return nil, err
	}
	defer func() {
		if err != nil {
			q.redis.stop()
		}
	}()
	// The file is rewritten when it is asked for: a fork would be in some figures.
	if err := q.redis.rdb.ConfigSet(ctx, "auto-aof-rewrite-percentage", "0").Err(); err != nil {
		return nil, err
	}
	q.engine, err = schedule.Open(ctx, q.redis.rdb, schedule.Options{Partitions: r.o.partitions, InitialCap: 1000})
	if err != nil {
		return nil, err
	}
	q.parts, q.offsets = make([][]schedule.Target, r.o.partitions), make([]int, r.o.partitions)
	for i := range n {
		id := scaleID(i)
		p := q.engine.PartitionOf(id)
		q.parts[p] = append(q.parts[p], schedule.Target{SubscriberID: id, MaxAge: 24 * time.Hour})
	}
	var next atomic.Int64
	return q, inParallel(scaleLoaders, func() error {
		for i := next.Add(1) - 1; i < int64(r.o.subscribers); i = next.Add(1) - 1 {
			_, err := q.engine.PutConfig(ctx, scaleID(int(i)), 0, []byte(`{"url":"https://hooks.example.com/"}`), schedule.Terms{
				Class: "standard", MaxInFlight: 1000, LeaseTime: 25 * time.Second,
			}, schedule.Edited)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func scaleID(i int) string { return fmt.Sprintf("sub_01K%023d", i) }

// chunk is one call of Enqueue.
type chunk struct {
	event     string
	partition int
	targets   []schedule.Target
}

// take cuts one event's calls: n deliveries, each to the subscriber whose turn it is.
func (q *queue) take(n int64) (all []chunk) {
	event := fmt.Sprintf("evt_01K%023d", q.events)
	q.events++
	n = min(n, int64(q.work)) // one each
	left := n
	for p, targets := range q.parts {
		// A partition's part of it, rounded up, from where the last event ended.
		k := min(left, (n*int64(len(targets))+int64(q.work)-1)/int64(q.work))
		for i := int64(0); i < k; i += schedule.ChunkSize {
			var some []schedule.Target
			for j := i; j < min(k, i+schedule.ChunkSize); j++ {
				some = append(some, targets[(q.offsets[p]+int(j))%len(targets)])
			}
			all = append(all, chunk{event, p, some})
		}
		left -= k
		q.offsets[p] += int(k)
	}
	return all
}

// fill enqueues until so many are pending, several calls at the same time.
func (q *queue) fill(ctx context.Context, want int64) error {
	now, err := q.engine.Now(ctx)
	if err != nil {
		return err
	}
	todo := make(chan chunk)
	done := make(chan error, 1)
	go func() {
		done <- inParallel(scaleLoaders, func() (failed error) {
			for c := range todo {
				if failed == nil {
					failed = q.engine.Enqueue(ctx, c.event, now, now.Add(time.Hour), c.partition, c.targets)
				}
			}
			return failed
		})
	}()
	for q.pending < want {
		for _, c := range q.take(want - q.pending) {
			todo <- c
			q.pending += int64(len(c.targets))
		}
	}
	close(todo)
	return <-done
}

// round leases a batch from a partition and settles it, as delivered.
func (q *queue) round(ctx context.Context, worker string, seq int64) (int, error) {
	n, p := q.o.batch, int(seq)%len(q.parts)
	replies, err := q.engine.Lease(ctx, []schedule.LeaseRequest{{
		Partition: p, Worker: worker, Seq: seq, Free: 1000,
		Rooms: schedule.Rooms{Total: n, Fresh: n, Retry: n, Redrive: n, Slow: n},
	}})
	if err != nil {
		return 0, err
	}
	leased := replies[0].Leased
	if len(leased) == 0 {
		return 0, nil
	}
	verdicts := make([]schedule.Verdict, len(leased))
	for i, l := range leased {
		verdicts[i] = schedule.Verdict{
			ID: l.ID, Fence: l.Fence(), Decision: delivery.Decision{Next: delivery.Delivered},
			Outcome: delivery.OK, Status: 200, Took: 5 * time.Millisecond,
		}
	}
	settled, err := q.engine.Settle(ctx, p, verdicts)
	if err != nil {
		return 0, err
	}
	for _, r := range settled.Results {
		if r != schedule.Applied {
			return 0, fmt.Errorf("a verdict was %s", r)
		}
	}
	return len(leased), nil
}

// mainThread is the CPU time that Redis' main thread has had, in us: what bounds it.
func (s *store) mainThread(ctx context.Context) (float64, error) {
	info, err := s.rdb.InfoMap(ctx, "cpu").Result()
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for name, value := range info["CPU"] {
		if strings.HasSuffix(name, "_main_thread") {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, fmt.Errorf("INFO cpu: %s: %w", name, err)
			}
			sum += v * 1e6
		}
	}
	return sum, nil
}

// rewriteFile has Redis rewrite its append-only file, and says how long the fork and
// the whole took, in ms.
func (s *store) rewriteFile(ctx context.Context) (fork, whole float64, err error) {
	start := time.Now()
	if err := s.rdb.BgRewriteAOF(ctx).Err(); err != nil {
		return 0, 0, err
	}
	err = poll(ctx, s.child, 10*time.Minute, func() error {
		info, err := s.rdb.InfoMap(ctx, "persistence", "stats").Result()
		if err != nil {
			return err
		}
		if info["Persistence"]["aof_rewrite_in_progress"] != "0" || info["Persistence"]["aof_rewrite_scheduled"] != "0" {
			return errors.New("the append-only file is still being rewritten")
		}
		us, err := strconv.ParseFloat(info["Stats"]["latest_fork_usec"], 64)
		fork = us / 1000
		return err
	})
	return fork, float64(time.Since(start).Milliseconds()), err
}
