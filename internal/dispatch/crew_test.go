package dispatch

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Attempts one after the other share a goroutine, attempts at once have one each, and
// the end waits for what is still out.
func TestCrewKeepsItsGoroutines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var began, done atomic.Int64
		var seen sync.Map // by the goroutine's number, which heads its stack
		c := newCrew(func(life, *lease) {
			began.Add(1)
			var head [32]byte
			runtime.Stack(head[:], false)
			seen.Store(strings.Fields(string(head[:]))[1], true)
			time.Sleep(time.Second)
			done.Add(1)
		})
		for range 10 {
			for range 3 {
				c.begin(life{}, &lease{})
			}
			after(2 * time.Second)
		}
		spawned := 0
		seen.Range(func(any, any) bool { spawned++; return true })
		if spawned != 3 || done.Load() != 30 {
			t.Errorf("%d goroutines for 3 attempts at once, %d attempts of 30", spawned, done.Load())
		}
		c.begin(life{}, &lease{})
		synctest.Wait()
		c.end()
		if began.Load() != 31 || done.Load() != 31 {
			t.Errorf("the end left %d attempts out", began.Load()-done.Load())
		}
	})
}
