package schedule

import (
	"regexp"
	"strings"
	"testing"
)

func TestSlotIsThatOfTheClusterSpecification(t *testing.T) {
	t.Parallel()
	// CRC16("123456789") is 0x31C3 in the specification's appendix.
	if got := slot("123456789"); got != 0x31C3 {
		t.Fatalf("slot %d", got)
	}
}

// Whatever even split of the slots a cluster has, its primaries hold as many
// partitions each.
func TestPartitionsLieEvenlyOverPrimaries(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"", "e"} {
		for _, primaries := range []int{2, 3, 4, 6, 8} {
			held := make([]int, primaries)
			for _, prefix := range tags(kind, 48) {
				tag := strings.Trim(strings.TrimSuffix(prefix, ":"), "{}")
				held[slot(tag)*primaries/slots]++
			}
			for _, n := range held {
				if n != 48/primaries {
					t.Errorf("%q over %d primaries: %v", kind, primaries, held)
				}
			}
		}
	}
}

// Each script names what it needs of its caller, and each is loaded.
func TestScriptHeaders(t *testing.T) {
	t.Parallel()
	entries, err := luaFiles.ReadDir("lua")
	if err != nil {
		t.Fatal(err)
	}
	parts := 0
	for _, e := range entries {
		text := file(strings.TrimSuffix(e.Name(), ".lua"))
		if !strings.Contains(text, "KEYS[1]  ") {
			parts++ // of others
			continue
		}
		for _, want := range []string{`^-- ` + e.Name() + `: `, `\n-- KEYS\[1\]  `, `\n-- ARGV     `, `\n-- Returns  `} {
			if !regexp.MustCompile(want).MatchString(text) {
				t.Errorf("%s: its header does not say %q", e.Name(), want)
			}
		}
	}
	if n := len(entries) - parts; n != len(loadScripts("").texts) {
		t.Errorf("%d scripts in lua/, %d loaded", n, len(loadScripts("").texts))
	}
}
