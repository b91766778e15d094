package oncall

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fanout/fanout/internal/schedule"
)

const (
	// maxFailures is how many dead letters a snapshot holds.
	maxFailures = 10
	// sampleTimeout bounds one look at Redis. A slow answer is worth waiting for
	// longer than the interval; a hung one must not blind on-call for minutes.
	sampleTimeout = 2 * time.Second
	// minEvery and maxEvery bound the interval: below, the sampler itself is
	// load; above, an age SLO of seconds is judged by chance.
	minEvery = 50 * time.Millisecond
	maxEvery = time.Minute
	// failuresEvery is how often the dead letters are read again although their
	// counts stand still: one may have been redriven and another have died.
	failuresEvery = 10 * time.Second
)

// ErrOptions is returned by New for options that make no sense.
var ErrOptions = errors.New("bad on-call options")

// Source is where the samples come from.
type Source interface {
	// Sample MUST cost the same few round trips whatever the backlog, MUST read
	// everything by one clock, and MUST return when ctx ends.
	Sample(ctx context.Context, classes []string) (schedule.Sample, error)
	// DeadLetters MUST return at most limit, the newest first, each with its
	// history in order.
	DeadLetters(ctx context.Context, limit int) ([]schedule.DeadLetter, error)
	// OnHold MUST return at most limit subscribers that are on hold, the longest
	// first.
	OnHold(ctx context.Context, limit int) ([]schedule.Standing, error)
	// Workers MUST return what the dispatchers that are there said last.
	Workers(ctx context.Context) ([]schedule.WorkerReport, error)
}

// Options says what is watched.
type Options struct {
	// Classes are the configured classes with their age SLO, at least one, each
	// above 0.
	Classes map[string]time.Duration
	// Every is the interval between samples, 50 ms to 1 min; 0 means 1 s.
	Every time.Duration
	// Ready says whether Redis takes what is written to it, and keeps it: an error
	// is shown to on-call, so it MUST hold no secret. It is asked at most every 2 s
	// and MUST return when its ctx ends. Nil means always ready.
	Ready func(ctx context.Context) error
	// Rings keep the history where other processes, and the next life of this one, find
	// it. Nil keeps it here.
	Rings Rings
	// Redrives returns those under way, the oldest first, and how many there are by state
	// is counted of them; Memory is that of Redis; Gaps are what the reconciliation found.
	// Each MUST return when its ctx ends; a nil func is not asked.
	Redrives func(ctx context.Context) ([]LiveRedrive, error)
	Memory   func(ctx context.Context) (used, limit int64, err error)
	Gaps     func() (map[schedule.Gap]int64, []schedule.Finding)
	// Registerer gets the metrics; nil means none.
	Registerer prometheus.Registerer
	// Logger; nil means silence.
	Logger *slog.Logger
}

// OnCall samples the engine and shows what it saw. Its handlers only ever read
// the last snapshot: a crowd in front of the page costs Redis nothing.
type OnCall struct {
	source     Source
	slo        map[string]time.Duration
	names      []string // of the classes
	every      time.Duration
	blindAfter time.Duration
	log        *slog.Logger
	metrics    metrics
	page       *template.Template
	ready      func(context.Context) error
	began      time.Time
	rings      Rings
	redrives   func(context.Context) ([]LiveRedrive, error)
	memory     func(context.Context) (used, limit int64, err error)
	gaps       func() (map[schedule.Gap]int64, []schedule.Finding)

	// done is closed when Run returns, and ends every stream.
	done     chan struct{}
	watchers chan struct{} // holds one token per open stream
	// writeTimeout and heartbeat rule a stream; see events.go.
	writeTimeout, heartbeat time.Duration

	mu      sync.Mutex // guards what follows
	latest  Snapshot
	past    Past          // its slices are never written to once here
	tick    chan struct{} // closed at the next sample, good or bad
	frames  [2][]byte     // the event of this tick, without and with forms; nil until somebody asks
	failed  string        // why the last look failed
	trouble string        // why the service is not ready
	isReady bool

	// Only Run's goroutine touches these.
	failing     bool
	expired     time.Time // Redis time of the first sample of those in a row that had expired leases
	failuresDue bool      // the list of failures may be out of date
	failuresAt  time.Time // when it was last read
	holdsAt     time.Time // when the subscribers on hold were last read
	fleetAt     time.Time // likewise the reports, the redrives and the memory
	redrivesAt  time.Time
	memoryAt    time.Time
	recalled    bool                 // the history was read since we saw last
	late        map[string]time.Time // since when each sample in a row had the class past its SLO
}

