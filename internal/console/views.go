package console

import (
	"fmt"
	"time"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/oncall"
)

// How much of a list a page shows, and how much of what somebody said.
const (
	maxWaiting = 20
	maxDead    = 10
	maxInEvent = 200
	maxSaid    = 400 // characters
	maxPayload = 4000
	maxName    = 100
)

// mark is the shape that goes with a word, so that no meaning is colour's alone.
type mark string

const (
	good  mark = "good"  // a circle with a tick
	bad   mark = "bad"   // a triangle
	still mark = "still" // a square: it waits, or was ended
	moves mark = "moves" // a lozenge: something is under way
)

// fact is one line of a list of facts.
type fact struct {
	Name, Value string
	Note        string
	Href        string
	At          *oncall.Stamp
	Mono        bool // an id
}

func text(name, value string) fact { return fact{Name: name, Value: value} }

func count(name string, n int64) fact { return fact{Name: name, Value: oncall.Number(n)} }

func when(name string, t time.Time) fact { return fact{Name: name, At: oncall.StampOf(t)} }

func link(name, kind, id string) fact {
	return fact{Name: name, Value: id, Href: pathTo(kind, id), Mono: true}
}

// filled leaves out facts that say nothing.
func filled(all ...fact) []fact {
	var some []fact
	for _, f := range all {
		if f.Value != "" || f.At != nil {
			some = append(some, f)
		}
	}
	return some
}

// markOf is the shape of a delivery's state.
func markOf(s client.State) mark {
	switch s {
	case client.Delivered:
		return good
	case client.Dead:
		return bad
	case client.Leased:
		return moves
	case client.Scheduled, client.Cancelled, client.Pending:
	}
	return still
}

// row is a delivery in a list.
type row struct {
	ID, Href     string
	Event        string
	EventHref    string
	Subscriber   string
	SubHref      string
	State        string
	Mark         mark
	Lane         string
	Attempts     int
	Outcome      string
	At           *oncall.Stamp // of what matters: the next attempt, or the end
	Reason       string
	AttemptsText string
}

func rowOf(d client.Delivery) row {
	r := row{
		ID: d.ID, Href: pathTo("deliveries", d.ID), Event: d.EventID, EventHref: pathTo("events", d.EventID),
		Subscriber: d.SubscriberID, SubHref: pathTo("subscribers", d.SubscriberID),
		State: string(d.State), Mark: markOf(d.State), Lane: d.Lane, Attempts: d.Attempts, Outcome: d.LastOutcome,
		At: oncall.StampOf(d.NextAttemptAt), AttemptsText: times(int64(d.Attempts), "attempt"),
	}
	if !d.EndedAt.IsZero() {
		r.At = oncall.StampOf(d.EndedAt)
	}
	return r
}

// times writes "1 attempt", "2 attempts".
func times(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return oncall.Number(n) + " " + what + "s"
}

// said is what a stranger's server said, fit to be shown.
func said(s string) string {
	text, _ := oncall.Clean(s, maxSaid)
	return text
}

// span is a duration of the API.
func span(d client.Duration) string { return oncall.Span(time.Duration(d)) }

// took is a duration of an attempt, finer than span where it is short.
func took(d time.Duration) string {
	switch {
	case d <= 0:
		return "0 ms"
	case d < time.Millisecond:
		return "under 1 ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return oncall.Span(d)
}
