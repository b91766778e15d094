package ingest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fanout/fanout/internal/delivery"
)

// Bounds of a post. Lengths of text are in characters, as in the HTTP
// contract's maxLength; data is in bytes.
const (
	maxID         = 64
	maxType       = 128
	maxShipmentID = 128
	maxOccurredAt = 64 // a timestamp is 35 with nanoseconds and an offset
	maxAttributes = 16
	maxAttrKey    = 64
	maxAttrValue  = 256
	maxData       = 256 << 10
	maxDepth      = 64
)

// Post is what a producer sends, as sent: nothing is defaulted or reformatted.
type Post struct {
	// ID is the producer's own, 1 to 64 of A-Z a-z 0-9 . _ : - but not "." or
	// "..", or "" to be given one. Only a post with an ID can be repeated safely.
	ID string
	// Type is words of a-z 0-9 _ - with dots between, at most 128 characters.
	Type string
	// ShipmentID is 1 to 128 printable characters, not all of them blanks.
	ShipmentID string
	// OccurredAt is RFC 3339 with an offset, in the years 0001 to 9999, also when
	// turned into UTC: many receivers' libraries have no others.
	OccurredAt string
	// Attributes, at most 16, keys of 1 to 64 and values of 0 to 256
	// characters. Nil means that the producer sent none.
	Attributes map[string]string
	// Data is one JSON value in UTF-8, at most 256 KiB and 64 levels deep, kept
	// byte for byte; nil means that it was not sent, which is refused.
	Data json.RawMessage
}

// Receipt is the answer to an accepted post.
type Receipt struct {
	ID string
	// Deliveries is how many subscribers matched when the event was accepted.
	Deliveries int
	// Duplicate says that the event was there already, with this same body.
	Duplicate bool
	// AcceptedAt is Redis time.
	AcceptedAt time.Time
}

// Invalid is the error for a post that can never be accepted as it is. It lists
// everything that is wrong with it.
type Invalid struct { //nolint:errname // reads as ingest.Invalid, like subscriber.Invalid
	// Fields are at least one. Field is an RFC 6901 JSON pointer into the post,
	// such as "/occurred_at"; Detail says what to send instead.
	Fields []delivery.FieldError
}

func (e *Invalid) Error() string {
	all := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		all[i] = f.Error()
	}
	return "invalid event: " + strings.Join(all, "; ")
}

// event is the post in the words of delivery, as filters and Body take it.
func (p Post) event() delivery.Event {
	return delivery.Event{
		ID: p.ID, Type: p.Type, ShipmentID: p.ShipmentID, OccurredAt: p.OccurredAt,
		Attributes: p.Attributes, Data: p.Data,
	}
}

// problems is all that is wrong with a post, in the order of its fields. Their
// number is bounded, whatever is sent.
func (p Post) problems() []delivery.FieldError {
	var bad []delivery.FieldError
	check := func(pointer, detail string) {
		if detail != "" {
			bad = append(bad, delivery.FieldError{Field: pointer, Detail: detail})
		}
	}
	if p.ID != "" {
		check("/id", checkID(p.ID))
	}
	check("/type", checkType(p.Type))
	check("/shipment_id", checkShipmentID(p.ShipmentID))
	check("/occurred_at", checkOccurredAt(p.OccurredAt))
	if n := len(p.Attributes); n > maxAttributes {
		// Not one by one: there may be thousands.
		check("/attributes", fmt.Sprintf("has %d attributes; send at most %d and put the rest in data", n, maxAttributes))
	} else {
		for _, k := range slices.Sorted(maps.Keys(p.Attributes)) {
			check(checkAttribute(k, p.Attributes[k]))
		}
	}
	check("/data", checkData(p.Data))
	return bad
}

func checkID(id string) string {
	for _, c := range []byte(id) {
		if !isAlnum(c) && !strings.ContainsRune("._:-", rune(c)) {
			return "may hold only A-Z a-z 0-9 . _ : and -; leave it out to be given an id"
		}
	}
	if n := len(id); n > maxID {
		return fmt.Sprintf("is %d characters long; send at most %d", n, maxID)
	}
	if id == "." || id == ".." {
		// RFC 3986 (5.2.4): a client takes them out of /v1/events/.. on its own.
		return fmt.Sprintf("is %q, which no client would leave in the event's path; choose another, or leave it out to be given one", id)
	}
	return ""
}

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

