package delivery

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestNewIDGolden pins ids: receivers dedupe on them, and the partition of every
// stored delivery is read out of them.
func TestNewIDGolden(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ event, subscriber, want string }{
		{"evt_1", "sub_1", "dlv_13a0qtwv8yd09zkf0r18mafg"},
		{"evt_01J", "sub_01J", "dlv_4dac8vq3rswcqwem7xgy3wp0"},
		{"", "", "dlv_e3b0drt0q77zpdx9h7558kk0"},
		{"ab", "c", "dlv_2e7ddg1jwrrx76gmv1dfyzhg"},
		{"a", "bc", "dlv_1e0b82xn8zckdeyk2ccewdx0"},
	} {
		if got := NewID(c.event, c.subscriber); got != c.want {
			t.Errorf("%q for %q is %s, want %s", c.event, c.subscriber, got, c.want)
		}
	}
	if got := Hash16("sub_1"); got != 5024 { // 0x13a0, as in the first id
		t.Errorf("hash of sub_1 is %d", got)
	}
}

func TestIDCarriesItsPartition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		event, sub := rapid.String().Draw(t, "event"), rapid.String().Draw(t, "subscriber")
		id := NewID(event, sub)
		h, err := IDHash16(id)
		if err != nil || h != Hash16(sub) || len(id) != idLen || id != NewID(event, sub) {
			t.Fatalf("%s: %04x, %v, want %04x", id, h, err, Hash16(sub))
		}
	})
}

func TestIDsAreDistinct(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for e := range 100 {
		for s := range 100 {
			seen[NewID(fmt.Sprint("evt_", e), fmt.Sprint("sub_", s))] = true
		}
	}
	if len(seen) != 100*100 {
		t.Errorf("%d ids for %d pairs", len(seen), 100*100)
	}
}

func TestIDHash16Refuses(t *testing.T) {
	t.Parallel()
	good := NewID("evt_1", "sub_1")
	for _, id := range []string{
		"", "dlv_", good[:len(good)-1], good + "0", " " + good[1:], "DLV_" + good[4:],
		strings.ToUpper(good), "evt_" + good[4:],
		"dlv_xyz0" + good[8:], "dlv_+3a0" + good[8:], "dlv_0x3a" + good[8:], "dlv_1_a0" + good[8:],
		good[:8] + "l" + good[9:], good[:8] + "é" + good[10:], good[:27] + "\n",
	} {
		if h, err := IDHash16(id); !errors.Is(err, ErrBadID) {
			t.Errorf("%q: %d, %v", id, h, err)
		}
	}
	if _, err := IDHash16(good); err != nil {
		t.Error(err)
	}
}
