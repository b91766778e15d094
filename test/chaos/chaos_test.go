//go:build chaos

// Package chaos answers: is anything lost, or sent once too often, whatever dies?
//
// It runs the real binaries on a real redis-server, under load, and kills,
// freezes, cuts and starves them. What happens is drawn from a seed. The ledger
// of truth is kept here: an event counts as accepted only by its 2xx. After each
// round everything is healed, what can move is let finish, and what Redis, the
// receivers and the producers say must agree.
//
// Half an hour of it, and one round again:
//
//	make chaos
//	make chaos CHAOS_FOR=0 CHAOS='-chaos.seed=42 -chaos.worlds=1 -test.run=TestChaos'
//
// A round that went wrong leaves its processes' logs, the faults in their order,
// the ledger of truth and a listing of Redis behind, and says where.
package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var flags struct {
	length   time.Duration
	round    time.Duration
	seed     uint64
	worlds   int
	fsync    string
	race     bool
	keep     bool
	bin      string
	out      string
	outage   time.Duration
	readOnly time.Duration

	redrive       int
	redriveWithin time.Duration
}

func init() { //nolint:gochecknoinits // flags must stand before the test binary parses them
	flag.DurationVar(&flags.length, "chaos.for", 0, "start rounds for so long; 0: one round in each world")
	flag.DurationVar(&flags.round, "chaos.round", 12*time.Second, "how long the load and the faults of a round last")
	flag.Uint64Var(&flags.seed, "chaos.seed", 0, "seed of the first round, the next ones count up from it; 0: any")
	flag.IntVar(&flags.worlds, "chaos.worlds", 2, "rounds at the same time, each with processes and a Redis of its own")
	flag.StringVar(&flags.fsync, "chaos.fsync", "always", "appendfsync of Redis: always, or everysec, under which a kill of Redis may lose its last second")
	flag.BoolVar(&flags.race, "chaos.race", false, "build the binaries with the race detector")
	flag.BoolVar(&flags.keep, "chaos.keep", false, "keep the files of rounds that went well too")
	flag.StringVar(&flags.bin, "chaos.bin", "", "directory of binaries that are built already")
	flag.StringVar(&flags.out, "chaos.out", "", "where rounds that went wrong leave their files; default: the system's directory for temporary files")
	flag.DurationVar(&flags.outage, "chaos.outage", 10*time.Second, "how long Redis is gone in the outage tests")
	flag.DurationVar(&flags.readOnly, "chaos.readonly", 5*time.Second, "how long Redis is full or read-only in the outage tests")
	flag.IntVar(&flags.redrive, "chaos.redrive", 2000, "how many dead letters are redriven while everything is killed in turn")
	flag.DurationVar(&flags.redriveWithin, "chaos.redrivewithin", 4*time.Minute, "how long that may take")
}

// figures are what the last line says.
var figures struct {
	seeds, events, deliveries, requests, kills, faults, lost, violations atomic.Int64
}

// atOnce is how many tests run at the same time, unless -test.parallel says
// otherwise: they wait more than they work.
const atOnce = 16

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", fmt.Sprint(atOnce)); err != nil {
			panic(err)
		}
	}
	os.Exit(run(m))
}

// spareDescriptors are what the runtime opens once and keeps, such as its poller.
const spareDescriptors = 4

func run(m *testing.M) int {
	if flags.out == "" {
		flags.out = filepath.Join(os.TempDir(), "fanout-chaos") // it is to outlive the run
	}
	if flags.bin == "" {
		dir, err := build()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		defer os.RemoveAll(dir)
		flags.bin = dir
	}
	before, _ := descriptors(os.Getpid())
	code := m.Run()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if err := goleak.Find(); err != nil {
		violation("the test itself leaks: %v", err)
	}
	if after, err := descriptors(os.Getpid()); err != nil || after > before+spareDescriptors {
		violation("the test itself holds %d descriptors, %d at the start: %v", after, before, err)
	}
	f := &figures
	if n := f.violations.Load(); n > 0 && code == 0 {
		code = 1
	}
	fmt.Printf("seeds=%d events=%d deliveries=%d requests=%d kills=%d faults=%d lost_everysec=%d violations=%d\n",
		f.seeds.Load(), f.events.Load(), f.deliveries.Load(), f.requests.Load(), f.kills.Load(), f.faults.Load(),
		f.lost.Load(), f.violations.Load())
	return code
}

