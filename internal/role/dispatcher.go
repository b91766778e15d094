package role

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"time"

	"github.com/fanout/fanout/internal/boot"
	"github.com/fanout/fanout/internal/dispatch"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/webhook"
)

// Endpoint says which addresses may be registered and called.
type Endpoint struct {
	AllowHTTP    bool           `env:"FANOUT_ALLOW_HTTP"     help:"Allow endpoints with plain http."`
	AllowCIDR    []netip.Prefix `env:"FANOUT_ALLOW_CIDR"     help:"Ranges that may be called although they are not public, such as 10.1.0.0/16." placeholder:"CIDR,..."`
	AllowPort    []uint16       `env:"FANOUT_ALLOW_PORT"     help:"Ports that may be called; default 443, and 80 with --allow-http."             placeholder:"PORT,..."`
	AllowAnyPort bool           `env:"FANOUT_ALLOW_ANY_PORT" help:"Allow every port."`
	InitialCap   int            `env:"FANOUT_INITIAL_CAP"    help:"Requests that a new endpoint may get at once; each success allows more, up to its max_in_flight." default:"1"`

	// Resolver of the endpoints' names; nil is the pure Go one. It is no setting:
	// it is here for tests, whose names come, go and change.
	Resolver *net.Resolver `kong:"-"`
}

func (e Endpoint) guard() *webhook.Guard {
	return webhook.NewGuard(webhook.GuardOptions{
		AllowHTTP: e.AllowHTTP, AllowCIDRs: e.AllowCIDR, Ports: e.AllowPort, AnyPort: e.AllowAnyPort,
	})
}

// Work is how a dispatcher works.
type Work struct {
	Slots int           `default:"100" env:"FANOUT_SLOTS" help:"Attempts at once."`
	Grace time.Duration `default:"65s" env:"FANOUT_GRACE" help:"How long a stop lets requests on the wire finish; above the longest attempt timeout, 60s."`
	Slice string        `env:"FANOUT_SLICE" help:"What you call the part of the fleet that this worker belongs to, such as canary: it stands in its reports." placeholder:"NAME"`
}

var sliceName = regexp.MustCompile(`^[A-Za-z0-9._-]{0,32}$`)

// Check says what is out of bounds, naming the flag.
func (w Work) Check() error {
	const maxSlots = 10_000 // each is a goroutine with a socket
	if w.Slots < 1 || w.Slots > maxSlots {
		return fmt.Errorf("--slots must be from 1 to %d, is %d", maxSlots, w.Slots)
	}
	if w.Grace < 0 || w.Grace > 10*time.Minute {
		return fmt.Errorf("--grace must be from 0s to 10m, is %s", w.Grace)
	}
	if !sliceName.MatchString(w.Slice) {
		return fmt.Errorf("--slice must be at most 32 of A-Z a-z 0-9 . _ -, is %q", w.Slice)
	}
	return nil
}

// settleMargin is what a stop may need beyond the grace: dispatch settles what is
// left, detached from the stop.
const settleMargin = 20 * time.Second

// Dispatcher is the process that sends. With a listener it serves its own
// metrics and probes there.
func Dispatcher(p Parts, w Work, ln net.Listener) []boot.Stage {
	sender := webhook.New(webhook.Options{
		Guard: p.Endpoint.guard(), Version: boot.Version(), MaxIdlePerHost: w.Slots, Resolver: p.Endpoint.Resolver,
	})
	d := dispatch.New(p.Engine, subscriber.NewDirectory(p.Engine, p.sealing()), sender, dispatch.Options{
		Version: boot.Version(), Slice: w.Slice, Slots: w.Slots, Classes: p.classNames(),
		Grace:  max(w.Grace, time.Nanosecond), // 0 would be its default
		Logger: p.Logger, Registerer: p.Registry, TracerProvider: p.Tracer,
	})
	p.tellBuild(w.Slice)
	stages := []boot.Stage{{
		Name: "dispatcher", Grace: w.Grace + settleMargin,
		Run: func(ctx context.Context) error {
			defer sender.Close()
			return d.Run(ctx)
		},
	}}
	if ln == nil {
		return stages
	}
	keys := subscriber.NewCheckup(p.Engine, p.sealing())
	ready := func(ctx context.Context) error { return errors.Join(p.Engine.Ready(ctx), d.Ready(), keys.Ready(ctx)) }
	return append(stages, boot.Stage{Name: "keys", Run: keys.Run}, boot.Stage{
		Name: "probes",
		Run:  func(ctx context.Context) error { return boot.Serve(ctx, ln, probes(p, ready)) },
	})
}

// probeTimeout bounds what asks for so little.
const probeTimeout = 5 * time.Second

// probes are what a dispatcher serves: it has no API.
func probes(p Parts, ready func(context.Context) error) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metricsHandler(p.Registry))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if err := ready(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusOK)
	})
	return &http.Server{
		Handler: mux, ReadHeaderTimeout: probeTimeout, ReadTimeout: probeTimeout, WriteTimeout: 3 * probeTimeout,
		ErrorLog: slog.NewLogLogger(p.Logger.Handler(), slog.LevelDebug),
	}
}
