package oncall

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fanout/fanout/internal/schedule"
)

const (
	// maxHolds is how many subscribers on hold a snapshot holds.
	maxHolds = 20
	// holdsEvery is how often they are read again although their number stands
	// still: their deliveries come and go.
	holdsEvery = 2 * time.Second
)

// HeldSubscriber is one that is on hold. Of its endpoint nothing is known here: a URL
// may carry a token.
type HeldSubscriber struct {
	ID string
	// Reasons are its holds, and all must end.
	Reasons []schedule.Hold
	Since   time.Time
	// Until is when the next change is due by itself: the end of a throttle, the next
	// probe of a breaker. Zero if a person must end a hold first, or a probe is out.
	Until time.Time
	// Probing says that a probe is out.
	Probing bool
	Pending int64 // its deliveries that wait
}

// needsPerson says that it stays on hold until somebody resumes it.
func (h HeldSubscriber) needsPerson() bool {
	return slices.Contains(h.Reasons, schedule.Paused) || slices.Contains(h.Reasons, schedule.Disabled)
}

// heldOf is what on-call needs of standings, in their order.
func heldOf(standings []schedule.Standing) []HeldSubscriber {
	out := make([]HeldSubscriber, 0, min(len(standings), maxHolds))
	for _, s := range standings[:min(len(standings), maxHolds)] {
		h := HeldSubscriber{
			ID: s.SubscriberID, Reasons: s.Holds, Since: s.Since, Probing: s.Probe != "", Pending: s.Pending,
		}
		if !h.needsPerson() && !h.Probing {
			h.Until = s.ProbeAt
			if s.ThrottledUntil.After(h.Until) {
				h.Until = s.ThrottledUntil
			}
		}
		out = append(out, h)
	}
	return out
}

// holds are the subscribers that have been on hold for longest. They are read only
// while there are any, so that a calm service costs a sample a second and nothing
// else. If they cannot be read, the last ones stay: the ages are worth showing without.
func (o *OnCall) holds(ctx context.Context, prev Snapshot, s schedule.Sample, now time.Time) []HeldSubscriber {
	if s.OnHold == 0 {
		return nil
	}
	if s.OnHold == prev.OnHold && now.Sub(o.holdsAt) < holdsEvery {
		return prev.Holds
	}
	standings, err := o.source.OnHold(ctx, maxHolds)
	if err != nil {
		o.log.WarnContext(ctx, "cannot list the subscribers on hold", "error", err)
		return prev.Holds
	}
	o.holdsAt = now
	return heldOf(standings)
}

// HeldText says what waits for holds to end, empty if nothing is on hold.
func (v Verdict) HeldText() string {
	who, what := "subscribers are", "deliveries wait"
	switch v.OnHold {
	case 0:
		return ""
	case 1:
		who = "subscriber is"
	}
	if v.Held == 1 {
		what = "delivery waits"
	}
	return fmt.Sprintf("%s %s on hold, and %s %s for that to end", number(v.OnHold), who, number(v.Held), what)
}

// heldView is a subscriber on hold as the page shows it. Nothing in it moves by
// itself, so that an id can be selected.
type heldView struct {
	HeldSubscriber
	URL     string // of its page
	Reason  string
	Since   stamp
	Ends    string // what ends it, before At
	At      *stamp
	Pending string
}

func heldViewOf(h HeldSubscriber) heldView {
	v := heldView{
		HeldSubscriber: h, URL: pageOf("subscribers", h.ID), Since: stampOf(h.Since), Pending: number(h.Pending),
	}
	words := make([]string, len(h.Reasons))
	for i, r := range h.Reasons {
		words[i] = string(r)
	}
	v.Reason = strings.Join(words, ", ")
	switch {
	case h.needsPerson():
		v.Ends = "when it is resumed"
	case h.Probing:
		v.Ends = "if its probe, now out, succeeds"
	case slices.Contains(h.Reasons, schedule.Breaker):
		v.Ends = "next probe"
	default:
		v.Ends = "by itself"
	}
	if !h.Until.IsZero() {
		at := stampOf(h.Until)
		v.At = &at
	}
	return v
}
