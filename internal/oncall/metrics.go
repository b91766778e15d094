package oncall

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the sampler's own. Everything that comes out of a sample is a gauge
// built from one snapshot at scrape time, so that a scrape never mixes two of
// them: the ledger in it balances if Redis's did.
type metrics struct {
	duration prometheus.Histogram
	errors   prometheus.Counter
}

// newMetrics registers everything with reg, or nothing if it is nil.
func newMetrics(reg prometheus.Registerer, o *OnCall) (metrics, error) {
	m := metrics{
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "fanout_sampler_duration_seconds",
			Help:    "How long one look at Redis for on-call took, failed ones included.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2},
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fanout_sampler_errors_total",
			Help: "Samples that failed; the gauges then keep their last values.",
		}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.duration, m.errors, gauges{o}} {
		if err := reg.Register(c); err != nil {
			return m, fmt.Errorf("register the on-call metrics: %w", err)
		}
	}
	return m, nil
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("fanout_"+name, help, labels, nil)
}

// The gauges of a snapshot. The counts of the ledger are gauges although accepted
// only grows: a redrive takes from dead, a late success too.
var (
	descEligible = desc("oldest_eligible_age_seconds",
		"Age of the oldest delivery that is due and waits for a worker only; 0 if none.", "class", "lane")
	descLimited = desc("oldest_limited_age_seconds",
		"Age of the oldest due delivery whose subscriber is at its own cap or rate; 0 if none.", "class", "lane")
	descHeld = desc("oldest_held_age_seconds",
		"Age of the oldest due delivery whose subscriber is on hold; 0 if none.", "class", "lane")
	descSLO       = desc("age_slo_seconds", "Age that no eligible delivery of the class should pass; other stands for all classes not configured.", "class")
	descLedger    = desc("ledger", "Deliveries by state, as the ledger counts them.", "state")
	descImbalance = desc("ledger_imbalance",
		"Accepted less the sum of the states; anything but 0 means lost or twice-counted deliveries.")
	descLeases  = desc("leases", "Deliveries in a lease, expired ones included.")
	descExpired = desc("leases_expired",
		"Leases past their end: the worker is gone or hangs, and no dispatcher has reclaimed them yet.")
	descReady = desc("subscribers_ready",
		"Pairs of subscriber and lane with a due delivery that await their turn; a subscriber counts in each of its lanes.")
	descScheduled = desc("subscribers_scheduled",
		"Pairs of subscriber and lane whose next delivery is not due yet; a subscriber counts in each of its lanes.")
	descOnHold = desc("subscribers_on_hold",
		"Subscribers that are not sent to: paused, disabled, throttled, or with an open breaker.")
	descHeldCount  = desc("deliveries_held", "Pending deliveries of subscribers on hold, which wait for that to end.")
	descOpen       = desc("open_events", "Events accepted whose deliveries are not all enqueued yet.")
	descLate       = desc("late_events", "Events not expanded in time and set aside; anything but 0 needs a person.")
	descDead       = desc("dead_letters", "Dead letters kept as evidence.")
	descOldestDead = desc("dead_letter_oldest_age_seconds",
		"How long ago the oldest dead letter that is kept died; 0 if there is none.")
	descInFlight     = desc("in_flight", "Deliveries that a worker has: leases that are not past their end.")
	descLimitedLanes = desc("subscribers_limited",
		"Pairs of subscriber and lane with a due delivery whose subscriber is at its own cap or rate.")
	descDueSoon = desc("due_soon",
		"Deliveries of the retry and redrive lanes that fall due in the minutes to come, the present one included; those on hold too.", "within")
	descWorkers  = desc("workers", "Dispatchers that report.")
	descFleet    = desc("fleet_slots", "Slots of all dispatchers that report, as on-call sees them.", "state")
	descCapacity = desc("fleet_capacity_per_second",
		"Attempts a second that the slots could carry at what an attempt takes now; 0 if that is not known.")
	descFailing = desc("subscribers_failing",
		"Subscribers with a failed attempt in the last minute, as far as a dispatcher keeps count (64).")
	descRedrives  = desc("redrives", "Redrives under way, by state.", "state")
	descMemory    = desc("redis_memory_bytes", "Memory that Redis uses.")
	descMaxMemory = desc("redis_memory_limit_bytes", "Memory that Redis may use; 0 without a limit.")
	descPage      = desc("page_due", "1 if triage would wake somebody now, by its own rules.")
	descFit       = desc("ready", "1 if Redis takes writes and is set up to keep them, as this server last saw; 0 if not, or not known yet.")
	descLastRun   = desc("sampler_last_run_timestamp_seconds",
		"Local time of the last good sample, by which every other gauge here is to be judged; 0 before the first.")
)

