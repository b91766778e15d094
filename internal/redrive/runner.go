package redrive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

const (
	// stepEvery is how often a running cohort is looked at. It bounds how long the guard
	// may take to pause: see PauseBound.
	stepEvery = 250 * time.Millisecond
	// spreadEvery is how often something is released in between: a step's worth at once
	// would be a burst, behind which fresh deliveries wait.
	spreadEvery = 25 * time.Millisecond
	// idleEvery is how often it is looked whether there is a cohort to be moved.
	idleEvery = time.Second
	// holdFor is how long the runner's lease lasts: a runner that died is succeeded in
	// that time.
	holdFor = 15 * time.Second
	// stepFor bounds a step, well within the lease: a process that was frozen in one, and
	// wakes when another is the runner, finds its time over and releases nothing.
	stepFor = 10 * time.Second
)

// Run moves cohorts until ctx ends, in at most one process at a time. It returns nil.
func (s *Service) Run(ctx context.Context) error {
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = s.store.drop(last, s.who) // else it ends by itself
	}()
	failing := false
	for {
		began := time.Now()
		running, err := s.step(ctx)
		err = errors.Join(err, s.spread(ctx, began))
		if failed := err != nil && ctx.Err() == nil; failed != failing {
			failing = failed
			if failed {
				s.opts.Logger.WarnContext(ctx, "redrives stand still, and are tried again", "error", err)
			} else {
				s.opts.Logger.InfoContext(ctx, "redrives are moved again")
			}
		}
		every := max(s.opts.Every, idleEvery)
		if running {
			every = s.opts.Every
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every - time.Since(began)):
		}
	}
}

// step moves each live cohort once, if this process is the runner. It says whether any
// of them runs, or its canary does.
func (s *Service) step(ctx context.Context) (running bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepFor)
	defer cancel()
	s.owed = nil
	mine, err := s.store.hold(ctx, s.who, holdFor)
	if err != nil || !mine {
		return false, err
	}
	cohorts, err := s.store.live(ctx)
	if err != nil || len(cohorts) == 0 {
		return false, err
	}
	if err := s.note(ctx); err != nil {
		return false, err
	}
	s.forget(cohorts)
	// What the guard watches comes first: the others' planning must not keep it waiting.
	slices.SortFunc(cohorts, func(a, b Cohort) int {
		return cmp.Or(cmp.Compare(urgency(a.State), urgency(b.State)), cmp.Compare(a.ID, b.ID))
	})
	t := turn{planUntil: time.Now().Add(planStep)}
	for _, c := range cohorts {
		if c.State == Running {
			t.running++
		}
		running = running || c.State == Running || c.State == Canary
	}
	var errs []error
	for i := range cohorts {
		if err := s.move(ctx, &cohorts[i], t); err != nil && !errors.Is(err, errVersion) { // changed: the next step sees how
			errs = append(errs, fmt.Errorf("cohort %s: %w", cohorts[i].ID, err))
		}
	}
	return running, errors.Join(errs...)
}

// turn is what a step allows.
type turn struct {
	planUntil time.Time
	running   int // cohorts that share the head-room
}

// urgency is the order in which cohorts are moved.
func urgency(s State) int {
	return slices.Index([]State{Running, Canary, Aborted, Paused, Awaiting, Done, Planning}, s)
}

// move does what a cohort's state asks for.
func (s *Service) move(ctx context.Context, c *Cohort, t turn) error {
	if err := s.tell(ctx, c); err != nil {
		return err
	}
	if !c.EndedAt.IsZero() {
		return s.close(ctx, c)
	}
	switch c.State {
	case Planning:
		return s.plan(ctx, c, t.planUntil)
	case Canary:
		return s.canary(ctx, c)
	case Running:
		return s.run(ctx, c, t.running)
	case Aborted:
		return s.abandon(ctx, c)
	case Awaiting, Paused:
		return s.rest(ctx, c)
	case Done:
	}
	return nil
}

