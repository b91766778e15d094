package loadtest

import (
	"context"
	"slices"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// holding is the default policy with room for n deliveries in a hold.
func holding(n int) delivery.Policy {
	p := delivery.DefaultPolicy()
	p.MaxHeld = n
	return p
}

// Outage is what the outage alone is judged by.
type Outage struct {
	// Deliveries were accepted for the failing endpoints before they recovered;
	// Undelivered of them never arrived, as far as was waited.
	Deliveries  int `json:"deliveries"`
	Undelivered int `json:"undelivered"`
	// Requests were answered 500; Naive is what a service that retries every
	// delivery by its backoff alone would have sent by then. Share is one by the other.
	Requests int64   `json:"requests"`
	Naive    int64   `json:"naive_requests"`
	Share    float64 `json:"request_share"`
	// Duplicates are requests for a delivery after a 2xx of it, less leases lost.
	Duplicates int64 `json:"duplicates"`
	LeasesLost int64 `json:"leases_lost"`
	// MostAttempts is the highest fanout-attempt on the wire, of MaxAttempts.
	MostAttempts int `json:"most_attempts"`
	MaxAttempts  int `json:"max_attempts"`
	// MostInFlight is the most requests at once at one endpoint, of MaxInFlight.
	MostInFlight int `json:"most_in_flight"`
	MaxInFlight  int `json:"max_in_flight"`
	// DrainSeconds is from the recovery until the last of them arrived, or until
	// that was given up.
	DrainSeconds float64 `json:"drain_seconds"`
	// History is how long the deliveries of the outage waited from when their endpoint
	// was sent to again; Fresh the age of those accepted from there until the history
	// of their endpoint was gone.
	History Ages `json:"history"`
	Fresh   Ages `json:"fresh"`
}

// outageScale is by how much the short form shortens the outage and, with it, the
// policy's backoff and age: 15 minutes become 15 seconds.
const outageScale = 60

// outagePolicy is the default one, or that one scaled.
func outagePolicy(short bool, held int) delivery.Policy {
	p := holding(held)
	if short {
		p.BackoffBase /= outageScale
		p.BackoffCap /= outageScale
		p.MaxAge /= outageScale
		p.RetryAfterCap /= outageScale
	}
	return p
}

// playOutage: 10 endpoints answer 500, all at once, while 10,000 deliveries fall
// due for them; then all recover. New events keep coming throughout, for them and
// for 10 that are well.
func playOutage(ctx context.Context, r *run) error {
	const endpoints, due = 10, 10_000
	p := outagePolicy(r.opts.Short, 10*due)
	if _, err := r.enter(ctx, cast{name: "healthy", endpoints: 10}); err != nil {
		return err
	}
	bad, err := r.enter(ctx, cast{name: "failing", endpoints: endpoints, bad: true, policy: p})
	if err != nil {
		return err
	}
	stop := r.steady(ctx, everyone, steadyRate/2)
	if err := pause(ctx, warmFor+r.of(8*time.Second, time.Second)); err != nil {
		return err
	}
	r.measure()
	r.mark("10 fail")
	bad.turn(failing)
	begin := r.now()
	history := r.steady(ctx, bad.name, due/endpoints/r.of(60*time.Second, 10*time.Second).Seconds())
	length := 15 * time.Minute
	if r.opts.Short {
		length /= outageScale
	}
	if err := pause(ctx, r.of(60*time.Second, 10*time.Second)); err != nil {
		return err
	}
	history()
	if err := pause(ctx, begin+length-r.now()); err != nil {
		return err
	}
	recovered := r.now()
	r.mark("all recover")
	bad.turn(prompt)
	if err := r.drain(ctx, bad, begin, recovered); err != nil {
		return err
	}
	if err := r.end(ctx, stop); err != nil {
		return err
	}
	r.outage = r.judge(bad, p, begin, recovered)
	return nil
}

// drain waits until everything of the outage has arrived, but no longer than a
// service may take that looks after an endpoint less and less often, down to every
// two minutes, and spent no attempts meanwhile: its next retries are as near as the
// first ones.
func (r *run) drain(ctx context.Context, g *group, begin, recovered time.Duration) error {
	limit := recovered + r.of(5*time.Minute, 35*time.Second)
	for {
		if err := pause(ctx, sampleEvery); err != nil {
			return err
		}
		events, err := r.accepted()
		if err != nil {
			return err
		}
		all := ages(events, g, begin, recovered, r.now())
		missing := slices.ContainsFunc(all, func(a age) bool { return !a.arrived })
		if at := r.now(); at > limit || (!missing && at > recovered+3*time.Second) {
			return nil
		}
	}
}

// judge sums the outage up.
func (r *run) judge(g *group, p delivery.Policy, begin, recovered time.Duration) *Outage {
	events, _ := r.accepted() // drain has looked at the error
	o := &Outage{
		MaxAttempts: p.MaxAttempts, MaxInFlight: p.MaxInFlight, MostInFlight: int(g.mostInFlight()),
		Requests: g.refused.Load(), LeasesLost: int64(r.last().leasesLost),
	}
	var again int64
	for _, e := range g.endpoints {
		e.mu.Lock()
		for _, h := range e.hits {
			again += int64(h.again)
			o.MostAttempts = max(o.MostAttempts, int(h.attempt))
		}
		e.mu.Unlock()
		for _, ev := range events {
			if ev.reaches(g) {
				o.Naive += int64(naive(p, delivery.NewID(ev.id, e.subscriber), ev.accepted, begin, recovered))
			}
		}
	}
	o.Duplicates = max(again-o.LeasesLost, 0)
	if o.Naive > 0 {
		o.Share = float64(o.Requests) / float64(o.Naive)
	}
	r.compare(o, g, events, begin, recovered)
	return o
}

// compare holds the history, whose events were accepted in the outage, against the
// events that came while it was sent at last. Both are measured from when their
// endpoint was first sent to again: until then neither could go.
func (r *run) compare(o *Outage, g *group, events []event, begin, recovered time.Duration) {
	var history, fresh []age
	for _, e := range g.endpoints {
		old := e.ages(events, begin, recovered, r.cut)
		opened, drained := r.cut, recovered
		for _, a := range old {
			if at := a.arrival(); at >= recovered {
				opened, drained = min(opened, at), max(drained, at)
			}
		}
		for _, a := range old {
			a.age = max(a.arrival()-opened, 0)
			history = append(history, a)
		}
		fresh = append(fresh, e.ages(events, opened, drained, r.cut)...)
		o.DrainSeconds = max(o.DrainSeconds, (drained - recovered).Seconds())
	}
	o.History, o.Fresh = summarise(history), summarise(fresh)
	o.Deliveries, o.Undelivered = o.History.Deliveries, o.History.Deliveries-o.History.Arrived
}

// naive is how many requests a service without breaker or hold makes of one
// delivery in the outage [begin, recovered): each attempt fails at once, and the
// next comes when the backoff says, until the budget or the age is spent.
func naive(p delivery.Policy, id string, accepted, begin, recovered time.Duration) (n int) {
	at := accepted
	if at < begin {
		return 0 // it was delivered before
	}
	for at < recovered && n < p.MaxAttempts && at-accepted <= time.Duration(p.MaxAge) {
		n++
		at += delivery.Backoff(p, id, n)
	}
	return n
}
