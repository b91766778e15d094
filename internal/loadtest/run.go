package loadtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// Options of Run.
type Options struct {
	// Scenarios to play, by name, in the order of Names; empty is all.
	Scenarios []string
	// Short is the form for CI: about 20 s each, with what is scaled said in
	// docs/loadtest.md.
	Short bool
	// Slots of each dispatcher, and how many Dispatchers; default 100 and 1.
	Slots, Dispatchers int
	// Bin is the folder of the binaries fanout and dispatcher.
	Bin string
	// Log is where progress goes, a line at a time; nil is nowhere.
	Log io.Writer
}

// settleFor is how long after the last post a delivery may arrive and still
// count as delivered in time.
const settleFor = time.Second

// warmFor is how long a flow runs before its ages count: the first events of a
// fresh service pay for connections and caches.
const warmFor = 2 * time.Second

// sayEvery is the pause between two lines of progress.
const sayEvery = 5 * time.Second

// mark is a moment of a play, for the plots.
type mark struct {
	at    time.Duration
	label string
}

// run is one scenario being played, over a service of its own.
type run struct {
	*producer
	*scraper

	opts   Options
	name   string
	origin time.Time
	svc    *service
	groups []*group
	marks  []mark
	outage *Outage // of that scenario only
	repair *Repair // of those that redrive

	from, until, cut time.Duration // ages count of events accepted in [from, until), as seen at cut
}

// play plays one scenario and sums it up.
func play(ctx context.Context, o Options, s scenario) (_ Result, err error) {
	svc, err := startService(ctx, o)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", s.name, err)
	}
	defer func() { err = errors.Join(err, svc.stop(ctx)) }()
	r, err := newRun(o, s.name, svc)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", s.name, err)
	}
	defer r.close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go r.scraper.run(ctx)
	go r.watch(ctx, cancel)
	if err := s.play(ctx, r); err != nil {
		if why := context.Cause(ctx); why != nil && !errors.Is(err, why) {
			err = errors.Join(why, err) // what broke it off, then what that broke
		}
		return Result{}, fmt.Errorf("%s: %w", s.name, err)
	}
	if err := r.look(ctx); err != nil { // the last totals
		return Result{}, fmt.Errorf("%s: %w", s.name, err)
	}
	return r.result()
}

func newRun(o Options, name string, svc *service) (*run, error) {
	api, err := newClient("http://" + svc.api.addr)
	if err != nil {
		return nil, err
	}
	origin := time.Now()
	r := &run{opts: o, name: name, origin: origin, svc: svc, scraper: newScraper(origin, svc)}
	r.producer = &producer{api: api, origin: origin, want: r.audience}
	return r, nil
}

func (r *run) close() {
	for _, g := range r.groups {
		g.close()
	}
}

// now is the time since the origin.
func (r *run) now() time.Duration { return time.Since(r.origin) }

// of chooses between the two forms.
func (r *run) of(full, short time.Duration) time.Duration {
	if r.opts.Short {
		return short
	}
	return full
}

func (r *run) mark(label string) { r.marks = append(r.marks, mark{r.now(), label}) }

// audience is how many subscribers an event for it reaches.
func (r *run) audience(to string) (n int) {
	for _, g := range r.groups {
		if (event{audience: to}).reaches(g) {
			n += len(g.endpoints)
		}
	}
	return n
}

// cast describes a group.
type cast struct {
	name      string
	endpoints int
	manner    manner
	bad       bool            // not one of the healthy
	policy    delivery.Policy // default delivery.DefaultPolicy()
	each      int             // deliveries to make room for; default 4096
}

// enter opens a group's endpoints and registers them.
func (r *run) enter(ctx context.Context, c cast) (*group, error) {
	g := &group{name: c.name, bad: c.bad, origin: r.origin}
	g.turn(c.manner)
	r.groups = append(r.groups, g)
	if c.each == 0 {
		c.each = 4096
	}
	if err := g.open(ctx, c.endpoints, c.each); err != nil {
		return nil, err
	}
	if c.policy.MaxAttempts == 0 {
		c.policy = delivery.DefaultPolicy()
	}
	for _, e := range g.endpoints {
		if err := register(ctx, r.api, e, c.policy); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// measure begins to count ages.
func (r *run) measure() { r.from = r.now() }

// end stops the flows, gives the last deliveries their second, and looks.
func (r *run) end(ctx context.Context, flows ...func()) error {
	for _, stop := range flows {
		stop()
	}
	r.until = r.now()
	err := pause(ctx, settleFor)
	r.cut = r.now()
	return err
}

// watch says how it goes, and breaks the play off when a process ends.
func (r *run) watch(ctx context.Context, stop context.CancelCauseFunc) {
	for pause(ctx, sayEvery) == nil {
		if err := r.svc.alive(); err != nil {
			stop(err)
			return
		}
		events, _ := r.accepted()
		var seen int64
		for _, g := range r.groups {
			seen += g.seen()
		}
		r.sayf("%d events posted, %d requests seen, %.0f slots in use, oldest eligible %.1f s",
			len(events), seen, sum(r.last().slots), r.last().eligible)
	}
}

func (r *run) sayf(format string, a ...any) {
	if r.opts.Log != nil {
		_, _ = fmt.Fprintf(r.opts.Log, "%-10s %4.0f s  %s\n", r.name, r.now().Seconds(), fmt.Sprintf(format, a...)) // progress only
	}
}

func sum(m map[string]float64) (total float64) {
	for _, v := range m {
		total += v
	}
	return total
}
