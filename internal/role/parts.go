package role

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/fanout/fanout/internal/access"
	"github.com/fanout/fanout/internal/boot"
	"github.com/fanout/fanout/internal/redrive"
	"github.com/fanout/fanout/internal/schedule"
)

// Assemble opens what a role stands on. The stage returned is the last to stop:
// it lets go of Redis and sends the traces that are left.
func Assemble(
	ctx context.Context, service string, cfg boot.Common, e Endpoint, logger *slog.Logger,
) (Parts, boot.Stage, error) {
	boot.SpareHeap()
	ring, err := keyring(cfg.Secrets)
	if err != nil {
		return Parts{}, boot.Stage{}, err
	}
	warnClear(ring, cfg.Secrets, logger)
	p := Parts{Endpoint: e, Classes: cfg.Classes, Registry: boot.NewRegistry(), Logger: logger, Keyring: ring}
	rdb, err := boot.OpenRedis(cfg.Redis, p.Logger)
	if err != nil {
		return Parts{}, boot.Stage{}, err
	}
	p.Registry.MustRegister(boot.PoolStats(rdb))
	p.Engine, err = schedule.Open(ctx, rdb, schedule.Options{
		Partitions: cfg.Redis.Partitions, AllowUnsafe: cfg.Redis.AllowUnsafe,
		WaitReplicas: cfg.Redis.WaitReplicas, WaitTimeout: cfg.Redis.WaitTimeout,
		InitialCap: e.InitialCap,
	})
	if err != nil {
		return Parts{}, boot.Stage{}, errors.Join(err, rdb.Close())
	}
	tracer, flush, err := boot.NewTracer(ctx, service, p.Logger)
	if err != nil {
		return Parts{}, boot.Stage{}, errors.Join(fmt.Errorf("traces: %w", err), rdb.Close())
	}
	p.Tracer = tracer
	p.openAccess = func(o access.Options) (*access.Store, error) { return access.Open(rdb, o) }
	p.openRedrives = func(o redrive.Options) *redrive.Service { return redrive.New(rdb, p.Engine, o) }
	return p, boot.Stage{Name: "redis", Run: func(ctx context.Context) error {
		<-ctx.Done()
		return errors.Join(flush(context.WithoutCancel(ctx)), rdb.Close())
	}}, nil
}
