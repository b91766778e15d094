// Command bench answers: how fast is fanout, beside the fastest that this machine
// could do, and beside what one would have used instead?
//
// One run, on one machine, interleaved, in rounds:
//
//   - ceiling: a bare net/http client that signs and posts, and keeps no state; it
//     runs before and after each of the others;
//   - fanout: the shipped binaries and a real redis-server, with an append-only
//     file written every second, at every write, and not at all;
//   - asynq: the same job on hibiken/asynq, one task per event and subscriber.
//
// All of them post the same 512 bytes, signed by Standard Webhooks, to the same ten
// listeners of one sink process. What counts is what arrives there. A ratio is taken
// within a round, since the machine may be another one a minute later, and the
// median is taken over rounds. The last line of the output is key=value.
//
// Four words begin something else. `bench scale` asks what a lease costs over ever more
// deliveries and subscribers, `bench cluster` what three primaries cost beside one Redis,
// `bench soak` what grows in ten minutes, and `bench figures` writes what they found into
// docs/capacity.md. Each has its own flags: -h lists them.
//
// It is a module of its own, so that what it compares with stays out of the
// product's go.mod.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	rounds  int
	short   bool
	only    string
	slots   int
	events  int // measured, per contender and round
	warm    int // posted before, so that caps have grown and connections are open
	root    string
	dir     string
	out     string
	profile string
	logs    string
	quiet   time.Duration
}

func main() {
	// The producers are in this process: with Go's default, pauses of its own small heap
	// were a third of the 202s' p99.
	debug.SetGCPercent(1000)

	if len(os.Args) > 1 {
		if run, ok := children[os.Args[1]]; ok {
			exit(run(os.Args[2:]))
			return
		}
	}
	exit(parent())
}

// children are what this binary is when it starts itself; the last four are for
// people, and runs of their own.
var children = map[string]func([]string) error{
	"sink": sinkMain, "ceiling": ceilingMain, "asynq": asynqMain,
	"scale": scaleMain, "cluster": clusterMain, "soak": soakMain, "figures": figuresMain,
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parseFlags() (options, error) {
	var o options
	flag.IntVar(&o.rounds, "rounds", 0, "rounds; default 5, with -short 1")
	flag.BoolVar(&o.short, "short", false, "less work in each: for a quick look, not for a figure to quote")
	flag.StringVar(&o.only, "only", "", "some of "+strings.Join(names(), ",")+"; default all")
	flag.IntVar(&o.slots, "slots", 128, "attempts at once: of the dispatcher, of asynq, and goroutines of the ceiling")
	flag.IntVar(&o.events, "events", 0, "events measured per contender and round, ten deliveries each; default 4000, with -short 1000")
	flag.StringVar(&o.root, "root", "..", "the product's folder")
	flag.StringVar(&o.dir, "dir", "", "where Redis keeps its files: a disk, not memory; default a new temporary folder")
	flag.StringVar(&o.out, "out", "results", "folder of results.json and the charts")
	flag.StringVar(&o.profile, "profile", "", "folder for CPU profiles of the API, the dispatcher and Redis, taken in the rounds of fanout")
	flag.StringVar(&o.logs, "log-level", "info", "of the product's binaries; their log goes to a file")
	flag.DurationVar(&o.quiet, "quiet", 0, "before each measurement, wait up to so long for the machine to have little else to do")
	flag.Parse()
	if flag.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if o.rounds == 0 {
		o.rounds = 5
		if o.short {
			o.rounds = 1
		}
	}
	if o.events == 0 {
		o.events = 4000
		if o.short {
			o.events = 1000
		}
	}
	o.warm = o.events / 4
	for one := range strings.SplitSeq(o.only, ",") {
		if o.only != "" && !slices.Contains(names(), one) {
			return o, fmt.Errorf("-only %s: want some of %s", one, strings.Join(names(), ","))
		}
	}
	if o.profile != "" { // children run elsewhere
		var err error
		if o.profile, err = filepath.Abs(o.profile); err != nil {
			return o, err
		}
		if err := os.MkdirAll(o.profile, 0o700); err != nil {
			return o, err
		}
	}
	if o.slots < 1 || o.rounds < 1 || o.events < 10 {
		return o, errors.New("-slots, -rounds and -events must be positive (events at least 10)")
	}
	return o, nil
}

func (o options) wants(name string) bool {
	return o.only == "" || slices.Contains(strings.Split(o.only, ","), name)
}

func parent() error {
	o, err := parseFlags()
	if err != nil {
		return err
	}
	ctx, cancel := untilStopped()
	defer cancel()
	b, err := newBench(ctx, o)
	if err != nil {
		return err
	}
	defer b.close()
	if inMemory(b.dir) {
		b.say("%s is in memory: figures with an append-only file are not those of a disk; see -dir", b.dir)
	}
	if err := b.run(ctx); err != nil {
		return err
	}
	return b.report(os.Stdout)
}

// untilStopped ends with a signal, or with whoever started this.
func untilStopped() (context.Context, func()) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(ctx)
	go endWithParent(ctx, cancel)
	return ctx, func() { cancel(); stop() }
}

// endWithParent cancels when `go run` was killed: it hands on no SIGTERM, and a
// bench that nobody waits for would go on eating the machine.
func endWithParent(ctx context.Context, cancel func()) {
	parent := os.Getppid()
	for ctx.Err() == nil && os.Getppid() == parent {
		time.Sleep(200 * time.Millisecond)
	}
	cancel()
}
