package ingest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fanout/fanout/internal/fault"
	"github.com/fanout/fanout/internal/subscriber"
)

func TestValidation(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return strings.Repeat("x", n) }
	attrs := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprint("k", i)] = "v"
		}
		return m
	}
	str := func(n int) json.RawMessage { return json.RawMessage(`"` + long(n-2) + `"`) }
	nested := func(n int) json.RawMessage {
		return json.RawMessage(strings.Repeat(`{"a":[`, n/2) + strings.Repeat("[", n%2) + strings.Repeat("]", n%2) + strings.Repeat(`]}`, n/2))
	}
	tests := []struct {
		name string
		edit func(*Post)
		want string // pointer of the one problem, "" for none
		says string // part of its detail
	}{
		{"as it should be", func(*Post) {}, "", ""},
		{"no id", func(p *Post) { p.ID = "" }, "", ""},
		{"id at its bound", func(p *Post) { p.ID = long(60) + "._:-" }, "", ""},
		{"id too long", func(p *Post) { p.ID = long(65) }, "/id", "65 characters"},
		{"id with a blank", func(p *Post) { p.ID = "a b" }, "/id", "A-Z a-z 0-9"},
		{"id with a slash", func(p *Post) { p.ID = "a/b" }, "/id", "leave it out"},
		{"id with an umlaut", func(p *Post) { p.ID = "ä" }, "/id", "A-Z"},
		{"id with a brace", func(p *Post) { p.ID = "{x}" }, "/id", "A-Z"},
		{"id of one dot", func(p *Post) { p.ID = "." }, "/id", "choose another"},
		{"id of two dots", func(p *Post) { p.ID = ".." }, "/id", "choose another"},
		{"id of three dots", func(p *Post) { p.ID = "..." }, "", ""},
		{"id with dots", func(p *Post) { p.ID = "..a" }, "", ""},
		{"id with a NUL", func(p *Post) { p.ID = "a\x00" }, "/id", "A-Z"},

		{"no type", func(p *Post) { p.Type = "" }, "/type", "missing or empty"},
		{"one word", func(p *Post) { p.Type = "ping" }, "", ""},
		{"underscore, hyphen and digit", func(p *Post) { p.Type = "shipment.out_for-delivery2" }, "", ""},
		{"type at its bound", func(p *Post) { p.Type = "a." + long(126) }, "", ""},
		{"type too long", func(p *Post) { p.Type = long(129) }, "/type", "129 characters"},
		{"type in capitals", func(p *Post) { p.Type = "Shipment.delivered" }, "/type", "a-z"},
		{"type with two dots", func(p *Post) { p.Type = "shipment..delivered" }, "/type", "single dots"},
		{"type with a last dot", func(p *Post) { p.Type = "shipment." }, "/type", "single dots"},
		{"type with a star", func(p *Post) { p.Type = "shipment.*" }, "/type", "a-z"},
		{"the test's type", func(p *Post) { p.Type = "fanout.test" }, "/type", "reserved"},
		{"another reserved type", func(p *Post) { p.Type = "fanout.shipment.delivered" }, "/type", "reserved"},
		{"nearly a reserved type", func(p *Post) { p.Type = "fanouts.test" }, "", ""},
		{"one word that is no reserved type", func(p *Post) { p.Type = "fanout" }, "", ""},
		{"type not UTF-8", func(p *Post) { p.Type = "a\xff" }, "/type", "a-z"},

		{"no shipment", func(p *Post) { p.ShipmentID = "" }, "/shipment_id", "missing or empty"},
		{"shipment in any script", func(p *Post) { p.ShipmentID = "荷物 12/Ä" }, "", ""},
		{"shipment at its bound", func(p *Post) { p.ShipmentID = strings.Repeat("ä", 128) }, "", ""},
		{"shipment too long", func(p *Post) { p.ShipmentID = strings.Repeat("ä", 129) }, "/shipment_id", "129"},
		{"shipment with a line break", func(p *Post) { p.ShipmentID = "a\nb" }, "/shipment_id", "printed"},
		{"shipment with a right-to-left mark", func(p *Post) { p.ShipmentID = "a\u202eb" }, "/shipment_id", "printed"},
		{"shipment of blanks", func(p *Post) { p.ShipmentID = "  " }, "/shipment_id", "nothing but blanks"},
		{"shipment with blanks around", func(p *Post) { p.ShipmentID = " a " }, "", ""},
		{"shipment not UTF-8", func(p *Post) { p.ShipmentID = "a\xff" }, "/shipment_id", "UTF-8"},

		{"no time", func(p *Post) { p.OccurredAt = "" }, "/occurred_at", "missing or empty"},
		{"UTC", func(p *Post) { p.OccurredAt = "2026-02-28T23:59:59Z" }, "", ""},
		{"unknown local offset", func(p *Post) { p.OccurredAt = "2026-02-28T23:59:59-00:00" }, "", ""},
		{"nanoseconds, quarter offset", func(p *Post) { p.OccurredAt = "2026-02-28T23:59:59.123456789+05:45" }, "", ""},
		{"no offset", func(p *Post) { p.OccurredAt = "2026-02-28T23:59:59" }, "/occurred_at", "no offset"},
		{"no offset, fraction", func(p *Post) { p.OccurredAt = "2026-02-28T23:59:59.5" }, "/occurred_at", "no offset"},
		{"day that is not", func(p *Post) { p.OccurredAt = "2026-02-29T00:00:00Z" }, "/occurred_at", "does not exist"},
		{"leap second", func(p *Post) { p.OccurredAt = "2026-12-31T23:59:60Z" }, "/occurred_at", "leap second (:60)"},
		{"second that is not", func(p *Post) { p.OccurredAt = "2026-12-31T23:59:61Z" }, "/occurred_at", "does not exist"},
		{"year 0000", func(p *Post) { p.OccurredAt = "0000-12-31T23:59:59Z" }, "/occurred_at", "years 0001 to 9999"},
		{"year 0000 in UTC", func(p *Post) { p.OccurredAt = "0001-01-01T00:00:00+01:00" }, "/occurred_at", "years 0001 to 9999"},
		{"year 0000 but for UTC", func(p *Post) { p.OccurredAt = "0000-12-31T23:59:59-01:00" }, "/occurred_at", "years 0001 to 9999"},
		{"year 10000 in UTC", func(p *Post) { p.OccurredAt = "9999-12-31T23:59:59-01:00" }, "/occurred_at", "years 0001 to 9999"},
		{"first second", func(p *Post) { p.OccurredAt = "0001-01-01T00:00:00Z" }, "", ""},
		{"last second", func(p *Post) { p.OccurredAt = "9999-12-31T23:59:59.999999999Z" }, "", ""},
		{"lower-case t", func(p *Post) { p.OccurredAt = "2026-02-28t00:00:00Z" }, "/occurred_at", "write T and Z"},
		{"lower-case z", func(p *Post) { p.OccurredAt = "2026-02-28T00:00:00z" }, "/occurred_at", "write T and Z"},
		{"blank instead of T", func(p *Post) { p.OccurredAt = "2026-02-28 00:00:00Z" }, "/occurred_at", "write a T"},
		{"comma fraction", func(p *Post) { p.OccurredAt = "2026-02-28T00:00:00,5Z" }, "/occurred_at", "RFC 3339"},
		{"one-digit hour", func(p *Post) { p.OccurredAt = "2026-02-28T1:00:00Z" }, "/occurred_at", "RFC 3339"},
		{"offset of a day", func(p *Post) { p.OccurredAt = "2026-02-28T00:00:00+24:00" }, "/occurred_at", "RFC 3339"},
		{"offset without colon", func(p *Post) { p.OccurredAt = "2026-02-28T00:00:00+0100" }, "/occurred_at", "RFC 3339"},
		{"a number", func(p *Post) { p.OccurredAt = "1772270999" }, "/occurred_at", "RFC 3339"},
		{"endless fraction", func(p *Post) { p.OccurredAt = "2026-02-28T00:00:00." + strings.Repeat("1", 64) + "Z" }, "/occurred_at", "85 characters"},

		{"no attributes", func(p *Post) { p.Attributes = nil }, "", ""},
		{"sixteen attributes", func(p *Post) { p.Attributes = attrs(16) }, "", ""},
		{"seventeen attributes", func(p *Post) { p.Attributes = attrs(17) }, "/attributes", "at most 16"},
		{"empty value", func(p *Post) { p.Attributes = map[string]string{"k": ""} }, "", ""},
		{"attribute at its bounds", func(p *Post) { p.Attributes = map[string]string{long(64): strings.Repeat("ä", 256)} }, "", ""},
		{"empty key", func(p *Post) { p.Attributes = map[string]string{"": "v"} }, "/attributes", "empty key"},
		{"key too long", func(p *Post) { p.Attributes = map[string]string{long(65): "v"} }, "/attributes", "65 characters"},
		{"key not UTF-8", func(p *Post) { p.Attributes = map[string]string{"\xff": "v"} }, "/attributes", "UTF-8"},
		{"value too long", func(p *Post) { p.Attributes = map[string]string{"a/b~c": long(257)} }, "/attributes/a~1b~0c", "257 characters"},
		{"value not UTF-8", func(p *Post) { p.Attributes = map[string]string{"k": "\xff"} }, "/attributes/k", "UTF-8"},

		{"no data", func(p *Post) { p.Data = nil }, "/data", "missing"},
		{"null", func(p *Post) { p.Data = json.RawMessage(`null`) }, "", ""},
		{"a number of 309 digits", func(p *Post) { p.Data = json.RawMessage("1" + strings.Repeat("0", 309)) }, "", ""},
		{"a lone surrogate, escaped", func(p *Post) { p.Data = json.RawMessage(`"\ud800"`) }, "/data", "half of a surrogate pair"},
		{"the low half first", func(p *Post) { p.Data = json.RawMessage(`["\uDE00\uD83D"]`) }, "/data", "half of a surrogate pair"},
		{"two high halves", func(p *Post) { p.Data = json.RawMessage(`{"a":"\ud83d\ud83d\ude00"}`) }, "/data", "half of a surrogate pair"},
		{"half, and another escape", func(p *Post) { p.Data = json.RawMessage(`"\ud83d\n\ude00"`) }, "/data", "half of a surrogate pair"},
		{"half in a name", func(p *Post) { p.Data = json.RawMessage(`{"\udfff":1}`) }, "/data", "half of a surrogate pair"},
		{"whole pairs", func(p *Post) { p.Data = json.RawMessage(`{"\ud83d\ude00":"\uD83D\uDE00\u00e9\ufffd\\"}`) }, "", ""},
		{"no escape", func(p *Post) { p.Data = json.RawMessage(`"\\ud800"`) }, "", ""},
		{"blanks around", func(p *Post) { p.Data = json.RawMessage(" [1 ,\n2]\t") }, "", ""},
		{"data at its bound", func(p *Post) { p.Data = str(256 << 10) }, "", ""},
		{"data too long", func(p *Post) { p.Data = str(256<<10 + 1) }, "/data", "262145 bytes"},
		{"data not UTF-8", func(p *Post) { p.Data = json.RawMessage("\"\xff\"") }, "/data", "UTF-8"},
		{"data not JSON", func(p *Post) { p.Data = json.RawMessage(`{"a":}`) }, "/data", "at byte 6"},
		{"two values", func(p *Post) { p.Data = json.RawMessage(`1 2`) }, "/data", "one JSON value"},
		{"blank data", func(p *Post) { p.Data = json.RawMessage(` `) }, "/data", "one JSON value"},
		{"a byte order mark", func(p *Post) { p.Data = json.RawMessage("\ufeff1") }, "/data", "one JSON value"},
		{"as deep as may be", func(p *Post) { p.Data = nested(64) }, "", ""},
		{"brackets in strings", func(p *Post) { p.Data = json.RawMessage(`"\\\"` + strings.Repeat("[", 80) + `"`) }, "", ""},
		{"a bit too deep", func(p *Post) { p.Data = nested(65) }, "/data", "64 deep"},
		{"too deep", func(p *Post) { p.Data = nested(20_000) }, "/data", "depth"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 2, Options{})
			p := validPost()
			tt.edit(&p)
			_, err := b.Submit(t.Context(), p)
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var bad *fault.Invalid
			if !errors.As(err, &bad) || len(bad.Fields) != 1 {
				t.Fatalf("got %v, want one problem", err)
			}
			if f := bad.Fields[0]; f.Pointer != tt.want || !strings.Contains(f.Detail, tt.says) {
				t.Errorf("got %q %q, want %q saying %q", f.Pointer, f.Detail, tt.want, tt.says)
			}
			if len(b.store.calls) > 0 {
				t.Errorf("an invalid post reached the store: %v", b.store.calls)
			}
			if len(err.Error()) > 300 {
				t.Errorf("an error of %d bytes echoes what was sent", len(err.Error()))
			}
		})
	}
}

func TestValidationReportsAllAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, Options{})
	_, err := b.Submit(t.Context(), Post{ID: "a b", Attributes: map[string]string{"": "", "k": "\xff"}})
	var bad *fault.Invalid
	if !errors.As(err, &bad) {
		t.Fatalf("got %v", err)
	}
	var got []string
	for _, f := range bad.Fields {
		got = append(got, f.Pointer)
	}
	want := []string{"/id", "/type", "/shipment_id", "/occurred_at", "/attributes", "/attributes/k", "/data"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if s := err.Error(); !strings.HasPrefix(s, "invalid event: /id ") || !strings.Contains(s, "; /data ") {
		t.Errorf("error reads %q", s)
	}
}

// TestOnlyATestHasAReservedType: what a receiver is told to drop is made here alone, in
// a batch too.
func TestOnlyATestHasAReservedType(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, Options{})
	p := validPost()
	p.Type = "fanout.test"
	if _, err := b.SubmitTo(t.Context(), p, &subscriber.Subscriber{ID: "sub_1"}); err != nil {
		t.Errorf("a test: %v", err)
	}
	if bad, ok := errors.AsType[*fault.Invalid](p.Check()); !ok || bad.Fields[0].Pointer != "/type" {
		t.Errorf("a check finds %v", p.Check())
	}
	if bad, ok := errors.AsType[*fault.Invalid](b.SubmitBatch(t.Context(), []Post{p})[0].Err); !ok || bad.Fields[0].Pointer != "/type" {
		t.Error("in a batch it is taken")
	}
}