func checkType(t string) string {
	if t == "" {
		return `is required; send dotted lowercase words such as "shipment.delivered"`
	}
	if n := utf8.RuneCountInString(t); n > maxType {
		return fmt.Sprintf("is %d characters long; send at most %d", n, maxType)
	}
	for word := range strings.SplitSeq(t, ".") {
		if word == "" || strings.Trim(word, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
			return `must be words of a-z 0-9 _ and - with single dots between, such as "shipment.out_for_delivery"`
		}
	}
	return ""
}

func checkShipmentID(id string) string {
	if id == "" {
		return "is required; send the id of the shipment that the event is about"
	}
	if !utf8.ValidString(id) {
		return "is not valid UTF-8"
	}
	if n := utf8.RuneCountInString(id); n > maxShipmentID {
		return fmt.Sprintf("is %d characters long; send at most %d", n, maxShipmentID)
	}
	if strings.TrimSpace(id) == "" {
		return "holds nothing but blanks; send the id of the shipment that the event is about"
	}
	if strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return "holds a character that cannot be printed; remove control characters, line breaks and odd spaces"
	}
	return ""
}

// rfc3339 is the form alone; time.Parse, which is lenient about it (one-digit
// hours, a comma, an offset of a day), adds the calendar. The lower-case t and
// z, and the leap second :60, which RFC 3339 also has, are refused because few
// receivers can read them.
var rfc3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

func checkOccurredAt(at string) string {
	if at == "" {
		return `is required; send RFC 3339 with an offset, such as "2026-03-01T09:30:00+01:00"`
	}
	if len(at) <= maxOccurredAt && rfc3339.MatchString(at) {
		if t, err := time.Parse(time.RFC3339, at); err == nil {
			return checkYear(t)
		}
		return "names a date or time that does not exist; check the month, the day and the hour"
	}
	if _, err := time.Parse("2006-01-02T15:04:05", at); err == nil {
		return "has no offset; append Z for UTC, or the local one, such as +01:00"
	}
	return `is not RFC 3339 with an offset; send it as "2026-03-01T09:30:00+01:00" or "2026-03-01T08:30:00.250Z"`
}

func checkYear(t time.Time) string {
	for _, year := range []int{t.Year(), t.UTC().Year()} {
		if year < 1 || year > 9999 {
			return "is outside of the years 0001 to 9999, here or in UTC; many receivers cannot read that"
		}
	}
	return ""
}

// pointerEscaper is RFC 6901's. To make one costs 6 KB: there were as many as
// attributes, most of what a post allocated.
var pointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")

// checkAttribute returns a pointer to what is wrong with one attribute and what
// that is. A bad key is not repeated whole: it may be of any length.
func checkAttribute(key, value string) (pointer, detail string) {
	switch n := utf8.RuneCountInString(key); {
	case !utf8.ValidString(key):
		return "/attributes", fmt.Sprintf("the key %.70q is not valid UTF-8", key)
	case n == 0:
		return "/attributes", fmt.Sprintf("has an empty key; name the attribute in 1 to %d characters", maxAttrKey)
	case n > maxAttrKey:
		return "/attributes", fmt.Sprintf("the key that begins %.20q is %d characters long; use at most %d", key, n, maxAttrKey)
	}
	pointer = "/attributes/" + pointerEscaper.Replace(key)
	if !utf8.ValidString(value) {
		return pointer, "is not valid UTF-8"
	}
	if n := utf8.RuneCountInString(value); n > maxAttrValue {
		return pointer, fmt.Sprintf("is %d characters long; send at most %d and put longer text in data", n, maxAttrValue)
	}
	return pointer, ""
}

func checkData(data json.RawMessage) string {
	if len(data) == 0 {
		return "is required; send any JSON value, null included"
	}
	if n := len(data); n > maxData {
		return fmt.Sprintf("is %d bytes long; send at most %d, and a link to the rest", n, maxData)
	}
	if !utf8.Valid(data) {
		return "is not valid UTF-8; receivers could not read it alike"
	}
	if json.Valid(data) {
		if depth(data) > maxDepth {
			return fmt.Sprintf("is nested more than %d deep; many receivers cannot read that", maxDepth)
		}
		return ""
	}
	var syntax *json.SyntaxError
	if err := json.Unmarshal(data, new(any)); errors.As(err, &syntax) {
		return fmt.Sprintf("is not one JSON value: %s, at byte %d", syntax.Error(), syntax.Offset)
	}
	return "is not one JSON value"
}

// depth is how deep valid JSON is nested: 0 for a bare string or number.
func depth(data []byte) int {
	deepest, now, inString := 0, 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++ // the escaped character ends nothing
		case c == '"':
			inString = !inString
		case inString:
		case c == '[' || c == '{':
			now++
			deepest = max(deepest, now)
		case c == ']' || c == '}':
			now--
		}
	}
	return deepest
}
