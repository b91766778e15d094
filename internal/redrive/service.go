package redrive

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// Letters is what the scheduler does for a redrive; *schedule.Engine is one. Each call
// MUST be safe to repeat with the same arguments.
type Letters interface { //nolint:interfacebloat // it is one thing: the engine, as a redrive needs it
	Now(ctx context.Context) (time.Time, error)
	Sample(ctx context.Context, classes []string) (schedule.Sample, error)
	Workers(ctx context.Context) ([]schedule.WorkerReport, error)
	Standings(ctx context.Context, ids []string) ([]schedule.Standing, error)

	// DeadLettersPage MUST be newest first.
	DeadLettersPage(ctx context.Context, subscriberID, after string, limit int) ([]schedule.Evidence, string, error)
	Delivery(ctx context.Context, id string) (schedule.Evidence, error)
	Deliveries(ctx context.Context, ids []string) ([]delivery.Delivery, error)
	Pinned(ctx context.Context, subscriberID, eventID string) (schedule.Body, error)

	// Claim MUST give a dead letter to one cohort at most, and Redrive MUST release one
	// once.
	Claim(ctx context.Context, cohort string, ids []string) ([]schedule.ClaimResult, error)
	Unclaim(ctx context.Context, cohort string, limit int) (int, error)
	Redrive(ctx context.Context, cohort string, budget int, within time.Duration, ids []string) ([]schedule.ClaimResult, error)
	Tally(ctx context.Context, cohort string) (schedule.Tally, error)
	NextOfCohort(ctx context.Context, cohort string, limit int) ([]string, error)
	OutOfCohort(ctx context.Context, cohort string, limit int) ([]string, error)
	ForgetCohort(ctx context.Context, cohort string) error
}

// Action is something that happened to a cohort, for the audit log.
type Action struct {
	Name   string // such as "redrive.pause"
	Cohort Cohort // as it is now
	By     string // key id, or Guard
	Reason string
}

// Options of a Service.
type Options struct {
	// Classes with their age SLO: the guard pauses at half of it.
	Classes map[string]time.Duration
	// ClassOf says which class a subscriber is of; "" for one that is gone, and for no
	// other. Required.
	ClassOf func(ctx context.Context, subscriberID string) (string, error)
	// Audit takes what the runner does by itself; what an operator does is its caller's
	// to write down. It is told again until it returns nil, and may be told the same twice
	// if a process dies. A nil func drops it.
	Audit func(context.Context, Action) error
	// Every is how often the runner looks at what runs; 0 means 250 ms. It looks once a
	// second, if that is more, whether anything does.
	Every  time.Duration
	Logger *slog.Logger
}

// Service makes cohorts, and moves them if it is the runner. It is safe for concurrent
// use, by many processes.
type Service struct {
	store   store
	letters Letters
	opts    Options
	who     string
	flows   map[string]flow // of the cohorts that run; the runner's alone
	seen    map[string]seen // likewise
	owed    []owed          // what the last step allows; likewise

	mu           sync.Mutex
	older, newer schedule.Sample // what arrivals are measured by
}

func (s *Service) classes() []string { return slices.Sorted(maps.Keys(s.opts.Classes)) }

// Create makes a cohort, which the runner then plans. by is who asks. What dies later is
// none of its members. It returns *fault.Invalid or ErrTooMany.
func (s *Service) Create(ctx context.Context, o Order, by string) (Cohort, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return Cohort{}, err
	}
	live, err := s.store.count(ctx)
	if err != nil {
		return Cohort{}, err
	}
	if live >= MaxLive {
		return Cohort{}, fmt.Errorf("create a redrive: %d of %d: %w", live, MaxLive, ErrTooMany)
	}
	now, err := s.letters.Now(ctx)
	if err != nil {
		return Cohort{}, err
	}
	id, err := ulid.New(ulid.Timestamp(now), rand.Reader)
	if err != nil {
		return Cohort{}, fmt.Errorf("redrive: make an id: %w", err)
	}
	c := Cohort{ID: "rdv_" + id.String(), Order: o, State: Planning, CreatedBy: by, CreatedAt: now}
	err = s.store.put(ctx, &c)
	return c, err
}

