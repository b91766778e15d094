package console

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/oncall"
)

type subscriberBody struct {
	ID, Name string
	Word     string
	Mark     mark
	Sentence string
	Holds    []holdView
	Offers   []offer
	Serving  []fact
	InFlight meter
	Facts    []fact
	Policy   []fact
	Waiting  []row
	More     string // waiting beyond those shown
	Dead     []row
	MoreDead bool
}

type holdView struct {
	Reason, Note string
	Probe, Href  string
}

// meter is a part of a whole, in per cent of its width.
type meter struct {
	Part, Whole int
	Width       float64
}

func meterOf(part, whole int) meter {
	m := meter{Part: part, Whole: whole}
	if whole > 0 {
		m.Width = min(100, 100*float64(part)/float64(whole))
	}
	return m
}

// subscriber reads what the page of a subscriber shows: four calls, each bounded.
func (s *Site) subscriber(l look) (title string, body any, err error) {
	sub, err := s.api.GetSubscriber(l, l.id)
	if err != nil {
		return "", nil, err
	}
	stats, err := s.api.GetSubscriberStats(l, l.id)
	if err != nil {
		return "", nil, err
	}
	waiting, err := s.api.ListDeliveries(l, client.DeliveryFilter{SubscriberID: l.id, State: client.Pending}, client.Page{Limit: maxWaiting})
	if err != nil {
		return "", nil, err
	}
	dead, err := s.api.ListDeadLetters(l, client.DeadLetterFilter{SubscriberID: l.id}, client.Page{Limit: maxDead})
	if err != nil {
		return "", nil, err
	}
	b := subscriberBody{ID: sub.ID, Facts: subscriberFacts(sub), Policy: policyFacts(sub.Policy), MoreDead: dead.NextCursor != ""}
	b.Name, _ = oncall.Clean(sub.Name, maxName)
	status := client.SubscriberStatus{}
	if sub.Status != nil {
		status = *sub.Status
	}
	for _, h := range status.Holds {
		v := holdView{Reason: string(h.Reason), Note: h.Note, Probe: h.Probe}
		if h.Probe != "" {
			v.Href = pathTo("deliveries", h.Probe)
		}
		b.Holds = append(b.Holds, v)
	}
	b.stand(status)
	b.InFlight = meterOf(status.InFlight, status.InFlightCap)
	b.Serving = servingFacts(sub, status, stats)
	for _, d := range waiting.Data {
		b.Waiting = append(b.Waiting, rowOf(d))
	}
	if more := status.Pending - int64(len(b.Waiting)); more > 0 && waiting.NextCursor != "" {
		b.More = oncall.Number(more)
	}
	for _, d := range dead.Data {
		r := rowOf(d.Delivery)
		r.Href, r.Reason = pathTo("dead-letters", d.Delivery.ID), d.Reason
		b.Dead = append(b.Dead, r)
	}
	actions := []string{"pause"}
	switch {
	case sub.Paused:
		actions = []string{"resume"}
	case len(status.Holds) > 0:
		actions = []string{"resume", "pause"}
	}
	b.Offers = s.offers(l, actions...)
	if b.Name != "" {
		return b.Name, b, nil
	}
	return sub.ID, b, nil
}

// stand says in a word and a sentence whether it is sent to.
func (b *subscriberBody) stand(st client.SubscriberStatus) {
	switch {
	case len(st.Holds) > 0:
		reasons := make([]string, len(st.Holds))
		for i, h := range st.Holds {
			reasons[i] = string(h.Reason)
		}
		b.Word, b.Mark = "On hold: "+strings.Join(reasons, ", "), bad
		b.Sentence = "Nothing is sent to it" + since(st) + ", and " + waits(st.Pending) + " for that to end. Nothing is lost."
	case st.ConsecutiveFailures > 0:
		b.Word, b.Mark = "Failing", bad
		b.Sentence = fmt.Sprintf("Its endpoint failed %s in a row.", times(int64(st.ConsecutiveFailures), "time"))
	default:
		b.Word, b.Mark = "Sending", good
		b.Sentence = "Its endpoint answers well, and " + waits(st.Pending) + " for its turn."
		if st.Pending == 0 {
			b.Sentence = "No delivery waits for it."
		}
	}
}

func since(st client.SubscriberStatus) string {
	if at := oncall.StampOf(st.OnHoldSince); at != nil {
		return " since " + at.Clock + " on " + at.Day
	}
	return ""
}

func waits(n int64) string {
	switch n {
	case 0:
		return "no delivery waits"
	case 1:
		return "1 delivery waits"
	}
	return oncall.Number(n) + " deliveries wait"
}

func servingFacts(sub client.Subscriber, st client.SubscriberStatus, stats client.SubscriberStats) []fact {
	failures := fact{Name: "failures in a row", Value: oncall.Number(int64(st.ConsecutiveFailures))}
	if n := sub.Policy.BreakerFailures; n > 0 {
		failures.Note = fmt.Sprintf("its breaker opens at %d", n)
	}
	latency := ""
	if st.LatencyMS > 0 {
		latency = fmt.Sprintf("%d ms", st.LatencyMS)
	}
	return filled(
		failures,
		text("an attempt takes", latency),
		count("waiting, fresh", st.Waiting.Fresh), count("waiting, retry", st.Waiting.Retry), count("waiting, redrive", st.Waiting.Redrive),
		when("oldest pending since", stats.OldestPendingAt),
		count("dead letters kept", stats.DeadLetters),
	)
}

func subscriberFacts(sub client.Subscriber) []fact {
	url, _ := oncall.Clean(sub.URL, maxSaid)
	var filter []string
	if len(sub.Filter.Types) > 0 {
		filter = append(filter, strings.Join(sub.Filter.Types, ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(sub.Filter.Attributes)) {
		filter = append(filter, name+" = "+strings.Join(sub.Filter.Attributes[name], " or "))
	}
	headers := strings.Join(slices.Sorted(maps.Keys(sub.Headers)), ", ")
	all := filled(
		text("endpoint", url), text("account", sub.Account), text("class", sub.Class), text("receives", strings.Join(filter, "; ")),
		text("headers of its own", headers), count("signing secrets", int64(len(sub.Secrets))),
		when("created", sub.CreatedAt), when("changed", sub.UpdatedAt),
	)
	for _, w := range sub.Warnings {
		all = append(all, text("warning", said(w)))
	}
	return all
}

func policyFacts(p client.Policy) []fact {
	limit := "none"
	if p.RatePerSecond > 0 {
		limit = fmt.Sprintf("%g a second, %d at once", p.RatePerSecond, p.Burst)
	}
	all := []fact{
		text("attempt timeout", span(p.AttemptTimeout)),
		text("attempts", fmt.Sprintf("at most %d", p.MaxAttempts)),
		text("backoff", fmt.Sprintf("%s doubled up to %s, full jitter", span(p.BackoffBase), span(p.BackoffCap))),
		text("at most this old", span(p.MaxAge)),
		text("in flight", fmt.Sprintf("at most %d", p.MaxInFlight)),
		text("rate limit", limit),
		text("breaker opens after", times(int64(p.BreakerFailures), "failure")),
		text("Retry-After obeyed up to", span(p.RetryAfterCap)),
		text("held at most", oncall.Number(int64(p.MaxHeld))),
	}
	for _, status := range slices.Sorted(maps.Keys(p.Classify)) {
		all = append(all, text("answer "+status, p.Classify[status]))
	}
	return all
}
