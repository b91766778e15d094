package ingest

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/fanout/fanout/internal/crash"
	"github.com/fanout/fanout/internal/schedule"
)

const (
	// claimLimit is how many plans one claim takes: few enough to be through
	// with them before ResumeAfter ends and somebody else may claim them too.
	claimLimit = 16
	// Backoff after a sweep that got nowhere: full jitter over a window that
	// doubles from base to cap. The cap is below ResumeAfter, so that what
	// recovers is resumed about as fast as what crashed.
	backoffBase = 100 * time.Millisecond
	backoffCap  = 5 * time.Second
)

// Run resumes plans that stay open because whoever accepted them crashed, was
// stopped or lost Redis. It ends only with ctx, and then returns nil; no Redis
// error ends it. Before it returns, all plans that this process finished are struck.
// Run it once in every process that accepts events, and end it after the last Submit.
func (s *Service) Run(ctx context.Context) error {
	defer s.strikes.close()
	failures, wait := 0, time.Duration(0)
	for sleep(ctx, wait) {
		r := s.sweep(ctx)
		if !sleep(ctx, 0) {
			break // what failed now failed because of the stop
		}
		s.note(r)
		switch {
		case r.err != nil && r.finished == 0:
			failures++
			wait = backoff(failures)
			s.log.WarnContext(ctx, "cannot resume open events; trying again",
				slog.Int("sweeps_failed", failures), slog.Int("failed", r.failed),
				slog.Int64("wait_ms", wait.Milliseconds()), slog.Any("error", r.err))
		case r.more:
			failures, wait = 0, 0
		default:
			failures, wait = 0, s.pause()
		}
	}
	return nil
}

// Ready is nil unless Run's last sweep got no answer from any partition: then
// it says why. One silent partition among several leaves the service ready,
// because turning away all events would not help that one.
func (s *Service) Ready() error {
	if err := s.unready.Load(); err != nil {
		return *err
	}
	return nil
}

// swept is what one look at every partition came to.
type swept struct {
	answered int   // partitions that answered the claim
	finished int   // plans expanded to the end
	failed   int   // claims and plans that failed
	more     bool  // a claim was full: there may be more to take at once
	err      error // the first failure; the others are hardly different
}

func (r *swept) fail(err error) {
	r.failed++
	if r.err == nil {
		r.err = err
	}
}

// sweep claims one batch per event partition and expands it. One batch only, so
// that a partition with thousands of open plans does not keep the others waiting.
func (s *Service) sweep(ctx context.Context) swept {
	var r swept
	for part := range s.store.Partitions() {
		plans, err := s.claim(ctx, part)
		if err != nil {
			r.fail(err)
		}
		if err == nil || len(plans) > 0 { // an error may come with plans: one among them was not readable
			r.answered++
		}
		r.more = r.more || len(plans) == claimLimit
		for _, plan := range plans {
			crash.Point("api.resume.claimed")
			if err := s.resumeInTime(ctx, plan); err != nil {
				r.fail(err)
				continue
			}
			r.finished++
		}
	}
	return r
}

func (s *Service) claim(ctx context.Context, part int) ([]schedule.Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, s.patience())
	defer cancel()
	plans, err := s.store.ClaimOpen(ctx, part, claimLimit, s.opts.ResumeAfter)
	if err != nil {
		return plans, fmt.Errorf("claim open events of partition %d: %w", part, err)
	}
	return plans, nil
}

func (s *Service) resumeInTime(ctx context.Context, plan schedule.Plan) error {
	ctx, cancel := context.WithTimeout(ctx, s.patience())
	defer cancel()
	return s.resume(ctx, plan)
}

// note keeps what Ready says.
func (s *Service) note(r swept) {
	if r.answered > 0 || r.err == nil {
		s.unready.Store(nil)
		return
	}
	err := fmt.Errorf("ingest: no partition answers: %w", r.err)
	s.unready.Store(&err)
}

// backoff is the wait after so many failed sweeps in a row, uniform over the
// whole window so that many processes do not come back at once.
func backoff(failures int) time.Duration {
	window := backoffCap
	if shift := failures - 1; shift < 10 { // past that the window is wide enough, and would overflow in time
		window = min(backoffCap, backoffBase<<shift)
	}
	return rand.N(window + 1) //nolint:gosec // spreads load, guards no secret
}

// pause is the wait between two quiet sweeps: half of ResumeAfter on average,
// jittered by half so that processes drift apart.
func (s *Service) pause() time.Duration {
	mean := s.opts.ResumeAfter / 2
	return mean/2 + rand.N(mean+1) //nolint:gosec // spreads load, guards no secret
}

// sleep waits for d, and returns false as soon as ctx ends.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
	return ctx.Err() == nil
}
