package httpapi

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/fanout/fanout/internal/delivery"
)

// maxDepth bounds the nesting of a body: 64 of data and one around it. Many
// receivers' parsers recurse, and some give up at a hundred or so.
const maxDepth = 65

// verbatim names the top-level field that is not looked into: whatever JSON it
// holds is the producer's own, repeated keys and nulls included.
const verbatim = "data"

// decode reads a request's body into v, strictly: nothing that was sent is
// dropped, guessed or repaired. The decoder is the one that the Go project is
// making into encoding/json/v2: unlike v1 it matches names by case and says
// where in the body an error is.
func decode(r *http.Request, v any) error {
	if err := jsonOnly(r); err != nil {
		return err
	}
	body, err := readAll(r)
	if err != nil {
		return err
	}
	if err := readable(body); err != nil {
		return err
	}
	return decodeText(body, v)
}

// decodeOptional is decode for a request that may come without a body. Whether it has
// one shows when it is read: its length need not be told before.
func decodeOptional(r *http.Request, v any) error {
	first := bufio.NewReader(r.Body)
	if _, err := first.Peek(1); errors.Is(err, io.EOF) {
		return nil
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{first, r.Body}
	return decode(r, v)
}

// decodeText reads one object, of which readable has nothing to say.
func decodeText(text []byte, v any) error {
	if err := inspect(text); err != nil {
		return err
	}
	// Repeated names were refused by inspect, but for those that are allowed.
	err := json.Unmarshal(text, v, json.RejectUnknownMembers(true),
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return unusable(err)
	}
	return nil
}

// jsonOnly refuses a body that does not say that it is JSON. Besides being
// honest it keeps browsers out: a form on a foreign page cannot send this type.
func jsonOnly(r *http.Request) error {
	if enc := r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return fail(ProblemCodeUnsupportedMediaType, "Send the body without Content-Encoding.")
	}
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		return fail(ProblemCodeUnsupportedMediaType, "Send the body as JSON, with the header Content-Type: application/json.")
	}
	if charset, ok := params["charset"]; ok && !strings.EqualFold(charset, "utf-8") {
		return fail(ProblemCodeUnsupportedMediaType, "Send the body in UTF-8: JSON has no other charset (RFC 8259).")
	}
	return nil
}

func readAll(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
	case errors.As(err, &tooLarge):
		return nil, fail(ProblemCodeBodyTooLarge, "The body has more than %d bytes. Send less, or a link to the rest.", tooLarge.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fail(ProblemCodeRequestTimeout, "The body did not arrive within %s. Send it again.", bodyTime(r))
	default:
		return nil, &failure{code: ProblemCodeInvalidJSON, detail: "The body ended before its time. Send it again.", cause: err}
	}
	if len(body) == 0 {
		return nil, fail(ProblemCodeInvalidJSON, "The body is empty. Send a JSON object.")
	}
	return body, nil
}

// readable says whether a body is text in UTF-8.
func readable(body []byte) error {
	if err := byteOrderMark(body); err != nil {
		return err
	}
	if at := invalidUTF8(body); at >= 0 {
		return fail(ProblemCodeInvalidUTF8, "The byte at offset %d is not part of any UTF-8 character. Encode the body as UTF-8.", at)
	}
	return nil
}

// inspect walks a text once before it is decoded: depth, syntax, one object and
// nothing after it, and no repeated name or null outside of data.
func inspect(text []byte) error {
	if at := tooDeep(text); at >= 0 {
		return fail(ProblemCodeInvalidJSON, "The body is nested more than %d deep at byte %d. Flatten it.", maxDepth, at)
	}
	// Invalid UTF-8 is allowed from here on because it now means an escaped half of
	// a surrogate pair. Those bytes are ASCII: in data they are kept as they are.
	dec := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if kind := dec.PeekKind(); kind != '{' {
		if kind == 0 {
			_, err := dec.ReadToken()
			return malformed(err)
		}
		return fail(ProblemCodeInvalidJSON, "The body is %s. Send a JSON object.", got(kind))
	}
	if err := walk(dec); err != nil {
		return err
	}
	return nothingAfter(dec)
}

func nothingAfter(dec *jsontext.Decoder) error {
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return fail(ProblemCodeInvalidJSON, "There is more after the JSON object, from byte %d. Send one object and nothing else.", dec.InputOffset())
	}
	return nil
}

// byteOrderMark refuses what some editors put in front, unseen (RFC 8259, 8.1):
// what a parser says of it sends people looking elsewhere.
func byteOrderMark(body []byte) error {
	switch {
	case bytes.HasPrefix(body, []byte("\xef\xbb\xbf")):
		return fail(ProblemCodeInvalidJSON, "The body begins with a byte order mark (the bytes EF BB BF). Send it without one.")
	case bytes.HasPrefix(body, []byte("\xff\xfe")), bytes.HasPrefix(body, []byte("\xfe\xff")):
		return fail(ProblemCodeInvalidUTF8, "The body begins with a byte order mark of UTF-16 or UTF-32. Encode it as UTF-8, without one.")
	}
	return nil
}

// walk reads one object or array and what is in it; it cannot go deeper than
// tooDeep allows.
func walk(dec *jsontext.Decoder) error {
	open, err := dec.ReadToken()
	if err != nil {
		return malformed(err)
	}
	object := open.Kind() == '{'
	var seen names
	for dec.PeekKind() != '}' && dec.PeekKind() != ']' {
		if object {
			skip, err := walkName(dec, &seen)
			if err != nil {
				return err
			}
			if skip {
				continue
			}
		}
		if err := walkValue(dec); err != nil {
			return err
		}
	}
	_, err = dec.ReadToken()
	return malformed(err)
}

