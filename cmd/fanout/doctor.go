package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/boot"
	"github.com/fanout/fanout/internal/role"
)

type doctorCmd struct {
	boot.Common
	role.Endpoint

	API     string        `env:"FANOUT_API" help:"Address of an API to ask as well; its key is in FANOUT_KEY." placeholder:"URL"`
	Output  string        `default:"table" enum:"table,json" help:"table, or json." short:"o"`
	Timeout time.Duration `default:"15s" help:"Bound of it all."`
}

// Help is shown by `fanout doctor --help`.
func (*doctorCmd) Help() string {
	return `Looks at the settings that a process would start with, at the Redis that they
name, and at an API if one is named: version, append-only file, eviction, clock,
memory, layout, ledger, classes that differ between processes, dispatchers that
report, what subscribers may have requests sent to. Each finding says what to do.
Nothing is changed. Exit code 3 if something is bad.

Example:

  fanout doctor --redis-addr=127.0.0.1:6379 --class=standard=60s --api=http://127.0.0.1:8080`
}

// Run looks, tells, and exits by what was found.
func (c *doctorCmd) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	var api *client.Client
	if c.API != "" {
		var err error
		if api, err = client.New(strings.TrimRight(c.API, "/"), strings.TrimSpace(os.Getenv("FANOUT_KEY")), client.WithRetries(0)); err != nil {
			return fmt.Errorf("--api, FANOUT_API or FANOUT_KEY: %w", err)
		}
		defer api.Close()
	}
	checks := role.Doctor(ctx, c.Common, c.Endpoint, api)
	if err := c.print(checks); err != nil {
		return err
	}
	for _, one := range checks {
		if one.Level == role.Bad {
			return unwellError{}
		}
	}
	return nil
}

// unwellError ends with the exit code of a service that is unwell.
type unwellError struct{}

func (unwellError) Error() string { return "something is set up badly, or unwell: see above" }

// ExitCode is kong's.
func (unwellError) ExitCode() int { return 3 }

func (c *doctorCmd) print(checks []role.Check) error {
	if c.Output == "json" {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(map[string]any{"checks": checks})
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, one := range checks {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\n", one.Level, one.About, one.Says)
		if one.Do != "" {
			_, _ = fmt.Fprintf(t, "\t\t-> %s\n", one.Do)
		}
	}
	return t.Flush()
}
