package boot

import (
	"os"
	"sync/atomic"
)

// ballastBytes of heap are claimed and never touched.
const ballastBytes = 64 << 20

// ballast is what is claimed: no page of it is ever written, so it takes address
// space and no memory.
var ballast atomic.Pointer[[]byte]

// SpareHeap lets 64 MiB more of garbage gather before it is collected, and so the
// process take that much more memory. What it keeps is a few MB, and by default the
// heap may but double between two collections, which took a quarter of the API's CPU
// (GOGC 100: 0.40 ms a post at a fan-out of 10; GOGC 400: 0.29).
// A greater GOGC does the same for a small heap, and too much to a great one: it
// multiplies, so that 200 MB of subscribers would take 1 GB. This adds.
//
// It does nothing if GOGC or GOMEMLIMIT is set: then somebody has decided.
func SpareHeap() {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	spare := make([]byte, ballastBytes)
	ballast.CompareAndSwap(nil, &spare) // once a process, whoever asks
}
