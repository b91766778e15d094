package subscriber_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/subscriber"
)

func TestFilterMatches(t *testing.T) {
	t.Parallel()
	types := func(p ...string) subscriber.Filter { return subscriber.Filter{Types: p} }
	attrs := func(a map[string][]string) subscriber.Filter {
		return subscriber.Filter{Types: []string{"*"}, Attributes: a}
	}
	both := map[string]string{"carrier": "dhl", "seller_id": "s_1"}
	for name, c := range map[string]struct {
		f     subscriber.Filter
		typ   string
		attrs map[string]string
		want  bool
	}{
		"exact":                      {types("shipment.delivered"), "shipment.delivered", nil, true},
		"another type":               {types("shipment.delivered"), "shipment.delivered.late", nil, false},
		"case matters":               {types("shipment.delivered"), "Shipment.delivered", nil, false},
		"prefix":                     {types("shipment.*"), "shipment.delivered", nil, true},
		"prefix at depth":            {types("shipment.*"), "shipment.delivered.late.by.far", nil, true},
		"prefix is not itself":       {types("shipment.*"), "shipment", nil, false},
		"prefix and a bare dot":      {types("shipment.*"), "shipment.", nil, false},
		"prefix is whole parts":      {types("ship.*"), "shipment.delivered", nil, false},
		"deep prefix":                {types("shipment.delivered.*"), "shipment.delivered", nil, false},
		"any type":                   {types("*"), "x", nil, true},
		"one of several":             {types("a", "b.*", "c"), "b.x", nil, true},
		"none of several":            {types("a", "b.*", "c"), "d", nil, false},
		"no patterns":                {types(), "a", nil, false},
		"value":                      {attrs(map[string][]string{"carrier": {"dhl"}}), "a", both, true},
		"any value":                  {attrs(map[string][]string{"carrier": {"ups", "dhl"}}), "a", both, true},
		"other value":                {attrs(map[string][]string{"carrier": {"ups"}}), "a", both, false},
		"all keys":                   {attrs(map[string][]string{"carrier": {"dhl"}, "seller_id": {"s_1"}}), "a", both, true},
		"not all keys":               {attrs(map[string][]string{"carrier": {"dhl"}, "seller_id": {"s_2"}}), "a", both, false},
		"key missing":                {attrs(map[string][]string{"country": {"FI"}}), "a", both, false},
		"missing is not empty":       {attrs(map[string][]string{"country": {""}}), "a", both, false},
		"empty is empty":             {attrs(map[string][]string{"country": {""}}), "a", map[string]string{"country": ""}, true},
		"attributes fit, type not":   {subscriber.Filter{Types: []string{"b"}, Attributes: map[string][]string{"carrier": {"dhl"}}}, "a", both, false},
		"a key without values fails": {attrs(map[string][]string{"carrier": {}}), "a", both, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := c.f.Matches(delivery.Event{Type: c.typ, Attributes: c.attrs}); got != c.want {
				t.Errorf("%+v matches %q %v: %v, want %v", c.f, c.typ, c.attrs, got, c.want)
			}
		})
	}
}

