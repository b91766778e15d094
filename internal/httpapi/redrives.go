package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/fanout/fanout/internal/access"
	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/redrive"
	"github.com/fanout/fanout/internal/schedule"
)

// previewTimeout bounds a dry run, which looks at thousands of dead letters and
// measures for a second.
const previewTimeout = 30 * time.Second

// repeatRedrive is what to do after a create whose fate is not known.
const repeatRedrive = "The redrive may have been made. List the redrives (GET /v1/redrives) before you send the request again."

// CreateRedrive makes a redrive, or says what it would take.
func (s *server) CreateRedrive(w http.ResponseWriter, r *http.Request, p CreateRedriveParams) {
	s.run(w, r, previewTimeout, func(w http.ResponseWriter, r *http.Request) error {
		if r.URL.Query().Has("dry_run") && p.DryRun != "true" && p.DryRun != "false" {
			return badParameter(ProblemCodeInvalidParameter, "dry_run", "must be true or false")
		}
		if s.deps.Redrives == nil {
			return noRedrives()
		}
		var in RedriveInput
		rules := func() error {
			order, err := orderOf(in)
			if err != nil {
				return err
			}
			return order.Check()
		}
		if err := decode(r, &in, rules); err != nil {
			return err
		}
		order, err := orderOf(in)
		if err != nil {
			return err
		}
		if err := s.mustBeDead(r.Context(), order.IDs); err != nil {
			return err
		}
		if p.DryRun == "true" {
			preview, err := s.deps.Redrives.Preview(r.Context(), order)
			if err != nil {
				return redriveError(err)
			}
			return writeJSON(w, http.StatusOK, redrivePreviewView(preview))
		}
		noteOf(r).repeat = repeatRedrive
		c, err := s.deps.Redrives.Create(r.Context(), order, access.From(r.Context()).KeyID)
		if err != nil {
			return redriveError(err)
		}
		noteOf(r).id("redrive_id", c.ID)
		s.record(r, change{target: c.ID, reason: in.Reason, after: orderFacts(c)})
		w.Header().Set("Location", "/v1/redrives/"+c.ID)
		return writeJSON(w, http.StatusCreated, redriveView(c))
	})
}

// orderOf refuses what names nothing: a filter that was forgotten must not become one
// that matches everything.
func orderOf(in RedriveInput) (redrive.Order, error) {
	o := redrive.Order{
		IDs: in.Ids, Reason: in.Reason, Budget: in.AttemptBudget, Canaries: in.Canaries, MaxRate: in.MaxRate, Within: in.Within,
	}
	if f := in.Filter; f != nil {
		o.Filter = redrive.Filter{
			SubscriberID: f.SubscriberID, Class: f.Class, Outcome: f.Outcome, Reason: f.Reason, EventType: f.Type, Since: f.Since, Until: f.Until,
		}
	}
	switch {
	case in.Filter == nil && len(in.Ids) == 0:
		return o, with(invalid("/filter", "is required, or ids; {} is all dead letters"), o.Check())
	case in.Filter != nil && len(in.Ids) > 0:
		return o, with(invalid("/filter", "cannot be given together with ids"), o.Check())
	}
	return o, nil
}

// mustBeDead refuses deliveries that are named and are no dead letters: whoever names
// one means it. What changes after this look is left out by the redrive.
func (s *server) mustBeDead(ctx context.Context, ids []string) error {
	bad := func(id string) bool { _, err := delivery.IDHash16(id); return err != nil }
	if len(ids) == 0 || len(ids) > redrive.MaxIDs || slices.ContainsFunc(ids, bad) { // then the order is refused as a whole
		return nil
	}
	ds, err := s.deps.Views.Deliveries(ctx, ids)
	if err != nil {
		return fmt.Errorf("look at the dead letters: %w", err)
	}
	states := make(map[string]delivery.State, len(ds))
	for _, d := range ds {
		states[d.ID] = d.State
	}
	f := fail(ProblemCodeNotDead, "Nothing was changed: only dead letters can be redriven, and some of these are none; see errors.")
	for i, id := range ids {
		state, there := states[id]
		detail := "is not there, or its retention has passed"
		switch {
		case state == delivery.Dead:
			continue
		case state == delivery.Scheduled || state == delivery.Leased:
			detail = "is still being tried: it is " + string(state) + "; wait for its end, or make it due now by a retry"
		case there:
			detail = "is " + string(state)
		}
		pointer := fmt.Sprintf("/ids/%d", i)
		f.fields = append(f.fields, FieldProblem{Pointer: &pointer, Detail: detail})
	}
	if len(f.fields) == 0 {
		return nil
	}
	return f
}

