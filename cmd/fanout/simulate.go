package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/simulate"
)

type simulateCmd struct {
	Scenario string `arg:"" help:"calm, outage or hang; or leave it out and give --file or --group." optional:""`

	File        string         `help:"YAML file of a scenario; see docs/simulate.md." placeholder:"FILE"`
	Rate        *float64       `help:"Events a second." placeholder:"N"`
	Steady      bool           `help:"Events come evenly, and not as by chance (Poisson)."`
	Duration    *time.Duration `help:"For how long events come." placeholder:"TIME"`
	RunOn       *time.Duration `help:"How long to go on after that for what is pending; default 24h." placeholder:"TIME"`
	Seed        *uint64        `help:"The same seed gives the same figures; default 1." placeholder:"N"`
	Slots       *int           `help:"Slots of each dispatcher; default 100." placeholder:"N"`
	Dispatchers *int           `help:"Dispatchers; default 1." placeholder:"N"`
	Group       []string       `help:"A group of endpoints, such as slow:endpoints=10,fanout=1,p50=1s,p99=5s,failures=0.01,status=503; again for each. They take the place of the scenario's." placeholder:"NAME:FIELD=VALUE,..." sep:"none"`
	Outage      []string       `help:"An outage of a group, such as slow:from=10m,for=15m,does=hang,share=0.5; does is refuse, 500, hang or 429 (with retry_after=30s)." placeholder:"GROUP:FIELD=VALUE,..." sep:"none"`
	Policy      []string       `help:"A policy to compare, such as quick:max_attempts=8,backoff_base=2s; again for each. What is left out is the default." placeholder:"NAME:FIELD=VALUE,..." sep:"none"`
	Output      string         `default:"table" enum:"table,json" help:"table or json." short:"o"`
	SVG         string         `help:"Folder to draw charts into: cost.svg, slots.svg and an age chart for each group." name:"svg" placeholder:"DIR"`
}

// Help is shown by `fanout simulate --help`.
func (*simulateCmd) Help() string {
	return `Plays a scenario under one or several policies without sending anything: how old
deliveries get, how many requests and slots that takes, and what dies. It needs no
Redis and no service. The exit code is 2 for a scenario that cannot be played.

Examples:

  fanout simulate outage
  fanout simulate outage --policy=default: --policy=patient:breaker_failures=10 --svg=charts
  fanout simulate --rate=20 --group=all:endpoints=5,p50=80ms,p99=2s --outage=all:from=5m,for=2m,does=429,retry_after=30s
  fanout simulate --file=ours.yaml --slots=200 -o json`
}

// usageError ends the process with the exit code of a command line that is not
// understood.
type usageError struct{ error }

func (usageError) ExitCode() int { return 2 }

func (e usageError) Unwrap() error { return e.error }

// Run plays until the end, or a signal comes.
func (c *simulateCmd) Run(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	report, err := c.play(ctx)
	switch {
	case errors.Is(err, simulate.ErrScenario):
		return usageError{err}
	case err != nil:
		return err
	}
	if c.Output == "json" {
		err = report.WriteJSON(os.Stdout)
	} else {
		err = report.WriteTable(os.Stdout)
	}
	if err != nil || c.SVG == "" {
		return err
	}
	files, err := report.Save(c.SVG)
	if len(files) > 0 {
		fmt.Fprintln(os.Stderr, "drawn: "+strings.Join(files, ", "))
	}
	return err
}

func (c *simulateCmd) play(ctx context.Context) (*simulate.Report, error) {
	sc, err := c.scenario()
	if err != nil {
		return nil, err
	}
	return simulate.Run(ctx, sc, progress())
}

// scenario is the file's or the one that is built in, and what the flags change of it.
func (c *simulateCmd) scenario() (*simulate.Scenario, error) {
	sc, err := c.base()
	if err != nil {
		return nil, err
	}
	sc.Steady = c.Steady || sc.Steady
	given := simulate.Given{
		Rate: c.Rate, Duration: (*delivery.Duration)(c.Duration), RunOn: (*delivery.Duration)(c.RunOn),
		Seed: c.Seed, Slots: c.Slots, Dispatchers: c.Dispatchers,
	}
	if err := given.Apply(sc, flagOf); err != nil {
		return nil, err
	}
	if len(c.Group) > 0 {
		sc.Groups = nil
	}
	for _, text := range c.Group {
		g, err := simulate.ParseGroup(text)
		if err != nil {
			return nil, err
		}
		sc.Groups = append(sc.Groups, g)
	}
	for _, text := range c.Outage {
		group, o, err := simulate.ParseOutage(text)
		if err == nil {
			err = sc.AddOutage(group, o)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(c.Policy) > 0 {
		sc.Policies = nil
	}
	for _, text := range c.Policy {
		p, err := simulate.ParsePolicy(text)
		if err != nil {
			return nil, err
		}
		sc.Policies = append(sc.Policies, p)
	}
	return sc, nil
}

// flagOf is the flag of a scenario's field.
func flagOf(field string) string { return "--" + strings.ReplaceAll(field, "_", "-") }

func (c *simulateCmd) base() (*simulate.Scenario, error) {
	switch {
	case c.File != "" && c.Scenario != "":
		return nil, fmt.Errorf("%w: it is a name or --file, not both", simulate.ErrScenario)
	case c.File != "":
		f, err := os.Open(c.File)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", simulate.ErrScenario, err)
		}
		defer f.Close() //nolint:errcheck // it was only read
		return simulate.Read(f)
	case c.Scenario != "":
		if sc := simulate.Builtin(c.Scenario); sc != nil {
			return sc, nil
		}
		return nil, fmt.Errorf("%w: there is no %q; there are %s", simulate.ErrScenario, c.Scenario, strings.Join(simulate.Names, ", "))
	case len(c.Group) > 0:
		return &simulate.Scenario{Name: "scenario", Rate: 1}, nil
	}
	return nil, fmt.Errorf("%w: name one (%s), or give --file or --group", simulate.ErrScenario, strings.Join(simulate.Names, ", "))
}

// progress says on stderr, once a second and from the second one on, how far the runs
// are: short ones say nothing.
func progress() simulate.Progress {
	var mu sync.Mutex
	told := time.Now().Add(time.Second)
	return func(policy string, at, of time.Duration, pending int64) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(told) < time.Second {
			return
		}
		told = time.Now()
		fmt.Fprintf(os.Stderr, "%s: %s played, of %s at most; deliveries pending: %d\n", policy, at.Round(time.Second), of, pending)
	}
}
