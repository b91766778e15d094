package dispatch

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// releaseReason says why a lease was handed back; a metric label.
type releaseReason string

const (
	releaseStopping   releaseReason = "stopping"   // the dispatcher stops
	releaseGone       releaseReason = "gone"       // the subscriber was deleted
	releaseUnreadable releaseReason = "unreadable" // config or payload could not be read
	releaseLate       releaseReason = "late"       // too little of the lease was left
	releaseSurplus    releaseReason = "surplus"    // no slot was free for a repeated reply
)

// Labels that are not outcomes or results of another package.
const (
	otherClass      = "other"
	resultDropped   = "dropped"
	faultPanic      = "panic"
	faultImpossible = "impossible_record"
)

// metrics holds what a dispatcher counts. Every label value there can be exists
// from the start: a rate over a counter that appears with its first failure
// misses that failure.
type metrics struct {
	classes []string

	attempts, settles, retries, deaths, releases, faults *prometheus.CounterVec
	repeated                                             *prometheus.CounterVec
	leasesLost, leaseCalls, leaseErrors                  prometheus.Counter
	duration, age                                        *prometheus.HistogramVec
	redis                                                prometheus.Histogram
	slots                                                [len(poolLabels)][len(laneNames)]prometheus.Gauge

	delivered, failed, dead atomic.Int64 // settled by this worker, for its reports
	failing                 *failing     // likewise

	// byClass are the series of each class, looked up once: a look for a series by
	// the text of its labels cost as much as all else that is counted of an attempt.
	byClass map[string]*classMetrics
}

// classMetrics are the series of one class.
type classMetrics struct {
	attempts      map[delivery.Outcome]*counted
	repeated      prometheus.Counter
	duration, age prometheus.Observer
}

// counted is a counter that this process reads too.
type counted struct {
	prometheus.Counter

	n atomic.Int64
}

func newMetrics(reg prometheus.Registerer, classes []string, total int) *metrics {
	f := promauto.With(reg)
	count := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	counts := func(name, help string, labels ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		classes:  append(slices.Clone(classes), otherClass),
		attempts: counts("fanout_attempts_total", "Attempts that ended, by what they came to.", "class", "outcome"),
		settles:  counts("fanout_settles_total", "Verdicts settled, by what they did in Redis; dropped: given up.", "result"),
		retries:  counts("fanout_retries_scheduled_total", "Deliveries scheduled for another attempt, by the outcome of the last.", "outcome"),
		repeated: counts("fanout_repeated_failures_total", "Failed attempts of deliveries that had failed four times before, or more.", "class"),
		deaths:   counts("fanout_dead_letters_total", "Deliveries dead-lettered by this worker.", "reason"),
		releases: counts("fanout_releases_total", "Leases handed back before the request left.", "reason"),
		faults:   counts("fanout_dispatch_faults_total", "Defects of the dispatcher or its data, met and survived.", "reason"),

		leasesLost:  count("fanout_leases_lost_total", "Expired leases that this worker settled in place of their owner."),
		leaseCalls:  count("fanout_lease_calls_total", "Calls for work, each over one or more partitions."),
		leaseErrors: count("fanout_lease_errors_total", "Calls for work that failed in whole or in part."),

		duration: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fanout_attempt_duration_seconds", Help: "How long requests took, whatever they came to.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"class"}),
		age: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fanout_delivery_age_seconds", Help: "From an event's accept to the success of its delivery.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 4 * 3600, 24 * 3600},
		}, []string{"class"}),
		redis: f.NewHistogram(prometheus.HistogramOpts{
			Name: "fanout_redis_call_duration_seconds", Help: "How long calls of Redis took that lease or settle, failed ones included.",
			Buckets: []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 3},
		}),
		byClass: map[string]*classMetrics{},
		failing: newFailing(),
	}
	slots := f.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fanout_slots", Help: "Slots in use, by lane, and whether their subscriber is slow.",
	}, []string{"lane", "pool"})
	for p, label := range poolLabels {
		for i, lane := range laneNames {
			m.slots[p][i] = slots.WithLabelValues(string(lane), label)
		}
	}
	f.NewGauge(prometheus.GaugeOpts{
		Name: "fanout_slots_limit", Help: "Slots that this worker has.",
	}).Set(float64(total))
	m.initialise()
	return m
}

// initialise makes every series.
func (m *metrics) initialise() {
	for _, c := range m.classes {
		m.byClass[c] = &classMetrics{
			attempts: map[delivery.Outcome]*counted{}, repeated: m.repeated.WithLabelValues(c),
			duration: m.duration.WithLabelValues(c), age: m.age.WithLabelValues(c),
		}
	}
	for o := range delivery.Facts {
		for _, c := range m.classes {
			m.byClass[c].attempts[o] = &counted{Counter: m.attempts.WithLabelValues(c, string(o))}
		}
		m.retries.WithLabelValues(string(o))
		m.deaths.WithLabelValues(string(o))
	}
	for _, r := range []schedule.SettleResult{
		schedule.Applied, schedule.AppliedOld, schedule.Already, schedule.Stale, schedule.NotExpired, schedule.Missing, resultDropped,
	} {
		m.settles.WithLabelValues(string(r))
	}
	for _, r := range []releaseReason{releaseStopping, releaseGone, releaseUnreadable, releaseLate, releaseSurplus} {
		m.releases.WithLabelValues(string(r))
	}
	m.faults.WithLabelValues(faultPanic)
	m.faults.WithLabelValues(faultImpossible)
}

// class gives the series of a subscriber's class: bounded, whatever is configured.
func (m *metrics) class(c string) *classMetrics {
	if known, ok := m.byClass[c]; ok {
		return known
	}
	return m.byClass[otherClass]
}

// manyFailures of one delivery are more than a restart of its endpoint costs: with the
// default policy the fifth attempt comes half a minute after the first, in the mean. They
// show one delivery that can only fail beside any number that succeed.
const manyFailures = 5

// attempt counts one by what it came to; nth is which of the delivery's it was.
func (m *classMetrics) attempt(o delivery.Outcome, nth int) {
	c := m.attempts[delivery.Outcome(outcomeLabel(o))]
	c.Inc()
	c.n.Add(1)
	if o != delivery.OK && nth >= manyFailures {
		m.repeated.Inc()
	}
}

// tallies are the attempts so far.
func (m *metrics) tallies(now time.Time) tallies {
	t := tallies{at: now, counts: map[schedule.RecentAttempts]int64{}}
	for class, series := range m.byClass {
		for outcome, c := range series.attempts {
			if n := c.n.Load(); n > 0 {
				t.counts[schedule.RecentAttempts{Class: class, Outcome: outcome}] = n
			}
		}
	}
	return t
}

// outcomeLabel keeps an outcome that nobody knows from making a series.
func outcomeLabel(o delivery.Outcome) string {
	if _, ok := delivery.Facts[o]; !ok {
		o = delivery.Unknown
	}
	return string(o)
}

// settled counts a verdict, and what it led to if it did.
func (m *metrics) settled(v schedule.Verdict, result schedule.SettleResult) {
	m.settles.WithLabelValues(string(result)).Inc()
	if result != schedule.Applied {
		return
	}
	if v.Next == delivery.Delivered {
		m.delivered.Add(1)
	} else {
		m.failed.Add(1)
	}
	if v.Next == delivery.Scheduled {
		m.retries.WithLabelValues(outcomeLabel(v.Outcome)).Inc()
	}
	if v.Next == delivery.Dead {
		m.dead.Add(1)
		m.deaths.WithLabelValues(outcomeLabel(v.Reason)).Inc()
	}
}
