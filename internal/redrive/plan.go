package redrive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

const (
	// planPage is how many dead letters are looked at in one go, and planStep for how
	// long a runner plans before it sees to the other cohorts.
	planPage = 200
	planStep = time.Second
	// previewMost is how many dead letters a preview looks at.
	previewMost = 20_000
)

// plan claims the members of a cohort, as far as it gets in a step. Claims are
// idempotent, and the cursor goes on with them: a planner that dies half way is gone on
// with by another.
func (s *Service) plan(ctx context.Context, c *Cohort) error {
	for end := time.Now().Add(planStep); time.Now().Before(end); {
		ids, next, err := s.matching(ctx, &c.Order, c.Cursor)
		if err != nil {
			return err
		}
		results, err := s.letters.Claim(ctx, c.ID, ids)
		if err != nil {
			return err
		}
		for _, r := range results {
			c.Matched++
			if r != schedule.Claimed {
				c.Skipped++
			}
		}
		c.Cursor = next
		if next == "" || c.Matched >= MaxMembers {
			return s.planned(ctx, c)
		}
		if err := s.store.put(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// planned ends the planning: with nobody in it a cohort is done.
func (s *Service) planned(ctx context.Context, c *Cohort) error {
	c.Cursor, c.Planned = "", true
	if c.Matched == c.Skipped {
		return s.end(ctx, c, Done)
	}
	c.State = Canary
	return s.store.put(ctx, c)
}

// matching returns the dead letters of a page that an order is for, and the cursor of
// the next page, "" at the end.
func (s *Service) matching(ctx context.Context, o *Order, cursor string) (ids []string, next string, err error) {
	if len(o.IDs) > 0 {
		return o.IDs, "", nil
	}
	page, next, err := s.letters.DeadLettersPage(ctx, o.Filter.SubscriberID, cursor, planPage)
	if err != nil {
		return nil, "", err
	}
	if n := len(page); n > 0 && page[n-1].EndedAt.Before(o.Filter.Since) {
		next = "" // newest first: all that follow are older
	}
	for _, d := range page {
		ok, err := s.matches(ctx, &o.Filter, d)
		if err != nil {
			return nil, "", err
		}
		if ok {
			ids = append(ids, d.ID)
		}
	}
	return ids, next, nil
}

// matches says whether a filter is for a dead letter.
func (s *Service) matches(ctx context.Context, f *Filter, d schedule.Evidence) (bool, error) {
	switch {
	case f.SubscriberID != "" && d.SubscriberID != f.SubscriberID,
		f.Outcome != "" && d.LastOutcome != f.Outcome,
		f.Reason != "" && d.Reason != f.Reason,
		!f.Since.IsZero() && d.EndedAt.Before(f.Since),
		!f.Until.IsZero() && !d.EndedAt.Before(f.Until):
		return false, nil
	}
	if f.Class != "" {
		class, err := s.opts.ClassOf(ctx, d.SubscriberID)
		if err != nil || class != f.Class {
			return false, err
		}
	}
	if f.EventType != "" {
		kind, err := s.typeOf(ctx, d)
		if err != nil || kind != f.EventType {
			return false, err
		}
	}
	return true, nil
}

// typeOf reads an event's type out of the payload that its dead letter keeps, as the
// event itself may be forgotten; "" if that is gone too.
func (s *Service) typeOf(ctx context.Context, d schedule.Evidence) (string, error) {
	body, err := s.letters.Pinned(ctx, d.SubscriberID, d.EventID)
	if errors.Is(err, schedule.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var head struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal(body.Bytes, &head) // ours; one that cannot be read is of no type
	return head.Type, nil
}

// Preview is what an order would take.
type Preview struct {
	// Matching dead letters; AtLeast says that there are more than were looked at.
	Matching int64 `json:"matching"`
	AtLeast  bool  `json:"at_least"`
	// BySubscriber and ByReason count them.
	BySubscriber map[string]int64           `json:"by_subscriber"`
	ByReason     map[delivery.Outcome]int64 `json:"by_reason"`
	HeadRoom     HeadRoom                   `json:"head_room"`
	// Rate is up to how many a second would be released, and Takes about how long the
	// whole would.
	Rate  float64           `json:"rate_per_second"`
	Takes delivery.Duration `json:"takes"`
	// Warnings are sentences for the operator.
	Warnings []string `json:"warnings"`
}

// Preview says what an order would take, and changes nothing. It returns *InvalidError.
func (s *Service) Preview(ctx context.Context, o Order) (Preview, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return Preview{}, err
	}
	p := Preview{BySubscriber: map[string]int64{}, ByReason: map[delivery.Outcome]int64{}}
	cursor := ""
	for looked := 0; ; looked += planPage {
		ids, next, err := s.matching(ctx, &o, cursor)
		if err != nil {
			return Preview{}, err
		}
		for _, id := range ids {
			d, err := s.letters.Delivery(ctx, id)
			if errors.Is(err, schedule.ErrNotFound) || (err == nil && d.State != delivery.Dead) {
				continue
			}
			if err != nil {
				return Preview{}, err
			}
			p.Matching++
			p.ByReason[d.Reason]++
			if len(p.BySubscriber) < 20 || p.BySubscriber[d.SubscriberID] > 0 {
				p.BySubscriber[d.SubscriberID]++
			}
		}
		if cursor = next; next == "" {
			break
		}
		if looked >= previewMost {
			p.AtLeast = true
			break
		}
	}
	var err error
	if p.HeadRoom, err = s.headRoom(ctx); err != nil {
		return Preview{}, err
	}
	p.Rate = s.limit(o.MaxRate, p.HeadRoom)
	p.Takes = delivery.Duration(rampFor(float64(p.Matching), p.Rate))
	p.Warnings = s.warnings(ctx, o, p)
	return p, nil
}

// limit is up to how many are released a second: what the order says, or half of the
// head-room, and at least one.
func (s *Service) limit(asked float64, h HeadRoom) float64 {
	if asked > 0 {
		return asked
	}
	return min(max(h.PerSecond()/2, 1), maxRate)
}

func (s *Service) warnings(ctx context.Context, o Order, p Preview) []string {
	out := []string{}
	half := p.HeadRoom.PerSecond() / 2
	switch {
	case p.HeadRoom.Slots == 0:
		out = append(out, "No dispatcher is at work: nothing would be sent.")
	case half < 1:
		out = append(out, "No head-room is left: what arrives takes all that the dispatchers' slots carry. Add slots, or wait.")
	case o.MaxRate > half:
		out = append(out, fmt.Sprintf("The rate asked for, %.1f/s, is above half of the head-room, %.1f/s.", o.MaxRate, half))
	}
	var subs []string
	for id := range p.BySubscriber {
		subs = append(subs, id)
	}
	standings, err := s.letters.Standings(ctx, subs)
	if err != nil {
		return append(out, "Whether its subscribers are on hold could not be read.")
	}
	for _, st := range standings {
		if len(st.Holds) > 0 {
			out = append(out, fmt.Sprintf("Subscriber %s is on hold (%s): its deliveries would wait, and the guard would pause.", st.SubscriberID, st.Holds[0]))
		}
	}
	if p.Matching == 0 {
		out = append(out, "No dead letter matches.")
	}
	return out
}
