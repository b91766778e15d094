package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fanout/fanout/internal/crash"
	"github.com/fanout/fanout/internal/schedule"
)

// expandParallel is how many partitions of one plan are worked on at once, so
// that 48 of them do not cost 48 round trips in a row.
const expandParallel = 8

// expandAccepted expands the plan of an event that was just posted. It tells
// the producer nothing when that fails: the event is safe, and Run finishes it.
func (s *Service) expandAccepted(ctx context.Context, id string, acc schedule.Accepted, dup bool, targets []schedule.Target) {
	// The producer may hang up now; its event is accepted all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.patience())
	defer cancel()
	if dup {
		s.help(ctx, id, acc)
		return
	}
	// The plan's own expand_by is known to the store. This one is shorter than
	// any that makes sense: a process that was frozen and wakes must not go on
	// here, however long ago its event was finished by somebody else.
	plan := schedule.Plan{
		EventID: id, AcceptedAt: acc.At, ExpandBy: acc.At.Add(s.opts.ResumeAfter), Parts: s.parts(targets),
	}
	done, err := s.enqueueAll(ctx, plan)
	if len(done) > 0 {
		s.strikeLater(ctx, id, done)
	}
	if err != nil {
		s.log.WarnContext(ctx, "event is accepted but not expanded yet; it will be resumed",
			slog.String("event_id", id), slog.Any("error", err))
	}
}

// help resumes the plan of a repeated event, unless it is fresh: then whoever
// accepted it is at it. The age mixes two clocks; if they disagree, the worst is
// one wait for Run, or one repeated expansion, which changes nothing.
func (s *Service) help(ctx context.Context, id string, acc schedule.Accepted) {
	if time.Since(acc.At) < s.opts.ResumeAfter {
		return
	}
	plan, err := s.store.Plan(ctx, id) // the frozen one, not what matches today
	if err != nil {
		s.log.WarnContext(ctx, "cannot read the plan of a repeated event; it is left to be resumed",
			slog.String("event_id", id), slog.Any("error", err))
		return
	}
	_ = s.resume(ctx, plan) // it said so in the log; Run makes it good
}

// resume expands a plan that stood open too long, and says in the log and the
// metrics what came of it.
func (s *Service) resume(ctx context.Context, plan schedule.Plan) error {
	err := s.expand(ctx, plan)
	switch {
	case err == nil:
		s.metrics.resumed.Inc()
		return nil
	case errors.Is(err, schedule.ErrTooLate):
		// Somebody must look: these subscribers will not get the event.
		s.metrics.late.Inc()
		s.log.ErrorContext(ctx, "event was not expanded in time; its remaining deliveries are not made",
			slog.String("event_id", plan.EventID), slog.Time("accepted_at", plan.AcceptedAt),
			slog.Time("expand_by", plan.ExpandBy), slog.Any("error", err))
	default:
		s.log.WarnContext(ctx, "open event is not expanded yet; it will be resumed",
			slog.String("event_id", plan.EventID), slog.Any("error", err))
	}
	return fmt.Errorf("expand event %s: %w", plan.EventID, err)
}

// parts groups targets by partition. All groups are cut from one array: counted
// first, grown never (at a fan-out of 10 over 4 partitions 2 allocations for 12).
func (s *Service) parts(targets []schedule.Target) map[int][]schedule.Target {
	where := make([]int, len(targets))
	counts := make([]int, s.store.Partitions())
	for i, t := range targets {
		where[i] = s.store.PartitionOf(t.SubscriberID)
		counts[where[i]]++
	}
	parts := make(map[int][]schedule.Target, min(len(targets), len(counts)))
	room := make([]schedule.Target, len(targets))
	for i, t := range targets {
		p := where[i]
		part, begun := parts[p]
		if !begun {
			part, room = room[:0:counts[p]], room[counts[p]:]
		}
		parts[p] = append(part, t)
	}
	return parts
}

// expand enqueues what a plan holds, then strikes the partitions that are
// through: only then, so that a cut in between repeats chunks, which is
// harmless, and never drops one. All errors are returned, joined.
func (s *Service) expand(ctx context.Context, plan schedule.Plan) error {
	done, err := s.enqueueAll(ctx, plan)
	if len(done) == 0 {
		return err
	}
	// With time of its own: else a plan that takes too long would be begun
	// again from the start for ever.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.patience())
	defer cancel()
	if bad := s.strike(ctx, plan.EventID, done); bad != nil {
		err = errors.Join(err, fmt.Errorf("strike %d partitions: %w", len(done), bad))
	}
	return err
}

// enqueueAll enqueues what a plan holds and returns the partitions that are
// through. One partition's error does not keep the others from going on: on a
// cluster they may live on another server.
func (s *Service) enqueueAll(ctx context.Context, plan schedule.Plan) (done []int, err error) {
	if len(plan.Parts) == 1 { // the rule on one Redis: no need for a goroutine
		for part, targets := range plan.Parts {
			if err := s.enqueue(ctx, plan, part, targets); err != nil {
				return nil, err
			}
			return []int{part}, nil
		}
	}
	var (
		g    errgroup.Group
		mu   sync.Mutex
		errs []error
	)
	done = make([]int, 0, len(plan.Parts))
	g.SetLimit(expandParallel)
	for part, targets := range plan.Parts {
		g.Go(func() error {
			err := s.enqueue(ctx, plan, part, targets)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
			} else {
				done = append(done, part)
			}
			return nil
		})
	}
	_ = g.Wait() // errors are in errs: the group would keep but one
	return done, errors.Join(errs...)
}

// enqueue makes the deliveries of one partition.
func (s *Service) enqueue(ctx context.Context, plan schedule.Plan, part int, targets []schedule.Target) error {
	crash.Point("api.enqueue.before")
	for chunk := range slices.Chunk(targets, schedule.ChunkSize) {
		if err := s.store.Enqueue(ctx, plan.EventID, plan.AcceptedAt, plan.ExpandBy, part, chunk); err != nil {
			return fmt.Errorf("enqueue in partition %d: %w", part, err)
		}
		crash.Point("api.enqueue.chunk")
	}
	crash.Point("api.enqueue.after")
	return nil
}
