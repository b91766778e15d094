package role

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fanout/fanout/internal/boot"
	"github.com/fanout/fanout/internal/oncall"
	"github.com/fanout/fanout/internal/redrive"
	"github.com/fanout/fanout/internal/schedule"
)

// watch is on-call over all that an API process has.
func (p Parts) watch(
	ready func(context.Context) error, reconcile *oncall.Reconciler, redrives *redrive.Service,
) (*oncall.OnCall, error) {
	return oncall.New(p.Engine, oncall.Options{ //nolint:wrapcheck // its caller says what failed
		Classes: p.Classes, Ready: ready, Rings: p.Engine, Memory: p.Engine.Memory,
		Redrives: liveRedrives(redrives),
		Gaps: func() (map[schedule.Gap]int64, []schedule.Finding) {
			round, _ := reconcile.Last()
			return round.Gaps, round.Examples
		},
		Logger: p.Logger, Registerer: p.Registry,
	})
}

// liveRedrives tells on-call of the cohorts under way.
func liveRedrives(s *redrive.Service) func(context.Context) ([]oncall.LiveRedrive, error) {
	return func(ctx context.Context) ([]oncall.LiveRedrive, error) {
		views, err := s.Live(ctx)
		if err != nil {
			return nil, err //nolint:wrapcheck // on-call says what it asked for
		}
		out := make([]oncall.LiveRedrive, 0, len(views))
		for _, v := range views {
			out = append(out, oncall.LiveRedrive{
				ID: v.ID, State: string(v.State), Reason: v.Reason, CreatedBy: v.CreatedBy, CreatedAt: v.CreatedAt,
				Rate: v.Rate, MaxRate: v.Limit, Members: v.Tally.Claimed - v.Tally.LetGo, Released: v.Tally.Released,
				Delivered: v.Tally.Delivered, Dead: v.Tally.Dead, Canaries: v.CanaryIDs, Stopped: v.Stopped, HeldBack: v.HeldBack,
			})
		}
		return out, nil
	}
}

// tellBuild exports which build this is, and of a dispatcher which slice of the fleet. Two
// roles in one process say the same once.
func (p Parts) tellBuild(slice string) {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "fanout_build_info", Help: "1, with the version of this build, and the slice of the fleet that a dispatcher is part of.",
		ConstLabels: prometheus.Labels{"version": boot.Version(), "slice": slice},
	})
	info.Set(1)
	if err := p.Registry.Register(info); err != nil {
		if _, twice := errors.AsType[prometheus.AlreadyRegisteredError](err); !twice {
			panic("role: " + err.Error()) // a defect of ours: another metric of that name
		}
	}
}
