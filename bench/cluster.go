package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// layout is the Redis below a stack; the zero value is what the product takes by
// itself.
type layout struct {
	partitions int
	primaries  int // of a cluster; 0 is one Redis that is none
}

func (l layout) String() string {
	if l.primaries > 0 {
		return fmt.Sprintf("%d primaries, %d partitions", l.primaries, l.partitions)
	}
	return fmt.Sprintf("one Redis, %d partitions", l.partitions)
}

func (l layout) key() string {
	if l.primaries > 0 {
		return fmt.Sprintf("cluster_p%d", l.partitions)
	}
	return fmt.Sprintf("one_p%d", l.partitions)
}

// hashSlots of any Redis Cluster.
const hashSlots = 16384

// startNodes starts the Redis, or the primaries and makes a cluster of them.
func (s *stack) startNodes(ctx context.Context) error {
	var more []string
	if s.layout.primaries > 0 {
		more = []string{"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"}
	}
	var addrs []string
	for i := range max(1, s.layout.primaries) {
		port := []string{}
		if s.layout.primaries > 0 { // the usual bus, 10,000 above, may be beyond the last port
			bus, err := freePort()
			if err != nil {
				return err
			}
			port = []string{"--cluster-port", bus}
		}
		n, err := startRedis(ctx, filepath.Join(s.dir, "node-"+strconv.Itoa(i)), s.fsync, slices.Concat(more, port)...)
		if n != nil {
			s.nodes = append(s.nodes, n)
		}
		if err != nil {
			return err
		}
		if len(port) > 0 {
			addrs = append(addrs, n.addr, port[1])
		}
	}
	s.redis = s.nodes[0]
	return s.join(ctx, addrs)
}

