// Command dispatcher leases deliveries and sends them. Run as many as the load
// asks for: they share nothing but Redis.
package main

import (
	"context"
	"os"

	"github.com/alecthomas/kong"

	"github.com/fanout/fanout/internal/boot"
	"github.com/fanout/fanout/internal/role"
)

type cli struct {
	boot.Common
	role.Endpoint
	role.Work

	Version kong.VersionFlag `help:"Print the version and exit."`
}

func main() {
	var c cli
	k := kong.Must(&c, append(boot.Options(
		"dispatcher sends fanout's deliveries: it leases what is due, posts it signed, and settles what came of it.\n\n"+
			"Example: dispatcher --redis-addr=127.0.0.1:6379 --slots=200", "127.0.0.1:9090"), kong.Name("dispatcher"))...)
	kctx, err := k.Parse(os.Args[1:])
	if err != nil {
		k.Errorf("%s\nRun %q to see what it takes.", err, "dispatcher --help")
		os.Exit(2)
	}
	kctx.FatalIfErrorf(c.run(context.Background()))
}

func (c *cli) run(ctx context.Context) error {
	if err := c.Check(); err != nil {
		return err
	}
	parts, last, err := role.Assemble(ctx, "fanout-dispatcher", c.Common, c.Endpoint, boot.NewLogger(c.Log, os.Stderr))
	if err != nil {
		return err
	}
	ln, err := c.Listen.Bind(ctx)
	if err != nil {
		return err
	}
	parts.Logger.Info("dispatching", "version", boot.Version(), "slots", c.Slots, "metrics", c.Listen.Bound(ln))
	return boot.Run(ctx, parts.Logger, append(role.Dispatcher(parts, c.Work, ln), last)...)
}
