package redrive

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/fault"
	"github.com/fanout/fanout/internal/schedule"
)

// State is where a cohort stands.
type State string

// The states. Done and Aborted are final.
const (
	Planning State = "planning"          // its members are being claimed
	Canary   State = "canary"            // the first of them is out
	Awaiting State = "awaiting_approval" // it did well, and an operator is to say so
	Running  State = "running"           // the others are released, one by one
	Paused   State = "paused"            // by an operator or the guard
	Done     State = "done"              // all have ended
	Aborted  State = "aborted"           // what was not released was let go
)

// Final says whether nothing more is released.
func (s State) Final() bool { return s == Done || s == Aborted }

// Filter chooses dead letters; what is zero chooses all.
type Filter struct {
	SubscriberID string           `json:"subscriber_id,omitempty"`
	Class        string           `json:"class,omitempty"`
	Outcome      delivery.Outcome `json:"outcome,omitempty"`    // of the last attempt
	Reason       delivery.Outcome `json:"reason,omitempty"`     // of its death
	EventType    string           `json:"event_type,omitempty"` // exactly
	// Since and Until bound when they died: at or after, and before.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

// Order is what an operator asks for.
type Order struct {
	// Filter or IDs; not both.
	Filter Filter   `json:"filter,omitzero"`
	IDs    []string `json:"ids,omitempty"`
	// Reason is why, in words: required.
	Reason string `json:"reason"`
	// Budget of attempts of each, 1 to 10; default 2.
	Budget int `json:"attempt_budget"`
	// Canaries are sent before anybody approves, 1 to 10; default 1.
	Canaries int `json:"canaries"`
	// MaxRate is how many are released a second at most, from 0.01 to 1000; 0 asks for
	// half of the head-room that is measured when it begins to run.
	MaxRate float64 `json:"max_rate,omitempty"`
	// Within is how long each may take from its release, 1 minute to 30 days; default
	// 24 hours.
	Within delivery.Duration `json:"within"`
}

// Bounds of an order.
const (
	maxBudget   = 10
	maxCanaries = 10
	minRate     = 0.01
	maxRate     = 1000.0
	minWithin   = time.Minute
	maxWithin   = 30 * 24 * time.Hour
	// MaxIDs is how many deliveries can be named one by one.
	MaxIDs = 1000
	// MaxMembers is how many a cohort has at most: what matches beyond it is left for
	// another.
	MaxMembers = 1_000_000
	// MaxLive is how many cohorts may be under way.
	MaxLive     = 100
	maxSentence = 500
)

// withDefaults fills in what was left out.
func (o Order) withDefaults() Order {
	if o.Budget == 0 {
		o.Budget = 2
	}
	if o.Canaries == 0 {
		o.Canaries = 1
	}
	if o.Within == 0 {
		o.Within = delivery.Duration(24 * time.Hour)
	}
	seen := make(map[string]bool, len(o.IDs)) // one that is named twice is meant once
	o.IDs = slices.DeleteFunc(slices.Clone(o.IDs), func(id string) bool {
		again := seen[id]
		seen[id] = true
		return again
	})
	return o
}

const reasonRule = "says why, in 3 to 500 printable characters: it stands in the audit log"

// judged is what a *fault.Invalid of this package is about.
const judged = "redrive"

// Check says what is wrong with an order, whatever is left out of it having its
// default: *fault.Invalid, or nil.
func (o Order) Check() error { return o.withDefaults().check() }

func (o Order) check() error {
	var bad fault.List
	say := func(wrong bool, pointer, detail string) {
		if wrong {
			bad.Addf(pointer, "%s", detail)
		}
	}
	within := time.Duration(o.Within)
	say(!sentence(o.Reason), "/reason", reasonRule)
	say(o.Budget < 1 || o.Budget > maxBudget, "/attempt_budget", fmt.Sprintf("must be from 1 to %d", maxBudget))
	say(o.Canaries < 1 || o.Canaries > maxCanaries, "/canaries", fmt.Sprintf("must be from 1 to %d", maxCanaries))
	say(o.MaxRate != 0 && !(o.MaxRate >= minRate && o.MaxRate <= maxRate), "/max_rate",
		fmt.Sprintf("must be from %g to %g a second, or 0 to have it measured", minRate, maxRate))
	say(within < minWithin || within > maxWithin, "/within", fmt.Sprintf("must be from %s to %s", minWithin, maxWithin))
	say(len(o.IDs) > MaxIDs, "/ids", fmt.Sprintf("must be at most %d: use a filter for more", MaxIDs))
	say(len(o.IDs) > 0 && o.Filter != Filter{}, "/filter", "cannot be given together with ids")
	say(!o.Filter.Since.IsZero() && !o.Filter.Until.IsZero() && !o.Filter.Since.Before(o.Filter.Until),
		"/filter/until", "must be after since")
	for pointer, out := range map[string]delivery.Outcome{"/filter/outcome": o.Filter.Outcome, "/filter/reason": o.Filter.Reason} {
		if _, known := delivery.Facts[out]; out != "" && !known {
			say(true, pointer, "is no outcome that there is")
		}
	}
	for i, id := range o.IDs {
		if _, err := delivery.IDHash16(id); err != nil {
			say(true, fmt.Sprintf("/ids/%d", i), "is not the id of a delivery")
		}
	}
	return bad.Sorted().Err(judged)
}

// wrong is the error of one thing.
func wrong(pointer, detail string) error {
	return &fault.Invalid{What: judged, Fields: []fault.Field{{Pointer: pointer, Detail: detail}}}
}

// sentence says whether a text is one that a person can have meant, and that shows
// itself as it is: without control characters, or such as turn the line around.
func sentence(s string) bool {
	n := 0
	for _, r := range s {
		if !unicode.IsGraphic(r) || r == unicode.ReplacementChar {
			return false
		}
		n++
	}
	return n <= maxSentence && len([]rune(strings.TrimSpace(s))) >= 3
}

// Cohort is a set of dead letters on its way.
type Cohort struct {
	ID string `json:"id"`
	Order
	State     State     `json:"state"`
	CreatedBy string    `json:"created_by"` // key id
	CreatedAt time.Time `json:"created_at"`

	// Planned says that all members are claimed.
	Planned bool `json:"planned"`
	// Cursor is how far planning has come; Skipped are those that matched and could not
	// be had: taken by another cohort, or dead no longer.
	Cursor  string `json:"cursor,omitempty"`
	Matched int64  `json:"matched"`
	Skipped int64  `json:"skipped"`

	// CanaryIDs are chosen before the first of them is sent, and while Reserved is 0.
	// CanaryPassed says that they were delivered: one at least, and none failed. Effect is what the one who
	// approved has checked at the receiver.
	CanaryIDs    []string  `json:"canary_ids,omitempty"`
	CanaryPassed bool      `json:"canary_passed"`
	ApprovedBy   string    `json:"approved_by,omitempty"`
	ApprovedAt   time.Time `json:"approved_at,omitzero"`
	Effect       string    `json:"effect,omitempty"`

	// Rate is how many are released a second now, and Limit up to how many: the order's,
	// or what was measured. PacedAt is until when releases are paid for, Redis time.
	// Reserved counts those that the runner was given to release.
	Rate     float64   `json:"rate"`
	Limit    float64   `json:"limit"`
	PacedAt  time.Time `json:"paced_at,omitzero"`
	Reserved int64     `json:"reserved"`
	// HeldBack is why nothing is released although it runs; "" if something is.
	HeldBack string `json:"held_back,omitempty"`
	// The guard judges what came after Base: when it began to run or was resumed, or
	// later, so that many good results do not hide the bad ones that follow. Mark is the
	// next Base.
	Base Results `json:"base"`
	Mark Results `json:"mark"`

	// Stopped is why it is paused or aborted, and StoppedBy who did: a key id, or guard.
	Stopped   string    `json:"stopped,omitempty"`
	StoppedBy string    `json:"stopped_by,omitempty"`
	StoppedAt time.Time `json:"stopped_at,omitzero"`
	// EndedAt is when the last of what it has released had ended, and Final how.
	EndedAt time.Time       `json:"ended_at,omitzero"`
	Final   *schedule.Tally `json:"final,omitempty"`
	// Tell is what the audit log has yet to be told, and Closed says that the scheduler
	// has forgotten the cohort: nothing is left to be done.
	Tell   *Told `json:"tell,omitempty"`
	Closed bool  `json:"closed,omitempty"`

	Version int64 `json:"-"`
}

// Results are counts of what has ended, at a time.
type Results struct {
	Delivered int64     `json:"delivered"`
	Dead      int64     `json:"dead"`
	At        time.Time `json:"at,omitzero"`
}

// Told is what the runner did by itself.
type Told struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// What callers branch on.
var (
	// ErrNotFound: no such cohort.
	ErrNotFound = errors.New("no such redrive")
	// ErrState: the cohort is in a state in which that cannot be done.
	ErrState = errors.New("the redrive is in another state")
	// ErrTooMany: MaxLive redrives are under way already.
	ErrTooMany = errors.New("too many redrives are under way")
	// errVersion: somebody changed it meanwhile.
	errVersion = errors.New("the redrive was changed meanwhile")
)

// Guard is who pauses a cohort by itself.
const Guard = "guard"

// stateError is ErrState with what may be done about it.
type stateError struct{ said string }

func (e *stateError) Error() string      { return e.said }
func (*stateError) Is(target error) bool { return target == ErrState }

func (c *Cohort) refuse(what, hint string) error {
	return &stateError{fmt.Sprintf("%s: it is %s; %s", what, c.State, hint)}
}

// approve lets the others go. The effect is what was checked, in words.
func (c *Cohort) approve(by, effect string, at time.Time) error {
	if c.State != Awaiting {
		return c.refuse("approve", "only one that is awaiting_approval can be approved, once its canary was delivered")
	}
	if !sentence(effect) {
		return wrong("/effect", "says what you have checked at the receiver, in 3 to 500 printable characters")
	}
	c.ApprovedBy, c.ApprovedAt, c.Effect = by, at, effect
	c.run(at)
	return nil
}

// run begins to release, from one a second.
func (c *Cohort) run(at time.Time) {
	c.State, c.Rate, c.PacedAt, c.HeldBack = Running, 1, at, ""
	c.Limit = 0 // measured when it begins
	c.Stopped, c.StoppedBy, c.StoppedAt = "", "", time.Time{}
}

// pause stops the release; what is out goes on.
func (c *Cohort) pause(by, why string, at time.Time) error {
	switch c.State {
	case Paused:
		return nil
	case Canary, Awaiting, Running, Planning:
		c.State, c.Stopped, c.StoppedBy, c.StoppedAt, c.HeldBack = Paused, why, by, at, ""
		return nil
	case Done, Aborted:
	}
	return c.refuse("pause", "it has ended")
}

// resume goes on where it was paused: with planning, the canary that was out (another one
// if that has failed), the approval that is still to be had, or the release, slowly again.
func (c *Cohort) resume(at time.Time) error {
	if c.State != Paused {
		return c.refuse("resume", "only one that is paused can be resumed")
	}
	switch {
	case !c.Planned:
		c.State = Planning
	case !c.CanaryPassed:
		c.State = Canary
	case c.ApprovedAt.IsZero():
		c.State = Awaiting
	default:
		c.run(at)
		return nil
	}
	c.Stopped, c.StoppedBy, c.StoppedAt = "", "", time.Time{}
	return nil
}

// abort ends it: what was not released is let go.
func (c *Cohort) abort(by, why string, at time.Time) error {
	if c.State == Aborted {
		return nil
	}
	if c.State == Done {
		return c.refuse("abort", "it has ended")
	}
	c.State, c.Stopped, c.StoppedBy, c.StoppedAt, c.HeldBack = Aborted, why, by, at, ""
	return nil
}
