package redrive

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

const (
	// planPage is how many dead letters are looked at in one go, and planStep for how
	// long a runner plans before it sees to the other cohorts.
	planPage = 100
	planStep = time.Second
	// planRests is for how many times as long as a page took it is rested before the next:
	// ten thousand without a pause are a second of what fresh deliveries need. planRest
	// bounds one, as a preview is waited for.
	planRests = 8
	planRest  = 80 * time.Millisecond
	// previewMost is how many dead letters a preview looks at, and previewRests for how
	// long it rests between them: somebody waits.
	previewMost  = 20_000
	previewRests = 5 * time.Second
	// previewSubscribers are named in a preview, and of previewTakers it is asked what they
	// can take.
	previewSubscribers = 20
	previewTakers      = 500
)

// plan claims the members of a cohort, as far as it gets until a time. Claims are
// idempotent, and the cursor goes on with them: a planner that dies half way is gone on
// with by another.
func (s *Service) plan(ctx context.Context, c *Cohort, until time.Time) error {
	m := s.matcher(&c.Order, c.CreatedAt)
	for time.Now().Before(until) {
		began := time.Now()
		found, next, err := m.page(ctx, c.Cursor)
		if err != nil {
			return err
		}
		if room := MaxMembers - (c.Matched - c.Skipped); int64(len(found)) > room {
			found = found[:room]
		}
		ids := make([]string, len(found))
		for i, d := range found {
			ids[i] = d.ID
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
		if next == "" || c.Matched-c.Skipped >= MaxMembers {
			return s.planned(ctx, c)
		}
		if err := s.store.put(ctx, c); err != nil {
			return err
		}
		if err := restAfter(ctx, began); err != nil {
			return err
		}
	}
	return nil
}

// restAfter leaves the machine to others, after a page that began then.
func restAfter(ctx context.Context, began time.Time) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(min(planRests*time.Since(began), planRest)):
		return nil
	}
}

// planned ends the planning: with nobody in it a cohort is done.
func (s *Service) planned(ctx context.Context, c *Cohort) error {
	c.Cursor, c.Planned = "", true
	// What a planner claimed that died is counted here alone, if it has come to match no
	// more: its subscriber was deleted, or put into another class.
	tally, err := s.letters.Tally(ctx, c.ID)
	if err != nil {
		return err
	}
	c.Matched = tally.Claimed + c.Skipped
	first, err := s.letters.NextOfCohort(ctx, c.ID, 1)
	if err != nil {
		return err
	}
	if len(first) == 0 {
		return s.end(ctx, c, Done)
	}
	c.State = Canary
	return s.store.put(ctx, c)
}

// matcher finds the dead letters that an order is for. What it has learned of
// subscribers and events it keeps, as many dead letters are of the same.
type matcher struct {
	service *Service
	order   *Order
	before  time.Time // what died later is none; zero for no bound
	classes map[string]string
	types   map[string]string
}

func (s *Service) matcher(o *Order, before time.Time) *matcher {
	return &matcher{service: s, order: o, before: before, classes: map[string]string{}, types: map[string]string{}}
}

// page returns the deliveries of a page that the order is for, and the cursor of the
// next page, "" at the end. Those that it names are returned whatever became of them.
func (m *matcher) page(ctx context.Context, cursor string) (found []schedule.Evidence, next string, err error) {
	if len(m.order.IDs) > 0 {
		for _, id := range m.order.IDs {
			found = append(found, schedule.Evidence{Delivery: delivery.Delivery{ID: id}})
		}
		return found, "", nil
	}
	page, next, err := m.service.letters.DeadLettersPage(ctx, m.order.Filter.SubscriberID, cursor, planPage)
	if err != nil {
		return nil, "", err
	}
	if n := len(page); n > 0 && page[n-1].EndedAt.Before(m.order.Filter.Since) {
		next = "" // newest first: all that follow are older
	}
	for _, d := range page {
		ok, err := m.matches(ctx, d)
		if err != nil {
			return nil, "", err
		}
		if ok {
			found = append(found, d)
		}
	}
	return found, next, nil
}

// matches says whether the filter is for a dead letter: by what costs nothing first.
func (m *matcher) matches(ctx context.Context, d schedule.Evidence) (bool, error) {
	f := &m.order.Filter
	switch {
	case f.SubscriberID != "" && d.SubscriberID != f.SubscriberID,
		f.Outcome != "" && d.LastOutcome != f.Outcome,
		f.Reason != "" && d.Reason != f.Reason,
		!f.Since.IsZero() && d.EndedAt.Before(f.Since),
		!f.Until.IsZero() && !d.EndedAt.Before(f.Until),
		!m.before.IsZero() && d.EndedAt.After(m.before):
		return false, nil
	}
	if f.Class != "" {
		class, err := m.classOf(ctx, d)
		if err != nil || class != f.Class {
			return false, err
		}
	}
	if f.EventType != "" {
		kind, err := m.typeOf(ctx, d)
		if err != nil || kind != f.EventType {
			return false, err
		}
	}
	return true, nil
}

func (m *matcher) classOf(ctx context.Context, d schedule.Evidence) (string, error) {
	class, known := m.classes[d.SubscriberID]
	if known {
		return class, nil
	}
	class, err := m.service.opts.ClassOf(ctx, d.SubscriberID)
	if err == nil {
		m.classes[d.SubscriberID] = class
	}
	return class, err
}

