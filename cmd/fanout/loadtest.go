package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fanout/fanout/internal/boot"
	"github.com/fanout/fanout/internal/loadtest"
)

type loadtestCmd struct {
	Scenario    []string `enum:"calm,hang,hang-small,outage,backlog,slow,redrive,redrive-fails" default:"calm,hang,hang-small,outage,backlog,slow,redrive,redrive-fails" help:"What to play: calm, hang, hang-small, outage, backlog, slow, redrive, redrive-fails." placeholder:"NAME"`
	Short       bool     `help:"The form for CI: about 20 s for each."`
	Slots       int      `default:"100" help:"Slots of each dispatcher."`
	Dispatchers int      `default:"1" help:"Dispatchers to start."`
	Out         string   `default:"./bin/loadtest" help:"Folder for results.json and the plots." placeholder:"DIR"`
	Bin         string   `help:"Folder of the binaries fanout and dispatcher; default: that of this one." placeholder:"DIR"`
}

// Help is shown by `fanout loadtest --help`.
func (*loadtestCmd) Help() string {
	return `Plays scenarios over real processes and sockets, each with a redis-server, API,
dispatcher and endpoints of its own, and measures at the endpoints whether a bad
subscriber delays the others. The last line is figures; the exit code is 1 if a
bound is broken, with a sentence for each.

Examples:

  fanout loadtest --short
  fanout loadtest --scenario=calm,hang --out=plots`
}

// stopFor is what the play may take to clear up after a signal.
const stopFor = 30 * time.Second

// Run plays until the last scenario is over, or a signal comes.
func (c *loadtestCmd) Run(ctx context.Context) error {
	if c.Bin == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find the folder of the binaries: %w", err)
		}
		c.Bin = filepath.Dir(self)
	}
	// Not the stage's own error: of that a signal's part is forgiven, and a play that
	// was broken off has not passed.
	outcome := errors.New("it did not come to an end")
	err := boot.Run(ctx, slog.New(slog.DiscardHandler), boot.Stage{
		Name: "load test", Grace: stopFor,
		Run: func(ctx context.Context) error { outcome = c.play(ctx); return nil },
	})
	if err != nil { // it was left behind: its outcome is still to come
		return err
	}
	return outcome
}

func (c *loadtestCmd) play(ctx context.Context) error {
	report, err := loadtest.Run(ctx, loadtest.Options{
		Scenarios: c.Scenario, Short: c.Short, Slots: c.Slots, Dispatchers: c.Dispatchers,
		Bin: c.Bin, Log: os.Stdout,
	})
	if err != nil {
		return err
	}
	if err := report.Save(c.Out); err != nil {
		return err
	}
	fmt.Println()
	if err := report.WriteTable(os.Stdout); err != nil {
		return err
	}
	fmt.Printf("\nresults.json and the plots are in %s\n", c.Out)
	for _, b := range report.Broken {
		fmt.Println("BROKEN  " + b)
	}
	fmt.Println(report.Figures())
	if n := len(report.Broken); n > 0 {
		return fmt.Errorf("bounds that are broken: %d", n)
	}
	return nil
}
