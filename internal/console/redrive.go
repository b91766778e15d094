package console

import (
	"fmt"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/oncall"
)

type redriveBody struct {
	ID       string
	Word     string
	Mark     mark
	Sentence string
	Stopped  string
	Facts    []fact
	Bar      []part
	Canaries []canary
	Offers   []offer
}

// part is a stretch of a bar, in per cent of its width.
type part struct {
	Name     string
	Count    string
	X, Width float64
}

type canary struct {
	row

	Attempts []attemptView
}

// redrive reads a redrive with its tally and its canaries.
func (s *Site) redrive(l look) (title string, body any, err error) {
	r, err := s.api.GetRedrive(l, l.id)
	if err != nil {
		return "", nil, err
	}
	b := redriveBody{ID: r.ID, Stopped: said(r.Stopped), Facts: redriveFacts(r), Bar: barOf(r.Tally)}
	b.stand(r)
	for _, d := range r.CanaryDeliveries {
		b.Canaries = append(b.Canaries, canary{rowOf(d), attemptsOf(d.Evidence)})
	}
	var actions []string
	switch r.State {
	case client.RedriveAwaiting:
		actions = []string{"approve", "pause", "abort"}
	case client.RedrivePaused:
		actions = []string{"resume", "abort"}
	case client.RedrivePlanning, client.RedriveCanary, client.RedriveRunning:
		actions = []string{"pause", "abort"}
	case client.RedriveDone, client.RedriveAborted:
	}
	b.Offers = s.offers(l, actions...)
	if len(b.Offers) > 0 && r.State == client.RedriveAwaiting {
		b.Offers[0].Open = true
	}
	return "Redrive " + r.ID, b, nil
}

// stand says where it is and what it waits for.
func (b *redriveBody) stand(r client.Redrive) {
	b.Mark = moves
	switch r.State {
	case client.RedrivePlanning:
		b.Word, b.Sentence = "Planning", "Its members are being claimed; nothing is sent yet."
	case client.RedriveCanary:
		b.Word, b.Sentence = "Canary is out", "The first of them is being sent. The others wait for it, and for an approval."
	case client.RedriveAwaiting:
		b.Word, b.Mark = "Waits for approval", still
		b.Sentence = "The canary was delivered. Look at its effect on the other side, then approve: the others go only then."
	case client.RedriveRunning:
		b.Word, b.Sentence = "Running", fmt.Sprintf("It releases %.3g a second now.", r.RatePerSecond)
		if r.HeldBack != "" {
			b.Sentence = "It releases nothing for now: " + said(r.HeldBack) + "."
		}
	case client.RedrivePaused:
		b.Word, b.Mark, b.Sentence = "Paused", bad, "Nothing more is released until somebody resumes it."
	case client.RedriveDone:
		b.Word, b.Mark, b.Sentence = "Done", good, "Every member has ended."
	case client.RedriveAborted:
		b.Word, b.Mark, b.Sentence = "Aborted", still, "What was not released is a dead letter as before."
	default:
		b.Word, b.Mark = string(r.State), still
	}
}

func redriveFacts(r client.Redrive) []fact {
	limit := ""
	if r.RateLimit > 0 {
		limit = fmt.Sprintf("%.3g a second", r.RateLimit)
	}
	by := func(name, id string) fact {
		f := text(name, id)
		f.Mono = true
		return f
	}
	return filled(
		text("reason", said(r.Reason)), by("ordered by", r.CreatedBy), when("ordered", r.CreatedAt),
		text("attempts of each", fmt.Sprintf("at most %d", r.AttemptBudget)), text("each within", span(r.Within)), text("rate limit", limit),
		count("matched", r.Matched),
		by("approved by", r.ApprovedBy), when("approved", r.ApprovedAt), text("what was checked", said(r.Effect)),
		by("stopped by", r.StoppedBy), when("stopped", r.StoppedAt), when("ended", r.EndedAt),
	)
}

// barOf draws how far a redrive is. Each part has a pattern of its own beside its colour.
func barOf(t *client.RedriveTally) []part {
	if t == nil || t.Claimed <= 0 {
		return nil
	}
	var all []part
	x := 0.0
	for _, p := range []struct {
		name string
		n    int64
	}{
		{"delivered", t.Delivered},
		{"dead again", t.Dead},
		{"cancelled", t.Cancelled},
		{"out", t.Out},
		{"waiting", t.Waiting},
		{"left before", t.Over},
		{"let go", t.LetGo},
	} {
		if p.n <= 0 {
			continue
		}
		width := 100 * float64(p.n) / float64(t.Claimed)
		all = append(all, part{Name: p.name, Count: oncall.Number(p.n), X: x, Width: width})
		x += width
	}
	return all
}
