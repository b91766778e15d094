package demo

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fanout/fanout/examples"
	"github.com/fanout/fanout/internal/delivery"
)

func TestEventKeepsItsBytes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ line, want, kind string }{
		{
			`{"id":"e1","type":"a.b","data":{"x": 1.50,"x":[ ]}}`,
			`{"id":"e1-s","type":"a.b","data":{"x": 1.50,"x":[ ]}}`, "a.b",
		},
		{
			`{ "data" : "\u00e9<&", "type":"t" , "id" :  "e1"  }`,
			`{ "data" : "\u00e9<&", "type":"t" , "id" :  "e1-s"  }`, "t",
		},
		{
			`{"data":{"id":"inner"},"id":"e1"}`,
			`{"data":{"id":"inner"},"id":"e1-s"}`, "",
		},
	} {
		e, err := parseEvent([]byte(tt.line))
		if err != nil {
			t.Errorf("%s: %v", tt.line, err)
			continue
		}
		id, body := e.with("-s")
		if id != "e1-s" || string(body) != tt.want || e.kind != tt.kind {
			t.Errorf("%s\nbecame %s %q %s\nwant   %s", tt.line, id, e.kind, body, tt.want)
		}
	}
}

func TestEventsAreRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ file, want string }{
		"empty":     {"\n \n", "has none"},
		"no object": {"[1]", "line 1: not a JSON object"},
		"cut":       {"{\"id\":\"a\"}\n\n{\"id\":", "line 3: not JSON"},
		"no id":     {`{"type":"a"}`, "id must be"},
		"number":    {`{"id":7}`, "id"},
		"long id":   {`{"id":"` + strings.Repeat("x", 47) + `"}`, "id must be"},
	} {
		if _, err := parseEvents([]byte(tt.file)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
}

// The cast must suit the file: everybody gets something, and there is a repeat.
func TestTheFileGivesEverybodyAPart(t *testing.T) {
	t.Parallel()
	events, err := parseEvents(examples.Shipments)
	if err != nil {
		t.Fatal(err)
	}
	repeats, seen, gets := 0, map[string]bool{}, map[string]int{}
	for _, e := range events {
		if seen[string(e.line)] {
			repeats++
		}
		seen[string(e.line)] = true
		_, body := e.with("-" + strings.Repeat("s", maxSuffix-1))
		var posted struct {
			ID         string            `json:"id"`
			Type       string            `json:"type"`
			Attributes map[string]string `json:"attributes"`
		}
		if err := json.Unmarshal(body, &posted); err != nil || len(posted.ID) > maxEventID {
			t.Fatalf("%s: %v", body, err)
		}
		for _, c := range cast() {
			if c.filter.Matches(delivery.Event{Type: posted.Type, Attributes: posted.Attributes}) {
				gets[c.name]++
			}
		}
	}
	if len(events) < 50 || repeats == 0 {
		t.Errorf("%d events with %d repeats", len(events), repeats)
	}
	for _, c := range cast() {
		if gets[c.name] == 0 {
			t.Errorf("%s gets nothing", c.name)
		}
		if err := c.filter.Validate(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// One that hung again would be given a rest when the file is nearly through.
	if n := gets["hung-erp"]; n <= hangs || n+hangs >= manyRequests {
		t.Errorf("the hanging endpoint gets %d events: it must come back, and stay", n)
	}
	// Each probe of the failing one waits for twice as long as the one before.
	if n := gets["old-crm"]; n > 1 {
		t.Errorf("the failing endpoint gets %d events: the play would not end in time", n)
	}
}

func TestRecentForgetsTheOldest(t *testing.T) {
	t.Parallel()
	var r recent[int]
	key := func(i int) string { return strings.Repeat("k", i%7) + string(rune(i)) }
	for i := range keepRecent + 5 {
		r.put(key(i+1000), i)
		r.put(key(i+1000), i+1)
	}
	if len(r.values) != keepRecent || len(r.order) != keepRecent {
		t.Errorf("keeps %d of %d", len(r.values), len(r.order))
	}
	if r.get(key(1000)) != 0 || r.get(key(1000+keepRecent)) == 0 {
		t.Error("forgot the wrong one")
	}
}
