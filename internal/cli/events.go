package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
		return missingEvent(l.ID, err)
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

type eventsPost struct {
	File       string            `help:"JSON of the event as the API takes it, - for stdin; flags go before it. What no flag changes is posted as it is written." placeholder:"FILE" short:"f"`
	ID         string            `help:"Its id, used once; left out, one is made." name:"id"`
	Type       string            `help:"Such as shipment.delivered." placeholder:"TYPE"`
	Shipment   string            `help:"The shipment that it is about." placeholder:"ID"`
	OccurredAt instant           `help:"When it happened, as 2026-03-01T09:30:00+01:00; default now." placeholder:"TIME"`
	Attribute  map[string]string `help:"What subscribers filter on." mapsep:"," placeholder:"NAME=VALUE"`
	Data       string            `help:"File with the JSON of its data, - for stdin; default {}." placeholder:"FILE"`
	FailIfNone bool              `help:"Exit code 1 if no subscriber's filter matches it; it is accepted all the same."`
}

// Run posts an event.
func (l *eventsPost) Run(ctx context.Context, s *session) error {
	e, made, err := l.event(s)
	if err != nil {
		return err
	}
	s.patient = true
	r, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.Receipt, error) {
		return c.PostRaw(ctx, json.RawMessage(e))
	})
	switch {
	case errors.Is(err, client.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		with := ""
		if made != nil {
			with = ", with " + strings.Join(made, " ")
		}
		return &hintedError{err, "Post it again as it was" + with + ", and it is accepted once."}
	case errors.Is(err, client.ErrConflict) && l.File == "" && l.OccurredAt == "":
		return &hintedError{err, nowHint}
	case err != nil:
		return err
	}
	s.looksAt(ctx, r)
	if err := s.show(func(t *table) { receiptTable(t, []client.Receipt{r}) }); err != nil {
		return err
	}
	return failIfNone(l.FailIfNone, r)
}

// failIfNone ends a command as failed if an event goes to nobody, and that was asked
// for. What there is to say of it has been said.
func failIfNone(asked bool, all ...client.Receipt) error {
	if asked && slices.ContainsFunc(all, func(r client.Receipt) bool { return r.Deliveries == 0 }) {
		return &failedError{}
	}
	return nil
}

// nowHint is for an id that was used with another time.
const nowHint = "Without --occurred-at the body has the time of now, and so is another one each time: to post an event again, give the time that it was posted with (fanout events show has it)."

// event is the file with the flags over it. What no flag changes stays byte for byte:
// it may be posted again by other means, and is then the same event. It says by which
// flags the same can be posted again, if there was something to make.
func (l *eventsPost) event(s *session) (e rawEvent, made []string, err error) {
	if e, err = l.file(s); err != nil {
		return nil, nil, err
	}
	fields, err := l.fields(s)
	if err != nil {
		return nil, nil, err
	}
	add := func(flag, name, value string) {
		if err == nil {
			var f field
			f, err = jsonField(name, value)
			fields, made = append(fields, f), append(made, flag+"="+value)
		}
	}
	if l.ID == "" && !e.has("id") {
		add("--id", "id", client.NewID())
	}
	if l.File == "" && l.OccurredAt == "" {
		add("--occurred-at", "occurred_at", time.Now().UTC().Format(time.RFC3339Nano))
	}
	if l.File == "" && l.Data == "" {
		fields = append(fields, field{"data", []byte("{}")})
	}
	if err != nil {
		return nil, nil, err
	}
	e, err = e.with(fields...)
	return e, made, err
}

// file is the event of --file, or one without anything.
func (l *eventsPost) file(s *session) (rawEvent, error) {
	switch l.File {
	case "":
		return rawEvent("{}"), nil
	case l.Data:
		return nil, usage("--file and --data cannot both be read from %s", nameOf(l.File))
	}
	text, err := readFile(s, l.File)
	if err != nil {
		return nil, err
	}
	text = bytes.TrimSpace(text)
	if bad := notJSON(text); bad != "" {
		return nil, usage("%s: %s; nothing was posted", nameOf(l.File), bad)
	}
	if text[0] != '{' {
		return nil, usage("%s: %v: an event is one, and events batch takes several, one a line", nameOf(l.File), errNoObject)
	}
	return text, nil
}

// fields are those that the flags give.
func (l *eventsPost) fields(s *session) (all []field, err error) {
	for _, f := range []struct{ name, text string }{
		{"id", l.ID},
		{"type", l.Type},
		{"shipment_id", l.Shipment},
		{"occurred_at", string(l.OccurredAt)},
	} {
		if f.text == "" {
			continue
		}
		one, err := jsonField(f.name, f.text)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	if len(l.Attribute) > 0 {
		one, err := jsonField("attributes", l.Attribute)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	if l.Data == "" {
		return all, nil
	}
	text, err := readFile(s, l.Data)
	if err != nil {
		return nil, err
	}
	text = bytes.TrimSpace(text)
	if bad := notJSON(text); bad != "" {
		return nil, usage("%s: %s; nothing was posted", nameOf(l.Data), bad)
	}
	return append(all, field{"data", text}), nil
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
func (s *session) looksAt(ctx context.Context, r client.Receipt) {
	if r.Deliveries == 0 {
		kept := s.answer.last // what -o json shows
		shows := withRole(s.role(ctx), "subscribers ls", "fanout subscribers ls shows what they get")
		s.answer.last = kept
		s.notef("No subscriber's filter matches it, so it goes to nobody: %s.", shows)
		return
	}
	s.notef("What comes of it: fanout events show %s", r.ID)
}