func TestFilterValidate(t *testing.T) {
	t.Parallel()
	repeat := func(n int, f func(i int) string) (s []string) {
		for i := range n {
			s = append(s, f(i))
		}
		return s
	}
	numbered := func(i int) string { return fmt.Sprint("v", i) }
	keys := func(n int) map[string][]string {
		m := map[string][]string{}
		for _, k := range repeat(n, numbered) {
			m[k] = []string{"x"}
		}
		return m
	}
	for name, c := range map[string]struct {
		f    subscriber.Filter
		want []string // fields, in order
	}{
		"patterns":        {subscriber.Filter{Types: []string{"*", "a", "a.b-c_d.9", "a.*", "a.b.*"}}, nil},
		"no patterns":     {subscriber.Filter{}, []string{"types"}},
		"64 patterns":     {subscriber.Filter{Types: repeat(64, numbered)}, nil},
		"65 patterns":     {subscriber.Filter{Types: repeat(65, numbered)}, []string{"types"}},
		"type of 128":     {subscriber.Filter{Types: []string{strings.Repeat("a", 128)}}, nil},
		"type of 129":     {subscriber.Filter{Types: []string{strings.Repeat("a", 129)}}, []string{"types/0"}},
		"bad patterns":    {subscriber.Filter{Types: []string{"ok", "", "a.", ".a", "a..b", ".*", "*.a", "a*", "a.*.b", "a b", "ä", "**", "A.b"}}, fieldsOf("types", 1, 12)},
		"16 keys":         {subscriber.Filter{Types: []string{"*"}, Attributes: keys(16)}, nil},
		"17 keys":         {subscriber.Filter{Types: []string{"*"}, Attributes: keys(17)}, []string{"attributes"}},
		"no values":       {subscriber.Filter{Types: []string{"*"}, Attributes: map[string][]string{"k": nil}}, []string{"attributes/k"}},
		"256 values":      {subscriber.Filter{Types: []string{"*"}, Attributes: map[string][]string{"k": repeat(256, numbered)}}, nil},
		"257 values":      {subscriber.Filter{Types: []string{"*"}, Attributes: map[string][]string{"k": repeat(257, numbered)}}, []string{"attributes"}},
		"empty key":       {subscriber.Filter{Types: []string{"*"}, Attributes: map[string][]string{"": {"x"}}}, []string{"attributes/"}},
		"long key":        {subscriber.Filter{Types: []string{"*"}, Attributes: map[string][]string{strings.Repeat("k", 65): {"x"}}}, []string{"attributes/" + strings.Repeat("k", 65)}},
		"awkward key":     {subscriber.Filter{Types: []string{"*"}, Attributes: map[string][]string{"a/b~c": nil}}, []string{"attributes/a~1b~0c"}},
		"value of 256":    {subscriber.Filter{Types: []string{"*"}, Attributes: map[string][]string{"k": {strings.Repeat("ä", 256), ""}}}, nil},
		"value of 257":    {subscriber.Filter{Types: []string{"*"}, Attributes: map[string][]string{"k": {"x", strings.Repeat("v", 257)}}}, []string{"attributes/k/1"}},
		"value not UTF-8": {subscriber.Filter{Types: []string{"*"}, Attributes: map[string][]string{"k": {"\xff"}}}, []string{"attributes/k/0"}},
		"all at once":     {subscriber.Filter{Types: []string{"a.", "b"}, Attributes: map[string][]string{"a": nil, "b": {"\xff"}}}, []string{"types/0", "attributes/a", "attributes/b/0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			if err := c.f.Validate(); err != nil {
				joined, ok := err.(interface{ Unwrap() []error })
				if !ok {
					t.Fatalf("%v is not joined", err)
				}
				for _, e := range joined.Unwrap() {
					var f delivery.FieldError
					if !errors.As(e, &f) {
						t.Fatalf("%v is not a FieldError", e)
					}
					got = append(got, f.Field)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("problems at %v, want %v", got, c.want)
			}
		})
	}
}

func fieldsOf(parent string, first, last int) (s []string) {
	for i := first; i <= last; i++ {
		s = append(s, fmt.Sprintf("%s/%d", parent, i))
	}
	return s
}

func TestPatternRefusals(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		"Shipment.delivered":     `has upper-case letters, which no event's type has: it would never match. Send "shipment.delivered"`,
		"SHIPMENT.*":             `Send "shipment.*"`,
		"Ä.b":                    `"Ä.b" must be a type`,
		"A..b":                   `"A..b" must be a type`,
		strings.Repeat("ä", 128): "must be a type", // 128 characters, 256 bytes: it is not too long
		strings.Repeat("ä", 129): "is 129 characters long, must be at most 128",
		strings.Repeat("A", 129): "is 129 characters long, must be at most 128",
	} {
		err := subscriber.Filter{Types: []string{pattern}}.Validate()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", pattern, err, want)
		}
	}
}
