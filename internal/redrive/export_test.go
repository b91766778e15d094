package redrive

import (
	"context"
	"errors"
	"time"
)

// Step moves each live cohort once, if s is the runner: what Run does all the time, but
// at once.
func (s *Service) Step(ctx context.Context) error {
	_, err := s.step(ctx)
	return errors.Join(err, s.spread(ctx, time.Now().Add(-s.opts.Every)))
}

// Stale stores a cohort as it was read, as a process does that was frozen in between.
func (s *Service) Stale(ctx context.Context, c Cohort) error {
	c.Reserved += 1000
	return s.store.put(ctx, &c)
}

// PlanStep is how long a step plans.
const PlanStep = planStep

// PlanFor plans a cohort until a time.
func (s *Service) PlanFor(ctx context.Context, c *Cohort, d time.Duration) error {
	return s.plan(ctx, c, time.Now().Add(d))
}

// ErrVersion is what a stale change comes to.
var ErrVersion = errVersion
