package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fanout/fanout/client"
)

// deleteWait is what the service itself waits for requests in flight.
const deleteWait = 95 * time.Second

type subscribersRm struct {
	ID      subscriberID `arg:"" help:"The subscriber's id." name:"subscriber"`
	NoWait  bool         `help:"Do not wait until no request to its endpoint is in flight."`
	Version int64        `help:"Delete it only if it is at this version." name:"if-version"`
	Yes     bool         `help:"Do not ask." short:"y"`
}

// Run deletes a subscriber.
func (l *subscribersRm) Run(ctx context.Context, s *session) error {
	sub, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.Subscriber, error) {
		return c.GetSubscriber(ctx, string(l.ID))
	})
	if err != nil {
		return err
	}
	waiting := "what waits for it is cancelled"
	if sub.Status != nil {
		waiting = count(int(sub.Status.Pending), "delivery that waits for it is cancelled", "deliveries that wait for it are cancelled")
	}
	if err := s.confirm(ctx, l.Yes, fmt.Sprintf("Delete %s %s (%s)? For good; %s.", sub.ID, oneLine(sub.Name, 40), endpointOf(sub.URL), waiting)); err != nil {
		return err
	}
	limit := s.Timeout
	if !l.NoWait {
		limit += deleteWait
		done := s.ifSlow(time.Second, "Waiting until no request to its endpoint is in flight ...")
		defer done()
	}
	gone, err := askFor(ctx, s, limit, func(ctx context.Context, c *client.Client) (client.DeletedSubscriber, error) {
		return c.DeleteSubscriber(ctx, string(l.ID), !l.NoWait, client.If{Version: l.Version})
	})
	if err != nil {
		return err
	}
	return s.show(func(t *table) {
		t.row("deleted", gone.ID)
		t.row("cancelled", fmt.Sprint(gone.Cancelled))
		t.row("still to cancel", fmt.Sprint(gone.Remaining))
		t.row("in flight", fmt.Sprint(gone.Leases))
	})
}

// ifSlow says something if it takes longer than that until done is called.
func (s *session) ifSlow(after time.Duration, text string) (done func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-stop:
		case <-time.After(after):
			s.notef("%s", text)
		}
	}()
	return func() { close(stop); <-stopped }
}

type subscribersPause struct {
	ID      subscriberID `arg:"" help:"The subscriber's id." name:"subscriber"`
	Version int64        `help:"Only if it is at this version." name:"if-version"`
}

// Run pauses a subscriber.
func (l *subscribersPause) Run(ctx context.Context, s *session) error {
	return s.changed(ctx, func(ctx context.Context, c *client.Client) (client.Subscriber, error) {
		return c.PauseSubscriber(ctx, string(l.ID), client.If{Version: l.Version})
	})
}

type subscribersResume struct {
	ID      subscriberID `arg:"" help:"The subscriber's id." name:"subscriber"`
	Version int64        `help:"Only if it is at this version." name:"if-version"`
}

// Run resumes a subscriber.
func (l *subscribersResume) Run(ctx context.Context, s *session) error {
	return s.changed(ctx, func(ctx context.Context, c *client.Client) (client.Subscriber, error) {
		return c.ResumeSubscriber(ctx, string(l.ID), client.If{Version: l.Version})
	})
}

// changed changes a subscriber and shows how it is served now.
func (s *session) changed(ctx context.Context, change func(context.Context, *client.Client) (client.Subscriber, error)) error {
	sub, err := ask(ctx, s, change)
	if err != nil {
		return err
	}
	return s.show(func(t *table) {
		t.row("id", sub.ID)
		statusRows(t, sub, time.Now())
	})
}

type subscribersTest struct {
	ID   subscriberID `arg:"" help:"The subscriber's id." name:"subscriber"`
	Type string       `help:"Type of the event; default fanout.test." placeholder:"TYPE"`
	Data string       `help:"File with the JSON of its data, - for stdin." placeholder:"FILE"`
}

// Run sends a test event.
func (l *subscribersTest) Run(ctx context.Context, s *session) error {
	e := client.TestEvent{Type: l.Type}
	if l.Data != "" {
		text, err := readFile(s, l.Data)
		if err != nil {
			return err
		}
		if bad := notJSON(text); bad != "" {
			return usage("%s: %s; nothing was sent", nameOf(l.Data), bad)
		}
		e.Data = text
	}
	sent, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.TestReceipt, error) {
		return c.TestSubscriber(ctx, string(l.ID), e)
	})
	if err != nil {
		return err
	}
	s.notef("What comes of it: fanout explain %s", sent.DeliveryID)
	return s.show(func(t *table) {
		t.row("event", sent.EventID)
		t.row("delivery", sent.DeliveryID)
	})
}

