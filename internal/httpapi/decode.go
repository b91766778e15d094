package httpapi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"reflect"
	"strings"
	"time"

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
