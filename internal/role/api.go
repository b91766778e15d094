package role

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/trace"

	"github.com/fanout/fanout/docs"
	"github.com/fanout/fanout/internal/access"
	"github.com/fanout/fanout/internal/boot"
	"github.com/fanout/fanout/internal/console"
	"github.com/fanout/fanout/internal/crash"
	"github.com/fanout/fanout/internal/httpapi"
	"github.com/fanout/fanout/internal/ingest"
	"github.com/fanout/fanout/internal/oncall"
	"github.com/fanout/fanout/internal/redrive"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/seal"
	"github.com/fanout/fanout/internal/subscriber"
)

// Parts are what every role is made of.
type Parts struct {
	Engine   *schedule.Engine
	Endpoint Endpoint
	Classes  boot.Classes
	Logger   *slog.Logger
	Registry *prometheus.Registry
	Tracer   trace.TracerProvider
	Keyring  *seal.Keyring // nil: secrets are in the clear

	openAccess   func(access.Options) (*access.Store, error)
	openRedrives func(redrive.Options) *redrive.Service
}

// classNames, in order; the first is the default of a subscriber: "standard" if
// there is such a class.
func (p Parts) classNames() []string {
	names := slices.Sorted(maps.Keys(p.Classes))
	if i := slices.Index(names, "standard"); i > 0 {
		names = append([]string{"standard"}, slices.Delete(names, i, i+1)...)
	}
	return names
}

// houseKeeping is how often the API process finishes deletes that a crash or an
// impatient caller left half done, and forgets dead letters past their retention.
const houseKeeping = time.Minute

// API is the process that accepts events, keeps subscribers and shows on-call, for
// those whom its keys let in. It returns boot.ErrNoKey for a listener that other
// machines reach while there is no key. A Redis that is away is no reason not to
// start: who asks is then not known, and nobody is let in.
func API(ctx context.Context, p Parts, ln net.Listener, a boot.Access) ([]boot.Stage, error) {
	who, err := p.access(a)
	if err != nil {
		return nil, err
	}
	local := boot.OnLoopback(ln)
	if open, err := who.Gate.Open(ctx); !local && open {
		return nil, fmt.Errorf("listen on %s: %w", ln.Addr(), boot.ErrNoKey)
	} else if err != nil {
		p.Logger.WarnContext(ctx, "cannot read the keys yet", "error", err)
	}
	dir := subscriber.NewDirectory(p.Engine, p.sealing())
	store := subscriber.New(p.Engine, p.Endpoint.guard(), p.classNames(), p.Engine.Now, p.sealing(), subscriber.WithDirectory(dir))
	keys := subscriber.NewCheckup(p.Engine, p.sealing())
	in := ingest.New(p.Engine, dir, ingest.Options{
		Logger: p.Logger, Registerer: p.Registry, TracerProvider: p.Tracer,
	})
	ready := func(ctx context.Context) error { return errors.Join(p.Engine.Ready(ctx), in.Ready(), keys.Ready(ctx)) }
	reconcile, err := oncall.NewReconciler(p.Engine, p.Logger, p.Registry)
	if err != nil {
		return nil, fmt.Errorf("on-call: %w", err)
	}
	redrives := p.openRedrives(redrive.Options{
		Classes: p.Classes, ClassOf: classOf(store), Audit: httpapi.AuditRedrives(who.Audit), Logger: p.Logger,
	})
	p.tellBuild("")
	watch, err := p.watch(ready, reconcile, redrives)
	if err != nil {
		return nil, fmt.Errorf("on-call: %w", err)
	}
	pages, err := console.New(console.Options{
		Sessions: who.Sessions, Cookie: httpapi.SessionCookie, May: httpapi.May, Runbook: docs.Runbook, Logger: p.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	handler := httpapi.New(httpapi.Deps{
		Ingest: in, Subscribers: store, Views: p.Engine, Deliveries: p.Engine, Redrives: redrives,
		Gate: who.Gate, NeverOpen: !local, Keyless: local && a.Keyless, Keys: who.Keys, Audit: who.Audit,
		Sessions: who.Sessions, Console: pages.Over,
		OnCallJSON: watch.JSON(), OnCallPage: watch.PageFor(visitor(pages)), OnCallEvents: watch.EventsFor(visitor(pages)),
		Metrics: metricsHandler(p.Registry),
		Ready:   ready, Logger: p.Logger, TracerProvider: p.Tracer, Registerer: p.Registry,
	})
	return []boot.Stage{
		// On-call first: its end is what ends the pages' streams, for which the API
		// would otherwise wait.
		{Name: "on-call", Run: watch.Run},
		{Name: "api", Run: func(ctx context.Context) error {
			defer who.Close() // it writes when keys were used last
			return boot.Serve(ctx, ln, httpapi.NewServer(handler, p.Logger))
		}},
		{Name: "expand", Run: in.Run},
		{Name: "reconcile", Run: reconcile.Run},
		{Name: "redrive", Run: redrives.Run},
		{Name: "keys", Run: keys.Run},
		{Name: "housekeeping", Run: func(ctx context.Context) error { return keepHouse(ctx, p, store) }},
	}, nil
}

// visitor says to the on-call page who looks at it.
func visitor(pages *console.Site) func(*http.Request) oncall.Visitor {
	return func(r *http.Request) oncall.Visitor {
		v := pages.Visitor(r)
		look := oncall.Visitor{
			Name: v.Label(), Acts: httpapi.May(v.Role, "approveRedrive"), SignedIn: v.SignedIn, Token: v.Token,
		}
		if look.Name != "" {
			look.Role = string(v.Role)
		}
		return look
	}
}

// classOf says which class a subscriber is of; "" for one that was deleted.
func classOf(store *subscriber.Store) func(context.Context, string) (string, error) {
	return func(ctx context.Context, id string) (string, error) {
		sub, err := store.Get(ctx, id)
		if errors.Is(err, schedule.ErrNotFound) {
			return "", nil
		}
		if err != nil {
			return "", fmt.Errorf("class of subscriber %s: %w", id, err)
		}
		return sub.Class, nil
	}
}

// access is what the settings make of the store of keys.
func (p Parts) access(a boot.Access) (*access.Store, error) {
	first, err := a.Bootstrap()
	if err != nil {
		return nil, err
	}
	return p.openAccess(access.Options{Bootstrap: first, Rate: a.KeyRate, Logger: p.Logger})
}

func metricsHandler(reg *prometheus.Registry) http.Handler {
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg, EnableOpenMetrics: true})
}

// keepHouse runs at the start, because the last process may have died half way,
// and then at its interval. A failure is logged and made good the next time.
func keepHouse(ctx context.Context, p Parts, store *subscriber.Store) error {
	tick := time.NewTicker(houseKeeping)
	defer tick.Stop()
	for {
		if _, err := store.FinishDeletes(ctx); err != nil && ctx.Err() == nil {
			p.Logger.WarnContext(ctx, "cannot finish deletes", "error", err)
		}
		crash.Point("api.trim.before")
		n, err := p.Engine.Trim(ctx, trimBatch)
		crash.Point("api.trim.after")
		if err != nil && ctx.Err() == nil {
			p.Logger.WarnContext(ctx, "cannot trim dead letters", "error", err)
		} else if n > 0 {
			p.Logger.InfoContext(ctx, "dead letters past their retention forgotten", "count", n)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// trimBatch bounds how long one trim keeps Redis from others.
const trimBatch = 500
