package role

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/fanout/fanout/internal/boot"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/seal"
	"github.com/fanout/fanout/internal/subscriber"
)

// keyring is what the settings say; nil if they say nothing.
func keyring(s boot.Secrets) (*seal.Keyring, error) {
	text, err := s.Read()
	if err != nil || text == "" {
		return nil, err
	}
	r, err := seal.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("--secrets-key: %w", err)
	}
	return r, nil
}

// sealing is what a store and a directory need to read and write what is sealed.
func (p Parts) sealing() subscriber.Option { return subscriber.WithKeyring(p.Keyring) }

// warnClear tells of secrets that a copy of Redis gives away.
func warnClear(r *seal.Keyring, s boot.Secrets, logger *slog.Logger) {
	if r == nil && !s.InTheClear {
		logger.Warn("subscribers' secrets are stored in the clear, and a copy of Redis gives them away: " +
			"set FANOUT_SECRETS_KEY or --secrets-key-file for both processes, then run fanout reseal")
	}
}

// Reseal brings every subscriber under the first key of the settings, telling how
// far it is. It may be ended by ctx and begun again.
func Reseal(
	ctx context.Context, cfg boot.Redis, s boot.Secrets, logger *slog.Logger, progress func(subscriber.ResealResult),
) (done subscriber.ResealResult, err error) {
	r, err := keyring(s)
	if err != nil {
		return done, err
	}
	if r == nil {
		return done, fmt.Errorf("%w: set FANOUT_SECRETS_KEY or --secrets-key-file", subscriber.ErrNoKeyring)
	}
	rdb, err := boot.OpenRedis(cfg, logger)
	if err != nil {
		return done, err
	}
	defer func() { _ = rdb.Close() }()
	engine, err := schedule.Open(ctx, rdb, schedule.Options{Partitions: cfg.Partitions, AllowUnsafe: cfg.AllowUnsafe})
	if err != nil {
		return done, err
	}
	return subscriber.New(engine, Endpoint{}.guard(), nil, engine.Now, subscriber.WithKeyring(r)).Reseal(ctx, progress)
}
