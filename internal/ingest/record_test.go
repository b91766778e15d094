package ingest

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/oklog/ulid/v2"
)

func TestHashTellsPostsApart(t *testing.T) {
	t.Parallel()
	with := func(edit func(*Post)) Post {
		p := validPost()
		p.Attributes = maps.Clone(p.Attributes)
		edit(&p)
		return p
	}
	posts := map[string]Post{
		"base":                         validPost(),
		"other type":                   with(func(p *Post) { p.Type += "x" }),
		"byte moved from type":         with(func(p *Post) { p.Type, p.ShipmentID = "shipment.delivere", "d"+p.ShipmentID }),
		"other shipment":               with(func(p *Post) { p.ShipmentID += "x" }),
		"same instant, other offset":   with(func(p *Post) { p.OccurredAt = "2026-03-01T00:30:00.5Z" }),
		"same instant, other fraction": with(func(p *Post) { p.OccurredAt = "2026-03-01T09:30:00.50+09:00" }),
		"absent attributes":            with(func(p *Post) { p.Attributes = nil }),
		"one attribute less":           with(func(p *Post) { delete(p.Attributes, "carrier") }),
		"attributes run together":      with(func(p *Post) { p.Attributes = map[string]string{"carrierdhl": "", "seller_ids_1": ""} }),
		"values swapped":               with(func(p *Post) { p.Attributes = map[string]string{"carrier": "s_1", "seller_id": "dhl"} }),
		"data with a blank":            with(func(p *Post) { p.Data = []byte(`{"b":1.0,"a":18446744073709551616, "a":2}`) }),
		"data as another decoder":      with(func(p *Post) { p.Data = []byte(`{"b":1,"a":2}`) }),
	}
	seen := map[string]string{}
	for name, p := range posts {
		h := p.hash()
		if other, ok := seen[h]; ok {
			t.Errorf("%q and %q have one hash", name, other)
		}
		seen[h] = name
		if len(h) > 64 {
			t.Errorf("%s: %d bytes", name, len(h))
		}
	}
	if a, b := validPost().hash(), with(func(p *Post) { p.ID = "other" }).hash(); a != b {
		t.Error("the id is part of the hash")
	}
	none, empty := posts["absent attributes"], with(func(p *Post) { p.Attributes = map[string]string{} })
	if none.hash() != empty.hash() {
		t.Error("no attributes are not the same as absent ones")
	}
	// Pinned: another hash would make every repeat over an upgrade a conflict.
	if got, want := validPost().hash(), "ckX3BFsmeQfC9Fnfe93D-bdDp6haWn-A8o1FE3WkiIw"; got != want {
		t.Errorf("hash is %s, was %s in earlier versions", got, want)
	}
}

func TestMetaRoundTrip(t *testing.T) {
	t.Parallel()
	for _, attrs := range []map[string]string{nil, {}, {"<&>": "\u2028\x00é"}} {
		p := validPost()
		p.Attributes = attrs
		got, err := DecodeMeta(p.meta())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(Meta{p.Type, p.ShipmentID, p.OccurredAt, attrs}, got); diff != "" {
			t.Error(diff)
		}
	}
	if _, err := DecodeMeta([]byte("{")); err == nil {
		t.Error("half an object is read")
	}
}

func TestNewEventID(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_772_000_000_123)
	seen := map[string]bool{}
	for range 1000 {
		id, err := newEventID(now)
		if err != nil {
			t.Fatal(err)
		}
		u, err := ulid.ParseStrict(strings.TrimPrefix(id, "evt_"))
		if err != nil || !u.Timestamp().Equal(now) {
			t.Fatalf("%s: %v", id, err)
		}
		if d := checkID(id); d != "" || seen[id] {
			t.Fatalf("%s: %s, seen %v", id, d, seen[id])
		}
		seen[id] = true
	}
}
