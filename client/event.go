package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	strict "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
	"github.com/oklog/ulid/v2"
)

// Event is what a producer posts. Its bounds are the server's, which refuses what is
// beyond them by ErrInvalid; all its text must be UTF-8, which is looked at here, since
// encoding/json would send something else in silence.
//
// Posted again under its ID, an event is the same if Type, ShipmentID and Attributes
// are, OccurredAt as it is written (another offset for the same moment is another), and
// the JSON of Data byte for byte. encoding/json writes a value the same each time, maps
// too. Anything else is ErrConflict.
type Event struct {
	// ID is your own, 1 to 64 of A-Z a-z 0-9 . _ : - and not "." or ".."; an id is
	// accepted once, so one that is made from the thing itself (a carrier and its scan)
	// also guards against two programs that post the same. The server knows it for 26
	// hours, and longer by the subscribers' max_age (50 hours by default). Left out, Post
	// gives it one of NewID.
	ID string
	// Type is words of a-z 0-9 _ - with dots between, such as shipment.delivered, at most
	// 128 characters; what begins with "fanout." is reserved. Required.
	Type string
	// ShipmentID names the shipment that it is about: 1 to 128 characters that can be
	// printed, no line breaks, no spaces but the plain one, not only blanks. Required.
	ShipmentID string
	// OccurredAt is when it happened, in the years 1 to 9999; its offset is kept, and has
	// whole minutes. Required: receivers order by it. It is part of the body, and so must
	// be the same when you post again, offset included.
	OccurredAt time.Time
	// Attributes are what subscribers filter on; at most 16, with names of 1 to 64
	// characters and values of 0 to 256. None is the same as nil.
	Attributes map[string]string
	// Data is any value that encoding/json can write; a json.RawMessage goes to the
	// receivers byte for byte. At most 256 KiB as JSON, nested at most 64 deep. nil is
	// sent as null.
	Data any
}

// Receipt is what was accepted.
type Receipt struct {
	ID string `json:"id"`
	// Deliveries is how many subscribers it goes to.
	Deliveries int `json:"deliveries"`
	// Duplicate says that this id and body were accepted before: by an earlier post of
	// yours, or by an attempt of this one whose answer was lost.
	Duplicate  bool      `json:"duplicate"`
	AcceptedAt time.Time `json:"accepted_at"`
}

// NewID makes an event id that is used nowhere else: "evt_" and a ULID.
func NewID() string {
	return "evt_" + ulid.MustNew(ulid.Now(), rand.Reader).String()
}

// Post has an event accepted, once: each attempt carries the same id, so that one
// whose answer was lost is recognised by the next.
//
// On an error the receipt has the event's id all the same. To try again later, post
// the same event with that ID. ErrConflict says that the id was used for another
// body, ErrInvalid that this one breaks a rule.
func (c *Client) Post(ctx context.Context, e Event) (Receipt, error) {
	if e.ID == "" {
		e.ID = NewID()
	}
	body, bad := e.body()
	if bad != nil {
		return Receipt{ID: e.ID}, bad
	}
	r := Receipt{}
	if err := c.do(ctx, request{method: http.MethodPost, path: "/v1/events", body: body}, &r); err != nil {
		return Receipt{ID: e.ID}, err
	}
	return r, nil
}

// PostRaw posts an event that is JSON already, as Post does, byte for byte. It must
// have an id: ErrInvalid otherwise, without a request.
func (c *Client) PostRaw(ctx context.Context, body json.RawMessage) (Receipt, error) {
	var e struct {
		ID string `json:"id"`
	}
	if !utf8.Valid(body) {
		return Receipt{}, invalid("", notUTF8)
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return Receipt{}, invalid("", "is not the JSON of an event")
	}
	if e.ID == "" {
		return Receipt{}, invalid("/id", "is not set: without it a second attempt would be a second event")
	}
	r := Receipt{}
	if err := c.do(ctx, request{method: http.MethodPost, path: "/v1/events", body: body}, &r); err != nil {
		return Receipt{ID: e.ID}, err
	}
	return r, nil
}

