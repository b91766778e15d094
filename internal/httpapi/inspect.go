package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/fanout/fanout/internal/ingest"
)

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
// nothing after it, and no repeated name or null outside of data. What is wrong with
// single fields is gathered; what is no JSON ends it. removes are the pointers at which
// a null takes something away, and which of these had one is the last result.
func inspect(text []byte, removes map[string]bool) (bad []FieldProblem, removed []string, err error) {
	if at := tooDeep(text); at >= 0 {
		return nil, nil, nestedAt(text, at)
	}
	// Invalid UTF-8 is allowed from here on because it now means an escaped half of
	// a surrogate pair, which the walker names by its field.
	dec := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err := object(dec, text, "a JSON object"); err != nil {
		return nil, nil, err
	}
	w := walker{dec: dec, removes: removes}
	if err := w.walk(); err != nil {
		return nil, nil, err
	}
	return w.bad, w.removed, nothingAfter(dec)
}

// walker reads a body token by token.
type walker struct {
	dec     *jsontext.Decoder
	removes map[string]bool
	bad     []FieldProblem
	removed []string
}

// fault notes what is wrong with the field that was just read.
func (w *walker) fault(detail string) {
	if len(w.bad) < maxErrors {
		pointer := string(w.dec.StackPointer())
		w.bad = append(w.bad, FieldProblem{Pointer: &pointer, Detail: detail})
	}
}

// object says what a text is that does not begin as an object. It is read first: only
// then a `-` is known to be no number, and an `x` to be nothing at all.
func object(dec *jsontext.Decoder, text []byte, wanted string) error {
	kind := dec.PeekKind()
	if kind == '{' {
		return nil
	}
	if len(bytes.Trim(text, " \t\r\n")) == 0 {
		return fail(ProblemCodeInvalidJSON, "The body is blank. Send %s.", wanted)
	}
	if _, err := dec.ReadValue(); err != nil {
		return malformed(err)
	}
	return fail(ProblemCodeInvalidJSON, "The body is %s. Send %s.", got(kind), wanted)
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
func (w *walker) walk() error {
	open, err := w.dec.ReadToken()
	if err != nil {
		return malformed(err)
	}
	object := open.Kind() == '{'
	var seen names
	for w.dec.PeekKind() != '}' && w.dec.PeekKind() != ']' {
		if object {
			skip, err := w.name(&seen)
			if err != nil {
				return err
			}
			if skip {
				continue
			}
		}
		if err := w.value(); err != nil {
			return err
		}
	}
	_, err = w.dec.ReadToken()
	return malformed(err)
}

// name reads a member's name, and its value too if that is not to be looked into.
func (w *walker) name(seen *names) (skip bool, err error) {
	raw, err := w.dec.ReadValue()
	if err != nil {
		return false, malformed(err)
	}
	name, whole := unquote(raw)
	switch {
	case !whole:
		w.fault(ingest.HalfCharacter)
	case !seen.add(name):
		w.fault("is given twice; send it once")
	}
	if name != verbatim || w.dec.StackDepth() != 1 {
		return false, nil
	}
	if raw, err = w.dec.ReadValue(); err == nil && !ingest.WholeCharacters(raw) {
		w.fault(ingest.HalfCharacter)
	}
	return true, malformed(err)
}

func (w *walker) value() error {
	switch w.dec.PeekKind() {
	case '{', '[':
		return w.walk()
	case '"':
		raw, err := w.dec.ReadValue()
		if err != nil {
			return malformed(err)
		}
		// The rule is no escape at all; what the string says is nothing to us.
		if bytes.Contains(raw, []byte(`\u`)) {
			if _, whole := unquote(raw); !whole {
				w.fault(ingest.HalfCharacter)
			}
		}
		return nil
	case 'n':
		if _, err := w.dec.ReadToken(); err != nil {
			return malformed(err)
		}
		switch pointer := string(w.dec.StackPointer()); {
		case w.removes[pointer]:
			w.removed = append(w.removed, pointer)
		case !nullable(pointer):
			w.fault("is null; leave it out, or send a value")
		}
		return nil
	default:
		_, err := w.dec.ReadToken()
		return malformed(err)
	}
}

// nullable says whether a null means something in any request: only that a header of a
// subscriber's own is to go.
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
	name, whole := unquote(raw)
	if !whole {
		return "", badField(string(dec.StackPointer()), ingest.HalfCharacter)
	}
	return name, nil
}

// unquote is not whole if there is half of a surrogate pair: decoded it would turn into
// another character in silence.
func unquote(raw jsontext.Value) (plain string, whole bool) {
	if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), true
	}
	out, err := jsontext.AppendUnquote(nil, raw)
	return string(out), err == nil
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

// nestedAt says which field is nested too deep at an offset, which tooDeep gave. What
// is before it may be no JSON at all, or no object: that comes first.
func nestedAt(text []byte, at int) error {
	dec := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if dec.PeekKind() != '{' {
		return fail(ProblemCodeInvalidJSON, "The body is nested more than %d deep at byte %d, and is no JSON object. Send one, and flatten it.", maxNested, at)
	}
	for dec.InputOffset() <= int64(at) {
		if _, err := dec.ReadToken(); err != nil {
			return malformed(err)
		}
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(string(dec.StackPointer()), "/"), "/")
	return badField("/"+name, fmt.Sprintf("is nested more than %d deep; many receivers cannot read that", maxNested))
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
