package console

import (
	"maps"
	"slices"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/oncall"
)

type eventBody struct {
	ID         string
	Facts      []fact
	Sentence   string
	Expanding  bool
	States     []fact // how many deliveries are in which
	Deliveries []row
	More       string
}

// event reads an event and where its deliveries stand.
func (s *Site) event(l look) (title string, body any, err error) {
	e, err := s.api.GetEvent(l, l.id)
	if err != nil {
		return "", nil, err
	}
	b := eventBody{ID: e.ID, Expanding: e.Expanding}
	b.Facts = filled(text("type", e.Type), text("shipment", said(e.ShipmentID)), text("occurred", said(e.OccurredAt)), when("accepted", e.AcceptedAt))
	for _, name := range slices.Sorted(maps.Keys(e.Attributes)) {
		b.Facts = append(b.Facts, text(said(name), said(e.Attributes[name])))
	}
	by := map[client.State]int64{}
	for _, d := range e.Deliveries {
		by[d.State]++
		if len(b.Deliveries) < maxInEvent {
			b.Deliveries = append(b.Deliveries, rowOf(client.Delivery{
				ID: d.ID, EventID: e.ID, SubscriberID: d.SubscriberID, State: d.State, Attempts: d.Attempts, LastOutcome: d.LastOutcome,
			}))
		}
	}
	for _, state := range slices.Sorted(maps.Keys(by)) {
		b.States = append(b.States, count(string(state), by[state]))
	}
	if more := len(e.Deliveries) - len(b.Deliveries); more > 0 {
		b.More = oncall.Number(int64(more))
	}
	switch {
	case e.Expanding:
		b.Sentence = "It is still being expanded: some of its deliveries are yet to be made."
	case len(e.Deliveries) == 0:
		b.Sentence = "It matched no subscriber, or nothing is kept of its deliveries any more."
	default:
		b.Sentence = "It went to " + times(int64(e.DeliveriesPlanned), "subscriber") + "."
	}
	return e.ID, b, nil
}
