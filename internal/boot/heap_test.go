package boot

import (
	"runtime"
	"testing"
)

// The environment is set: nothing here runs in parallel.
func TestSpareHeap(t *testing.T) {
	for name, set := range map[string]map[string]string{
		"nothing is set": {}, "GOGC is set": {"GOGC": "100"}, "GOMEMLIMIT is set": {"GOMEMLIMIT": "1GiB"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, key := range []string{"GOGC", "GOMEMLIMIT"} {
				t.Setenv(key, set[key])
			}
			SpareHeap()
			t.Cleanup(func() { ballast.Store(nil) })
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			room := m.NextGC - m.HeapAlloc
			if spare := room >= ballastBytes; spare != (len(set) == 0) {
				t.Errorf("%d MiB of garbage until the next collection", room>>20)
			}
		})
	}
}
