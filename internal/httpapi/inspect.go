package httpapi

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
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
// nothing after it, and no repeated name or null outside of data.
func inspect(text []byte) error {
	if at := tooDeep(text); at >= 0 {
		return fail(ProblemCodeInvalidJSON, "The body is nested more than %d deep at byte %d. Flatten it.", maxDepth, at)
	}
	// Invalid UTF-8 is allowed from here on because it now means an escaped half of
	// a surrogate pair. Those bytes are ASCII: in data they are kept as they are.
	dec := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err := object(dec, text, "a JSON object"); err != nil {
		return err
	}
	if err := walk(dec); err != nil {
		return err
	}
	return nothingAfter(dec)
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
