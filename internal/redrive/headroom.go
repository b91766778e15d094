package redrive

import (
	"context"
	"time"

	"github.com/fanout/fanout/internal/schedule"
)

// HeadRoom is what could be sent beyond what arrives.
type HeadRoom struct {
	// Capacity is how many attempts a second all slots would carry at the time that
	// attempts take now, Arrivals how many deliveries are accepted a second.
	Capacity float64 `json:"capacity_per_second"`
	Arrivals float64 `json:"arrivals_per_second"`
	// Slots of all dispatchers, and those in use.
	Slots int `json:"slots"`
	Used  int `json:"slots_in_use"`
}

// PerSecond is the head-room; not below 0.
func (h HeadRoom) PerSecond() float64 { return max(h.Capacity-h.Arrivals, 0) }

// unknownSlotTime stands for how long an attempt takes while nothing was sent yet.
const unknownSlotTime = 50 * time.Millisecond

// headRoom measures it, over a moment.
func (s *Service) headRoom(ctx context.Context) (HeadRoom, error) {
	workers, err := s.letters.Workers(ctx)
	if err != nil {
		return HeadRoom{}, err
	}
	var h HeadRoom
	for _, w := range workers {
		each := w.SlotSeconds
		if each <= 0 {
			each = unknownSlotTime.Seconds()
		}
		h.Slots += w.Slots
		h.Used += w.Used()
		h.Capacity += float64(w.Slots) / each
	}
	h.Arrivals, err = s.arrivals(ctx)
	return h, err
}

// note keeps looks at the ledger of some seconds ago, to measure arrivals by.
func (s *Service) note(ctx context.Context) error {
	now, err := s.letters.Sample(ctx, nil)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if span := now.Now.Sub(s.newer.Now); span >= 2*arrivalSpan || span < 0 {
		s.older, s.newer = s.newer, now
	}
	return nil
}

// arrivals is how many deliveries were accepted a second since some seconds ago, which
// the runner remembers, or over a moment from now.
func (s *Service) arrivals(ctx context.Context) (float64, error) {
	now, err := s.letters.Sample(ctx, nil)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	looks := []schedule.Sample{s.newer, s.older}
	s.mu.Unlock()
	for _, then := range looks {
		if span := now.Now.Sub(then.Now); span >= arrivalSpan && span <= time.Minute {
			return arrived(then, now), nil
		}
	}
	select {
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-time.After(arrivalSpan):
	}
	later, err := s.letters.Sample(ctx, nil)
	return arrived(now, later), err
}

// arrived is a rate; 0 if the clock or the ledger was set back in between.
func arrived(from, to schedule.Sample) float64 {
	span := to.Now.Sub(from.Now).Seconds()
	if span <= 0 {
		return 0
	}
	return max(0, float64(to.Ledger.Accepted-from.Ledger.Accepted)/span)
}

// arrivalSpan is the least over which arrivals are measured.
const arrivalSpan = time.Second