// View is a cohort with its counts and the evidence of its canaries.
type View struct {
	Cohort
	Tally    schedule.Tally
	Canaries []schedule.Evidence
}

// Get reads one; ErrNotFound.
func (s *Service) Get(ctx context.Context, id string) (View, error) {
	c, err := s.store.get(ctx, id)
	if err != nil {
		return View{}, err
	}
	return s.view(ctx, c)
}

func (s *Service) view(ctx context.Context, c Cohort) (v View, err error) {
	if c.Final == nil {
		if v.Tally, err = s.letters.Tally(ctx, c.ID); err != nil {
			return v, err
		}
		// It may have ended between the two reads, and its counts be forgotten.
		if c, err = s.store.get(ctx, c.ID); err != nil {
			return v, err
		}
	}
	if v.Cohort = c; c.Final != nil {
		v.Tally = *c.Final
	}
	for _, id := range c.CanaryIDs {
		d, err := s.letters.Delivery(ctx, id)
		if errors.Is(err, schedule.ErrNotFound) {
			continue
		}
		if err != nil {
			return v, err
		}
		v.Canaries = append(v.Canaries, d)
	}
	return v, nil
}

// List reads up to limit cohorts, newest first, those made before the given one.
func (s *Service) List(ctx context.Context, before string, limit int) ([]Cohort, error) {
	return s.store.list(ctx, before, limit)
}

// Approve lets the others of a cohort go after its canary. The effect is what was
// checked at the receiver, in words. It returns ErrNotFound, ErrState or *fault.Invalid.
func (s *Service) Approve(ctx context.Context, id, by, effect string) (Cohort, error) {
	return s.change(ctx, id, func(c *Cohort, now time.Time) error {
		return c.approve(by, effect, now)
	})
}

// errReason says what is wrong with one.
func errReason(why string) error {
	if sentence(why) {
		return nil
	}
	return wrong("/reason", reasonRule)
}

// Pause stops the release; what was released goes on, and so may what a step of the
// runner is releasing just then. It returns ErrNotFound, ErrState or *fault.Invalid.
func (s *Service) Pause(ctx context.Context, id, by, why string) (Cohort, error) {
	if err := errReason(why); err != nil {
		return Cohort{}, err
	}
	return s.change(ctx, id, func(c *Cohort, now time.Time) error { return c.pause(by, why, now) })
}

// Resume goes on where a cohort was paused; why is for the audit, as it overrules whoever
// paused it. It returns ErrNotFound, ErrState or *fault.Invalid.
func (s *Service) Resume(ctx context.Context, id, why string) (Cohort, error) {
	if err := errReason(why); err != nil {
		return Cohort{}, err
	}
	return s.change(ctx, id, func(c *Cohort, now time.Time) error { return c.resume(now) })
}

// Abort ends a cohort: what was not released is let go, and stays dead; what is out
// goes on. It returns ErrNotFound, ErrState or *fault.Invalid.
func (s *Service) Abort(ctx context.Context, id, by, why string) (Cohort, error) {
	if err := errReason(why); err != nil {
		return Cohort{}, err
	}
	return s.change(ctx, id, func(c *Cohort, now time.Time) error { return c.abort(by, why, now) })
}

// letGo lets go of all that a cohort has not released.
func (s *Service) letGo(ctx context.Context, id string) error {
	for {
		n, err := s.letters.Unclaim(ctx, id, 500)
		if err != nil || n == 0 {
			return err
		}
	}
}

// change makes a change against the version that it read, and again if somebody else
// was quicker.
func (s *Service) change(ctx context.Context, id string, f func(*Cohort, time.Time) error) (Cohort, error) {
	for try := 1; ; try++ {
		c, err := s.store.get(ctx, id)
		if err != nil {
			return Cohort{}, err
		}
		now, err := s.letters.Now(ctx)
		if err != nil {
			return Cohort{}, err
		}
		if err := f(&c, now); err != nil {
			return c, err
		}
		err = s.store.put(ctx, &c)
		if errors.Is(err, errVersion) {
			if try < 8 {
				continue
			}
			err = fmt.Errorf("%w: %w: try again", ErrState, err)
		}
		return c, err
	}
}
