package fault_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/fanout/fanout/internal/fault"
)

func TestNothingWrongIsNoError(t *testing.T) {
	t.Parallel()
	var none fault.List
	if err := none.Err("event"); err != nil {
		t.Errorf("an empty list is %v", err)
	}
	if err := none.Sorted().Err("event"); err != nil {
		t.Errorf("an empty list is %v when sorted", err)
	}
}

// TestOneErrorTellsAll: in the order in which it was found, or by pointer.
func TestOneErrorTellsAll(t *testing.T) {
	t.Parallel()
	var l fault.List
	l.Addf("/url", "is required")
	l.Addf("", "is of no use")
	l.Addf("/attributes/"+fault.Escape("a/b~c"), "is %d characters long", 300)
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"as found":   {slices.Clone(l).Err("subscriber"), "invalid subscriber: /url is required; is of no use; /attributes/a~1b~0c is 300 characters long"},
		"by pointer": {slices.Clone(l).Sorted().Err("event"), "invalid event: is of no use; /attributes/a~1b~0c is 300 characters long; /url is required"},
	} {
		bad, ok := errors.AsType[*fault.Invalid](tt.err)
		if !ok || len(bad.Fields) != 3 || bad.Error() != tt.want {
			t.Errorf("%s: %v, want %s", name, tt.err, tt.want)
		}
	}
}
