package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"time"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/examples"
)

// triggerCmd posts events as real ones would be.
type triggerCmd struct {
	Type       string            `arg:"" help:"Such as shipment.delivered." name:"type"`
	ID         string            `help:"The event's id; left out, one is made. The sample and the shipment follow from it." name:"id"`
	Shipment   string            `help:"The shipment; left out, one is made." placeholder:"ID"`
	OccurredAt instant           `help:"When it happened, as 2026-03-01T09:30:00+01:00; default now." placeholder:"TIME"`
	Attribute  map[string]string `help:"Attributes beside those of the sample, or instead." mapsep:"," placeholder:"NAME=VALUE"`
	Data       string            `help:"File with the JSON of its data, - for stdin; left out, that of a sample." placeholder:"FILE"`
	Count      int               `default:"1" help:"How many to post, each about a shipment of its own." placeholder:"1"`
	Rate       float64           `help:"Events a second; default as fast as they are accepted." placeholder:"N"`
	FailIfNone bool              `help:"Exit code 1 if one of them is matched by no subscriber's filter; it is accepted all the same."`
}

// Run posts them.
func (l *triggerCmd) Run(ctx context.Context, s *session) error {
	switch {
	case l.Count < 1:
		return usage("--count must be 1 or more")
	case l.Count > 1 && l.ID != "":
		return usage("--id is for one event, and --count asks for %d", l.Count)
	case l.Rate < 0:
		return usage("--rate must be above 0")
	}
	var data json.RawMessage
	if l.Data != "" {
		text, err := readFile(s, l.Data)
		if err != nil {
			return err
		}
		if bad := notJSON(text); bad != "" {
			return usage("%s: %s; nothing was posted", nameOf(l.Data), bad)
		}
		data = text
	}
	s.patient = true
	beat := pace(l.Rate)
	defer beat.Stop()
	var all []client.Receipt
	told, deliveries := time.Now(), 0
	for n := range l.Count {
		if n > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-beat.C:
			}
		}
		e := l.event(data)
		r, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.Receipt, error) { return c.Post(ctx, e) })
		if err != nil {
			s.notef("%d of %s posted.", n, count(l.Count, "event was", "events were"))
			return l.hinted(e, err)
		}
		all = append(all, r)
		deliveries += r.Deliveries
		if time.Since(told) >= progressEvery {
			told = time.Now()
			s.notef("%d of %s", n+1, count(l.Count, "event", "events"))
		}
	}
	return l.told(ctx, s, all, deliveries)
}

// hinted says how to post the same event again.
func (l *triggerCmd) hinted(e client.Event, err error) error {
	switch {
	case errors.Is(err, client.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return &hintedError{err, fmt.Sprintf("Post it again as it was, with --id=%s --occurred-at=%s, and it is accepted once.", e.ID, e.OccurredAt.Format(time.RFC3339Nano))}
	case errors.Is(err, client.ErrConflict) && l.OccurredAt == "":
		return &hintedError{err, nowHint}
	}
	return err
}

// pace ticks at a rate, or all the time.
func pace(rate float64) *time.Ticker {
	every := time.Nanosecond
	if rate > 0 {
		every = max(every, time.Duration(float64(time.Second)/rate))
	}
	return time.NewTicker(every)
}

func (l *triggerCmd) told(ctx context.Context, s *session, all []client.Receipt, deliveries int) error {
	s.looksAt(ctx, all[len(all)-1])
	if s.json() {
		b, err := l.document(s, all)
		if err != nil {
			return err
		}
		if err := s.document(b); err != nil {
			return err
		}
		return failIfNone(l.FailIfNone, all...)
	}
	const many = 20
	if len(all) <= many {
		s.table(func(t *table) { receiptTable(t, all) })
	}
	if len(all) > 1 {
		s.sayf("%s, %s", count(len(all), "event", "events"), count(deliveries, "delivery", "deliveries"))
	}
	return failIfNone(l.FailIfNone, all...)
}

// document is what the API answered, or several answers.
func (l *triggerCmd) document(s *session, all []client.Receipt) ([]byte, error) {
	if len(all) == 1 {
		return s.answer.raw(), nil
	}
	b, err := json.Marshal(map[string]any{"data": all})
	if err != nil {
		return nil, fmt.Errorf("write the receipts: %w", err)
	}
	return b, nil
}

// event is a sample of the type under an id, a shipment and a time of its own. All but
// the time follows from the id: with both, it is the same event again.
func (l *triggerCmd) event(data json.RawMessage) client.Event {
	id := cmp.Or(l.ID, client.NewID())
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	draw := h.Sum64()
	e := sample(l.Type, draw).event()
	e.ID, e.Type, e.OccurredAt = id, l.Type, time.Now().UTC().Truncate(time.Millisecond)
	if at, err := time.Parse(time.RFC3339, string(l.OccurredAt)); err == nil { // it was read before
		e.OccurredAt = at
	}
	if e.ShipmentID = l.Shipment; e.ShipmentID == "" {
		e.ShipmentID = fmt.Sprintf("shp_%07d", draw%10_000_000)
	}
	e.Attributes = maps.Clone(e.Attributes)
	if e.Attributes == nil {
		e.Attributes = map[string]string{}
	}
	maps.Copy(e.Attributes, l.Attribute)
	if data != nil {
		e.Data = data
	}
	return e
}

// eventFile is an event as its JSON has it.
type eventFile struct {
	ID         string            `json:"id"`
	Type       string            `json:"type"`
	ShipmentID string            `json:"shipment_id"`
	OccurredAt time.Time         `json:"occurred_at"`
	Attributes map[string]string `json:"attributes"`
	Data       json.RawMessage   `json:"data"`
}

func (f eventFile) event() client.Event {
	e := client.Event{ID: f.ID, Type: f.Type, ShipmentID: f.ShipmentID, OccurredAt: f.OccurredAt, Attributes: f.Attributes}
	if f.Data != nil { // an empty RawMessage is not JSON
		e.Data = f.Data
	}
	return e
}

// sample picks one of the demo's events: one of this type, or else a parcel that is
// somewhere, for a type that is new.
func sample(kind string, draw uint64) eventFile {
	var of, others []eventFile
	for line := range bytes.Lines(examples.Shipments) {
		var f eventFile
		if err := json.Unmarshal(line, &f); err != nil {
			continue // a test reads them all
		}
		switch f.Type {
		case kind:
			of = append(of, f)
		case "shipment.in_transit":
			others = append(others, f)
		}
	}
	if len(of) == 0 {
		of = others
	}
	return of[draw%uint64(len(of))]
}
