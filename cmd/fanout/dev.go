package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/fanout/fanout/internal/boot"
	"github.com/fanout/fanout/internal/demo"
	"github.com/fanout/fanout/internal/role"
)

type devCmd struct {
	Listen boot.Loopback `default:"127.0.0.1:8080" env:"FANOUT_LISTEN" help:"Address of the API and the page; if the default is taken, any free port."`
	Data   string        `default:"./data" env:"FANOUT_DATA" help:"Folder of the Redis that is started." placeholder:"DIR"`
	Demo   bool          `help:"Play once in a temporary folder, check the outcome, and exit: 0 if all was right, else 1."`
}

// Help is shown by `fanout dev --help`.
func (*devCmd) Help() string {
	return `Starts a redis-server of its own if there is one on PATH (else an in-memory
stand-in), the API, a dispatcher and some endpoints that behave well and badly;
registers them, posts shipment events, and prints what becomes of each.

Examples:

  fanout dev            # until Ctrl-C; the state stays in ./data
  fanout dev --demo     # ends by itself`
}

const (
	devSlots = 32
	devGrace = 3 * time.Second
)

// Run runs both roles and the play in one process.
func (c *devCmd) Run(ctx context.Context) (err error) {
	lines := demo.NewHandler(os.Stdout, demo.UseColor(os.Stdout))
	logger := slog.New(lines)
	if c.Demo {
		if c.Data, err = os.MkdirTemp("", "fanout-demo-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(c.Data)) }()
	}
	addr, durable, stopRedis, err := demo.StartRedis(ctx, demo.RedisOptions{Dir: c.Data, Logger: logger})
	if err != nil {
		return err
	}
	ln, err := c.bind(ctx)
	if err != nil {
		return errors.Join(err, stopRedis(ctx))
	}
	stages, last, err := c.stages(ctx, addr, durable, ln, logger)
	if err != nil {
		return errors.Join(err, ln.Close(), stopRedis(ctx))
	}
	state := "in memory only: it is gone when this process ends"
	if durable {
		state = "redis-server at " + addr + ", append-only file in " + c.Data
	}
	url := "http://" + ln.Addr().String()
	play := boot.Stage{Name: "play", Run: func(ctx context.Context) error {
		_, err := demo.Run(ctx, demo.Options{BaseURL: url, End: c.Demo, Lines: lines, State: state})
		return err
	}}
	// The play stops behind the dispatcher: its endpoints answer to the end.
	stages = append(stages, play, last,
		boot.Stage{Name: "redis-server", Run: func(ctx context.Context) error {
			<-ctx.Done()
			return stopRedis(context.WithoutCancel(ctx))
		}})
	// The play's last line is the last line: what the stop logs is not of interest
	// unless it fails, and then it is in the error.
	return boot.Run(ctx, slog.New(slog.DiscardHandler), stages...)
}

// stages are both roles over one Redis, allowed to call loopback, and the one to
// stop after all others.
func (c *devCmd) stages(
	ctx context.Context, addr string, durable bool, ln net.Listener, logger *slog.Logger,
) ([]boot.Stage, boot.Stage, error) {
	cfg := boot.Common{
		Redis:   boot.Redis{Addr: []string{addr}, Partitions: 1, PoolSize: 32, AllowUnsafe: !durable},
		Secrets: boot.Secrets{InTheClear: true},
		Classes: boot.Classes{"standard": time.Minute},
	}
	loopback := role.Endpoint{
		AllowHTTP: true, AllowAnyPort: true, AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	}
	parts, last, err := role.Assemble(ctx, "fanout-dev", cfg, loopback, logger)
	if err != nil {
		return nil, last, err
	}
	stages, err := role.API(ctx, parts, ln, boot.Access{Keyless: true})
	if err != nil {
		return nil, last, err
	}
	work := role.Work{Slots: devSlots, Grace: devGrace}
	return append(stages, role.Dispatcher(parts, work, nil)...), last, nil
}

// bind takes the address asked for; the default gives way to whoever has it.
func (c *devCmd) bind(ctx context.Context) (net.Listener, error) {
	ln, err := c.Listen.Bind(ctx)
	if errors.Is(err, syscall.EADDRINUSE) && c.Listen == "127.0.0.1:8080" {
		free := boot.Loopback("127.0.0.1:0")
		return free.Bind(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%w (choose another by --listen)", err)
	}
	return ln, nil
}