// violation counts and says what must not be.
func violation(format string, a ...any) {
	figures.violations.Add(1)
	fmt.Printf("VIOLATION "+format+"\n", a...)
}

// build makes the two binaries, as they are shipped unless -chaos.race is set.
func build() (string, error) {
	dir, err := os.MkdirTemp("", "fanout-chaos-bin-")
	if err != nil {
		return "", fmt.Errorf("make a directory for the binaries: %w", err)
	}
	args := []string{"build", "-trimpath", "-o", dir + "/"}
	cgo := "0"
	if flags.race {
		args, cgo = append(args, "-race"), "1"
	}
	cmd := exec.CommandContext(context.Background(), "go", append(args, "./cmd/...")...)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the binaries: %w\n%s", err, out)
	}
	return dir, nil
}

// TestChaos plays rounds until -chaos.for is over, each by the next seed.
func TestChaos(t *testing.T) {
	t.Parallel()
	first := flags.seed
	if first == 0 {
		first = rand.Uint64N(1_000_000_000)
	}
	fmt.Printf("chaos: first seed %d, %d at a time, appendfsync %s\n", first, flags.worlds, flags.fsync)
	end := time.Now().Add(flags.length)
	var next atomic.Uint64
	for i := range flags.worlds {
		t.Run(fmt.Sprintf("world %d", i), func(t *testing.T) {
			t.Parallel()
			for n := 0; n == 0 || time.Now().Before(end); n++ {
				seed := first + next.Add(1) - 1
				t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { play(t, seed) })
			}
		})
	}
}

// play is one round.
func play(t *testing.T, seed uint64) {
	began := time.Now()
	figures.seeds.Add(1)
	faults := draw(seed, flags.round)
	c := cast{apis: 2, dispatchers: 2 + int(seed%2), fsync: flags.fsync}
	loads := slices.ContainsFunc(faults, func(f fault) bool { return f.Kind == redisLoading })
	if loads {
		c.redis = slowLoading
	}
	w := newWorld(t, fmt.Sprint(seed), c)
	defer w.close()
	w.populate()
	w.settleIn()
	if loads {
		w.makeLoadingSlow()
	}

	ctx, cancel := context.WithCancel(w.ctx)
	var load group
	for i := range 3 {
		load.Go(func() { w.produce(ctx, i, stream(seed, "producer", i)) })
	}
	load.Go(func() { w.administer(ctx, stream(seed, "owner", 0)) })
	w.receivers.setIll(true)
	w.inflict(faults)
	cancel()
	load.Wait()

	w.heal()
	w.check("held")
	w.resumeAll()
	w.check("all")
	w.compareResources()
	w.end()

	status := "ok"
	if w.failed() {
		status = "WRONG, see " + w.keep(faults)
		t.Fail()
	} else if flags.keep {
		status += ", see " + w.keep(faults)
	}
	fmt.Printf("chaos: seed %d: %s in %.1f s: %s\n", seed, status, time.Since(began).Seconds(), w.summary())
}

// stream is a generator of its own for each part of a round, so that what one
// draws does not hang on what another has drawn.
func stream(seed uint64, part string, i int) *rand.Rand {
	h := uint64(14695981039346656037)
	for _, c := range []byte(fmt.Sprint(part, i)) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return rand.New(rand.NewPCG(seed, h))
}

func lines(all []string) string { return strings.Join(all, "\n") }
