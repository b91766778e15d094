package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fanout/fanout/client"
)

// explainCmd says what happened to a delivery.
type explainCmd struct {
	ID deliveryID `arg:"" help:"The delivery's id: the receiver's webhook-id." name:"delivery"`
}

// facts are what an explanation is made from. What the key may not see, or what is no
// more, is nil.
type facts struct {
	delivery   client.Delivery
	subscriber *client.Subscriber
	event      *client.StoredEvent
	// reason of a dead one; "" if it was not found.
	reason string
	// unseen says why the subscriber is nil.
	unseen string
}

// Run explains a delivery.
func (l *explainCmd) Run(ctx context.Context, s *session) error {
	f, raw, err := gather(ctx, s, string(l.ID))
	if err != nil {
		return err
	}
	said := f.sentences(time.Now())
	if s.json() {
		raw["explanation"] = said
		b, err := json.Marshal(raw)
		if err != nil {
			return fmt.Errorf("write the explanation: %w", err)
		}
		return s.document(b)
	}
	for _, line := range said {
		s.sayf("%s", clean(line))
	}
	return nil
}

// gather reads all that an explanation needs, and keeps the answers for -o json.
func gather(ctx context.Context, s *session, id string) (facts, map[string]any, error) {
	raw := map[string]any{}
	d, err := getDelivery(ctx, s, id)
	if err != nil {
		return facts{}, nil, err
	}
	f := facts{delivery: d}
	raw["delivery"] = s.answer.raw()
	sub, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.Subscriber, error) {
		return c.GetSubscriber(ctx, d.SubscriberID)
	})
	switch {
	case err == nil:
		f.subscriber, raw["subscriber"] = &sub, s.answer.raw()
	case errors.Is(err, client.ErrNotFound):
		f.unseen = "has been deleted"
	case errors.Is(err, client.ErrForbidden):
		f.unseen = "may not be seen with your key"
	default:
		return f, nil, err
	}
	e, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.StoredEvent, error) {
		return c.GetEvent(ctx, d.EventID)
	})
	switch {
	case err == nil:
		f.event, raw["event"] = &e, s.answer.raw()
	case !errors.Is(err, client.ErrNotFound) && !errors.Is(err, client.ErrForbidden):
		return f, nil, err
	}
	if f.reason = d.Reason; f.reason != "" {
		raw["reason"] = f.reason
	} else if d.State == client.Dead { // of an older server
		f.reason, err = deathOf(ctx, s, d)
		raw["reason"] = f.reason
	}
	return f, raw, err
}

// reasonPages bounds the search for a dead letter's reason: it stands in the list alone.
const reasonPages = 10

func deathOf(ctx context.Context, s *session, d client.Delivery) (string, error) {
	p := client.Page{Limit: maxPage}
	for range reasonPages {
		page, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.List[client.DeadLetter], error) {
			return c.ListDeadLetters(ctx, client.DeadLetterFilter{SubscriberID: d.SubscriberID}, p)
		})
		if errors.Is(err, client.ErrForbidden) || errors.Is(err, client.ErrNotFound) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		for _, l := range page.Data {
			if l.Delivery.ID == d.ID {
				return l.Reason, nil
			}
		}
		if p.Cursor = page.NextCursor; p.Cursor == "" {
			break
		}
	}
	return "", nil
}