// New checks the options and registers the metrics, every series at 0. Nothing is
// sampled before Run. It returns ErrOptions, or what the Registerer said.
func New(source Source, opts Options) (*OnCall, error) {
	every := opts.Every
	if every == 0 {
		every = time.Second
	}
	if every < minEvery || every > maxEvery {
		return nil, fmt.Errorf("interval %s is not from %s to %s: %w", every, minEvery, maxEvery, ErrOptions)
	}
	if len(opts.Classes) == 0 {
		return nil, fmt.Errorf("no class is configured: %w", ErrOptions)
	}
	for name, slo := range opts.Classes {
		if name == schedule.OtherClass {
			return nil, fmt.Errorf("class %s stands for those that are not configured, give yours another name: %w", name, ErrOptions)
		}
		if name == "" || slo <= 0 {
			return nil, fmt.Errorf("class %q has an age SLO of %s, want above 0: %w", name, slo, ErrOptions)
		}
	}
	log := opts.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	page, err := parsePage()
	if err != nil {
		return nil, err
	}
	o := &OnCall{
		source: source, slo: opts.Classes, every: every, log: log, page: page,
		ready: opts.Ready, isReady: opts.Ready == nil, began: time.Now(),
		rings: opts.Rings, redrives: opts.Redrives, memory: opts.Memory, gaps: opts.Gaps, late: map[string]time.Time{},
		// Five missed samples, and at least 5 s, so that one slow answer is no alarm.
		blindAfter: max(5*every, 5*time.Second),
		done:       make(chan struct{}), watchers: make(chan struct{}, maxWatchers),
		writeTimeout: 5 * time.Second, heartbeat: 15 * time.Second,
		latest: Snapshot{Classes: classesOf(opts.Classes)},
		tick:   make(chan struct{}),
	}
	for _, c := range o.latest.Classes {
		if !c.Other {
			o.names = append(o.names, c.Name)
		}
	}
	if o.metrics, err = newMetrics(opts.Registerer, o); err != nil {
		return nil, err
	}
	return o, nil
}

// Run samples until ctx ends, then ends every open stream and returns nil. It
// MUST be called once. No error of the source ends it: the last snapshot stays,
// and its age is shown.
func (o *OnCall) Run(ctx context.Context) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	defer close(o.done)
	if o.ready != nil {
		asking.Go(func() { o.keepAsking(ctx) })
	}
	ticker := time.NewTicker(o.every)
	defer ticker.Stop()
	for {
		o.sample(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Latest is the last good snapshot; ok is false before the first.
func (o *OnCall) Latest() (s Snapshot, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.latest, !o.latest.Taken.IsZero()
}

// sample takes one look and tells every watcher that it was taken, also when it
// failed: they have to see the staleness grow.
func (o *OnCall) sample(ctx context.Context) {
	start := time.Now()
	s, err := o.look(ctx)
	if ctx.Err() != nil {
		return // we are stopping; this says nothing about Redis
	}
	o.metrics.duration.Observe(time.Since(start).Seconds())
	o.note(ctx, err)
	if err == nil {
		s.ExpiredFor = o.expiredFor(s)
		o.lateFor(s)
		o.keep(ctx, s)
	}

	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed = ""
	if err != nil {
		o.failed, _ = clean(err.Error(), maxError)
	} else {
		o.latest = s
	}
	o.announce()
}

// announce has every watcher drawn a new frame. The caller holds o.mu.
func (o *OnCall) announce() {
	o.frames = [2][]byte{}
	close(o.tick)
	o.tick = make(chan struct{})
}

// expiredFor is how long every sample up to this one had expired leases.
func (o *OnCall) expiredFor(s Snapshot) time.Duration {
	if s.Expired == 0 {
		o.expired = time.Time{}
	} else if o.expired.IsZero() {
		o.expired = s.At
	}
	return Age(s.At, o.expired)
}

// sight is what is known beside the last snapshot. The caller holds o.mu.
func (o *OnCall) sight() Sight {
	since := o.latest.Taken
	if since.IsZero() {
		since = o.began
	}
	return Sight{Stale: time.Since(since), Began: o.began, Error: o.failed, Trouble: o.trouble}
}

func (o *OnCall) look(ctx context.Context) (Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	begun := time.Now()
	sample, err := o.source.Sample(ctx, o.names)
	if err != nil {
		return Snapshot{}, fmt.Errorf("sample the engine: %w", err)
	}
	taken := time.Now()
	prev, _ := o.Latest()
	failures := prev.Failures
	if o.failuresDue = o.failuresDue || o.mayHaveDied(prev, sample, taken); o.failuresDue {
		// Only when something died, so that an idle service costs a sample a second
		// and nothing else. Without the list the ages are still worth showing.
		dead, err := o.source.DeadLetters(ctx, maxFailures)
		if err != nil {
			o.log.WarnContext(ctx, "cannot list the newest dead letters", "error", err)
		} else {
			failures, o.failuresAt, o.failuresDue = failuresOf(dead), taken, false
		}
	}
	s := snapshot(o.slo, sample, taken, failures)
	s.Took = taken.Sub(begun)
	s.Holds = o.holds(ctx, prev, sample, taken)
	o.beside(ctx, prev, &s)
	return s, nil
}

// mayHaveDied says whether the newest dead letters may be others than before.
func (o *OnCall) mayHaveDied(prev Snapshot, s schedule.Sample, now time.Time) bool {
	return s.Ledger.Dead != prev.Ledger.Dead || s.Dead != prev.DeadLetters ||
		s.Ledger != prev.Ledger && now.Sub(o.failuresAt) >= failuresEvery
}

// note logs the change from seeing to blind and back, not every second of it.
func (o *OnCall) note(ctx context.Context, err error) {
	switch {
	case err != nil:
		o.metrics.errors.Inc()
		if !o.failing {
			o.log.WarnContext(ctx, "on-call sampler is blind, the last sample stays", "error", err)
		}
	case o.failing:
		o.log.InfoContext(ctx, "on-call sampler sees again")
	}
	if o.failing = err != nil; o.failing {
		o.recalled = false
	}
}
