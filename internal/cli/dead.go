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
	Subscriber subscriberID `help:"Only those of this subscriber, which may be a deleted one; a key of role subscriber must name one." placeholder:"ID"`
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
	some := false
	err := list(ctx, s, l.listing, func(ctx context.Context, c *client.Client, p client.Page) (client.List[client.DeadLetter], error) {
		page, err := c.ListDeadLetters(ctx, l.filter(), p)
		some = some || len(page.Data) > 0
		return page, err //nolint:wrapcheck // the client's own
	}, func(t *table, all []client.DeadLetter) { deadTable(t, all, time.Now()) })
	if err == nil && !some {
		l.nothingMatches(ctx, s)
	}
	return err
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
	if d.Payload.Content == "" {
		s.sayf("\nIts payload is not kept any more: there is nothing left to send, and a redrive of it would fail.")
	} else {
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
	all, err := l.discard(ctx, s)
	if err != nil && len(all.Results) == 0 {
		return err
	}
	if s.json() {
		b, err := json.Marshal(all)
		if err != nil {
			return fmt.Errorf("write what became of them: %w", err)
		}
		if err := s.document(b); err != nil {
			return err
		}
	} else {
		has := holders(ctx, s, all)
		s.table(func(t *table) { discardTable(t, all, has) })
	}
	if left := len(all.Results) - all.Discarded; err == nil && left > 0 {
		return &failedError{fmt.Sprintf("%d of %s not discarded", left, count(len(all.Results), "was", "were"))}
	}
	return err
}

// discard asks for as many at once as the server takes. What was done before an error is
// returned with it: it cannot be found out again, as what is discarded has left nothing.
func (l *deadDiscard) discard(ctx context.Context, s *session) (all client.Discarded, err error) {
	for ids := range slices.Chunk(texts(l.IDs), discardMost) {
		d, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.Discarded, error) {
			return c.DiscardDeadLetters(ctx, ids, s.Reason)
		})
		if err != nil {
			return all, s.doubted(err, "Discard them again to see: those that were discarded are then not there.")
		}
		all.Discarded += d.Discarded
		all.Results = append(all.Results, d.Results...)
	}
	return all, nil
}

// mostHolders bounds for how many it is asked which redrive has them: each is a call.
const mostHolders = 20

// holders are the redrives that have what they kept from being discarded, by delivery,
// as far as can be seen.
func holders(ctx context.Context, s *session, all client.Discarded) map[string]string {
	has := map[string]string{}
	asked := 0
	for _, r := range all.Results {
		if r.Result != "in_redrive" || asked == mostHolders {
			continue
		}
		asked++
		l, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.DeadLetterEvidence, error) {
			return c.GetDeadLetter(ctx, r.ID)
		})
		if err != nil && !errors.Is(err, client.ErrNotFound) { // no more of what is only an addition
			return has
		}
		has[r.ID] = l.RedriveID
	}
	return has
}

func discardTable(t *table, d client.Discarded, has map[string]string) {
	said := map[string]string{
		"in_redrive": "left: a redrive has it", "not_dead": "left: it is no dead letter", "missing": "is not there",
	}
	t.header("DELIVERY", "RESULT")
	for _, r := range d.Results {
		text := r.Result
		if words, known := said[r.Result]; known {
			text = words
		}
		if id := has[r.ID]; id != "" {
			text = "left: redrive " + id + " has it"
		}
		t.row(r.ID, text)
	}
}