// join gives each node its share of the slots and makes them known to each other;
// addrs are address and bus of each.
func (s *stack) join(ctx context.Context, addrs []string) error {
	of := s.layout.primaries
	for i := range of {
		if err := s.nodes[i].rdb.ClusterAddSlotsRange(ctx, i*hashSlots/of, (i+1)*hashSlots/of-1).Err(); err != nil {
			return err
		}
		host, port, _ := strings.Cut(addrs[2*i], ":")
		if err := s.nodes[0].rdb.Do(ctx, "CLUSTER", "MEET", host, port, addrs[2*i+1]).Err(); err != nil {
			return err
		}
	}
	for _, n := range s.nodes[:of] {
		err := poll(ctx, n.child, startFor, func() error {
			info, err := n.rdb.ClusterInfo(ctx).Result()
			if err == nil && (!strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_size:"+strconv.Itoa(of)+"\r\n")) {
				err = errors.New("the cluster is not whole")
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// client is for the bench's own looks.
func (s *stack) client() redis.UniversalClient {
	if s.layout.primaries == 0 {
		return s.redis.rdb
	}
	return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.redis.addr}})
}

// redisFlags tell a binary of the product where its Redis is.
func (s *stack) redisFlags() []string {
	flags := []string{"--redis-addr=" + s.redis.addr}
	if s.layout.partitions > 0 {
		flags = append(flags, "--redis-partitions="+strconv.Itoa(s.layout.partitions))
	}
	if s.layout.primaries > 0 {
		flags = append(flags, "--redis-cluster")
	}
	return flags
}

// clusterMain sends the same events over one Redis and over a cluster, in rounds: is
// the work spread evenly, and what does the spreading cost?
func clusterMain(args []string) error {
	o := options{logs: "info"}
	var layouts string
	var subs int
	fs := flag.NewFlagSet("cluster", flag.ExitOnError)
	fs.IntVar(&o.rounds, "rounds", 3, "rounds")
	fs.IntVar(&o.slots, "slots", 128, "attempts at once, of the dispatcher")
	fs.IntVar(&o.events, "events", 4000, "events measured per layout and round, ten deliveries each")
	fs.IntVar(&subs, "subscribers", 480, "subscribers, over the sink's ten endpoints; a multiple of ten")
	fs.StringVar(&layouts, "layouts", "0x1,0x4,3x6,3x48", "primaries x partitions, by commas; 0 primaries are one Redis that is no cluster")
	fs.StringVar(&o.root, "root", "..", "the product's folder")
	fs.StringVar(&o.dir, "dir", "", "where Redis keeps its files: a disk, not memory; default a new temporary folder")
	fs.StringVar(&o.out, "out", "results", "folder of cluster.json and cluster.md")
	_ = fs.Parse(args) // it exits by itself
	o.warm = o.events / 4
	var all []layout
	for one := range strings.SplitSeq(layouts, ",") {
		var l layout
		if _, err := fmt.Sscanf(one, "%dx%d", &l.primaries, &l.partitions); err != nil {
			return fmt.Errorf("-layouts %s: want 3x48", one)
		}
		all = append(all, l)
	}
	if subs < endpoints || subs%endpoints != 0 || o.events < 10 || o.rounds < 1 {
		return errors.New("-subscribers must be a multiple of ten, -events at least 10, -rounds at least 1")
	}
	ctx, cancel := untilStopped()
	defer cancel()
	b, err := newBench(ctx, o)
	if err != nil {
		return err
	}
	defer b.close()
	took := map[layout][]spreadOut{}
	for round := range o.rounds {
		for i := range all {
			l := all[(i+round)%len(all)]
			one, err := b.measureLayout(ctx, l, subs)
			if err != nil {
				return fmt.Errorf("round %d, %s: %w", round+1, l, err)
			}
			took[l] = append(took[l], one)
			b.say("round %d/%d %-26s %s", round+1, o.rounds, l, one.brief())
		}
	}
	return b.reportLayouts(os.Stdout, all, took)
}

// node is one primary's part of a measurement.
type node struct {
	Deliveries int     `json:"deliveries"` // records at the end
	Keys       int64   `json:"keys"`
	CPU        float64 `json:"cpu_ms"`
}

// spreadOut is what one layout came to in one round; what is per delivery is summed
// over all primaries.
type spreadOut struct {
	Rate     float64            `json:"deliveries_per_s"`
	RedisUS  float64            `json:"redis_cpu_us_per_delivery"`
	ScriptUS float64            `json:"redis_script_us_per_delivery"`
	Trips    float64            `json:"redis_reads_per_delivery"`
	Calls    float64            `json:"redis_script_calls_per_delivery"`
	APIMS    float64            `json:"api_cpu_ms_per_delivery"`
	WorkerMS float64            `json:"dispatcher_cpu_ms_per_delivery"`
	Foreign  float64            `json:"foreign_cpu_percent"`
	Nodes    []node             `json:"nodes"`
	Errors   map[string]float64 `json:"redis_errors"` // see holds
	// FileBytes are written to the append-only file, all primaries together.
	FileBytes float64 `json:"aof_bytes_per_delivery"`
	// Bytes are those of one key, by kind, when all is delivered; see weigh.
	Bytes map[string]float64 `json:"bytes_of_a_key"`
}

func (o spreadOut) brief() string {
	return fmt.Sprintf("%6.0f/s  Redis %5.1f us  scripts %5.1f us  %.3f reads  API %.3f ms  dispatcher %.3f ms  spread %.2f  others %.0f %%",
		o.Rate, o.RedisUS, o.ScriptUS, o.Trips, o.APIMS, o.WorkerMS, o.uneven(func(n node) float64 { return float64(n.Deliveries) }), o.Foreign)
}

// uneven is the share of the busiest primary over an even one: 1 is even.
func (o spreadOut) uneven(of func(node) float64) float64 {
	sum, most := 0.0, 0.0
	for _, n := range o.Nodes {
		sum, most = sum+of(n), max(most, of(n))
	}
	return most * float64(len(o.Nodes)) / sum
}

func (b *bench) measureLayout(ctx context.Context, l layout, subs int) (spreadOut, error) {
	s, err := b.startStackOn(ctx, "everysec", l)
	if err != nil {
		return spreadOut{}, err
	}
	defer s.stop()
	if err := s.startDispatcher(ctx); err != nil {
		return spreadOut{}, err
	}
	s.kinds = nil
	for i := range subs / endpoints {
		s.kinds = append(s.kinds, fmt.Sprintf("bench.%04d", i))
		if err := s.register(ctx, endpoints, s.kinds[i]); err != nil {
			return spreadOut{}, err
		}
	}
	b.board.reset()
	if err := s.endToEnd(ctx, b.o.warm); err != nil {
		return spreadOut{}, err
	}
	n := b.o.events * endpoints
	b.board.reset()
	processes := map[string]*child{"api": s.api, "dispatcher": s.dispatcher}
	wrote := 0.0
	for i, one := range s.nodes {
		size, err := one.fileSize(ctx)
		if err != nil {
			return spreadOut{}, err
		}
		wrote -= size
		processes["redis-"+strconv.Itoa(i)] = one.child
	}
	before, err := s.allCounters(ctx)
	if err != nil {
		return spreadOut{}, err
	}
	used, foreign, err := b.meter(func() error { return s.endToEnd(ctx, b.o.events) }, processes)
	if err != nil {
		return spreadOut{}, err
	}
	after, err := s.allCounters(ctx)
	if err != nil {
		return spreadOut{}, err
	}
	out := spreadOut{Rate: float64(n) / b.board.seconds(), Foreign: foreign, Errors: map[string]float64{}}
	out.APIMS, out.WorkerMS = used["api"]/float64(n), used["dispatcher"]/float64(n)
	for i, one := range s.nodes {
		var part sample
		part.spent(before[i], after[i], n)
		out.ScriptUS += part.ScriptUS
		out.Trips += part.Trips
		out.Calls += part.Commands["evalsha"].Calls
		cpu := used["redis-"+strconv.Itoa(i)]
		out.RedisUS += cpu * 1000 / float64(n)
		share, err := one.holds(ctx, out.Errors)
		if err != nil {
			return spreadOut{}, err
		}
		size, err := one.fileSize(ctx)
		if err != nil {
			return spreadOut{}, err
		}
		wrote += size
		share.CPU = cpu
		out.Nodes = append(out.Nodes, share)
	}
	out.FileBytes = wrote / float64(n)
	out.Bytes, err = s.redis.weigh(ctx)
	return out, err
}

func (s *stack) allCounters(ctx context.Context) (all []counters, err error) {
	for _, n := range s.nodes {
		c, err := n.counters(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// fileSize is that of the append-only file, which is not rewritten from here on.
func (s *store) fileSize(ctx context.Context) (float64, error) {
	if err := s.rdb.ConfigSet(ctx, "auto-aof-rewrite-percentage", "0").Err(); err != nil {
		return 0, err
	}
	info, err := s.rdb.InfoMap(ctx, "persistence").Result()
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(info["Persistence"]["aof_current_size"], 64)
}

// holds counts a node's keys and records, and adds the errors that it answered: every
// kind but ERR, which a new connection gets for what Redis 7.0 does not know yet, and
// scripts that failed but for being unknown at their first use. A script that reaches
// for another slot is of the latter kind, a call with keys of two slots of the former.
func (s *store) holds(ctx context.Context, errs map[string]float64) (n node, err error) {
	if n.Keys, err = s.rdb.DBSize(ctx).Result(); err != nil {
		return n, err
	}
	for it := s.rdb.Scan(ctx, 0, "{fo:*}:d:*", 10_000).Iterator(); it.Next(ctx); {
		n.Deliveries++
	}
	info, err := s.rdb.InfoMap(ctx, "errorstats", "commandstats").Result()
	failed := 0.0
	for name, line := range info["Commandstats"] {
		if strings.HasPrefix(name, "cmdstat_eval") {
			failed += field(line, "failed_calls")
		}
	}
	for name, line := range info["Errorstats"] {
		switch prefix, count := strings.TrimPrefix(name, "errorstat_"), field(line, "count"); prefix {
		case "ERR":
		case "NOSCRIPT":
			failed -= count
		default:
			errs[prefix] += count
		}
	}
	if failed > 0 {
		errs["failed scripts"] += failed
	}
	return n, err
}

// kinds of keys that each delivery, or each event, leaves behind for a day and more.
var leftBehind = map[string]string{"record": "{fo:*}:d:*", "event": "{fo:e*}:ev:*", "payload": "{fo:e*}:body:*"}

// expiryBytes are what a key costs in the table of expiries, which MEMORY USAGE leaves
// out: an entry of 24 bytes, and its share of a table that is between half and quite full.
const expiryBytes = 36

// weigh is what a key of each kind takes, by some hundreds of them.
func (s *store) weigh(ctx context.Context) (map[string]float64, error) {
	const enough = 300
	bytes := map[string]float64{}
	for kind, pattern := range leftBehind {
		n, sum := 0, 0.0
		it := s.rdb.Scan(ctx, 0, pattern, 1000).Iterator()
		for ; n < enough && it.Next(ctx); n++ {
			size, err := s.rdb.MemoryUsage(ctx, it.Val(), 0).Result()
			if err != nil {
				return nil, err
			}
			sum += float64(size)
		}
		if err := it.Err(); err != nil {
			return nil, err
		}
		bytes[kind] = sum/float64(max(1, n)) + expiryBytes
	}
	return bytes, nil
}

// field of a line of INFO, such as calls=3,usec=7.
func field(line, name string) float64 {
	for one := range strings.SplitSeq(line, ",") {
		if key, value, _ := strings.Cut(one, "="); key == name {
			v, _ := strconv.ParseFloat(value, 64)
			return v
		}
	}
	return 0
}
