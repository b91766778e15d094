package console

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/oncall"
)

type deliveryBody struct {
	ID       string
	Word     string
	Mark     mark
	Sentence string
	Facts    []fact
	Picture  picture
	Next     []string // what comes, in sentences
	Attempts []attemptView
	Offers   []offer
	Dead     string // the page of its evidence, if it is dead
	OnHold   string // why its subscriber is not sent to
	SubHref  string
}

// attemptView is a failed attempt in full.
type attemptView struct {
	Number  int
	At      *oncall.Stamp
	Outcome string
	Took    string
	Error   string
	Excerpt string
	Facts   []fact
}

// delivery reads a delivery, and of its subscriber what says what comes next.
func (s *Site) delivery(l look) (title string, body any, err error) {
	d, err := s.api.GetDelivery(l, l.id)
	if err != nil {
		return "", nil, err
	}
	b := deliveryBody{
		ID: d.ID, Word: string(d.State), Mark: markOf(d.State), Facts: deliveryFacts(d), Attempts: attemptsOf(d.Evidence),
		SubHref: pathTo("subscribers", d.SubscriberID),
	}
	var plan *client.Schedule
	var actions []string
	switch d.State {
	case client.Scheduled:
		actions = []string{"retry", "cancel"}
		sub, err := s.api.GetSubscriber(l, d.SubscriberID)
		switch {
		case err == nil:
			b.hold(sub)
			if p, err := s.api.PreviewSchedule(l, d.SubscriberID, 0); err == nil {
				plan = &p
			}
		case !errors.Is(err, client.ErrNotFound): // deleted: its deliveries are being cancelled
			return "", nil, err
		}
	case client.Leased:
		actions = []string{"cancel"}
	case client.Dead:
		b.Dead = pathTo("dead-letters", d.ID)
	case client.Delivered, client.Cancelled, client.Pending:
	}
	b.Picture = pictureOf(d, plan)
	b.Sentence = sentence(d)
	b.Offers = s.offers(l, actions...)
	return "Delivery " + d.ID, b, nil
}

func (b *deliveryBody) hold(sub client.Subscriber) {
	if sub.Status == nil || len(sub.Status.Holds) == 0 {
		return
	}
	reasons := make([]string, len(sub.Status.Holds))
	for i, h := range sub.Status.Holds {
		reasons[i] = string(h.Reason)
	}
	b.OnHold = strings.Join(reasons, ", ")
}

// sentence says where a delivery stands.
func sentence(d client.Delivery) string {
	failed := ""
	if d.LastOutcome != "" && d.State != client.Delivered {
		failed = fmt.Sprintf(" The last ended in %s.", d.LastOutcome)
	}
	switch d.State {
	case client.Scheduled:
		if d.Attempts == 0 {
			return "It waits for its first attempt."
		}
		return "It waits for its next attempt, after " + times(int64(d.Attempts), "attempt") + "." + failed
	case client.Leased:
		return fmt.Sprintf("Attempt %d is out at this moment.", d.Attempts)
	case client.Delivered:
		return "It was delivered by attempt " + oncall.Number(int64(d.Attempts)) + ", " + oncall.Span(d.EndedAt.Sub(d.AcceptedAt)) + " after it was accepted."
	case client.Dead:
		return "It ended after " + times(int64(d.Attempts), "attempt") + " and is kept as a dead letter." + failed
	case client.Cancelled:
		return "Somebody cancelled it, or deleted its subscriber."
	case client.Pending:
	}
	return ""
}

func deliveryFacts(d client.Delivery) []fact {
	attempts := count("attempts charged", int64(d.Attempts))
	attempts.Note = times(d.DeliveryCount, "lease") + ", " + times(int64(d.Releases), "release") + ", " + oncall.Number(int64(d.LeaseLosses)) + " lost"
	redriven := ""
	if d.RedriveGeneration > 0 {
		redriven = times(int64(d.RedriveGeneration), "time")
	}
	return filled(
		link("event", "events", d.EventID), link("subscriber", "subscribers", d.SubscriberID),
		text("lane", d.Lane), attempts, text("redriven", redriven),
		when("accepted", d.AcceptedAt), when("next attempt", d.NextAttemptAt), when("ended", d.EndedAt), when("expires", d.ExpiresAt),
	)
}

func attemptsOf(all []client.Attempt) []attemptView {
	views := make([]attemptView, len(all))
	for i, a := range all {
		outcome := a.Outcome
		if a.Status != 0 {
			outcome += fmt.Sprintf(" (%d)", a.Status)
		}
		after := ""
		if a.RetryAfter > 0 {
			after = span(a.RetryAfter)
		}
		trace := text("trace", a.TraceID)
		trace.Mono = true
		views[i] = attemptView{
			Number: a.Attempt, At: oncall.StampOf(a.StartedAt), Outcome: outcome, Took: took(lengthOf(a)),
			Error: said(a.Error), Excerpt: said(a.Excerpt),
			Facts: filled(text("asked for", after), text("phases", phases(a.Phases)), text("worker", said(a.Worker)), text("version", said(a.Version)), trace),
		}
	}
	return views
}

// phases are where the time of an attempt went, in words.
func phases(p *client.Phases) string {
	if p == nil {
		return ""
	}
	var all []string
	for _, one := range []struct {
		name string
		ms   float64
	}{{"name", p.DNS}, {"connection", p.Dial}, {"TLS", p.TLS}, {"first byte", p.FirstByte}, {"body", p.Body}} {
		if one.ms > 0 {
			all = append(all, fmt.Sprintf("%s %.3g ms", one.name, one.ms))
		}
	}
	if p.Reused {
		all = append(all, "on a connection that was kept")
	}
	return strings.Join(all, ", ")
}