// ListRedrives shows redrives, newest first.
func (s *server) ListRedrives(w http.ResponseWriter, r *http.Request, p ListRedrivesParams) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		if s.deps.Redrives == nil {
			return noRedrives()
		}
		limit, err := limitOf(p.Limit)
		if err != nil {
			return err
		}
		before, err := afterID(r, p.Cursor)
		if err != nil {
			return err
		}
		cohorts, err := s.deps.Redrives.List(r.Context(), before, limit+1)
		if errors.Is(err, redrive.ErrNotFound) {
			return badCursor()
		}
		if err != nil {
			return fmt.Errorf("list redrives: %w", err)
		}
		var out RedriveList
		cohorts, out.NextCursor = page(cohorts, limit, func(c redrive.Cohort) string { return c.ID })
		out.Data = make([]Redrive, 0, len(cohorts))
		for _, c := range cohorts {
			c.IDs = nil // there may be 1000 of each
			out.Data = append(out.Data, redriveView(c))
		}
		return writeJSON(w, http.StatusOK, out)
	})
}

// GetRedrive shows a redrive with its tally and its canaries.
func (s *server) GetRedrive(w http.ResponseWriter, r *http.Request, id RedriveID) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		v, err := s.findRedrive(r, id)
		if err != nil {
			return err
		}
		out := redriveView(v.Cohort)
		out.Tally = tallyView(v.Tally)
		for _, d := range v.Canaries {
			out.CanaryDeliveries = append(out.CanaryDeliveries, evidenceView(d))
		}
		return writeJSON(w, http.StatusOK, out)
	})
}

// ApproveRedrive lets the others go after the canary.
func (s *server) ApproveRedrive(w http.ResponseWriter, r *http.Request, id RedriveID, _ ApproveRedriveParams) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		var in RedriveApproval
		if err := decode(r, &in, nil); err != nil {
			return err
		}
		return s.steer(w, r, id, in.Effect, func(ctx context.Context, by string) (redrive.Cohort, error) {
			return s.deps.Redrives.Approve(ctx, id, by, in.Effect)
		})
	})
}

// PauseRedrive stops the release.
func (s *server) PauseRedrive(w http.ResponseWriter, r *http.Request, id RedriveID, _ PauseRedriveParams) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		var in RedriveStop
		if err := decode(r, &in, nil); err != nil {
			return err
		}
		return s.steer(w, r, id, in.Reason, func(ctx context.Context, by string) (redrive.Cohort, error) {
			return s.deps.Redrives.Pause(ctx, id, by, in.Reason)
		})
	})
}

// ResumeRedrive goes on where a redrive was paused.
func (s *server) ResumeRedrive(w http.ResponseWriter, r *http.Request, id RedriveID, _ ResumeRedriveParams) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		noteOf(r).repeat = "Whether it was resumed is not known. Get the redrive, and send the request again if it is paused."
		var in RedriveStop
		if err := decode(r, &in, nil); err != nil {
			return err
		}
		return s.steer(w, r, id, in.Reason, func(ctx context.Context, _ string) (redrive.Cohort, error) {
			return s.deps.Redrives.Resume(ctx, id, in.Reason)
		})
	})
}

// AbortRedrive ends a redrive.
func (s *server) AbortRedrive(w http.ResponseWriter, r *http.Request, id RedriveID, _ AbortRedriveParams) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		var in RedriveStop
		if err := decode(r, &in, nil); err != nil {
			return err
		}
		return s.steer(w, r, id, in.Reason, func(ctx context.Context, by string) (redrive.Cohort, error) {
			return s.deps.Redrives.Abort(ctx, id, by, in.Reason)
		})
	})
}

// steer changes a redrive, and writes down that it was changed.
func (s *server) steer(
	w http.ResponseWriter, r *http.Request, id, reason string, change func(ctx context.Context, by string) (redrive.Cohort, error),
) error {
	was, err := s.findRedrive(r, id)
	if err != nil {
		return err
	}
	is, err := change(r.Context(), access.From(r.Context()).KeyID)
	if err != nil {
		return redriveError(err)
	}
	s.recordRedrive(r, was.Cohort, is, reason)
	return writeJSON(w, http.StatusOK, redriveView(is))
}

