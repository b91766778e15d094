//go:build crashpoints

package crash

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

var (
	at, nth = read(os.Getenv("FANOUT_CRASH_AT"))
	passes  atomic.Int64
)

// read splits "name#n": the process dies at the nth pass of a point, by default the
// first.
func read(text string) (name string, nth int64) {
	name, count, found := strings.Cut(text, "#")
	if !found {
		return name, 1
	}
	nth, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		panic("FANOUT_CRASH_AT: " + err.Error())
	}
	return name, nth
}

// Point ends the process as kill -9 does, if it is the one to die at: no deferred
// call runs, no buffer is flushed. Nothing but the last line of its standard error
// tells where it was.
func Point(name string) {
	if name != at || passes.Add(1) != nth {
		return
	}
	fmt.Fprintf(os.Stderr, "{\"msg\":\"crash point\",\"name\":%q}\n", name)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way: no further step
}
