package ingest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/fault"
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
	// characters. Nil, which means that the producer sent none, is the same as none.
	Attributes map[string]string
	// Data is one JSON value in UTF-8, at most 256 KiB and 64 levels deep, of whole
	// characters, kept byte for byte; nil means that it was not sent, which is refused.
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

// Check says what is wrong with a producer's post: *fault.Invalid, or nil.
func (p Post) Check() error { return p.problems(true).Err(judged) }

// judged is what a *fault.Invalid of this package is about.
const judged = "event"

// event is the post in the words of delivery, as filters and Body take it.
func (p Post) event() delivery.Event {
	return delivery.Event{
		ID: p.ID, Type: p.Type, ShipmentID: p.ShipmentID, OccurredAt: p.OccurredAt,
		Attributes: p.Attributes, Data: p.Data,
	}
}

// problems is all that is wrong with a post, in the order of its fields. Their
// number is bounded, whatever is sent. The types of fanout's own events are reserved
// from producers.
func (p Post) problems(reserved bool) fault.List {
	var bad fault.List
	check := func(pointer, detail string) {
		if detail != "" {
			bad.Addf(pointer, "%s", detail)
		}
	}
	if p.ID != "" {
		check("/id", checkID(p.ID))
	}
	check("/type", checkType(p.Type, reserved))
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

// reservedTypes begin with it: receivers are told that what has such a type is fanout's
// own, a test that changes nothing, and drop it.
const reservedTypes = "fanout."

func checkType(t string, reserved bool) string {
	if t == "" {
		return `is missing or empty; send dotted lowercase words such as "shipment.delivered"`
	}
	if reserved && strings.HasPrefix(t, reservedTypes) {
		return `begins with "fanout.", which is reserved for fanout's own events, such as a subscriber's test; choose another first word`
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
		return "is missing or empty; send the id of the shipment that the event is about"
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
// hours, a comma, an offset of a day), adds the calendar.
var rfc3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\d([Tt ])\d\d:\d\d:(\d\d)(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

func checkOccurredAt(at string) string {
	if at == "" {
		return `is missing or empty; send RFC 3339 with an offset, such as "2026-03-01T09:30:00+01:00"`
	}
	if parts := rfc3339.FindStringSubmatch(at); parts != nil {
		return checkTime(at, parts[1], parts[2], parts[4])
	}
	if _, err := time.Parse("2006-01-02T15:04:05", at); err == nil {
		return "has no offset; append Z for UTC, or the local one, such as +01:00"
	}
	return `is not RFC 3339 with an offset; send it as "2026-03-01T09:30:00+01:00" or "2026-03-01T08:30:00.250Z"`
}

// checkTime refuses of what RFC 3339 allows what few receivers can read: they get the
// text as it was sent.
func checkTime(at, between, seconds, offset string) string {
	switch {
	case len(at) > maxOccurredAt:
		return fmt.Sprintf("is %d characters long; send at most %d, nine digits of a second are plenty", len(at), maxOccurredAt)
	case between == " ":
		return "has a blank between date and time, which few receivers can read; write a T there"
	case between == "t", offset == "z":
		return "has a lower-case t or z, which few receivers can read; write T and Z"
	case seconds == "60":
		return "has a leap second (:60), which few receivers can read; send the second before or after it"
	}
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return "names a date or time that does not exist; check the month, the day, the hour, the minute and the second"
	}
	return checkYear(t)
}

func checkYear(t time.Time) string {
	for _, year := range []int{t.Year(), t.UTC().Year()} {
		if year < 1 || year > 9999 {
			return "is outside of the years 0001 to 9999, here or in UTC; many receivers cannot read that"
		}
	}
	return ""
}

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
	pointer = "/attributes/" + fault.Escape(key)
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
		return "is missing; send any JSON value, null included"
	}
	if n := len(data); n > maxData {
		return fmt.Sprintf("is %d bytes long; send at most %d, and a link to the rest", n, maxData)
	}
	if !utf8.Valid(data) {
		return "is not valid UTF-8; receivers could not read it alike"
	}
	if json.Valid(data) {
		switch {
		case depth(data) > maxDepth:
			return fmt.Sprintf("is nested more than %d deep; many receivers cannot read that", maxDepth)
		case !WholeCharacters(data):
			return HalfCharacter
		}
		return ""
	}
	var syntax *json.SyntaxError
	if err := json.Unmarshal(data, new(any)); errors.As(err, &syntax) {
		return fmt.Sprintf("is not one JSON value: %s, at byte %d", syntax.Error(), syntax.Offset)
	}
	return "is not one JSON value"
}

// HalfCharacter says what is wrong with text that has not WholeCharacters.
const HalfCharacter = "holds half of a surrogate pair (\\ud800 to \\udfff); send whole characters"

// WholeCharacters says whether valid JSON has no half of a surrogate pair in its
// strings and names: many receivers' parsers refuse such an escape, and others turn it
// into another character (RFC 8259, 8.2). It looks at nothing but escapes.
func WholeCharacters(data []byte) bool {
	for {
		at := bytes.IndexByte(data, '\\') // valid JSON has it in strings only
		if at < 0 {
			return true
		}
		data = data[at:]
		switch high := escaped(data); {
		case high < 0:
			data = data[2:]
		case !utf16.IsSurrogate(high):
			data = data[escapeLength:]
		case utf16.DecodeRune(high, escaped(data[escapeLength:])) == unicode.ReplacementChar:
			return false
		default:
			data = data[2*escapeLength:]
		}
	}
}

const escapeLength = len(`\u0000`)

// escaped is the code unit of the escape that JSON goes on with; -1 if it is another
// escape, or none.
func escaped(data []byte) rune {
	if len(data) < escapeLength || data[0] != '\\' || data[1] != 'u' {
		return -1
	}
	unit, err := strconv.ParseUint(string(data[2:escapeLength]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(unit)
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
