package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/fanout/fanout/internal/boot"
	"github.com/fanout/fanout/internal/role"
	"github.com/fanout/fanout/internal/subscriber"
)

type resealCmd struct {
	Redis   boot.Redis   `embed:"" prefix:"redis-"`
	Secrets boot.Secrets `embed:"" prefix:"secrets-"`
	Log     boot.Log     `embed:"" prefix:"log-"`
	Output  string       `default:"table" enum:"table,json" help:"table, which is a line of figures, or json." short:"o"`
}

// Help is shown by `fanout reseal --help`.
func (*resealCmd) Help() string {
	return `Seals the URL, secrets and headers of every subscriber under the first of the
keys, be they in the clear or under another one. Nothing else changes, and
nothing is held up: run it beside the service. It may be interrupted and run
again. The last line is figures; the exit code is 1 if any could not be opened.

To introduce a key: give it to every process, then reseal. To replace one: put
the new key last everywhere, then first everywhere, reseal, and drop the old one.

Example:

  fanout reseal --redis-addr=127.0.0.1:6379 --secrets-key-file=/run/secrets/fanout-keys`
}

// Run reseals until all is done, or a signal comes.
func (c *resealCmd) Run(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	told := time.Now()
	done, err := role.Reseal(ctx, c.Redis, c.Secrets, boot.NewLogger(c.Log, os.Stderr), func(r subscriber.ResealResult) {
		if time.Since(told) >= time.Second {
			told = time.Now()
			fmt.Fprintf(os.Stderr, "subscribers looked at: %d, resealed: %d\n", r.Seen(), r.Sealed)
		}
	})
	if done.Seen() > 0 || err == nil {
		format := "resealed=%d already=%d unreadable=%d\n"
		if c.Output == "json" {
			format = `{"resealed": %d, "already": %d, "unreadable": %d}` + "\n"
		}
		fmt.Printf(format, done.Sealed, done.Already, done.Unreadable)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted; run it again for the rest: %w", context.Cause(ctx))
	}
	return err
}
