package ingest

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fanout/fanout/internal/fault"
	"github.com/fanout/fanout/internal/schedule"
)

// The results of a Submit, bounded because they are a metric's label.
const (
	resultAccepted    = "accepted"
	resultDuplicate   = "duplicate"
	resultConflict    = "conflict"
	resultInvalid     = "invalid"
	resultUnavailable = "unavailable"
	resultFull        = "full"
	resultError       = "error" // max_fanout, and what nobody foresaw
)

var results = []string{
	resultAccepted, resultDuplicate, resultConflict, resultInvalid,
	resultUnavailable, resultFull, resultError,
}

type metrics struct {
	total    *prometheus.CounterVec
	duration prometheus.Histogram
	resumed  prometheus.Counter
	late     prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		total: f.NewCounterVec(prometheus.CounterOpts{
			Name: "fanout_ingest_total",
			Help: "Posted events by what became of them.",
		}, []string{"result"}),
		duration: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "fanout_ingest_duration_seconds",
			Help:    "Time from a post to its answer, expansion included.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
		resumed: f.NewCounter(prometheus.CounterOpts{
			Name: "fanout_expand_resumed_total",
			Help: "Events whose expansion was left open by one process and finished later.",
		}),
		late: f.NewCounter(prometheus.CounterOpts{
			Name: "fanout_expand_late_total",
			Help: "Expansions refused because expand_by had passed: deliveries were lost. Any increase should page.",
		}),
	}
	for _, r := range results {
		m.total.WithLabelValues(r)
	}
	return m
}

func (m *metrics) observe(r Receipt, err error, took time.Duration) {
	m.total.WithLabelValues(resultOf(r, err)).Inc()
	m.duration.Observe(took.Seconds())
}

func resultOf(r Receipt, err error) string {
	var invalid *fault.Invalid
	switch {
	case err == nil && r.Duplicate:
		return resultDuplicate
	case err == nil:
		return resultAccepted
	case errors.As(err, &invalid):
		return resultInvalid
	case errors.Is(err, schedule.ErrConflict):
		return resultConflict
	case errors.Is(err, schedule.ErrFull):
		return resultFull
	case errors.Is(err, schedule.ErrUnavailable):
		return resultUnavailable
	}
	return resultError
}