// body writes the event as JSON, or says what keeps it from being sent. The data is
// put in by hand: encoding/json would rewrite it.
func (e Event) body() ([]byte, *Problem) {
	if e.OccurredAt.IsZero() { // valid to the server: the year 1
		return nil, invalid("/occurred_at", "is not set: say when it happened")
	}
	if _, offset := e.OccurredAt.Zone(); offset%60 != 0 {
		// RFC 3339 has no seconds there: they would be cut off, and it would be another moment.
		return nil, invalid("/occurred_at", badTime)
	}
	if pointer, is := e.notUTF8(); is {
		return nil, invalid(pointer, notUTF8)
	}
	data, err := e.data()
	if errors.Is(err, errNotUTF8) {
		return nil, invalid("/data", notUTF8)
	}
	if err != nil {
		return nil, invalid("/data", "cannot be written as JSON")
	}
	head, err := json.Marshal(struct {
		ID         string            `json:"id"`
		Type       string            `json:"type"`
		ShipmentID string            `json:"shipment_id"`
		OccurredAt time.Time         `json:"occurred_at"`
		Attributes map[string]string `json:"attributes,omitempty"`
	}{e.ID, e.Type, e.ShipmentID, e.OccurredAt, e.Attributes})
	if err != nil {
		return nil, invalid("/occurred_at", badTime)
	}
	return slices.Concat(head[:len(head)-1], []byte(`,"data":`), data, []byte{'}'}), nil
}

// What is said of an event that is not sent.
const (
	badTime = "is not within the years 1 to 9999, or has an offset with seconds"
	notUTF8 = "is not valid UTF-8, which JSON must be: decode it from what it is first"
)

// notUTF8 finds text that encoding/json would replace.
func (e Event) notUTF8() (pointer string, is bool) {
	for _, f := range []struct{ pointer, text string }{{"/id", e.ID}, {"/type", e.Type}, {"/shipment_id", e.ShipmentID}} {
		if !utf8.ValidString(f.text) {
			return f.pointer, true
		}
	}
	for name, value := range e.Attributes {
		if !utf8.ValidString(name) {
			return "/attributes", true
		}
		if !utf8.ValidString(value) {
			return "/attributes/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name), true
		}
	}
	return "", false
}

// replaced is what encoding/json writes for bytes that are not UTF-8. The character
// itself it writes as it is.
var replaced = []byte(`\ufffd`)

func (e Event) data() ([]byte, error) {
	if raw, ok := e.Data.(json.RawMessage); ok {
		switch {
		case !utf8.Valid(raw):
			return nil, errNotUTF8
		case !json.Valid(raw):
			return nil, errNotJSON
		}
		return raw, nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // receivers get what you mean, not \u003c
	if err := enc.Encode(e.Data); err != nil {
		return nil, err
	}
	data := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if !utf8.Valid(data) || bytes.Contains(data, replaced) && !allUTF8(e.Data) {
		return nil, errNotUTF8
	}
	return data, nil
}

// allUTF8 says whether no text of a value would be replaced. An escape for the
// replacement character may also come from the value's own JSON, so this is asked of one
// that is in doubt; it is the same rules as encoding/json's, strict in this alone.
func allUTF8(v any) bool {
	_, err := strict.Marshal(v, jsonv1.DefaultOptionsV1(), jsontext.AllowInvalidUTF8(false))
	return err == nil
}

// StoredEvent is an event that was accepted, and where its deliveries stand.
type StoredEvent struct {
	ID         string            `json:"id"`
	Type       string            `json:"type"`
	ShipmentID string            `json:"shipment_id"`
	OccurredAt string            `json:"occurred_at"` // as it was posted
	Attributes map[string]string `json:"attributes"`
	AcceptedAt time.Time         `json:"accepted_at"`
	// Expanding says that some of its deliveries are still to be made.
	Expanding         bool              `json:"expanding"`
	DeliveriesPlanned int               `json:"deliveries_planned"`
	Deliveries        []DeliverySummary `json:"deliveries"`
}

// DeliverySummary is where one delivery stands.
type DeliverySummary struct {
	ID           string `json:"id"`
	SubscriberID string `json:"subscriber_id"`
	State        State  `json:"state"`
	Attempts     int    `json:"attempts"`
	LastOutcome  string `json:"last_outcome,omitempty"`
}

// GetEvent reads an event, and those of its deliveries that the key may see.
func (c *Client) GetEvent(ctx context.Context, id string) (StoredEvent, error) {
	return get[StoredEvent](ctx, c, path("/v1/events/", id, ""), nil)
}
