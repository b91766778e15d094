package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/fanout/fanout/internal/plot"
)

// bench is one run: a sink, and rounds of measurements.
type bench struct {
	o     options
	self  string // this binary
	bin   string // folder of the product's binaries
	dir   string // of all that is left behind by the children, removed at the end
	board *board
	sink  *child
	urls  string // of the sink, by commas
	made  int    // stacks so far
	took  results
	// curves are the arrivals over time of the last measurement of each contender;
	// last is of the one just measured.
	curves map[string][]plot.Point
	last   []plot.Point
}

func newBench(ctx context.Context, o options) (*bench, error) {
	b := &bench{o: o, curves: map[string][]plot.Point{}}
	var err error
	if b.self, err = os.Executable(); err != nil {
		return nil, err
	}
	if b.dir, err = os.MkdirTemp(o.dir, "fanout-bench-"); err != nil {
		return nil, err
	}
	if err := b.prepare(ctx); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// prepare builds what is shipped, as it is shipped, and starts the sink.
func (b *bench) prepare(ctx context.Context) error {
	b.bin = filepath.Join(b.dir, "bin")
	args := []string{"build", "-trimpath", "-ldflags=-s -w"}
	if b.o.profile != "" {
		overlay, err := b.overlay()
		if err != nil {
			return err
		}
		args = []string{"build", overlay}
	}
	build := exec.CommandContext(ctx, "go", append(args, "-o", b.bin+"/", "./cmd/...")...) //nolint:gosec // our own arguments
	build.Dir, build.Env = b.o.root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the product in %s: %w\n%s", b.o.root, err, out)
	}
	var err error
	page := filepath.Join(b.dir, "board")
	if b.board, err = openBoard(page); err != nil {
		return err
	}
	if b.sink, err = spawn(b.dir, "sink", b.self, "sink", page); err != nil {
		return err
	}
	b.urls, err = b.sink.say(ctx, "")
	return err
}

func (b *bench) close() {
	b.sink.stop()
	_ = os.RemoveAll(b.dir)
}

// contender is one way to send, or a figure to take.
type contender struct {
	name string
	// sends says that deliveries go out: such a one stands between two ceilings.
	sends bool
	run   func(*bench, context.Context) error
}

// contenders in the order of the first round. Each later round begins one further,
// so that none is always the one after the hottest.
var contenders = []contender{
	{"fanout", true, func(b *bench, ctx context.Context) error { return b.fanout(ctx, "everysec") }},
	{"always", true, func(b *bench, ctx context.Context) error { return b.fanout(ctx, "always") }},
	{"noaof", true, func(b *bench, ctx context.Context) error { return b.fanout(ctx, "none") }},
	{"asynq", true, (*bench).asynq},
	{"ingest", false, (*bench).ingest},
	{"memory", false, (*bench).memory},
	{"match", false, (*bench).match},
}

func names() []string {
	all := []string{"ceiling"}
	for _, c := range contenders {
		all = append(all, c.name)
	}
	return all
}

func (b *bench) run(ctx context.Context) error {
	for round := range b.o.rounds {
		b.took.begin()
		if err := b.ceiling(ctx); err != nil {
			return fmt.Errorf("round %d, ceiling: %w", round+1, err)
		}
		b.say("round %d/%d ceiling  %s", round+1, b.o.rounds, b.took.brief("ceiling"))
		for i := range contenders {
			c := contenders[(i+round)%len(contenders)]
			if !b.o.wants(c.name) {
				continue
			}
			if err := waitQuiet(ctx, b.o.quiet); err != nil {
				return err
			}
			if err := b.between(ctx, c); err != nil {
				return fmt.Errorf("round %d, %s: %w", round+1, c.name, err)
			}
			b.say("round %d/%d %-8s %s", round+1, b.o.rounds, c.name, b.took.brief(c.name))
		}
	}
	return nil
}

