package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fanout/fanout/client"
)

// deadCmd are the commands about dead letters.
type deadCmd struct {
	Ls      deadLs      `cmd:"" help:"List dead letters, newest first."`
	Show    deadShow    `cmd:"" help:"Show all that is known of one: payload, attempts, headers, policy."`
	Discard deadDiscard `cmd:"" help:"Forget dead letters for good. --reason is needed."`
}

// selection are the flags that choose dead letters.
type selection struct {
	Subscriber subscriberID `help:"Only those of this subscriber." placeholder:"ID"`
	Class      string       `help:"Only those of subscribers of this class." placeholder:"CLASS"`
	Outcome    string       `help:"Only those whose last attempt came to this, such as timeout." placeholder:"OUTCOME"`
	DiedOf     string       `help:"Only those that died for this, such as exhausted." placeholder:"OUTCOME"`
	Type       string       `help:"Only those of events of exactly this type." placeholder:"TYPE"`
	Since      moment       `help:"Only those that died since then: how long ago, such as 2h, or a time in RFC 3339." placeholder:"WHEN"`
	Until      moment       `help:"Only those that died before then, likewise." placeholder:"WHEN"`
}

func (f selection) filter() client.DeadLetterFilter {
	return client.DeadLetterFilter{
		SubscriberID: string(f.Subscriber), Class: f.Class, Outcome: f.Outcome, Reason: f.DiedOf, Type: f.Type,
		Since: time.Time(f.Since), Until: time.Time(f.Until),
	}
}

type deadLs struct {
	listing
	selection
}

// Run lists dead letters.
func (l *deadLs) Run(ctx context.Context, s *session) error {
	return list(ctx, s, l.listing, func(ctx context.Context, c *client.Client, p client.Page) (client.List[client.DeadLetter], error) {
		return c.ListDeadLetters(ctx, l.filter(), p)
	}, func(t *table, all []client.DeadLetter) { deadTable(t, all, time.Now()) })
}

func deadTable(t *table, all []client.DeadLetter, now time.Time) {
	t.header("DELIVERY", "REASON", "LAST OUTCOME", "ATTEMPTS", "ENDED", "SUBSCRIBER", "EVENT")
	for _, l := range all {
		d := l.Delivery
		t.row(d.ID, l.Reason, outcome(d.LastOutcome, d.LastStatus), fmt.Sprint(d.Attempts), when(d.EndedAt, now), d.SubscriberID, d.EventID)
	}
}

type deadShow struct {
	ID deliveryID `arg:"" help:"The delivery's id." name:"delivery"`
}

// Run shows a dead letter.
func (l *deadShow) Run(ctx context.Context, s *session) error {
	d, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.DeadLetterEvidence, error) {
		return c.GetDeadLetter(ctx, string(l.ID))
	})
	if err != nil {
		return l.missing(err)
	}
	now := time.Now()
	if err := s.show(func(t *table) { deadRows(t, d, now) }); err != nil || s.json() {
		return err
	}
	if len(d.Delivery.Evidence) > 0 {
		s.sayf("\nattempts that are kept, oldest first:")
		s.table(func(t *table) { attemptTable(t, d.Delivery.Evidence, now) })
	}
	switch terms := lastTerms(d.Delivery); {
	case terms != nil:
		s.sayf("\nwhat held for the last:")
		s.table(func(t *table) { termRows(t, *terms) })
	case d.Delivery.Attempts == 0:
		s.sayf("\nIt was never sent: there are no attempts, no headers and no policy of an attempt to show.")
	default:
		s.sayf("\nThe policy and the headers of its attempts are not kept: it ended (%s) without one.", clean(d.Reason))
	}
	if d.Payload.Content != "" {
		s.sayf("\npayload (%s, %s):\n%s", count(d.Payload.Length, "byte", "bytes"), d.Payload.Encoding, clean(d.Payload.Content))
	}
	return nil
}

// missing says where to look for a delivery that is no dead letter.
func (l *deadShow) missing(err error) error {
	var hinted *hintedError
	if err = missingDelivery(string(l.ID), err); errors.As(err, &hinted) || !errors.Is(err, client.ErrNotFound) {
		return err
	}
	return &hintedError{err, "If it is not dead, or has been redriven or discarded: fanout explain " + string(l.ID)}
}

func deadRows(t *table, d client.DeadLetterEvidence, now time.Time) {
	deliveryRows(t, d.Delivery, now)
	t.row("died of", d.Reason)
	t.maybe("event type", d.Event.Type)
	t.maybe("shipment", d.Event.ShipmentID)
	t.maybe("occurred", d.Event.OccurredAt)
	if d.Subscriber != nil {
		t.row("subscriber now", strings.TrimSpace(oneLine(d.Subscriber.Name, 40)+" at "+endpointOf(d.Subscriber.URL))+", class "+d.Subscriber.Class)
	} else {
		t.row("subscriber now", "deleted")
	}
	t.maybe("in redrive", d.RedriveID)
}

func lastTerms(d client.Delivery) *client.Terms {
	for _, a := range slices.Backward(d.Evidence) {
		if a.Terms != nil {
			return a.Terms
		}
	}
	return nil
}

func termRows(t *table, terms client.Terms) {
	t.row("sent to", terms.Origin)
	t.row("class", terms.Class)
	p := terms.Policy
	t.row("policy", fmt.Sprintf("version %d: %s of %s each, backoff %s to %s, at most %s old",
		terms.SubscriberVersion, count(p.MaxAttempts, "attempt", "attempts"), p.AttemptTimeout, p.BackoffBase, p.BackoffCap, p.MaxAge))
	names := make([]string, 0, len(terms.Headers))
	for name := range terms.Headers {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		t.row(name, oneLine(terms.Headers[name], 120))
	}
}

// discardMost is how many the server discards in one request.
const discardMost = 1000

type deadDiscard struct {
	IDs []deliveryID `arg:"" help:"The deliveries' ids." name:"delivery"`
	Yes bool         `help:"Do not ask." short:"y"`
}

// Run discards dead letters.
func (l *deadDiscard) Run(ctx context.Context, s *session) error {
	if s.Reason == "" {
		return usage("say why, for the audit: --reason")
	}
	question := fmt.Sprintf("Discard %s? Evidence and payload are gone for good.", count(len(l.IDs), "dead letter", "dead letters"))
	if err := s.confirm(ctx, l.Yes, question); err != nil {
		return err
	}
	var all client.Discarded
	for ids := range slices.Chunk(texts(l.IDs), discardMost) {
		d, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.Discarded, error) {
			return c.DiscardDeadLetters(ctx, ids, s.Reason)
		})
		if err != nil {
			return err
		}
		all.Discarded += d.Discarded
		all.Results = append(all.Results, d.Results...)
	}
	if s.json() {
		b, err := json.Marshal(all)
		if err != nil {
			return fmt.Errorf("write what became of them: %w", err)
		}
		return s.document(b)
	}
	s.table(func(t *table) { discardTable(t, all) })
	return nil
}

func discardTable(t *table, d client.Discarded) {
	said := map[string]string{
		"in_redrive": "left: a redrive has it", "not_dead": "left: it is no dead letter", "missing": "is not there",
	}
	t.header("DELIVERY", "RESULT")
	for _, r := range d.Results {
		text := r.Result
		if words, known := said[r.Result]; known {
			text = words
		}
		t.row(r.ID, text)
	}
}
