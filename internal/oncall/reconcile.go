package oncall

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fanout/fanout/internal/schedule"
)

// Walker walks over all that is kept, a step at a time; *schedule.Engine is one.
type Walker interface {
	// Inspect MUST report nothing that is a transition under way, and MUST come round:
	// Next is "" then.
	Inspect(ctx context.Context, from string) (schedule.Inspection, error)
}

const (
	// walkShare is the part of one core of Redis that the walk may take: it rests for the
	// rest of the time.
	walkShare = 0.02
	// walkRest is the least rest between two steps, and roundRest that between two rounds.
	walkRest  = 50 * time.Millisecond
	roundRest = time.Minute
	// stepTimeout bounds a step; one that fails is taken again.
	stepTimeout = 5 * time.Second
	// maxExamples of each kind of gap are kept.
	maxExamples = 10
)

// Reconciler compares what was accepted with what became of it, all the time and slowly,
// and counts what does not add up. It only looks: a gap is for a person.
type Reconciler struct {
	walker Walker
	log    *slog.Logger
	rest   func(took time.Duration, round bool) time.Duration

	mu    sync.Mutex
	last  Round
	now   Round
	ended time.Time // of the last round
}

// Round is what one walk around found.
type Round struct {
	Gaps     map[schedule.Gap]int64
	Examples []schedule.Finding
	Looked   int64
	Began    time.Time
}

// NewReconciler registers its metrics with reg, unless that is nil. Nothing is looked at
// before Run.
func NewReconciler(w Walker, log *slog.Logger, reg prometheus.Registerer) (*Reconciler, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r := &Reconciler{
		walker: w, log: log, now: newRound(), last: newRound(),
		rest: func(took time.Duration, round bool) time.Duration {
			if round {
				return roundRest
			}
			return max(walkRest, time.Duration(float64(took)/walkShare)-took)
		},
	}
	if reg != nil {
		if err := reg.Register(r); err != nil {
			return nil, fmt.Errorf("register the metrics of the reconciliation: %w", err)
		}
	}
	return r, nil
}

func newRound() Round {
	r := Round{Gaps: map[schedule.Gap]int64{}, Began: time.Now()}
	for _, gap := range schedule.Gaps {
		r.Gaps[gap] = 0
	}
	return r
}

// Run walks until ctx ends, and returns nil.
func (r *Reconciler) Run(ctx context.Context) error {
	from, failing := "", false
	for {
		start := time.Now()
		next, err := r.step(ctx, from)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // we are stopping; the error says nothing about Redis
		}
		if failed := err != nil; failed != failing {
			failing = failed
			if failed {
				r.log.WarnContext(ctx, "reconciliation stands still, and is tried again", "error", err)
			}
		}
		rest := r.rest(time.Since(start), err == nil && next == "")
		if err == nil {
			from = next
		} else {
			rest = max(rest, time.Second)
		}
		timer := time.NewTimer(rest)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

func (r *Reconciler) step(ctx context.Context, from string) (next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	in, err := r.walker.Inspect(ctx, from)
	if err != nil {
		return "", fmt.Errorf("inspect: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.Looked += int64(in.Looked)
	for _, f := range in.Found {
		r.now.Gaps[f.Gap]++
		if r.now.Gaps[f.Gap] <= maxExamples {
			r.now.Examples = append(r.now.Examples, f)
			r.log.ErrorContext(ctx, "gap found: it does not add up", "kind", f.Gap, "id", f.ID)
		}
	}
	if in.Next == "" {
		r.last, r.now, r.ended = r.now, newRound(), time.Now()
	}
	return in.Next, nil
}

// Last is what the last whole round found, with what the present one has found more of;
// ended is when that was, zero before the first.
func (r *Reconciler) Last() (round Round, ended time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	round = r.last
	round.Gaps = maps.Clone(r.last.Gaps)
	for gap, n := range r.now.Gaps {
		round.Gaps[gap] = max(round.Gaps[gap], n)
	}
	if len(round.Examples) == 0 {
		round.Examples = r.now.Examples
	}
	return round, r.ended
}

var (
	descGaps = desc("audit_gaps",
		"What does not add up, by kind, as the last round of the reconciliation found it; anything but 0 needs a person.", "kind")
	descLooked    = desc("audit_looked", "Keys and places that the last round of the reconciliation looked at.")
	descLastRound = desc("audit_last_round_timestamp_seconds",
		"Local time at which the last round of the reconciliation ended; 0 before the first.")
)

// Describe implements prometheus.Collector.
func (r *Reconciler) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descGaps, descLooked, descLastRound} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (r *Reconciler) Collect(ch chan<- prometheus.Metric) {
	round, ended := r.Last()
	for gap, n := range round.Gaps {
		ch <- prometheus.MustNewConstMetric(descGaps, prometheus.GaugeValue, float64(n), string(gap))
	}
	at := 0.0
	if !ended.IsZero() {
		at = float64(ended.UnixMilli()) / 1000
	}
	ch <- prometheus.MustNewConstMetric(descLooked, prometheus.GaugeValue, float64(round.Looked))
	ch <- prometheus.MustNewConstMetric(descLastRound, prometheus.GaugeValue, at)
}
