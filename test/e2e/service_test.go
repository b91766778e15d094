// Package e2e drives the whole service from outside: events go in by HTTP, a real
// redis-server holds the state, and webhooks come out on real sockets. Only the
// roles run in the test's own process, so that the race detector sees them. With
// the build tag `cluster` the state is held by a Redis Cluster.
package e2e

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fanout/fanout/internal/boot"
	"github.com/fanout/fanout/internal/role"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/test/redistest"
)

// patience bounds every wait for something that must happen; a loaded machine
// under the race detector is slow, and a wait ends as soon as the thing is there.
const patience = 60 * time.Second

// atOnce is how many tests run at the same time, unless -parallel says otherwise.
// They wait more than they work, so the number of processors is no measure.
const atOnce = 12

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", strconv.Itoa(atOnce)); err != nil {
			panic(err)
		}
	}
	trustTestAuthority()
	m.Run()
}

// service is a running fanout, in the hands of one test.
type service struct {
	testing.TB
	*world
}

// world is what all tests of one service share.
type world struct {
	setup
	store
	url    string // of the API
	engine *schedule.Engine
	logs   *logBuffer

	mu         sync.Mutex
	endpoints  []*endpoint
	secrets    map[string]string // by subscriber id
	discarded  string            // a delivery that the test has had forgotten
	registries []*prometheus.Registry
}

// store is where the state lives: one Redis, or a cluster.
type store struct {
	seeds      []string
	partitions int
	one        *redistest.Redis        // nil for a cluster
	cluster    *redistest.RedisCluster // nil for one Redis
}

func openStore(t testing.TB) store {
	t.Helper()
	if redistest.OnCluster {
		c := redistest.Cluster(t, redistest.AOFAlways())
		return store{seeds: c.Addrs(), partitions: 48, cluster: c}
	}
	r := redistest.Server(t)
	return store{seeds: []string{r.Addr()}, partitions: 4, one: r}
}

// setup is how a service is made.
type setup struct {
	workers int // dispatchers to start with
	slots   int // of each
	grace   time.Duration
	copies  int // replicas that must have an event
	cap     int // requests that a new endpoint may get at once; 0: the default, 1
	names   *net.Resolver
	slo     time.Duration // of the class standard; 0: a minute
}

// logBuffer is what all roles log, for tests that look for secrets in it.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs an API server and a dispatcher over a Redis of their own. When
// the test ends they stop, in order and cleanly, and what the endpoints saw is
// held against what Redis says.
func start(t testing.TB, change ...func(*setup)) *service {
	t.Helper()
	s := &service{TB: t, world: &world{
		setup: setup{workers: 1, slots: 50, grace: 5 * time.Second},
		store: openStore(t), logs: &logBuffer{}, secrets: map[string]string{},
	}}
	for _, c := range change {
		c(&s.setup)
	}
	api := s.parts(s.seeds)
	s.engine = api.Parts.Engine
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	s.ok(err)
	s.url = "http://" + ln.Addr().String()
	stages, err := role.API(t.Context(), api.Parts, ln, boot.Access{})
	s.ok(err)
	s.run(append(stages, api.last)...)
	t.Cleanup(s.audit) // between the stop of the last dispatcher and that of the API
	for range s.workers {
		s.dispatcher()
	}
	return s
}

// in is the service in the hands of a subtest, which may not fail its parent.
func (s *service) in(t testing.TB) *service {
	t.Helper()
	return &service{TB: t, world: s.world}
}

// dispatcher adds a worker.
func (s *service) dispatcher() *process { s.Helper(); return s.dispatcherAt(s.seeds) }

// dispatcherAt adds a worker that talks to Redis at other addresses than its own.
func (s *service) dispatcherAt(seeds []string) *process {
	s.Helper()
	d := s.parts(seeds)
	work := role.Work{Slots: s.slots, Grace: s.grace}
	return s.run(append(role.Dispatcher(d.Parts, work, nil), d.last)...)
}

type assembled struct {
	Parts role.Parts
	last  boot.Stage
}

func (s *service) parts(seeds []string) assembled {
	s.Helper()
	cfg := boot.Common{
		Redis:   boot.Redis{Addr: seeds, Cluster: s.cluster != nil, Partitions: s.partitions, PoolSize: 16, WaitReplicas: s.copies},
		Classes: boot.Classes{"standard": cmp.Or(s.slo, time.Minute)},
		Log:     boot.Log{Level: slog.LevelDebug, Format: "json"},
	}
	loopback := role.Endpoint{
		AllowHTTP: true, AllowAnyPort: true, AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
		Resolver: s.names, InitialCap: s.cap,
	}
	p, last, err := role.Assemble(s.Context(), "e2e", cfg, loopback, boot.NewLogger(cfg.Log, s.logs))
	s.ok(err)
	p.Registry = prometheus.NewRegistry()
	s.mu.Lock()
	s.registries = append(s.registries, p.Registry)
	s.mu.Unlock()
	return assembled{p, last}
}

// process is stages that run together.
type process struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error // once done
}

// stop asks it to end; wait returns when it has, with what went wrong.
func (p *process) stop()       { p.cancel() }
func (p *process) wait() error { <-p.done; return p.err }

// run runs stages until the test ends, and fails it if they did not end well.
func (s *service) run(stages ...boot.Stage) *process {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	p := &process{cancel: cancel, done: make(chan struct{})}
	go func() {
		p.err = boot.Run(ctx, slog.New(slog.DiscardHandler), stages...)
		close(p.done)
	}()
	s.Cleanup(func() {
		p.stop()
		if err := p.wait(); err != nil {
			s.Errorf("stop: %v", err)
		}
	})
	return p
}

func (s *service) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// until polls for something that must become true, ever more slowly: on a loaded
// machine a crowd of eager polls would be the load.
func (s *service) until(what string, is func() bool) {
	s.Helper()
	deadline := time.After(patience)
	for pause := 5 * time.Millisecond; !is(); pause = min(pause*3/2, 100*time.Millisecond) {
		select {
		case <-deadline:
			s.Fatalf("gave up waiting until %s", what)
		case <-time.After(pause):
		}
	}
}

// sample is one look at the engine.
func (s *service) sample() schedule.Sample {
	s.Helper()
	sample, err := s.engine.Sample(context.WithoutCancel(s.Context()), nil)
	s.ok(err)
	return sample
}

// balanced checks the ledger once nothing is pending any more.
func (s *service) balanced() schedule.Ledger {
	s.Helper()
	var l schedule.Ledger
	s.until("nothing is pending", func() bool {
		l = s.sample().Ledger
		return l.Pending == 0
	})
	if !l.Balanced() {
		s.Fatalf("ledger does not balance: %+v", l)
	}
	return l
}