// canary sends the first, and sees what comes of it. A failure stops the cohort before
// another is sent.
func (s *Service) canary(ctx context.Context, c *Cohort) error {
	// One that is gone, such as with its subscriber, is replaced at once: there may be
	// thousands of them.
	for range 100 {
		h, err := s.look(ctx, c)
		if err != nil {
			return err
		}
		if c.Reserved == 0 {
			if err := s.choose(ctx, c, h); err != nil {
				return err
			}
		}
		canaries, err := s.letters.Deliveries(ctx, c.CanaryIDs)
		if err != nil {
			return err
		}
		if why := h.canaryHeld(canaries); why != "" {
			return s.stop(ctx, c, why)
		}
		gone := c.Reserved - h.tally.Released // not released yet, or never
		if gone > 0 {
			results, err := s.redrive(ctx, c, c.CanaryIDs)
			if err != nil || slices.Contains(results, schedule.Released) {
				return err
			}
		}
		if over, err := s.judge(ctx, c, h, canaries, gone); err != nil || over {
			return err
		}
		c.Reserved = 0
	}
	return s.store.put(ctx, c)
}

// choose writes down which are the canaries, before they are sent: whoever goes on after
// a crash sends these and no others.
func (s *Service) choose(ctx context.Context, c *Cohort, h health) error {
	more := h.next[:min(len(h.next), max(c.Canaries-len(h.outIDs), 0))]
	c.CanaryIDs = slices.Concat(h.outIDs, more)
	c.Reserved = h.tally.Released + int64(len(more))
	c.Base = h.results()
	return s.store.put(ctx, c)
}

// judge sees what came of the canaries, of which so many are gone without having been
// sent. It says whether that is all for now; if not, others are to be chosen.
func (s *Service) judge(ctx context.Context, c *Cohort, h health, canaries []delivery.Delivery, gone int64) (bool, error) {
	delivered := int64(0)
	for _, d := range canaries {
		if d.State == delivery.Delivered { // of those that are gone too, by an answer that came late
			delivered++
		}
	}
	called, err := s.calledOff(ctx, canaries)
	switch {
	case err != nil:
		return true, err
	case h.tally.Dead > c.Base.Dead:
		c.Reserved = 0 // whoever resumes it has others sent
		return true, s.stop(ctx, c, "the canary failed: "+s.lastWords(ctx, c.CanaryIDs))
	case called != "":
		c.Reserved = 0
		return true, s.stop(ctx, c, "the canary was called off: delivery "+called+" was cancelled")
	case len(h.outIDs) > 0:
		return true, nil // on their way
	case len(h.next) == 0:
		c.CanaryPassed = delivered > gone
		return true, s.end(ctx, c, Done)
	case delivered > gone:
		c.CanaryPassed, c.State = true, Awaiting
		c.Tell = &Told{"redrive.await_approval", "the canary was delivered"}
		if err := s.store.put(ctx, c); err != nil {
			return true, err
		}
		return true, s.tell(ctx, c)
	}
	return false, nil // gone, such as with its subscriber
}

// calledOff names a canary that somebody cancelled when its endpoint had refused it: who
// does that has seen enough. One that was cancelled untried, or along with its
// subscriber, says nothing about the others.
func (s *Service) calledOff(ctx context.Context, canaries []delivery.Delivery) (string, error) {
	for _, d := range canaries {
		if d.State != delivery.Cancelled || d.Attempts <= d.BudgetBase || d.LastOutcome == "" {
			continue
		}
		if class, err := s.opts.ClassOf(ctx, d.SubscriberID); err != nil || class != "" {
			return d.ID, err
		}
	}
	return "", nil
}

// rest sees whether anything is left of a cohort that waits for an operator.
func (s *Service) rest(ctx context.Context, c *Cohort) error {
	if !c.Planned {
		return nil
	}
	for _, read := range []func(context.Context, string, int) ([]string, error){s.letters.NextOfCohort, s.letters.OutOfCohort} {
		if ids, err := read(ctx, c.ID, 1); err != nil || len(ids) > 0 {
			return err
		}
	}
	return s.end(ctx, c, Done)
}

