package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/fanout/fanout/client"
)

// eventsCmd are the commands about events.
type eventsCmd struct {
	Show  eventsShow  `cmd:"" help:"Show an event and where each of its deliveries stands."`
	Post  eventsPost  `cmd:"" help:"Post one event. To post it again after any doubt is safe, by its id."`
	Batch eventsBatch `cmd:"" help:"Post any number of events, one JSON object a line."`
}

type eventsShow struct {
	ID string `arg:"" help:"The event's id." name:"event"`
}

// Run shows an event.
func (l *eventsShow) Run(ctx context.Context, s *session) error {
	e, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.StoredEvent, error) { return c.GetEvent(ctx, l.ID) })
	if err != nil {
		return err
	}
	if s.json() {
		return s.document(s.answer.raw())
	}
	now := time.Now()
	s.table(func(t *table) {
		t.row("id", e.ID)
		t.row("type", e.Type)
		t.row("shipment", e.ShipmentID)
		t.row("occurred", e.OccurredAt)
		t.row("accepted", when(e.AcceptedAt, now))
		for _, name := range slices.Sorted(maps.Keys(e.Attributes)) {
			t.row("attribute "+name, e.Attributes[name])
		}
		t.row("deliveries", fmt.Sprintf("%d planned, %s", e.DeliveriesPlanned, statesOf(e.Deliveries)))
	})
	if e.Expanding {
		s.notef("Some of its deliveries are still to be made: look again in a moment.")
	}
	if len(e.Deliveries) == 0 {
		return nil
	}
	s.sayf("")
	s.table(func(t *table) {
		t.header("DELIVERY", "SUBSCRIBER", "STATE", "ATTEMPTS", "LAST OUTCOME")
		for _, d := range e.Deliveries {
			t.row(d.ID, d.SubscriberID, string(d.State), fmt.Sprint(d.Attempts), d.LastOutcome)
		}
	})
	return nil
}

// statesOf counts deliveries by their state.
func statesOf(all []client.DeliverySummary) string {
	var parts []string
	for _, state := range []client.State{client.Delivered, client.Dead, client.Cancelled, client.Leased, client.Scheduled} {
		n := 0
		for _, d := range all {
			if d.State == state {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	if parts == nil {
		return "none to be seen"
	}
	return strings.Join(parts, ", ")
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

type eventsPost struct {
	File       string            `help:"JSON of the event as the API takes it, - for stdin; flags go before it." placeholder:"FILE" short:"f"`
	ID         string            `help:"Its id, used once; left out, one is made." name:"id"`
	Type       string            `help:"Such as shipment.delivered." placeholder:"TYPE"`
	Shipment   string            `help:"The shipment that it is about." placeholder:"ID"`
	OccurredAt time.Time         `help:"When it happened, as 2026-03-01T09:30:00+01:00; default now." placeholder:"TIME"`
	Attribute  map[string]string `help:"What subscribers filter on." mapsep:"," placeholder:"NAME=VALUE"`
	Data       string            `help:"File with the JSON of its data, - for stdin; default {}." placeholder:"FILE"`
}

// Run posts an event.
func (l *eventsPost) Run(ctx context.Context, s *session) error {
	e, raw, err := l.event(s)
	if err != nil {
		return err
	}
	r, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.Receipt, error) {
		if raw != nil {
			return c.PostRaw(ctx, raw)
		}
		return c.Post(ctx, e)
	})
	if errors.Is(err, client.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		s.notef("Post it again as it was, and it is accepted once: with --id=%s --occurred-at=%s.", e.ID, e.OccurredAt.Format(time.RFC3339Nano))
	}
	if errors.Is(err, client.ErrConflict) && l.File == "" && l.OccurredAt.IsZero() {
		s.notef("Without --occurred-at the body has the time of now, and so is another one each time: to post an event again, give the time that it was posted with.")
	}
	if err != nil {
		return err
	}
	s.looksAt(r)
	return s.show(func(t *table) { receiptTable(t, []client.Receipt{r}) })
}

// event is the file with the flags over it. A file that no flag changes is posted byte
// for byte: it may be posted again by other means, and is then the same event.
func (l *eventsPost) event(s *session) (client.Event, json.RawMessage, error) {
	var f eventFile
	var raw []byte
	if l.File != "" {
		if l.File == "-" && l.Data == "-" {
			return client.Event{}, nil, usage("--file and --data cannot both be read from stdin")
		}
		var err error
		if raw, err = readFile(s, l.File); err != nil {
			return client.Event{}, nil, err
		}
		if err := strictJSON(raw, &f); err != nil {
			return client.Event{}, nil, usage("%s: %v", l.File, err)
		}
		if f.ID != "" && reflect.DeepEqual(*l, eventsPost{File: l.File, Attribute: l.Attribute}) && len(l.Attribute) == 0 {
			return f.event(), raw, nil
		}
	}
	for into, value := range map[*string]string{&f.ID: l.ID, &f.Type: l.Type, &f.ShipmentID: l.Shipment} {
		if value != "" {
			*into = value
		}
	}
	if f.ID == "" {
		f.ID = client.NewID()
	}
	switch {
	case !l.OccurredAt.IsZero():
		f.OccurredAt = l.OccurredAt
	case f.OccurredAt.IsZero():
		f.OccurredAt = time.Now().UTC()
	}
	if len(l.Attribute) > 0 {
		f.Attributes = l.Attribute
	}
	if l.Data != "" {
		text, err := readFile(s, l.Data)
		if err != nil {
			return client.Event{}, nil, err
		}
		if f.Data = text; !json.Valid(text) {
			return client.Event{}, nil, usage("%s is not JSON", l.Data)
		}
	}
	if f.Data == nil {
		f.Data = json.RawMessage("{}")
	}
	return f.event(), nil, nil
}

func receiptTable(t *table, all []client.Receipt) {
	t.header("EVENT", "DELIVERIES", "ACCEPTED", "NEW")
	for _, r := range all {
		again := "yes"
		if r.Duplicate {
			again = "accepted before"
		}
		t.row(r.ID, fmt.Sprint(r.Deliveries), stamp(r.AcceptedAt), again)
	}
}

// looksAt says how to see what becomes of an event.
func (s *session) looksAt(r client.Receipt) {
	if r.Deliveries == 0 {
		s.notef("No subscriber's filter matches it, so it goes to nobody: fanout subscribers ls shows what they get.")
		return
	}
	s.notef("What comes of it: fanout events show %s", r.ID)
}