func (s *server) findRedrive(r *http.Request, id string) (redrive.View, error) {
	if s.deps.Redrives == nil {
		return redrive.View{}, noRedrives()
	}
	if !usableID(id, "_") {
		return redrive.View{}, notFound("redrive")
	}
	noteOf(r).id("redrive_id", id)
	v, err := s.deps.Redrives.Get(r.Context(), id)
	if err != nil {
		return redrive.View{}, redriveError(err)
	}
	return v, nil
}

// noRedrives is about what every server has but one in a test.
func noRedrives() error { return unavailable("This server was started without redrives.") }

// redriveError is what is told of an error of package redrive.
func redriveError(err error) error {
	switch {
	case errors.Is(err, redrive.ErrNotFound):
		return notFound("redrive")
	case errors.Is(err, redrive.ErrState):
		return &failure{code: ProblemCodeRedriveState, detail: "Nothing was changed: cannot " + err.Error() + ".", cause: err}
	case errors.Is(err, redrive.ErrTooMany):
		return &failure{
			code: ProblemCodeTooManyRedrives, cause: err,
			detail: fmt.Sprintf("There are %d redrives under way, and no more may be. Let one end, or abort it.", redrive.MaxLive),
		}
	}
	return fmt.Errorf("redrive: %w", err)
}

func redriveView(c redrive.Cohort) Redrive {
	out := Redrive{
		ID: c.ID, State: c.State, Ids: c.IDs, Reason: c.Reason,
		AttemptBudget: c.Budget, Canaries: c.Canaries, MaxRate: c.MaxRate, Within: c.Within,
		CreatedBy: c.CreatedBy, CreatedAt: c.CreatedAt.UTC(),
		Planned: c.Planned, Matched: c.Matched, Skipped: c.Skipped,
		CanaryIds: append([]string{}, c.CanaryIDs...), CanaryPassed: c.CanaryPassed,
		ApprovedBy: c.ApprovedBy, ApprovedAt: utc(c.ApprovedAt), Effect: c.Effect,
		RatePerSecond: c.Rate, RateLimit: c.Limit, HeldBack: clip(c.HeldBack, maxSaid),
		Stopped: clip(c.Stopped, maxSaid), StoppedBy: c.StoppedBy, StoppedAt: utc(c.StoppedAt), EndedAt: utc(c.EndedAt),
	}
	if f := c.Filter; len(c.IDs) == 0 {
		out.Filter = &DeadLetterFilter{
			SubscriberID: f.SubscriberID, Class: f.Class, Outcome: f.Outcome, Reason: f.Reason, Type: f.EventType,
			Since: utc(f.Since), Until: utc(f.Until),
		}
	}
	if c.Final != nil {
		out.Tally = tallyView(*c.Final)
	}
	return out
}

// maxSaid is how much of a redrive's own sentences is told, in characters.
const maxSaid = 1000

func tallyView(t schedule.Tally) *RedriveTally {
	return &RedriveTally{
		Claimed: t.Claimed, Waiting: max(t.Waiting(), 0), Released: t.Released, Out: max(t.Out(), 0),
		Delivered: t.Delivered, Dead: t.Dead, Cancelled: t.Cancelled, Over: t.Over, LetGo: t.LetGo,
	}
}

func redrivePreviewView(p redrive.Preview) RedrivePreview {
	out := RedrivePreview{
		Matching: p.Matching, AtLeast: p.AtLeast, Subscribers: p.Subscribers,
		BySubscriber: []RedriveShare{}, ByReason: []RedriveCause{},
		HeadRoom: HeadRoom{
			CapacityPerSecond: p.HeadRoom.Capacity, ArrivalsPerSecond: p.HeadRoom.Arrivals, PerSecond: p.HeadRoom.PerSecond(),
			Slots: p.HeadRoom.Slots, SlotsInUse: p.HeadRoom.Used,
		},
		RatePerSecond: p.Rate, Takes: p.Takes, Warnings: append([]string{}, p.Warnings...),
	}
	for id, n := range p.BySubscriber {
		out.BySubscriber = append(out.BySubscriber, RedriveShare{SubscriberID: id, DeadLetters: n})
	}
	for reason, n := range p.ByReason {
		out.ByReason = append(out.ByReason, RedriveCause{Reason: reason, DeadLetters: n})
	}
	slices.SortFunc(out.BySubscriber, func(a, b RedriveShare) int {
		return cmp.Or(cmp.Compare(b.DeadLetters, a.DeadLetters), cmp.Compare(a.SubscriberID, b.SubscriberID))
	})
	slices.SortFunc(out.ByReason, func(a, b RedriveCause) int {
		return cmp.Or(cmp.Compare(b.DeadLetters, a.DeadLetters), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}