// FuzzSubmit: no post makes Submit panic, and of an accepted one nothing is
// changed on its way to the wire.
func FuzzSubmit(f *testing.F) {
	p := validPost()
	f.Add(p.ID, p.Type, p.ShipmentID, p.OccurredAt, "carrier", "dhl", []byte(p.Data))
	f.Add("", "a.b", "\u2028", "2026-02-28T23:59:59Z", "<&>", "\u2029\x00", []byte(` {"a":1,"a":1.0} `))
	f.Add("\xff", ".", "\t", "0000-01-01T00:00:00+23:59", "", "\xc0", []byte("\x00"))
	f.Add("x", "x", "x", "2026-02-28T23:59:60Z", "~/", "", []byte(`"\ud800\\\""`))
	f.Fuzz(func(t *testing.T, id, typ, shipment, at, key, value string, data []byte) {
		b := setup(t, 1, Options{})
		p := Post{ID: id, Type: typ, ShipmentID: shipment, OccurredAt: at, Attributes: map[string]string{key: value}, Data: data}
		r, err := b.Submit(t.Context(), p)
		if err != nil {
			var bad *fault.Invalid
			if !errors.As(err, &bad) || len(bad.Fields) == 0 {
				t.Fatalf("refused without saying why: %v", err)
			}
			return
		}
		e := b.store.events[r.ID]
		if !strings.HasSuffix(string(e.Body), `,"data":`+string(data)+`}`) || !json.Valid(e.Body) {
			t.Fatalf("data %q became %q", data, e.Body)
		}
		m, err := DecodeMeta(e.Meta)
		if err != nil || m.Type != typ || m.ShipmentID != shipment || m.OccurredAt != at || m.Attributes[key] != value {
			t.Fatalf("meta %+v of %+v: %v", m, p, err)
		}
		if again, err := b.Submit(t.Context(), Post{r.ID, typ, shipment, at, p.Attributes, data}); err != nil || !again.Duplicate {
			t.Fatalf("the same post again: %+v %v", again, err)
		}
	})
}
