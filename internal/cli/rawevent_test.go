package cli

import "testing"

// Only the member that is set changes; blanks, order, escapes and repeated names stay.
func TestRawEventIsChangedWhereItMust(t *testing.T) {
	t.Parallel()
	set := []field{{"id", []byte(`"new"`)}, {"data", []byte(`{"z":1.0}`)}}
	for in, want := range map[string]string{
		`{}`:  `{"id":"new","data":{"z":1.0}}`,
		`{ }`: `{"id":"new","data":{"z":1.0} }`,
		"{ \"x\" : \"\\u003c\" ,\n \"data\":\t[ 1 ], \"id\" : 7  } ": "{ \"x\" : \"\\u003c\" ,\n \"data\":\t{\"z\":1.0}, \"id\" : \"new\"  } ",
		`{"a":1,"a":{"id":"inner"}}`:                                 `{"id":"new","data":{"z":1.0},"a":1,"a":{"id":"inner"}}`,
		`{"ID":"other"}`:                                             `{"id":"new","data":{"z":1.0},"ID":"other"}`,
	} {
		got, err := rawEvent(in).with(set...)
		if err != nil || string(got) != want {
			t.Errorf("%s\nbecame %s, %v\nwant   %s", in, got, err, want)
		}
	}
	for _, in := range []string{`[]`, `"x"`, `null`} {
		if got, err := rawEvent(in).with(set...); err == nil {
			t.Errorf("%s became %s", in, got)
		}
	}
}