// gauges collects the last snapshot. Classes and lanes are fixed when it is made,
// so every series is there from the first scrape on.
type gauges struct{ o *OnCall }

// Describe implements prometheus.Collector.
func (gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descOldestDead, descInFlight, descLimitedLanes, descDueSoon, descWorkers, descFleet, descCapacity, descFailing, descRedrives,
		descMemory, descMaxMemory, descPage,
		descEligible, descLimited, descHeld, descSLO, descLedger, descImbalance, descLeases,
		descExpired, descFit, descReady, descScheduled, descOnHold, descHeldCount, descOpen, descLate, descDead, descLastRun,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g gauges) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	g.o.mu.Lock()
	s, ready, page := g.o.latest, g.o.isReady, g.o.triage().Page
	g.o.mu.Unlock()
	for _, c := range s.Classes {
		gauge(descSLO, c.SLO.Seconds(), c.Name)
		for _, l := range c.Lanes {
			gauge(descEligible, l.Eligible.Seconds(), c.Name, string(l.Name))
			gauge(descLimited, l.Limited.Seconds(), c.Name, string(l.Name))
			gauge(descHeld, l.Held.Seconds(), c.Name, string(l.Name))
		}
	}
	gauge(descLedger, float64(s.Ledger.Accepted), "accepted")
	gauge(descLedger, float64(s.Ledger.Pending), "pending")
	gauge(descLedger, float64(s.Ledger.Delivered), "delivered")
	gauge(descLedger, float64(s.Ledger.Dead), "dead")
	gauge(descLedger, float64(s.Ledger.Cancelled), "cancelled")
	gauge(descImbalance, float64(s.Imbalance()))
	gauge(descLeases, float64(s.Leases))
	gauge(descExpired, float64(s.Expired))
	gauge(descReady, float64(s.Ready))
	gauge(descScheduled, float64(s.Scheduled))
	gauge(descOnHold, float64(s.OnHold))
	gauge(descHeldCount, float64(s.Held))
	gauge(descOpen, float64(s.OpenEvents))
	gauge(descLate, float64(s.LateEvents))
	gauge(descDead, float64(s.DeadLetters))
	g.fleet(gauge, s)
	lastRun, fit, due := 0.0, 0.0, 0.0
	if !s.Taken.IsZero() {
		lastRun = float64(s.Taken.UnixMilli()) / 1000
	}
	if ready {
		fit = 1
	}
	if page {
		due = 1
	}
	gauge(descPage, due)
	gauge(descLastRun, lastRun)
	gauge(descFit, fit)
}

// dueWithin are the minutes that the release curve is summed up for, as labels.
var dueWithin = []struct {
	label   string
	minutes int
}{{"1m", 1}, {"5m", 5}, {"15m", releaseMinutes}}

// fleet collects what a sample alone does not say.
func (gauges) fleet(gauge func(*prometheus.Desc, float64, ...string), s Snapshot) {
	gauge(descOldestDead, s.OldestDead.Seconds())
	gauge(descInFlight, float64(s.InFlight()))
	gauge(descLimitedLanes, float64(s.Limited))
	for _, w := range dueWithin {
		sum := int64(0)
		for _, n := range s.Release.Due[:w.minutes] {
			sum += n
		}
		gauge(descDueSoon, float64(sum), w.label)
	}
	gauge(descWorkers, float64(len(s.Fleet.Workers)))
	gauge(descFleet, float64(s.Fleet.Used), "used")
	gauge(descFleet, float64(s.Fleet.Slots-s.Fleet.Used), "free")
	gauge(descCapacity, s.Fleet.Capacity)
	gauge(descFailing, float64(s.Fleet.FailingTotal))
	by := map[string]int{}
	for _, r := range s.Redrives {
		by[r.State]++
	}
	for _, state := range liveStates {
		gauge(descRedrives, float64(by[state]), state)
	}
	gauge(descMemory, float64(s.Memory.Used))
	gauge(descMaxMemory, float64(s.Memory.Max))
}

// liveStates are those of a redrive under way.
var liveStates = []string{"planning", "canary", "awaiting_approval", "running", "paused"}