// lastWords say how the canaries ended.
func (s *Service) lastWords(ctx context.Context, ids []string) string {
	for _, id := range ids {
		d, err := s.letters.Delivery(ctx, id)
		if err == nil && d.State == delivery.Dead {
			status := ""
			if d.LastStatus != 0 {
				status = fmt.Sprintf(", status %d", d.LastStatus)
			}
			return fmt.Sprintf("delivery %s is dead again (%s), its last attempt came to %s%s", id, d.Reason, d.LastOutcome, status)
		}
	}
	return "it is dead again"
}

// run releases as many as its pace allows.
func (s *Service) run(ctx context.Context, c *Cohort, running int) error {
	h, err := s.look(ctx, c)
	if err != nil {
		return err
	}
	if len(h.next) == 0 {
		if len(h.outIDs) == 0 {
			return s.end(ctx, c, Done)
		}
		return nil
	}
	if c.Limit == 0 {
		if err := s.begin(ctx, c, h); err != nil {
			return err
		}
	}
	if why := s.objection(c, h); why != "" {
		return s.stop(ctx, c, why)
	}
	why := cmp.Or(s.pressed(c, h), s.crowded(c, h))
	if why != "" || c.HeldBack != "" {
		return s.holdBack(ctx, c, why, h.sample.Now)
	}
	limit := c.Limit
	if c.MaxRate == 0 && running > 1 { // each was measured as if it were the only one
		limit = max(limit/float64(running), minRate)
	}
	// What the pace allows is written down before it is released: whoever goes on, after
	// a crash or in this process' place, releases what is owed and no more.
	if n := c.pace(h.sample.Now, 2*s.opts.Every+time.Second, limit, s.seen[c.ID].burst); n > 0 {
		c.Reserved = min(max(c.Reserved, h.tally.Released)+n, h.tally.Released+h.tally.Waiting())
		c.slide(h)
		if err := s.store.put(ctx, c); err != nil {
			return err
		}
	}
	if n := c.Reserved - h.tally.Released; n > 0 {
		s.owed = append(s.owed, owed{c, n})
	}
	return nil
}

// owed is what a step allows a cohort to release.
type owed struct {
	c *Cohort
	n int64
}

// spread releases what the step that began then has allowed, evenly until the next. What
// fails is owed at that.
func (s *Service) spread(ctx context.Context, began time.Time) error {
	if len(s.owed) == 0 {
		return nil
	}
	ctx, cancel := context.WithDeadline(ctx, began.Add(stepFor))
	defer cancel()
	for parts := max(1, int64(s.opts.Every-time.Since(began))/int64(spreadEvery)); ; parts-- {
		var errs []error
		for i := range s.owed {
			n := (s.owed[i].n + parts - 1) / parts
			s.owed[i].n -= n
			if err := s.release(ctx, s.owed[i].c, n); err != nil {
				errs = append(errs, fmt.Errorf("cohort %s: %w", s.owed[i].c.ID, err))
			}
		}
		if len(errs) > 0 || parts <= 1 {
			return errors.Join(errs...)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(spreadEvery):
		}
	}
}

// begin notes from where a cohort runs, and up to how fast it may.
func (s *Service) begin(ctx context.Context, c *Cohort, h health) error {
	c.Limit = c.MaxRate
	if c.MaxRate == 0 {
		room, err := s.headRoom(ctx)
		if err != nil {
			return err
		}
		c.Limit = s.limit(0, room)
	}
	c.Rate = min(c.Rate, c.Limit)
	c.Base, c.Mark = h.results(), h.results()
	c.Reserved, c.PacedAt = h.tally.Released, h.sample.Now
	return s.store.put(ctx, c)
}

// holdBack releases nothing for now, and goes on at half of the rate once there is no
// reason any more.
func (s *Service) holdBack(ctx context.Context, c *Cohort, why string, now time.Time) error {
	if (why == "") == (c.HeldBack == "") {
		return nil
	}
	if why != "" {
		c.Rate = min(max(c.Rate/2, 1), c.Limit)
	}
	c.HeldBack, c.PacedAt = why, now // what was not released meanwhile is not owed
	return s.store.put(ctx, c)
}

