// Command fanout is the API server, and `fanout dev` the whole service in one
// process with something to watch.
package main

import (
	"context"
	"os"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/fanout/fanout/internal/boot"
	"github.com/fanout/fanout/internal/cli"
	"github.com/fanout/fanout/internal/role"
)

type app struct {
	Serve serveCmd `cmd:"" help:"Serve the API and the on-call page."`
	Dev   devCmd   `cmd:"" help:"Run everything in one process, with demo receivers and events to watch."`

	Loadtest loadtestCmd `cmd:"" help:"Measure whether a bad endpoint delays the others, over real processes."`
	Simulate simulateCmd `cmd:"" help:"Say what a policy costs and gains, before it is rolled out."`

	Doctor doctorCmd `cmd:"" help:"Look for what is set up badly: settings, Redis, dispatchers, API; each with what to do."`
	Reseal resealCmd `cmd:"" help:"Seal the secrets of every subscriber under the first key."`

	cli.Commands // run by cli.Run; here they are listed

	Version kong.VersionFlag `help:"Print the version and exit."`
}

func main() {
	args := asked(os.Args[1:])
	if cli.Knows(args) {
		os.Exit(cli.Run(context.Background(), args, os.Stdin, os.Stdout, os.Stderr))
	}
	var c app
	k := kong.Must(&c, append(boot.Options(
		"fanout turns each event into one durable, signed webhook per subscriber.\n\n"+
			"To see it work: fanout dev\n\n"+
			"Exit codes: 0 done, 1 failed, 2 not understood, 3 the service is away or unwell.", "127.0.0.1:8080"),
		kong.Name("fanout"), cli.Readers())...)
	kctx, err := k.Parse(args)
	if err != nil {
		os.Exit(cli.Misread(os.Stderr, err))
	}
	kctx.BindTo(context.Background(), (*context.Context)(nil))
	kctx.FatalIfErrorf(kctx.Run())
}

// asked is the command line, with `fanout help COMMAND` as `fanout COMMAND --help`.
func asked(args []string) []string {
	if len(args) > 0 && args[0] == "help" {
		return append(slices.Clone(args[1:]), "--help")
	}
	return args
}

type serveCmd struct {
	boot.Common
	role.Endpoint
	boot.Access
}

// Help is shown by `fanout serve --help`.
func (*serveCmd) Help() string {
	return `Example:

  fanout serve --redis-addr=127.0.0.1:6379 --class=standard=60s,bulk=15m
  FANOUT_ADMIN_KEY=$(openssl rand -hex 32) fanout serve --listen=0.0.0.0:8080

Run at least one dispatcher beside it: the API accepts and expands events, the
dispatchers send them. Redis needs appendonly yes and maxmemory-policy noeviction.

Without any key the API serves this machine alone, and everybody on it. With
FANOUT_ADMIN_KEY, or a key made by POST /v1/keys, it asks for one.`
}

// Run serves until a signal.
func (c *serveCmd) Run(ctx context.Context) error {
	parts, last, err := role.Assemble(ctx, "fanout", c.Common, c.Endpoint, boot.NewLogger(c.Log, os.Stderr))
	if err != nil {
		return err
	}
	ln, err := c.Listen.Bind(ctx)
	if err != nil {
		return err
	}
	stages, err := role.API(ctx, parts, ln, c.Access)
	if err != nil {
		return err
	}
	at := c.Listen.Bound(ln)
	parts.Logger.Info("serving", "version", boot.Version(), "api", "http://"+at, "page", "http://"+at+"/oncall")
	return boot.Run(ctx, parts.Logger, append(stages, last)...)
}
