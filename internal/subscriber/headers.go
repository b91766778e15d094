package subscriber

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fanout/fanout/internal/fault"
)

// Bounds of a subscriber's own headers, well below the 8 KiB of all headers that
// common servers take.
const (
	maxHeaders     = 20
	maxHeaderName  = 64   // bytes
	maxHeaderValue = 1024 // bytes
)

// Headers are what a subscriber wants sent with each attempt, beside what every
// request has: a token for its gateway, as a rule. Values are secrets, so they
// print as their names alone, under every verb, in slog and in JSON.
type Headers map[string]string

// refusedHeaders are those that are not a subscriber's to set, by the reason.
var refusedHeaders = func() map[string]string {
	all := map[string]string{}
	for reason, names := range map[string]string{
		// RFC 9110 (7.6.1), with those that older texts name.
		"is about one connection, not about the request": "connection proxy-connection keep-alive te transfer-encoding " +
			"upgrade trailer http2-settings proxy-authenticate proxy-authorization",
		"says what the request is, and is set by the sender": "host content-length content-type content-encoding expect user-agent",
		// net/http sends a request that has one again by itself, on a connection that died.
		"would make a request repeat itself; receivers dedupe on webhook-id": "idempotency-key x-idempotency-key",
		// What comes back is kept as evidence, and secrets are looked for in it.
		"would let an answer come compressed, in which no secret is found again": "accept-encoding",
		"belongs to the trace of the attempt":                                    "traceparent tracestate",
	} {
		for name := range strings.FieldsSeq(names) {
			all[name] = reason
		}
	}
	return all
}()

// merge lays a draft's headers over those that there are: a value sets, nil
// removes, and what is not named stays. Names are compared without case, and keep
// the case in which they were last given.
func (h Headers) merge(draft map[string]*string, bad *fault.List) Headers {
	if len(draft) == 0 {
		return h
	}
	next := maps.Clone(h)
	if next == nil {
		next = Headers{}
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(draft)) {
		pointer := "/headers/" + fault.Escape(clip(name))
		lower := strings.ToLower(name)
		if seen[lower] {
			bad.Addf(pointer, "stands twice: names of headers are compared without case")
		}
		seen[lower] = true
		maps.DeleteFunc(next, func(old, _ string) bool { return strings.EqualFold(old, name) })
		value := draft[name]
		if value == nil {
			continue
		}
		if why := badHeaderName(name); why != "" {
			bad.Addf(pointer, "%s", why)
		}
		if why := badHeaderValue(*value); why != "" {
			bad.Addf(pointer, "%s", why)
		}
		next[name] = *value
	}
	if len(next) > maxHeaders {
		bad.Addf("/headers", "must be at most %d, would be %d", maxHeaders, len(next))
	}
	if len(next) == 0 {
		return nil // as it comes back from storage
	}
	return next
}

// badHeaderName says what is wrong with a name, "" if nothing is.
func badHeaderName(name string) string {
	lower := strings.ToLower(name)
	switch {
	case name == "":
		return "a header's name must not be empty"
	case len(name) > maxHeaderName:
		return fmt.Sprintf("a header's name must be at most %d bytes, has %d", maxHeaderName, len(name))
	case strings.ContainsFunc(name, notInToken):
		return "a header's name must be of A-Z a-z 0-9 and !#$%&'*+-.^_`|~ (RFC 9110, 5.6.2)"
	case refusedHeaders[lower] != "":
		return "cannot be set: it " + refusedHeaders[lower]
	case strings.HasPrefix(lower, "webhook-"), strings.HasPrefix(lower, "fanout-"):
		return "cannot be set: names that begin with webhook- or fanout- are the sender's own"
	}
	return ""
}

// notInToken tells the characters that no token has (RFC 9110, 5.6.2).
func notInToken(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return false
	}
	return !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// badHeaderValue says what is wrong with a value, "" if nothing is, and quotes
// nothing of it. What is left goes out as it is: RFC 9110 (5.5) has receivers strip
// blanks at either end, and leaves open what a byte beyond ASCII means.
func badHeaderValue(v string) string {
	if v == masked {
		return "is the " + masked + " that answers show for a value; send the value, or leave the header out to keep the one it has"
	}
	switch {
	case v == "":
		return "must not be empty; null removes the header"
	case len(v) > maxHeaderValue:
		return fmt.Sprintf("must be at most %d bytes, has %d", maxHeaderValue, len(v))
	case strings.Trim(v, " \t") != v:
		return "must not begin or end with a blank"
	case strings.ContainsAny(v, "\r\n\x00"):
		return "must not hold a line break or a NUL"
	case strings.ContainsFunc(v, func(r rune) bool { return (r < ' ' && r != '\t') || r >= 0x7f }), !utf8.ValidString(v):
		return "must be printable ASCII"
	}
	return ""
}

// Names of the headers, sorted.
func (h Headers) Names() []string { return slices.Sorted(maps.Keys(h)) }

// String is the names.
func (h Headers) String() string { return fmt.Sprintf("headers %q", h.Names()) }

// Format prints the names under every verb.
func (h Headers) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, h.String()) }

// LogValue is the same for slog.
func (h Headers) LogValue() slog.Value { return slog.StringValue(h.String()) }

// masked stands for a value in answers.
const masked = "***"

// MarshalJSON shows each value as "***".
func (h Headers) MarshalJSON() ([]byte, error) {
	shown := make(map[string]string, len(h))
	for name := range h {
		shown[name] = masked
	}
	return json.Marshal(shown) //nolint:wrapcheck // strings always marshal
}
