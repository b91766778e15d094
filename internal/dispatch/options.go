package dispatch

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Options of a Dispatcher. The zero value of every field means its default.
type Options struct {
	// Worker names this process in leases and evidence. It must be unique to the
	// life of the process: the scheduler answers a repeated seq of one worker with
	// its former leases. One word without "=". Default: host-pid-random.
	Worker string
	// Version of the binary, for the evidence.
	Version string
	// Slice is what the operator calls the part of the fleet that this worker belongs
	// to; it stands in its reports. May be "".
	Slice string
	// Slots is how many leases are held at once; default 100.
	Slots int
	// RetryShare and RedriveShare are the parts of the slots that retries and
	// redrives may use, from 0 to 1; default 0.75 and 0.10. Each lane gets at
	// least one slot. Fresh deliveries may use all.
	RetryShare, RedriveShare float64
	// Grace is how long a stop lets requests on the wire finish; default 30s. It
	// should be above the longest attempt timeout, or those are cut off.
	Grace time.Duration
	// SafetyPoll is how often all partitions are asked though nothing announced
	// work, in case an announcement was lost; default 1s.
	SafetyPoll time.Duration
	// ReapEvery is how often expired leases and deliveries are looked for;
	// default 1s.
	ReapEvery time.Duration
	// Classes are the configured subscriber classes: the values of the metrics'
	// label. A subscriber of another is counted as "other".
	Classes []string

	Logger         *slog.Logger          // default slog.Default()
	Registerer     prometheus.Registerer // nil: metrics are kept and shown to nobody
	TracerProvider trace.TracerProvider  // default: no traces
}

func (o Options) withDefaults() Options {
	if o.Worker == "" {
		o.Worker = workerName()
	}
	if o.Slots <= 0 {
		o.Slots = 100
	}
	if o.RetryShare <= 0 {
		o.RetryShare = 0.75
	}
	if o.RedriveShare <= 0 {
		o.RedriveShare = 0.10
	}
	if o.Grace <= 0 {
		o.Grace = 30 * time.Second
	}
	if o.SafetyPoll <= 0 {
		o.SafetyPoll = time.Second
	}
	if o.ReapEvery <= 0 {
		o.ReapEvery = time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.TracerProvider == nil {
		o.TracerProvider = noop.NewTracerProvider()
	}
	return o
}

// workerName tells a person where to look, and by its random end never repeats:
// a container's pid is 1 in each of its lives.
func workerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), rand.Text()[:10])
}
