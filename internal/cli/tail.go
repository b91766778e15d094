package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fanout/fanout/client"
)

// tailCmd follows a subscriber's deliveries.
type tailCmd struct {
	ID       subscriberID  `arg:"" help:"The subscriber's id." name:"subscriber"`
	Interval time.Duration `default:"1s" help:"How often to look, from 100ms."`
}

// Help says what it cannot show.
func (*tailCmd) Help() string {
	return "It looks again and again, and shows what has changed. What comes and goes between two looks is not seen: " +
		"a delivery that succeeds at its first attempt has often come and gone. There is no list of what was delivered; " +
		"fanout subscribers stats counts it. Of more than 1000 that wait the first are followed alone."
}

// Bounds of one look: a backlog is not read through every second.
const (
	tailPages = 5   // of 200, of pending ones and of dead letters
	tailEnds  = 200 // deliveries that are asked about one by one
	minLook   = 100 * time.Millisecond
)

// Run follows until ctx ends, which is its normal end.
func (l *tailCmd) Run(ctx context.Context, s *session) error {
	if l.Interval < minLook {
		return usage("--interval must be at least %s", minLook)
	}
	sub, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.Subscriber, error) {
		return c.GetSubscriber(ctx, string(l.ID))
	})
	if err != nil {
		return err
	}
	f := newFollower(s, sub.ID)
	if !s.json() {
		s.notef("%s %s, %s. What comes and goes between two looks is not seen; Ctrl-C ends it.", sub.ID, oneLine(sub.Name, 40), served(sub))
		s.sayf(tailLine, "SEEN", "DELIVERY", "STATE", "ATTEMPTS", "LAST OUTCOME", "NEXT ATTEMPT")
	}
	tick := time.NewTicker(l.Interval)
	defer tick.Stop()
	for away := false; ; {
		err := f.look(ctx)
		switch {
		case ctx.Err() != nil, s.out.failure() != nil:
			return nil // Ctrl-C, or whoever read has seen enough
		case err == nil:
			away = false
		case !f.looked, !errors.Is(err, client.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded):
			return err
		case !away: // once, and then again and again until it is back
			away = true
			s.notef("%s gives no answer; looking on: %v", s.API, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

const tailLine = "%-9s  %-36s  %-9s  %-8s  %-16s  %s"

// follower knows what it has shown.
type follower struct {
	s      *session
	id     string
	looked bool
	full   bool              // there were more than a look reads
	known  map[string]string // pending deliveries, with what was last shown of each
	dying  map[string]bool   // shown as dead, and not yet met among the dead letters
	ended  map[string]bool   // dead letters that are old, or have been shown
}

func newFollower(s *session, id string) *follower {
	return &follower{s: s, id: id, known: map[string]string{}, dying: map[string]bool{}, ended: map[string]bool{}}
}

// look reads what is pending, then what became of what is so no more.
func (f *follower) look(ctx context.Context) error {
	pending, whole, err := f.pending(ctx)
	if err != nil {
		return err
	}
	for _, d := range slices.Backward(pending) { // the latest due first: the next to come is the last line
		f.show(d)
	}
	if err := f.dead(ctx); err != nil {
		return err
	}
	f.looked = true
	if whole {
		return f.gone(ctx, pending)
	}
	return nil
}

func (f *follower) pending(ctx context.Context) (all []client.Delivery, whole bool, err error) {
	p := client.Page{Limit: maxPage}
	for range tailPages {
		page, err := ask(ctx, f.s, func(ctx context.Context, c *client.Client) (client.List[client.Delivery], error) {
			return c.ListDeliveries(ctx, client.DeliveryFilter{SubscriberID: f.id, State: client.Pending}, p)
		})
		if err != nil {
			return nil, false, err
		}
		all = append(all, page.Data...)
		if p.Cursor = page.NextCursor; p.Cursor == "" {
			return all, true, nil
		}
	}
	if !f.full {
		f.full = true
		f.s.notef("More than %d are pending: the first are followed, and the ends of none but the dead are seen.", tailPages*maxPage)
	}
	return all, false, nil
}

// show prints a delivery if it is not as it was.
func (f *follower) show(d client.Delivery) {
	now := fingerprint(d)
	if f.known[d.ID] == now {
		return
	}
	f.known[d.ID] = now
	if f.s.json() {
		_ = f.s.line(d) // a write's failure is looked for
		return
	}
	next := ""
	if !d.NextAttemptAt.IsZero() {
		next = when(d.NextAttemptAt, time.Now())
	}
	f.s.sayf(tailLine, time.Now().UTC().Format("15:04:05Z"), clean(d.ID), d.State, fmt.Sprint(d.Attempts), clean(outcome(d.LastOutcome, d.LastStatus)), next)
}

// fingerprint is what makes a line worth showing.
func fingerprint(d client.Delivery) string {
	return fmt.Sprint(d.State, d.DeliveryCount, d.Releases, d.LastOutcome, d.NextAttemptAt.UnixMilli())
}

// dead shows dead letters that are new: also those that were never seen pending.
func (f *follower) dead(ctx context.Context) error {
	p := client.Page{Limit: maxPage}
	for range tailPages {
		page, err := ask(ctx, f.s, func(ctx context.Context, c *client.Client) (client.List[client.DeadLetter], error) {
			return c.ListDeadLetters(ctx, client.DeadLetterFilter{SubscriberID: f.id}, p)
		})
		if err != nil {
			return err
		}
		for _, l := range page.Data { // newest first
			d := l.Delivery
			death := d.ID + " " + d.EndedAt.String() // a redriven one may die again
			if f.ended[death] {
				return nil
			}
			f.ended[death] = true
			if !f.dying[death] && (f.looked || f.known[d.ID] != "") {
				f.show(d)
			}
			delete(f.known, d.ID)
			delete(f.dying, death)
		}
		if p.Cursor = page.NextCursor; p.Cursor == "" || !f.looked {
			return nil
		}
	}
	return nil
}

// gone asks what became of those that are pending no more.
func (f *follower) gone(ctx context.Context, pending []client.Delivery) error {
	there := map[string]bool{}
	for _, d := range pending {
		there[d.ID] = true
	}
	asked := 0
	for id := range f.known {
		if there[id] {
			continue
		}
		asked++
		if asked > tailEnds {
			return nil // the rest at the next look
		}
		d, err := getDelivery(ctx, f.s, id)
		if errors.Is(err, client.ErrNotFound) { // its retention has passed
			delete(f.known, id)
			continue
		}
		if err != nil {
			return err
		}
		f.show(d)
		if !d.EndedAt.IsZero() {
			delete(f.known, id)
		}
		if d.State == client.Dead {
			f.dying[id+" "+d.EndedAt.String()] = true
		}
	}
	return nil
}