// release lets up to n of a cohort into the lane, the first that died before the others.
func (s *Service) release(ctx context.Context, c *Cohort, n int64) error {
	until := time.Now().Add(planStep) // those that are over do not count, and may be many
	for stuck := ""; n > 0 && time.Now().Before(until); {
		if err := ctx.Err(); err != nil { // nothing is sent that may come after another runner's
			return err
		}
		ids, err := s.letters.NextOfCohort(ctx, c.ID, int(min(n, releaseMost)))
		if err != nil || len(ids) == 0 {
			return err
		}
		if ids[0] == stuck {
			return fmt.Errorf("release %s: it stays where it is", stuck)
		}
		results, err := s.redrive(ctx, c, ids)
		if err != nil {
			return err
		}
		stuck = ids[0]
		for _, r := range results {
			if r == schedule.Released {
				n--
			}
		}
	}
	return nil
}

func (s *Service) redrive(ctx context.Context, c *Cohort, ids []string) ([]schedule.ClaimResult, error) {
	return s.letters.Redrive(ctx, c.ID, c.Budget, time.Duration(c.Within), ids)
}

// tell tells the audit log what it has not been told yet.
func (s *Service) tell(ctx context.Context, c *Cohort) error {
	if c.Tell == nil {
		return nil
	}
	if err := s.opts.Audit(ctx, Action{Name: c.Tell.Name, Cohort: *c, By: Guard, Reason: c.Tell.Reason}); err != nil {
		return fmt.Errorf("tell the audit log of %s: %w", c.Tell.Name, err)
	}
	c.Tell = nil
	return s.store.put(ctx, c)
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
	c.Tell = &Told{"redrive.pause", why}
	if err := s.store.put(ctx, c); err != nil {
		return err
	}
	s.opts.Logger.WarnContext(ctx, "redrive paused", "redrive_id", c.ID, "why", why)
	return s.tell(ctx, c)
}

// abandon lets go of what an aborted cohort has not released, and ends it when what it
// has released has ended.
func (s *Service) abandon(ctx context.Context, c *Cohort) error {
	if err := s.letGo(ctx, c.ID); err != nil {
		return err
	}
	out, err := s.letters.OutOfCohort(ctx, c.ID, 1)
	if err != nil || len(out) > 0 {
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
	c.State, c.EndedAt, c.Final, c.HeldBack = as, now, &tally, ""
	c.Matched = tally.Claimed + c.Skipped // see planned: it may have been aborted before
	said := fmt.Sprintf("%d of %d were delivered", tally.Delivered, tally.Claimed)
	if c.Skipped > 0 {
		said += fmt.Sprintf("; %d more could not be had: another redrive had them, or they were dead no longer", c.Skipped)
	}
	if lost := tally.Waiting(); as == Done && lost > 0 {
		// It waits for its turn and does not stand where that would come: see the gap claim.
		said += fmt.Sprintf("; %d are missing from it, and stay dead letters", lost)
		s.opts.Logger.ErrorContext(ctx, "a redrive has lost members", "redrive_id", c.ID, "count", lost)
	}
	c.Tell = &Told{"redrive.end", said}
	if err := s.store.put(ctx, c); err != nil {
		return err
	}
	if err := s.tell(ctx, c); err != nil {
		return err
	}
	return s.close(ctx, c)
}

// close has the scheduler forget a cohort that has ended. It stays among the live ones
// until that is done, so that a runner that dies half way leaves nothing behind: no
// count, and no claim that would keep a dead letter from every other cohort.
func (s *Service) close(ctx context.Context, c *Cohort) error {
	if err := s.letGo(ctx, c.ID); err != nil {
		return err
	}
	if err := s.letters.ForgetCohort(ctx, c.ID); err != nil {
		return err
	}
	c.Closed = true
	return s.store.put(ctx, c)
}
