package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/fanout/fanout/client"
)

// deadCmd are the commands about dead letters.
type deadCmd struct {
	Ls   deadLs   `cmd:"" help:"List dead letters, newest first."`
	Show deadShow `cmd:"" help:"Show one with the evidence of its attempts."`
}

type deadLs struct {
	listing

	Subscriber string `help:"Only those of this subscriber." placeholder:"ID"`
}

// Run lists dead letters.
func (l *deadLs) Run(ctx context.Context, s *session) error {
	return list(ctx, s, l.listing, func(ctx context.Context, c *client.Client, p client.Page) (client.List[client.DeadLetter], error) {
		return c.ListDeadLetters(ctx, client.DeadLetterFilter{SubscriberID: l.Subscriber}, p)
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
	ID string `arg:"" help:"The delivery's id." name:"delivery"`
}

// Run shows a dead letter.
func (l *deadShow) Run(ctx context.Context, s *session) error {
	d, err := getDelivery(ctx, s, l.ID)
	if err != nil {
		return err
	}
	if d.State != client.Dead {
		return &failedError{fmt.Sprintf("%s is no dead letter: it is %s (fanout deliveries show %s)", d.ID, d.State, d.ID)}
	}
	return s.showDelivery(d)
}