// between runs a contender, and the ceiling after it. What it is compared with is
// the mean of the ceilings just before and just after: on a machine that others use
// too, a ratio is worth as much as its halves are close in time.
func (b *bench) between(ctx context.Context, c contender) error {
	if err := c.run(b, ctx); err != nil || !c.sends || !b.o.wants("ceiling") {
		return err
	}
	if err := b.ceiling(ctx); err != nil {
		return err
	}
	all := b.took.ceilings()
	before, after := all[len(all)-2], all[len(all)-1]
	b.took.amend(keys[c.name], func(s *sample) {
		s.Ceiling = (before.Rate + after.Rate) / 2
		s.Disturbed = s.Disturbed || before.Disturbed || after.Disturbed
	})
	return nil
}

// say reports progress, on stderr.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// usage is CPU in ms, by process.
type usage map[string]float64

// meter runs f and returns what each process, and any stranger, used meanwhile.
func (b *bench) meter(f func() error, processes map[string]*child) (usage, float64, error) {
	processes["sink"] = b.sink
	read := func() usage {
		u := usage{"machine": machineCPU(), "loader": cpuOf("self")}
		for name, c := range processes {
			u[name] = c.cpu()
		}
		return u
	}
	curve := b.curve()
	start, before := time.Now(), read()
	err := f()
	took, after := time.Since(start), read()
	b.last = curve()
	used, ours := usage{}, 0.0
	for name := range after {
		used[name] = after[name] - before[name]
		if name != "machine" {
			ours += used[name]
		}
	}
	foreign := (used["machine"] - ours) / (float64(runtime.NumCPU()) * float64(took.Milliseconds()))
	delete(used, "machine")
	return used, 100 * max(0, foreign), err
}

// waitQuiet returns when the machine was all but idle for a moment, or at the limit.
func waitQuiet(ctx context.Context, limit time.Duration) error {
	const look = 300 * time.Millisecond
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		start, before := time.Now(), machineCPU()
		if err := rest(ctx, look); err != nil {
			return err
		}
		share := (machineCPU() - before) / (float64(runtime.NumCPU()) * float64(time.Since(start).Milliseconds()))
		if share < tooForeign/100.0 {
			return nil
		}
	}
	return nil
}

// ceiling is what is left when there is nothing but signing and posting.
func (b *bench) ceiling(ctx context.Context) error {
	if !b.o.wants("ceiling") {
		return nil
	}
	if err := waitQuiet(ctx, b.o.quiet); err != nil {
		return err
	}
	n := b.o.events * endpoints
	c, err := spawn(b.dir, "ceiling", b.self, "ceiling", b.urls, strconv.Itoa(b.o.slots))
	if err != nil {
		return err
	}
	defer c.stop()
	if _, err := c.say(ctx, strconv.Itoa(n/4)); err != nil { // connections
		return err
	}
	b.board.reset()
	used, foreign, err := b.meter(func() error {
		_, err := c.say(ctx, strconv.Itoa(n))
		return err
	}, map[string]*child{"client": c})
	if err != nil {
		return err
	}
	return b.arrivals(fmt.Sprintf("ceiling-%d", len(b.took.ceilings())+1), n, used, foreign, nil)
}

// arrivals notes a rate by what the sink saw, and fails if it saw too little or
// other bodies than agreed.
func (b *bench) arrivals(name string, n int, used usage, foreign float64, more func(*sample)) error {
	got, size := b.board.count.Load(), b.board.bytes.Load()
	if got < int64(n) {
		return fmt.Errorf("%d of %d deliveries arrived", got, n)
	}
	if size != got*bodySize {
		return fmt.Errorf("%d bodies of %d bytes in all: want %d each", got, size, bodySize)
	}
	s := sample{Rate: float64(n) / b.board.seconds(), CPU: usage{}, Foreign: foreign, Disturbed: foreign > tooForeign, Repeated: int(got) - n}
	for process, ms := range used {
		s.CPU[process] = ms / float64(n)
	}
	if more != nil {
		more(&s)
	}
	b.took.add(name, s)
	b.curves[name] = b.last
	return nil
}