type subscribersRotate struct {
	ID         subscriberID  `arg:"" help:"The subscriber's id." name:"subscriber"`
	Overlap    time.Duration `default:"24h" help:"How long the older secrets go on signing beside the new one."`
	SecretFile string        `help:"File with a secret of your own; left out, one is made." placeholder:"FILE" type:"path"`
}

// Run makes a new secret.
func (l *subscribersRotate) Run(ctx context.Context, s *session) error {
	r := client.Rotation{Overlap: new(client.Duration(l.Overlap))}
	if l.SecretFile != "" {
		secret, err := secretFrom(l.SecretFile, "")
		if err != nil {
			return err
		}
		r.Secret = secret
	}
	made, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.RotatedSecret, error) {
		return c.RotateSecret(ctx, string(l.ID), r)
	})
	if err != nil {
		return err
	}
	s.shownOnce("the new secret")
	now := time.Now()
	return s.show(func(t *table) {
		t.row("secret", made.Secret)
		for _, secret := range made.Secrets {
			t.row("signs: "+secret.ID, secretLife(secret, now))
		}
	})
}

type subscribersSchedule struct {
	ID       subscriberID `arg:"" help:"The subscriber's id." name:"subscriber"`
	Attempts int          `help:"Only so many attempts." placeholder:"N"`
}

// Run previews a policy.
func (l *subscribersSchedule) Run(ctx context.Context, s *session) error {
	p, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.Schedule, error) {
		return c.PreviewSchedule(ctx, string(l.ID), l.Attempts)
	})
	if err != nil {
		return err
	}
	likely, text := likelyOf(p)
	if !s.json() {
		defer func() { s.sayf("%s", clean(text)) }()
	}
	return s.show(func(t *table) { scheduleTable(t, likely, p.End) })
}

// likelyOf are the attempts that a delivery comes to in the mean, and a text that says
// where it ends. The others lie beyond max_age, and have no mean that anybody could see.
func likelyOf(p client.Schedule) ([]client.ScheduledAttempt, string) {
	n := slices.IndexFunc(p.Attempts, func(a client.ScheduledAttempt) bool { return a.Mean > a.Latest })
	if n < 0 {
		return p.Attempts, p.End.Note
	}
	rest := p.Attempts[n:]
	which := fmt.Sprintf("Attempt %d is", rest[0].Attempt)
	if len(rest) > 1 {
		which = fmt.Sprintf("Attempts %d to %d are", rest[0].Attempt, rest[len(rest)-1].Attempt)
	}
	return p.Attempts[:n], p.End.Note + " " + which + " left out: only a delivery whose waits are drawn short comes so far."
}

func scheduleTable(t *table, attempts []client.ScheduledAttempt, end client.ScheduleEnd) {
	t.header("ATTEMPT", "WAIT DRAWN FROM", "EARLIEST", "MEAN", "LATEST")
	for _, a := range attempts {
		t.row(fmt.Sprint(a.Attempt), "0s to "+length(a.Window), length(a.Earliest), length(a.Mean), length(a.Latest))
	}
	t.row("end", end.Reason, "", length(end.After), length(end.Latest))
}

func length(d client.Duration) string {
	if d == 0 {
		return "0s"
	}
	return span(time.Duration(d))
}

type subscribersStats struct {
	ID subscriberID `arg:"" help:"The subscriber's id." name:"subscriber"`
}

// Run shows a subscriber's figures.
func (l *subscribersStats) Run(ctx context.Context, s *session) error {
	st, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.SubscriberStats, error) {
		return c.GetSubscriberStats(ctx, string(l.ID))
	})
	if err != nil {
		return err
	}
	now := time.Now()
	return s.show(func(t *table) { statsRows(t, st, now) })
}

func statsRows(t *table, st client.SubscriberStats, now time.Time) {
	t.row("subscriber", st.SubscriberID)
	t.row("pending", fmt.Sprint(st.Pending))
	t.maybe("oldest pending", when(st.OldestPendingAt, now))
	t.row("waiting", fmt.Sprintf("%d fresh, %d retry, %d redrive", st.Waiting.Fresh, st.Waiting.Retry, st.Waiting.Redrive))
	t.row("in flight", fmt.Sprint(st.InFlight))
	t.row("delivered", fmt.Sprintf("%d since it was registered", st.Delivered))
	t.row("dead letters", fmt.Sprint(st.DeadLetters))
	if st.LatencyMS > 0 {
		t.row("latency", fmt.Sprintf("%dms", st.LatencyMS))
	}
	for _, h := range st.Holds {
		t.row("hold "+string(h.Reason), h.Note)
	}
}
