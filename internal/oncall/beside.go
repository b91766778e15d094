package oncall

import (
	"context"
	"time"
)

// How often what stands beside a sample is read: no more often than it changes.
const (
	fleetEvery    = 2 * time.Second // dispatchers report every 2 s
	redrivesEvery = 2 * time.Second
	memoryEvery   = 15 * time.Second
	// keepTimeout bounds the writes of the history: they may not hold up the next sample.
	keepTimeout = time.Second
)

// beside fills in what is no part of a sample. What cannot be read stays as it was, for
// the ages are worth showing without; the fleet is then said to be unknown.
func (o *OnCall) beside(ctx context.Context, prev Snapshot, s *Snapshot) {
	s.Fleet, s.Redrives, s.Memory = prev.Fleet, prev.Redrives, prev.Memory
	due := func(last *time.Time, every time.Duration) bool {
		if s.Taken.Sub(*last) < every-every/4 { // a tick that comes early counts
			return false
		}
		*last = s.Taken
		return true
	}
	if due(&o.fleetAt, fleetEvery) {
		reports, err := o.source.Workers(ctx)
		if err != nil {
			o.log.WarnContext(ctx, "cannot read the dispatchers' reports", "error", err)
			s.Fleet = Fleet{}
		} else {
			s.Fleet = fleetOf(reports)
		}
	}
	if o.redrives != nil && due(&o.redrivesAt, redrivesEvery) {
		if live, err := o.redrives(ctx); err != nil {
			o.log.WarnContext(ctx, "cannot list the redrives", "error", err)
		} else {
			s.Redrives = live
		}
	}
	if o.memory != nil && due(&o.memoryAt, memoryEvery) {
		if used, limit, err := o.memory(ctx); err != nil {
			o.log.DebugContext(ctx, "cannot read the memory of redis", "error", err)
		} else {
			s.Memory = Memory{used, limit}
		}
	}
	if o.gaps != nil {
		s.Gaps, s.GapExamples = o.gaps()
	}
}

// keep adds to the history, which it reads first if others may have kept some of it.
func (o *OnCall) keep(ctx context.Context, s Snapshot) {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	if !o.recalled {
		o.recall(ctx)
	}
	o.remember(ctx, s)
}

// lateFor notes for how long each class has been past its SLO.
func (o *OnCall) lateFor(s Snapshot) {
	for i := range s.Classes {
		c := &s.Classes[i]
		if !c.Breaching() {
			delete(o.late, c.Name)
			continue
		}
		if o.late[c.Name].IsZero() {
			o.late[c.Name] = s.At
		}
		c.LateFor = Age(s.At, o.late[c.Name])
	}
}
