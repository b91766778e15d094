package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// rawEvent is an event's JSON as it was written. It is changed only where it must be:
// the service knows a repeat by the bytes of its fields, and the same event may come by
// other means too.
type rawEvent []byte

// field is a member of an event's JSON object.
type field struct {
	name  string
	value []byte // as JSON
}

// jsonField makes a field of a value that encoding/json can write.
func jsonField(name string, v any) (field, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // receivers get what was typed, not \u003c
	if err := enc.Encode(v); err != nil {
		return field{}, fmt.Errorf("write %s as JSON: %w", name, err)
	}
	return field{name, bytes.TrimSpace(b.Bytes())}, nil
}

var errNoObject = errors.New("it is no JSON object")

// members finds an object's members, and where their values stand.
func (e rawEvent) members() (names []string, spans [][2]int64, err error) {
	d := json.NewDecoder(bytes.NewReader(e))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, nil, errNoObject
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, nil, errNoObject
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, nil, errNoObject
		}
		end := d.InputOffset()
		names, spans = append(names, fmt.Sprint(name)), append(spans, [2]int64{end - int64(len(value)), end})
	}
	return names, spans, nil
}

// has says whether an object has a member of this very name.
func (e rawEvent) has(name string) bool {
	names, _, err := e.members()
	return err == nil && slices.Contains(names, name)
}

// with sets members: where they stand, or else in front of all others.
func (e rawEvent) with(fields ...field) (rawEvent, error) {
	for _, f := range slices.Backward(fields) {
		names, spans, err := e.members()
		if err != nil {
			return nil, err
		}
		if i := slices.Index(names, f.name); i >= 0 {
			e = slices.Concat(e[:spans[i][0]], f.value, e[spans[i][1]:])
			continue
		}
		name, err := json.Marshal(f.name)
		if err != nil {
			return nil, fmt.Errorf("write %s as JSON: %w", f.name, err)
		}
		member := slices.Concat(name, []byte{':'}, f.value)
		if len(names) > 0 {
			member = append(member, ',')
		}
		open := bytes.IndexByte(e, '{') + 1
		e = slices.Concat(e[:open], member, e[open:])
	}
	return e, nil
}

// notJSON says where a text stops being JSON, in the terms of an editor; "" if it is.
// The text itself is not repeated: it may be anything.
func notJSON(text []byte) string {
	if !utf8.Valid(text) {
		return "it is not UTF-8"
	}
	d := json.NewDecoder(bytes.NewReader(text))
	var v json.RawMessage
	err := d.Decode(&v)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return fmt.Sprintf("it is not JSON: %s, at %s", syntax.Error(), place(text, syntax.Offset))
	case err != nil:
		return "it is not JSON: it ends too early"
	case len(bytes.TrimSpace(text[d.InputOffset():])) > 0:
		return "it is more than one JSON value: a second begins at " + place(text, d.InputOffset()+1)
	}
	return ""
}

// place is a byte's, from 1, as a column; and its line, where there are several.
func place(text []byte, at int64) string {
	before := text[:min(max(at-1, 0), int64(len(text)))]
	line, column := bytes.Count(before, []byte{'\n'})+1, len(before)-bytes.LastIndexByte(before, '\n')
	if bytes.ContainsRune(bytes.TrimSpace(text), '\n') {
		return fmt.Sprintf("line %d, column %d", line, column)
	}
	return fmt.Sprintf("column %d", column)
}
