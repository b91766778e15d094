package subscriber

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/fanout/fanout/internal/delivery"
)

// FuzzFilter: of a filter that is taken nothing is lost when it is stored, the index
// finds what the definition says, and a type that fits a pattern is below its stem.
func FuzzFilter(f *testing.F) {
	for _, s := range [][7]string{
		{"shipment.*", "*", "carrier", "dhl", "shipment.delivered", "carrier", "dhl"},
		{"a", "a.*", "k", "", "a.b", "k", ""},
		{"a.b.*", "a-b_0", "é", "\u2028", "a.b", "e\u0301", "\u2028"},
		{"", ".*", "", "x", ".", "", "x"},
		{"A.*", "*.a", "\xff", "\x00", "**", "\xff", "\x00"},
		{"a..b", "a.", "k~/", "v", "a.*", "k~/", "V"},
	} {
		f.Add(s[0], s[1], s[2], s[3], s[4], s[5], s[6])
	}
	f.Fuzz(func(t *testing.T, one, two, key, value, typ, eventKey, eventValue string) {
		filter := Filter{Types: []string{one, two}, Attributes: map[string][]string{key: {value, "other"}}}
		for _, x := range []Filter{filter, {Types: []string{one, two}}, {Types: []string{two}}} {
			if x.Validate() != nil {
				continue
			}
			b, err := json.Marshal(x)
			if err != nil {
				t.Fatal(err)
			}
			var stored Filter
			if err := json.Unmarshal(b, &stored); err != nil || !reflect.DeepEqual(stored, x) {
				t.Fatalf("%+v is stored as %s and read as %+v, %v", x, b, stored, err)
			}
			e := delivery.Event{Type: typ, Attributes: map[string]string{eventKey: eventValue}}
			by := newIndex()
			by.put(&Subscriber{ID: "sub_1", Filter: x})
			if found := len(by.snapshot().match(e)) == 1; found != x.Matches(e) {
				t.Fatalf("%+v and %+v: by definition %t, by the index %t", x, e, x.Matches(e), found)
			}
			if again := len(by.snapshot().match(e)) == 1; again != stored.Matches(e) {
				t.Fatalf("%+v matches otherwise once it is stored", x)
			}
		}
	})
}
