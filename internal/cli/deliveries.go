package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/fanout/fanout/client"
)

// deliveriesCmd are the commands about deliveries.
type deliveriesCmd struct {
	Ls     deliveriesLs     `cmd:"" help:"List the deliveries of an event, or those of a subscriber in a state."`
	Show   deliveriesShow   `cmd:"" help:"Show one with its attempts. fanout explain says it in sentences."`
	Retry  deliveriesRetry  `cmd:"" help:"Make a scheduled delivery due now. Holds and caps are kept as ever."`
	Cancel deliveriesCancel `cmd:"" help:"End a delivery that has not ended. --reason is needed."`
}

type deliveriesLs struct {
	listing

	Event      string       `help:"Those of this event." placeholder:"ID" xor:"whose"`
	Subscriber subscriberID `help:"Those of this subscriber." placeholder:"ID" xor:"whose"`
	State      waiting      `help:"Of a subscriber: pending (the default), scheduled, leased or dead." placeholder:"STATE"`
}

// Run lists deliveries.
func (l *deliveriesLs) Run(ctx context.Context, s *session) error {
	f := client.DeliveryFilter{EventID: l.Event, SubscriberID: string(l.Subscriber), State: client.State(l.State)}
	switch {
	case l.Event == "" && l.Subscriber == "":
		return usage("say whose deliveries: --event or --subscriber")
	case l.Event != "" && l.State != "":
		return usage("--state goes with --subscriber; an event's deliveries are listed in all states")
	}
	err := list(ctx, s, l.listing, func(ctx context.Context, c *client.Client, p client.Page) (client.List[client.Delivery], error) {
		return c.ListDeliveries(ctx, f, p)
	}, func(t *table, ds []client.Delivery) { deliveryTable(t, ds, time.Now()) })
	return missingEvent(l.Event, err)
}

func deliveryTable(t *table, ds []client.Delivery, now time.Time) {
	t.header("DELIVERY", "EVENT", "SUBSCRIBER", "STATE", "LANE", "ATTEMPTS", "LAST OUTCOME", "NEXT ATTEMPT OR END", "ACCEPTED")
	for _, d := range ds {
		at := d.NextAttemptAt
		if !d.EndedAt.IsZero() {
			at = d.EndedAt
		}
		t.row(d.ID, d.EventID, d.SubscriberID, string(d.State), d.Lane, fmt.Sprint(d.Attempts), outcome(d.LastOutcome, d.LastStatus), when(at, now), when(d.AcceptedAt, now))
	}
}

// outcome is a name with the status, where the name does not have it.
func outcome(name string, status int) string {
	if status == 0 || name == fmt.Sprintf("http_%d", status) {
		return name
	}
	return fmt.Sprintf("%s (%d)", name, status)
}

type deliveriesShow struct {
	ID deliveryID `arg:"" help:"The delivery's id: the receiver's webhook-id." name:"delivery"`
}

// Run shows a delivery.
func (l *deliveriesShow) Run(ctx context.Context, s *session) error {
	d, err := getDelivery(ctx, s, string(l.ID))
	if err != nil {
		return err
	}
	return s.showDelivery(d)
}

func getDelivery(ctx context.Context, s *session, id string) (client.Delivery, error) {
	d, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.Delivery, error) { return c.GetDelivery(ctx, id) })
	return d, missingDelivery(id, err)
}

func (s *session) showDelivery(d client.Delivery) error {
	now := time.Now()
	if err := s.show(func(t *table) { deliveryRows(t, d, now) }); err != nil || s.json() || len(d.Evidence) == 0 {
		return err
	}
	s.sayf("\nfailed attempts that are kept, oldest first:")
	s.table(func(t *table) { attemptTable(t, d.Evidence, now) })
	return nil
}

func deliveryRows(t *table, d client.Delivery, now time.Time) {
	t.row("id", d.ID)
	t.row("event", d.EventID)
	t.row("subscriber", d.SubscriberID)
	t.row("state", string(d.State))
	t.row("lane", d.Lane)
	t.row("accepted", when(d.AcceptedAt, now))
	t.maybe("first attempt", when(d.FirstAttemptAt, now))
	t.maybe("last attempt", when(d.LastAttemptAt, now))
	t.maybe("next attempt", when(d.NextAttemptAt, now))
	t.maybe("ended", when(d.EndedAt, now))
	t.row("expires", when(d.ExpiresAt, now))
	t.row("attempts", fmt.Sprint(d.Attempts))
	t.row("delivery count", fmt.Sprintf("%s (%d handed back unsent, %d lost with their worker)", count(int(d.DeliveryCount), "lease", "leases"), d.Releases, d.LeaseLosses))
	if d.RedriveGeneration > 0 {
		t.row("redrives", fmt.Sprint(d.RedriveGeneration))
	}
	t.maybe("last outcome", outcome(d.LastOutcome, d.LastStatus))
}

func attemptTable(t *table, all []client.Attempt, now time.Time) {
	t.header("ATTEMPT", "STARTED", "TOOK", "OUTCOME", "RETRY-AFTER", "ANSWER OR ERROR", "WORKER", "TRACE")
	for _, a := range all {
		asked := ""
		if a.RetryAfter > 0 {
			asked = a.RetryAfter.String()
		}
		text := a.Excerpt
		if text == "" {
			text = a.Error
		}
		t.row(fmt.Sprint(a.Attempt), when(a.StartedAt, now), span(time.Duration(a.Duration)), outcome(a.Outcome, a.Status), asked, oneLine(text, 100), a.Worker, a.TraceID)
	}
}

type deliveriesRetry struct {
	ID deliveryID `arg:"" help:"The delivery's id." name:"delivery"`
}

// Run makes a delivery due now.
func (l *deliveriesRetry) Run(ctx context.Context, s *session) error {
	d, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.Delivery, error) {
		return c.RetryDelivery(ctx, string(l.ID))
	})
	if err != nil {
		return missingDelivery(string(l.ID), err)
	}
	if err := s.show(func(t *table) { deliveryRows(t, d, time.Now()) }); err != nil {
		return err
	}
	s.notef("It is due now%s. What comes of it: fanout explain %s", heldBack(ctx, s, d.SubscriberID), d.ID)
	return nil
}

// heldBack follows "It is due now" if it does not go for that; "" also if it cannot be
// seen, as this is only said besides.
func heldBack(ctx context.Context, s *session, subscriberID string) string {
	sub, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.Subscriber, error) {
		return c.GetSubscriber(ctx, subscriberID)
	})
	if err != nil || sub.Status == nil || len(sub.Status.Holds) == 0 {
		return ""
	}
	return ", but its subscriber is " + served(sub) + ": it goes when that has ended"
}

type deliveriesCancel struct {
	ID deliveryID `arg:"" help:"The delivery's id." name:"delivery"`
}

// Run cancels a delivery.
func (l *deliveriesCancel) Run(ctx context.Context, s *session) error {
	if s.Reason == "" {
		return usage("say why, for the audit: --reason")
	}
	d, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.Delivery, error) {
		return c.CancelDelivery(ctx, string(l.ID), s.Reason)
	})
	if err != nil {
		return missingDelivery(string(l.ID), err)
	}
	return s.show(func(t *table) { deliveryRows(t, d, time.Now()) })
}
