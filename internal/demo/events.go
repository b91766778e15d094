package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

const (
	maxEventID = 64 // characters, by the HTTP contract
	maxSuffix  = 18 // what a suffix may add to an id
)

// event is one line of the file. Where its id stands is known, so that the id can
// be changed and every other byte stay as it was written.
type event struct {
	line     []byte
	id, kind string
	from, to int // of the id's string in line, quotes included; equal if it has none
}

// parseEvents reads NDJSON, one event a line; blank lines are passed over.
func parseEvents(file []byte) ([]event, error) {
	var events []event
	n := 0
	for line := range bytes.Lines(file) {
		n++
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		e, err := parseEvent(line)
		if err != nil {
			return nil, fmt.Errorf("events, line %d: %w", n, err)
		}
		events = append(events, e)
	}
	if len(events) == 0 {
		return nil, errors.New("events: the file has none")
	}
	return events, nil
}

func parseEvent(line []byte) (event, error) {
	e := event{line: line}
	d := json.NewDecoder(bytes.NewReader(line))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return e, errors.Join(errors.New("not a JSON object"), err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return e, fmt.Errorf("not JSON: %w", err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return e, fmt.Errorf("not JSON: %w", err)
		}
		var into *string
		switch key {
		case "id":
			e.to = int(d.InputOffset())
			e.from = e.to - len(value)
			into = &e.id
		case "type":
			into = &e.kind
		default:
			continue
		}
		if err := json.Unmarshal(value, into); err != nil {
			return e, fmt.Errorf("%v: %w", key, err)
		}
	}
	if e.id == "" || len(e.id) > maxEventID-maxSuffix {
		return e, fmt.Errorf("id must be of 1 to %d characters: a run adds its own to it", maxEventID-maxSuffix)
	}
	return e, nil
}

// with is the event under its id and a suffix. The same line with the same suffix
// gives the same bytes: an exact repeat stays one.
func (e event) with(suffix string) (id string, body []byte) {
	id = e.id + suffix
	body = append(body, e.line[:e.from]...)
	body = strconv.AppendQuote(body, id)
	return id, append(body, e.line[e.to:]...)
}