// walkName reads a member's name, and its value too if that is not to be looked
// into.
func walkName(dec *jsontext.Decoder, seen *names) (skip bool, err error) {
	name, err := text(dec)
	if err != nil {
		return false, err
	}
	if !seen.add(name) {
		return false, badField(string(dec.StackPointer()), "is given twice; send it once")
	}
	if name != verbatim || dec.StackDepth() != 1 {
		return false, nil
	}
	_, err = dec.ReadValue()
	return true, malformed(err)
}

func walkValue(dec *jsontext.Decoder) error {
	switch dec.PeekKind() {
	case '{', '[':
		return walk(dec)
	case '"':
		raw, err := dec.ReadValue()
		if err != nil {
			return malformed(err)
		}
		if !bytes.Contains(raw, []byte(`\u`)) { // the rule; what the string says is nothing to us
			return nil
		}
		_, err = unquote(dec, raw)
		return err
	case 'n':
		if _, err := dec.ReadToken(); err != nil {
			return malformed(err)
		}
		if pointer := string(dec.StackPointer()); !nullable(pointer) {
			return badField(pointer, "is null; leave it out, or send a value")
		}
		return nil
	default:
		_, err := dec.ReadToken()
		return malformed(err)
	}
}

// nullable says whether a null means something: only that a header of a subscriber's
// own is to go.
func nullable(pointer string) bool {
	name, is := strings.CutPrefix(pointer, "/headers/")
	return is && !strings.Contains(name, "/")
}

// names are those of an object's members so far. A body has few: they are looked
// through in turn, and only many get a map. With strings unquoted only if they must
// be, that is 27 allocations for the smallest post's body; it was 36.
type names struct {
	few  []string
	many map[string]bool
}

// add is false for a name that is there already.
func (n *names) add(name string) bool {
	const few = 16
	if n.many == nil && len(n.few) < few {
		if slices.Contains(n.few, name) {
			return false
		}
		n.few = append(n.few, name)
		return true
	}
	if n.many == nil {
		n.many = make(map[string]bool, 2*few)
		for _, old := range n.few {
			n.many[old] = true
		}
	}
	if n.many[name] {
		return false
	}
	n.many[name] = true
	return true
}

// text reads a string.
func text(dec *jsontext.Decoder) (string, error) {
	raw, err := dec.ReadValue()
	if err != nil {
		return "", malformed(err)
	}
	return unquote(dec, raw)
}

// unquote refuses half of a surrogate pair: decoded it would turn into another
// character in silence.
func unquote(dec *jsontext.Decoder, raw jsontext.Value) (string, error) {
	if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), nil
	}
	plain, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return "", badField(string(dec.StackPointer()), "holds half of a surrogate pair (\\ud800 to \\udfff); send whole characters")
	}
	return string(plain), nil
}

// malformed is about text that is not JSON; nil stays nil.
func malformed(err error) error {
	if err == nil {
		return nil
	}
	var syntax *jsontext.SyntacticError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fail(ProblemCodeInvalidJSON, "The body ends in the middle of the JSON. Send all of it.")
	case errors.As(err, &syntax):
		return fail(ProblemCodeInvalidJSON, "The body is not JSON: %s, at byte %d. Correct it.", syntax.Err, syntax.ByteOffset)
	}
	return &failure{code: ProblemCodeInvalidJSON, detail: "The body is not JSON. Correct it.", cause: err}
}

// unusable says which field of well-formed JSON does not fit, and what would. It
// never repeats a value: it may be a secret.
func unusable(err error) error {
	var semantic *json.SemanticError
	if !errors.As(err, &semantic) {
		return malformed(err)
	}
	pointer := string(semantic.JSONPointer)
	if errors.Is(err, json.ErrUnknownName) {
		return badField(pointer, "is not a field of this request; check its spelling, or leave it out")
	}
	wanted, is := want(semantic.GoType), got(semantic.JSONKind)
	if is == "" || semantic.Err != nil { // the kind fits, its content does not
		return badField(pointer, "must be "+wanted)
	}
	return badField(pointer, fmt.Sprintf("must be %s, is %s", wanted, is))
}

// want names what a Go type takes.
func want(t reflect.Type) string {
	if t == nil {
		return "something else"
	}
	if t == reflect.TypeFor[delivery.Duration]() {
		return `a duration such as "10s" or "1h30m"`
	}
	if t == reflect.TypeFor[time.Time]() {
		return `a time in RFC 3339, such as "2027-03-01T00:00:00Z"`
	}
	switch t.Kind() { //nolint:exhaustive // the rest is in no request
	case reflect.Pointer:
		return want(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number of a usable size"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "an array"
	case reflect.Map, reflect.Struct:
		return "an object"
	}
	return "something else"
}

// got names what was sent, "" if that is not known.
func got(k jsontext.Kind) string {
	switch k {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return ""
}

// invalidUTF8 is the offset of the first byte that is not UTF-8, or -1.
func invalidUTF8(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	for i := 0; i < len(b); {
		r, size := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

// tooDeep is the offset of the first bracket beyond maxDepth, or -1. It only
// counts, so that no parser has to recurse to find out.
func tooDeep(b []byte) int {
	depth, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			if depth > maxDepth {
				return i
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return -1
}
