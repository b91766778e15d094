package redrive

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/fanout/fanout/internal/crash"
	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

const (
	// stepEvery is how often a cohort is looked at. It bounds how long the guard may take
	// to pause: a step, and the time that its looks at Redis take.
	stepEvery = time.Second
	// holdFor is how long the runner's lease lasts: a runner that died is succeeded in
	// that time.
	holdFor = 15 * time.Second
	// stepFor bounds one cohort's step, well within the lease.
	stepFor = 10 * time.Second
	// growth is by what the rate is multiplied in a second without an objection: from
	// 1/s to 100/s in half a minute.
	growth = 1.17
	// releaseMost go in one call: see schedule's other batches.
	releaseMost = 128
)

// rampFor is how long it takes to release n, the rate growing to its limit.
func rampFor(n, limit float64) time.Duration {
	rate, seconds := 1.0, 0.0
	for ; n > 0 && rate < limit; rate = min(rate*growth, limit) {
		n -= rate
		seconds++
	}
	if n > 0 {
		seconds += n / limit
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Second)
}

// Run moves cohorts until ctx ends, in at most one process at a time. It returns nil.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(s.opts.Every)
	defer tick.Stop()
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = s.store.drop(last, s.who) // else it ends by itself
	}()
	failing := false
	for {
		err := s.step(ctx)
		if failed := err != nil && ctx.Err() == nil; failed != failing {
			failing = failed
			if failed {
				s.opts.Logger.WarnContext(ctx, "redrives stand still, and are tried again", "error", err)
			} else {
				s.opts.Logger.InfoContext(ctx, "redrives are moved again")
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// step moves each live cohort once, if this process is the runner.
func (s *Service) step(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stepFor)
	defer cancel()
	mine, err := s.store.hold(ctx, s.who, holdFor)
	if err != nil || !mine {
		return err
	}
	cohorts, err := s.store.live(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for i := range cohorts {
		if err := s.move(ctx, &cohorts[i]); err != nil && !errors.Is(err, errVersion) { // changed: the next step sees how
			errs = append(errs, fmt.Errorf("cohort %s: %w", cohorts[i].ID, err))
		}
	}
	return errors.Join(errs...)
}

// move does what a cohort's state asks for.
func (s *Service) move(ctx context.Context, c *Cohort) error {
	switch c.State {
	case Planning:
		return s.plan(ctx, c)
	case Canary:
		return s.canary(ctx, c)
	case Running:
		return s.run(ctx, c)
	case Aborted:
		return s.abandon(ctx, c)
	case Awaiting, Paused, Done:
	}
	return nil
}

// canary sends the first, and sees what comes of it. A failure stops the cohort before
// another is sent.
func (s *Service) canary(ctx context.Context, c *Cohort) error {
	h, err := s.look(ctx, c)
	if err != nil {
		return err
	}
	if c.Reserved == 0 { // it begins, or begins again
		more := max(int64(c.Canaries)-h.tally.Out(), 0)
		c.Reserved = h.tally.Released + more
		c.Base.Delivered, c.Base.Dead, c.CanaryIDs = h.tally.Delivered, h.tally.Dead, nil
		for _, d := range h.out {
			c.CanaryIDs = append(c.CanaryIDs, d.ID)
		}
		if err := s.store.put(ctx, c); err != nil {
			return err
		}
	}
	if due := min(c.Reserved-h.tally.Released, h.tally.Waiting()); due > 0 {
		ids, err := s.release(ctx, c, due)
		if err != nil {
			return err
		}
		c.CanaryIDs = append(c.CanaryIDs, ids...)
		return s.store.put(ctx, c)
	}
	switch {
	case h.tally.Dead > c.Base.Dead:
		return s.stop(ctx, c, "the canary failed: "+s.lastWords(ctx, c.CanaryIDs))
	case h.tally.Out() > 0:
		if why := onHold(h.holds); why != "" {
			return s.stop(ctx, c, why)
		}
		return nil // it is on its way
	case h.tally.Delivered > c.Base.Delivered:
		c.CanaryPassed = true
		c.State = Awaiting
		if h.tally.Waiting() == 0 {
			return s.end(ctx, c, Done)
		}
		return s.store.put(ctx, c)
	case h.tally.Waiting() == 0:
		return s.end(ctx, c, Done)
	}
	c.Reserved = 0 // cancelled, or gone otherwise: another one
	return s.store.put(ctx, c)
}

// lastWords say how the canaries ended.
func (s *Service) lastWords(ctx context.Context, ids []string) string {
	for _, id := range ids {
		d, err := s.letters.Delivery(ctx, id)
		if err == nil && d.State == delivery.Dead {
			return fmt.Sprintf("delivery %s is dead again (%s), its last attempt came to %s, status %d", id, d.Reason, d.LastOutcome, d.LastStatus)
		}
	}
	return "it is dead again"
}

// run releases as many as its pace allows.
func (s *Service) run(ctx context.Context, c *Cohort) error {
	h, err := s.look(ctx, c)
	if err != nil {
		return err
	}
	if h.tally.Waiting() == 0 {
		if h.tally.Out() == 0 {
			return s.end(ctx, c, Done)
		}
		return nil
	}
	if c.Limit == 0 {
		room, err := s.headRoom(ctx)
		if err != nil {
			return err
		}
		c.Limit = s.limit(c.MaxRate, room)
		c.Base.Delivered, c.Base.Dead = h.tally.Delivered, h.tally.Dead
		c.Reserved, c.PacedAt = h.tally.Released, h.sample.Now
	}
	if why := s.objection(c, h); why != "" {
		return s.stop(ctx, c, why)
	}
	// What the pace allows is written down before it is released: whoever goes on, after
	// a crash or in this process' place, releases what is owed and no more.
	passed := min(h.sample.Now.Sub(c.PacedAt).Seconds(), 2*s.opts.Every.Seconds()+1)
	if n := math.Floor(c.Rate * passed); n >= 1 {
		c.Reserved = min(c.Reserved+int64(n), h.tally.Released+h.tally.Waiting())
		c.PacedAt = h.sample.Now
		c.Rate = min(c.Rate*math.Pow(growth, passed), c.Limit)
		if err := s.store.put(ctx, c); err != nil {
			return err
		}
	}
	crash.Point("api.redrive.reserved")
	_, err = s.release(ctx, c, c.Reserved-h.tally.Released)
	crash.Point("api.redrive.released")
	return err
}

// release lets up to n of a cohort into the lane, the first that died before the others.
func (s *Service) release(ctx context.Context, c *Cohort, n int64) (released []string, err error) {
	for n > 0 {
		ids, err := s.letters.NextOfCohort(ctx, c.ID, int(min(n, releaseMost)))
		if err != nil || len(ids) == 0 {
			return released, err
		}
		results, err := s.letters.Redrive(ctx, c.ID, c.Budget, time.Duration(c.Within), ids)
		if err != nil {
			return released, err
		}
		for i, r := range results {
			if r == schedule.Released {
				released = append(released, ids[i])
				n--
			}
		}
	}
	return released, nil
}

// stop is the guard's pause, with the reason.
func (s *Service) stop(ctx context.Context, c *Cohort, why string) error {
	now, err := s.letters.Now(ctx)
	if err != nil {
		return err
	}
	if err := c.pause(Guard, why, now); err != nil {
		return err
	}
	if err := s.store.put(ctx, c); err != nil {
		return err
	}
	s.opts.Logger.WarnContext(ctx, "redrive paused", "redrive_id", c.ID, "why", why)
	s.opts.Audit(ctx, Action{Name: "redrive.pause", Cohort: *c, By: Guard, Reason: why})
	return nil
}

// abandon lets go of what an aborted cohort has not released, and ends it when what it
// has released has ended.
func (s *Service) abandon(ctx context.Context, c *Cohort) error {
	if err := s.letGo(ctx, c.ID); err != nil {
		return err
	}
	tally, err := s.letters.Tally(ctx, c.ID)
	if err != nil || tally.Out() > 0 {
		return err
	}
	return s.end(ctx, c, Aborted)
}

// end writes down what a cohort came to. Its tally is part of it from then on.
func (s *Service) end(ctx context.Context, c *Cohort, as State) error {
	now, err := s.letters.Now(ctx)
	if err != nil {
		return err
	}
	tally, err := s.letters.Tally(ctx, c.ID)
	if err != nil {
		return err
	}
	c.State, c.EndedAt, c.Final = as, now, &tally
	if err := s.store.put(ctx, c); err != nil {
		return err
	}
	s.opts.Audit(ctx, Action{Name: "redrive.end", Cohort: *c, By: Guard})
	return s.letters.ForgetCohort(ctx, c.ID)
}
