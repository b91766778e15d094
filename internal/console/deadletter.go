package console

import (
	"encoding/hex"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/oncall"
)

type deadLetterBody struct {
	ID, Reason string
	Sentence   string
	Delivery   row
	Facts      []fact
	Picture    picture
	Attempts   []attemptView
	Sent       []fact
	Payload    string
	PayloadOf  string // how much of it is shown
	Redrive    *fact
	Offers     []offer
}

// deadLetter reads all the evidence of one.
func (s *Site) deadLetter(l look) (title string, body any, err error) {
	e, err := s.api.GetDeadLetter(l, l.id)
	if err != nil {
		return "", nil, err
	}
	d := e.Delivery
	b := deadLetterBody{
		ID: d.ID, Reason: e.Reason, Delivery: rowOf(d), Facts: deliveryFacts(d), Picture: pictureOf(d, nil), Attempts: attemptsOf(d.Evidence),
	}
	b.Sentence = "It ended after " + times(int64(d.Attempts), "attempt") + ": " + meaning(e.Reason) + "."
	b.Sent = filled(text("type", e.Event.Type), text("shipment", said(e.Event.ShipmentID)), text("occurred", said(e.Event.OccurredAt)))
	for _, name := range slices.Sorted(maps.Keys(e.Event.Attributes)) {
		b.Sent = append(b.Sent, text(said(name), said(e.Event.Attributes[name])))
	}
	if e.Subscriber != nil {
		b.Sent = append(b.Sent, text("endpoint now", said(e.Subscriber.URL)))
	} else {
		b.Sent = append(b.Sent, text("subscriber", "deleted"))
	}
	b.Payload, b.PayloadOf = payloadOf(e.Payload)
	if e.RedriveID != "" {
		f := link("in the redrive", "redrives", e.RedriveID)
		b.Redrive = &f
	} else {
		b.Offers = s.offers(l, "redrive", "discard")
	}
	return "Dead letter " + d.ID, b, nil
}

// payloadOf is the beginning of what was sent, with its line ends; what is no text as hex.
func payloadOf(p client.Payload) (shown, of string) {
	raw, err := p.Bytes()
	if err != nil || p.Length == 0 {
		return "", ""
	}
	if !utf8.Valid(raw) {
		raw = []byte(hex.Dump(raw[:min(len(raw), maxPayload/8)]))
		return string(raw), oncall.Number(int64(p.Length)) + " bytes, no text: the beginning as hex"
	}
	shown, cut := lines(string(raw), maxPayload)
	if cut || p.Truncated {
		return shown, "the beginning of " + oncall.Number(int64(p.Length)) + " bytes"
	}
	return shown, oncall.Number(int64(p.Length)) + " bytes"
}

// lines cleans each line of a text by itself.
func lines(s string, limit int) (shown string, cut bool) {
	var b []byte
	n, last := 0, 0
	for i := range s {
		n++
		if n > limit {
			s, cut = s[:i], true
			break
		}
	}
	for i := 0; i <= len(s); i++ {
		if i < len(s) && s[i] != '\n' {
			continue
		}
		indent := last
		for indent < i && (s[indent] == ' ' || s[indent] == '\t') {
			indent++
		}
		b = append(b, s[last:indent]...)
		line, _ := oncall.Clean(s[indent:i], limit)
		b = append(append(b, line...), '\n')
		last = i + 1
	}
	return string(b), cut
}

// meaning is a reason of death in words.
func meaning(reason string) string {
	switch reason {
	case "exhausted":
		return "its attempts were used up"
	case "expired":
		return "its time was over"
	case "held_full":
		return "its subscriber was on hold and had as many deliveries waiting as it may"
	case "gone":
		return "the endpoint answered 410 Gone, which disabled its subscriber"
	case "payload_missing":
		return "its payload was missing, which must not be"
	case "bad_request":
		return "no request could be built of it"
	}
	return "the last answer, " + reason + ", is final by the policy"
}