func (m *matcher) typeOf(ctx context.Context, d schedule.Evidence) (string, error) {
	kind, known := m.types[d.EventID]
	if known {
		return kind, nil
	}
	kind, err := m.service.typeOf(ctx, d)
	if err == nil && kind != "" && len(m.types) < previewMost {
		m.types[d.EventID] = kind
	}
	return kind, err
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
	// Matching dead letters; AtLeast says that there are more than were looked at. Some
	// may be another cohort's.
	Matching int64 `json:"matching"`
	AtLeast  bool  `json:"at_least"`
	// BySubscriber counts them for those that have most, and Subscribers how many have
	// any; ByReason counts all.
	Subscribers  int                        `json:"subscribers"`
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

// Preview says what an order would take, and changes nothing. It may take a second, in
// which it measures. It returns *fault.Invalid.
func (s *Service) Preview(ctx context.Context, o Order) (Preview, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return Preview{}, err
	}
	p := Preview{BySubscriber: map[string]int64{}, ByReason: map[delivery.Outcome]int64{}}
	by, err := s.count(ctx, &o, &p)
	if err != nil {
		return Preview{}, err
	}
	if p.HeadRoom, err = s.headRoom(ctx); err != nil {
		return Preview{}, err
	}
	p.Rate = s.limit(o.MaxRate, p.HeadRoom)
	took := rampFor(float64(p.Matching), p.Rate)
	p.Warnings = s.warnings(ctx, o, p)
	slowest, more, err := s.takers(ctx, time.Duration(o.Within), by, took)
	if err != nil {
		return Preview{}, err
	}
	p.Takes, p.Warnings = delivery.Duration(max(took, slowest)), append(p.Warnings, more...)
	return p, nil
}

// count counts what an order matches, up to a bound, and by subscriber.
func (s *Service) count(ctx context.Context, o *Order, p *Preview) (map[string]int64, error) {
	m, cursor := s.matcher(o, time.Time{}), ""
	by, start := map[string]int64{}, time.Now()
	for looked := planPage; ; looked += planPage {
		began := time.Now()
		found, next, err := m.page(ctx, cursor)
		if err != nil {
			return nil, err
		}
		for _, d := range found {
			if d, err = s.named(ctx, o, d); err != nil {
				return nil, err
			}
			if d.State != delivery.Dead {
				continue
			}
			p.Matching++
			p.ByReason[d.Reason]++
			by[d.SubscriberID]++
		}
		if cursor = next; next == "" || looked >= previewMost {
			p.AtLeast = next != ""
			break
		}
		if time.Since(start) < previewRests {
			if err := restAfter(ctx, began); err != nil {
				return nil, err
			}
		}
	}
	p.Subscribers = len(by)
	for _, id := range byCount(by, previewSubscribers) {
		p.BySubscriber[id] = by[id]
	}
	return by, nil
}

// named reads one that the order names, of which no more is known; the zero value if it is
// gone.
func (s *Service) named(ctx context.Context, o *Order, d schedule.Evidence) (schedule.Evidence, error) {
	if len(o.IDs) == 0 {
		return d, nil
	}
	found, err := s.letters.Delivery(ctx, d.ID)
	if errors.Is(err, schedule.ErrNotFound) {
		return schedule.Evidence{}, nil
	}
	return found, err
}

// byCount are the ids with the highest counts, those first.
func byCount(by map[string]int64, most int) []string {
	ids := slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		return cmp.Or(cmp.Compare(by[b], by[a]), cmp.Compare(a, b))
	})
	return ids[:min(len(ids), most)]
}

// takers looks at what the subscribers that have most can take, whatever is released:
// how long the slowest needs, and what an operator should know of it.
func (s *Service) takers(ctx context.Context, within time.Duration, by map[string]int64, released time.Duration) (
	slowest time.Duration, warnings []string, err error,
) {
	all, err := s.letters.Standings(ctx, byCount(by, previewTakers))
	if err != nil {
		return 0, nil, err
	}
	gone, slow := int64(0), schedule.Standing{}
	for i, id := range byCount(by, previewTakers) {
		class, err := s.opts.ClassOf(ctx, id)
		switch {
		case err != nil:
			return 0, nil, err
		case class == "":
			gone += by[id]
		case all[i].Rate > 0:
			if takes := time.Duration(float64(by[id]) / all[i].Rate * float64(time.Second)).Round(time.Second); takes > slowest {
				slowest, slow = takes, all[i]
			}
		}
	}
	if gone > 0 {
		warnings = append(warnings, fmt.Sprintf("%d of them are of subscribers that are deleted, and cannot be sent.", gone))
	}
	if slowest > released {
		warnings = append(warnings, fmt.Sprintf("Subscriber %s has a rate of its own, %.3g a second: its %d alone take %s.",
			slow.SubscriberID, slow.Rate, by[slow.SubscriberID], slowest))
	}
	if wait := time.Duration(untriedMin / max(slow.Rate, minRate) * float64(time.Second)); slow.Rate > 0 && wait > within {
		warnings = append(warnings, fmt.Sprintf("Up to %d wait in the lane, which at that rate takes %s: some would expire within the %s that each has. Give it longer.",
			untriedMin, wait.Round(time.Second), within))
	}
	return slowest, warnings, nil
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
	held, err := s.holds(ctx, slices.Sorted(maps.Keys(p.BySubscriber)))
	if err != nil {
		return append(out, "Whether its subscribers are on hold could not be read.")
	}
	for _, st := range held {
		if slices.Equal(st.Holds, []schedule.Hold{schedule.Breaker}) && st.Pending == 0 {
			out = append(out, fmt.Sprintf("The breaker of subscriber %s is open, and nothing else waits to probe its endpoint: the canary does, once that is due.", st.SubscriberID))
			continue
		}
		out = append(out, fmt.Sprintf("Subscriber %s is on hold (%s): its deliveries would wait, and the guard would pause.", st.SubscriberID, st.Holds[0]))
	}
	if p.Matching == 0 {
		out = append(out, "No dead letter matches.")
	}
	return out
}
