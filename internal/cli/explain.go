package cli

import (
	"cmp"
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
	// unseen says why the subscriber is nil, lost why the event is.
	unseen, lost string
	// redriveID is that of the redrive that has a dead one; "" if none has it, or if that
	// could not be asked (untold). redrive is nil too if the key may not see it.
	redriveID string
	untold    bool
	redrive   *client.Redrive
	// role of the key, so that nobody is sent to what is refused to them; "" if unknown.
	role client.Role
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

// gather reads all that an explanation needs, and keeps the answers for -o json. Only
// the delivery itself must be there: the event's record is forgotten weeks before a dead
// letter is, and what tells why must not fail over what is no more.
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
	if f.unseen, err = absence(err, "has been deleted"); err != nil {
		return f, nil, err
	}
	if f.unseen == "" {
		f.subscriber, raw["subscriber"] = &sub, s.answer.raw()
	}
	e, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.StoredEvent, error) {
		return c.GetEvent(ctx, d.EventID)
	})
	if f.lost, err = absence(err, "is kept no more"); err != nil {
		return f, nil, err
	}
	if f.lost == "" {
		f.event, raw["event"] = &e, s.answer.raw()
	}
	if d.State == client.Dead {
		err = gatherDead(ctx, s, &f, raw)
	}
	if err == nil {
		f.role = s.role(ctx)
	}
	return f, raw, err
}

// unseenByKey is why something is not shown that the key's role may not see.
const unseenByKey = "may not be seen with your key"

// absence says why something is not shown, "" if it is; any other error stays one.
func absence(err error, gone string) (string, error) {
	switch {
	case errors.Is(err, client.ErrNotFound):
		return gone, nil
	case errors.Is(err, client.ErrForbidden):
		return unseenByKey, nil
	}
	return "", err
}

// gatherDead reads what there is of a dead letter alone: why it died, and the redrive
// that has it.
func gatherDead(ctx context.Context, s *session, f *facts, raw map[string]any) error {
	id := f.delivery.ID
	l, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.DeadLetterEvidence, error) {
		return c.GetDeadLetter(ctx, id)
	})
	missing, err := absence(err, "is no dead letter any more")
	if err != nil {
		return err
	}
	f.reason, f.redriveID, f.untold = cmp.Or(f.delivery.Reason, l.Reason), l.RedriveID, missing != ""
	if f.event == nil && l.Event.Type != "" { // the payload outlives the event's record
		f.event = &client.StoredEvent{ID: l.Event.ID, Type: l.Event.Type, ShipmentID: l.Event.ShipmentID}
	}
	raw["reason"] = f.reason
	if f.redriveID == "" {
		return nil
	}
	raw["redrive_id"] = f.redriveID
	r, err := getRedrive(ctx, s, f.redriveID)
	missing, err = absence(err, "is kept no more")
	if err == nil && missing == "" {
		f.redrive, raw["redrive"] = &r, s.answer.raw()
	}
	return err
}
