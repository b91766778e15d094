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

// maxNested bounds the nesting of a field, above all of data: many receivers' parsers
// recurse, and some give up at a hundred or so. A body may have the object around it.
const (
	maxNested = 64
	maxDepth  = maxNested + 1
)

// verbatim names the top-level field that is not looked into: whatever JSON it
// holds is the producer's own, repeated keys and nulls included.
const verbatim = "data"

// decode reads a request's body into v, strictly: nothing that was sent is
// dropped, guessed or repaired. The decoder is the one that the Go project is
// making into encoding/json/v2: unlike v1 it matches names by case and says
// where in the body an error is.
//
// rules, which may be nil, says what is wrong with v by the rules of whoever it is for.
// It is asked only about a body that has something wrong by its types, with as much in v
// as could be read: so that one answer tells all there is to mend.
func decode(r *http.Request, v any, rules func() error) error {
	_, err := decodeRemoving(r, v, nil, rules)
	return err
}

// decodeRemoving is decode for a change, in which a null at one of the pointers takes
// away what is there. It returns those that had one.
func decodeRemoving(r *http.Request, v any, removes map[string]bool, rules func() error) (removed []string, err error) {
	if err := jsonOnly(r); err != nil {
		return nil, err
	}
	body, err := readAll(r)
	if err != nil {
		return nil, err
	}
	if err := readable(body); err != nil {
		return nil, err
	}
	return decodeText(body, v, removes, rules)
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
	return decode(r, v, nil)
}

// decodeText reads one object, of which readable has nothing to say.
func decodeText(text []byte, v any, removes map[string]bool, rules func() error) (removed []string, err error) {
	bad, removed, err := inspect(text, removes)
	if err != nil {
		return nil, err
	}
	unfit, err := fit(text, v)
	if err != nil {
		return nil, err
	}
	if bad = append(bad, unfit...); len(bad) == 0 {
		return removed, nil
	}
	f := fail(ProblemCodeInvalidField, "A field cannot be used; see errors.")
	if f.fields = bad; rules != nil {
		f.fields = append(f.fields, besides(bad, rules())...)
	}
	return nil, f
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
		instead := "Send less, or a link to the rest."
		if r.URL.Path == batchPath {
			instead = "Send fewer events, and the rest in another batch."
		}
		return nil, fail(ProblemCodeBodyTooLarge, "The body has more than %d bytes. %s", tooLarge.Limit, instead)
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

// unusable says why a field of well-formed JSON does not fit, and what would. It never
// repeats a value: it may be a secret.
func unusable(err *json.SemanticError) string {
	if errors.Is(err, json.ErrUnknownName) {
		return "is not a field of this request; check its spelling, or leave it out"
	}
	wanted, is := want(err.GoType), got(err.JSONKind)
	if is == "" || err.Err != nil { // the kind fits, its content does not
		return "must be " + wanted
	}
	return fmt.Sprintf("must be %s, is %s", wanted, is)
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
		return `a time in RFC 3339 with an upper-case T and Z, such as "2027-03-01T00:00:00Z"`
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
