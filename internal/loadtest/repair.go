package loadtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fanout/fanout/client"
)

// Repair is what a redrive beside fresh traffic is judged by.
type Repair struct {
	Items int `json:"items"`
	// Capacity is how many deliveries a second were accepted and arrived at most, measured
	// just before; Fresh how many fresh ones a second were posted from then on. 0 if the
	// play is not about load.
	Capacity float64 `json:"capacity_per_second"`
	Fresh    float64 `json:"fresh_per_second"`
	// Calm and During are the ages of fresh deliveries, of all subscribers, before the
	// redrive and from its first preview, through its planning and its canary, to its end.
	// CalmSecond and DuringSecond are the median of the p99s of their seconds, in ms, and
	// Ratio is one over the other, or over 25 ms: of the whole a p99 is what the machine's
	// worst second made of it, with a redrive or without.
	Calm         Ages    `json:"calm"`
	During       Ages    `json:"during"`
	CalmSecond   float64 `json:"calm_p99_second_ms"`
	DuringSecond float64 `json:"during_p99_second_ms"`
	Ratio        float64 `json:"ratio"`
	// Limit is the rate that was planned, a second, and Takes what the plan said;
	// Seconds is what it took from the approval to the end, stops included.
	Limit   float64 `json:"limit_per_second"`
	Takes   float64 `json:"planned_seconds"`
	Seconds float64 `json:"seconds"`
	// Delivered and Dead are its tally; Twice are deliveries that it sent again after a
	// 2xx, less leases lost.
	Delivered int64 `json:"delivered"`
	Dead      int64 `json:"dead"`
	Twice     int64 `json:"twice"`
	// Stops are the guard's pauses, after each of which it was resumed.
	Stops []Stop `json:"stops"`

	state client.RedriveState
	looks []look
	begin time.Duration // of the calm phase
	asked time.Duration // its end: the redrive was asked for
}

// Stop is a pause of the guard.
type Stop struct {
	At  float64 `json:"at_seconds"`
	Why string  `json:"why"`
	// Manner of the failure that was played, "" if none was; Seconds from the arrival of
	// the first request that was refused to the pause, and Sent how many the redrive sent
	// from there to the pause, of which Refused did not deliver; After came after it.
	Manner  string  `json:"manner,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	Sent    int     `json:"sent,omitempty"`
	Refused int     `json:"refused,omitempty"`
	After   int     `json:"sent_after,omitempty"`
	// Rate is how many were released a second at most when it happened.
	Rate float64 `json:"rate_per_second,omitempty"`
}

// look is one look at a redrive.
type look struct {
	at    time.Duration // since the run's origin
	state client.RedriveState
	held  bool // it runs, and nothing is released
	rate  float64
	tally client.RedriveTally
}

// loadShare is the part of the capacity that fresh traffic takes beside a redrive.
const loadShare = 0.7

// playRedrive: fresh events take 70 % of what the machine carries, and 10,000 dead
// letters of one of the subscribers are sent again beside them.
func playRedrive(ctx context.Context, r *run) error {
	p, g, err := r.graveyard(ctx, 10_000)
	if err != nil {
		return err
	}
	stop, err := r.calmLoad(ctx, p)
	if err != nil {
		return err
	}
	id, err := r.toApproval(ctx, p, g)
	if err != nil {
		return err
	}
	if err := r.approve(ctx, id); err != nil {
		return err
	}
	if err := r.follow(ctx, p, id, nil); err != nil {
		return err
	}
	until := r.now()
	if err := pause(ctx, r.of(5*time.Second, time.Second)); err != nil { // the plot shows that it calms down
		return err
	}
	if err := r.end(ctx, stop); err != nil {
		return err
	}
	r.until = until
	return r.conclude(p, g)
}

const (
	// calmTries is how often a machine is measured that does not keep what it has shown: it
	// does other things too. calmBelow is a p99 that says so.
	calmTries = 3
	calmBelow = 250 * time.Millisecond
)

// calmLoad measures the capacity, and posts 70 % of it from then on. It returns after the
// calm phase.
func (r *run) calmLoad(ctx context.Context, p *Repair) (stop func(), err error) {
	for try := 1; ; try++ {
		if p.Capacity, err = r.saturate(ctx, everyone, r.of(15*time.Second, 5*time.Second)); err != nil {
			return nil, err
		}
		p.Fresh = loadShare * p.Capacity
		r.sayf("%.0f deliveries a second are carried", p.Capacity)
		if err := r.drained(ctx); err != nil {
			return nil, err
		}
		stop = r.steady(ctx, everyone, p.Fresh/float64(r.audience(everyone)))
		if err := pause(ctx, warmFor+r.of(3*time.Second, time.Second)); err != nil {
			return nil, err
		}
		p.begin = r.now()
		if err := pause(ctx, r.of(40*time.Second, 10*time.Second)); err != nil {
			return nil, err
		}
		events, err := r.accepted()
		if err != nil {
			return nil, err
		}
		var fresh []age
		for _, g := range r.groups {
			fresh = append(fresh, ages(events, g, p.begin, r.now(), r.now())...)
		}
		p99 := time.Duration(summarise(fresh).P99 * float64(time.Millisecond))
		if p99 <= calmBelow {
			r.marks = append(r.marks, mark{p.begin, "calm"})
			return stop, nil
		}
		stop()
		if try == calmTries {
			return nil, fmt.Errorf("nothing can be measured: of %.0f deliveries a second that it carried, this machine does not carry 70 %% now (fresh p99 %s)",
				p.Capacity, p99.Round(time.Millisecond))
		}
		r.sayf("the machine is busy with other things: fresh p99 is %s at 70 %%; once more", p99.Round(time.Millisecond))
		if err := r.drained(ctx); err != nil {
			return nil, err
		}
	}
}

// drained waits until nothing is eligible any more.
func (r *run) drained(ctx context.Context) error {
	for {
		if err := pause(ctx, 2*sampleEvery); err != nil {
			return err
		}
		if r.last().eligible == 0 {
			return nil
		}
	}
}

// graveyard makes the subscribers, one of which has n dead letters, and ends with all of
// them well.
func (r *run) graveyard(ctx context.Context, n int) (*Repair, *group, error) {
	if r.opts.Short {
		n /= 10
	}
	if err := r.svc.keepFile(ctx); err != nil {
		return nil, nil, err
	}
	r.repair = &Repair{Items: n, Stops: []Stop{}}
	if _, err := r.enter(ctx, cast{name: "healthy", endpoints: 20, each: 1 << 15}); err != nil {
		return nil, nil, err
	}
	g, err := r.enter(ctx, cast{name: "redriven", endpoints: 1, bad: true, manner: refusing, each: 1 << 16, policy: holding(2 * n)})
	if err != nil {
		return nil, nil, err
	}
	r.flood(ctx, g.name, n, 32)
	for r.last().dead < float64(n) {
		if _, err := r.accepted(); err != nil {
			return nil, nil, err
		}
		if err := pause(ctx, sampleEvery); err != nil {
			return nil, nil, fmt.Errorf("wait for %d dead letters, %.0f are there: %w", n, r.last().dead, err)
		}
	}
	g.turn(prompt)
	return r.repair, g, nil
}

// toApproval plans the redrive, starts it, and waits until its canary was delivered.
func (r *run) toApproval(ctx context.Context, p *Repair, g *group) (id string, err error) {
	order := client.RedriveOrder{
		Filter: &client.DeadLetterFilter{SubscriberID: g.endpoints[0].subscriber}, Reason: "its endpoint is back",
	}
	p.asked = r.now()
	r.marks = append(r.marks, mark{p.asked, "planned"})
	plan, err := r.api.PreviewRedrive(ctx, order)
	if err != nil {
		return "", fmt.Errorf("plan a redrive: %w", err)
	}
	p.Limit, p.Takes = plan.RatePerSecond, time.Duration(plan.Takes).Seconds()
	r.sayf("planned: up to %.0f a second, %.0f s; head-room %.0f of %.0f a second",
		p.Limit, p.Takes, plan.HeadRoom.PerSecond, plan.HeadRoom.CapacityPerSecond)
	made, err := r.api.CreateRedrive(ctx, order)
	if err != nil {
		return "", fmt.Errorf("start a redrive: %w", err)
	}
	for {
		now, err := r.see(ctx, p, made.ID)
		switch {
		case err != nil:
			return "", err
		case now.State == client.RedriveAwaiting:
			return made.ID, nil
		case now.State == client.RedrivePaused || now.State.Final():
			return "", fmt.Errorf("the redrive is %s before it was approved: %s", now.State, now.Stopped)
		}
	}
}

// approve lets the others go. From here on fresh ages count.
func (r *run) approve(ctx context.Context, id string) error {
	r.measure()
	r.mark("approved")
	_, err := r.api.ApproveRedrive(ctx, id, "the receiver has it once")
	if err != nil {
		return fmt.Errorf("approve a redrive: %w", err)
	}
	return nil
}

const (
	// seeEvery is the pause between two looks at a redrive.
	seeEvery = 200 * time.Millisecond
	// repairFor bounds one: far more than any plan of these plays.
	repairFor = 10 * time.Minute
)

// see looks at the redrive, after a moment.
func (r *run) see(ctx context.Context, p *Repair, id string) (client.Redrive, error) {
	if err := pause(ctx, seeEvery); err != nil {
		return client.Redrive{}, err
	}
	now, err := r.api.GetRedrive(ctx, id)
	if err != nil {
		return now, fmt.Errorf("look at a redrive: %w", err)
	}
	l := look{at: r.now(), state: now.State, held: now.HeldBack != "", rate: now.RatePerSecond}
	if now.Tally != nil {
		l.tally = *now.Tally
	}
	p.state, p.looks = now.State, append(p.looks, l)
	return now, nil
}

// onLook is what a play does at each look at a redrive; stop is not nil if it was paused
// just then.
type onLook func(now client.Redrive, stop *Stop) error

// follow goes with it to its end. What the guard pauses is resumed.
func (r *run) follow(ctx context.Context, p *Repair, id string, do onLook) error {
	for limit := r.now() + repairFor; r.now() < limit; {
		now, err := r.see(ctx, p, id)
		if err != nil {
			return err
		}
		if !now.EndedAt.IsZero() {
			p.Seconds = (r.now() - r.from).Seconds()
			return nil
		}
		var stop *Stop
		if now.State == client.RedrivePaused {
			stop = r.stopped(p, now)
		}
		if do != nil {
			if err := do(now, stop); err != nil {
				return err
			}
		}
		if stop == nil {
			continue
		}
		if err := pause(ctx, time.Second); err != nil { // an operator takes longer
			return err
		}
		if _, err := r.api.ResumeRedrive(ctx, id, "the load test goes on"); err != nil && !errors.Is(err, client.ErrConflict) {
			return fmt.Errorf("resume a redrive: %w", err)
		}
	}
	return fmt.Errorf("the redrive is still %s after %s", p.state, repairFor)
}

// stopped notes a pause of the guard.
func (r *run) stopped(p *Repair, now client.Redrive) *Stop {
	at := now.StoppedAt.Sub(r.origin)
	p.Stops = append(p.Stops, Stop{At: at.Seconds(), Why: now.Stopped, Rate: now.RatePerSecond})
	r.marks = append(r.marks, mark{at, "paused"})
	r.sayf("paused: %s", now.Stopped)
	return &p.Stops[len(p.Stops)-1]
}

// conclude sums the redrive up.
func (r *run) conclude(p *Repair, g *group) error {
	events, err := r.accepted()
	if err != nil {
		return err
	}
	var calmAges, during []age
	for _, one := range r.groups {
		calmAges = append(calmAges, ages(events, one, p.begin, p.asked, r.cut)...)
		during = append(during, ages(events, one, p.asked, r.until, r.cut)...)
	}
	p.Calm, p.During = summarise(calmAges), summarise(during)
	p.CalmSecond, p.DuringSecond = medianSecond(calmAges), medianSecond(during)
	p.Ratio = p.DuringSecond / max(p.CalmSecond, leastBase)
	end := p.looks[len(p.looks)-1].tally
	p.Delivered, p.Dead = end.Delivered, end.Dead
	p.Twice = -int64(r.last().leasesLost)
	for _, e := range g.endpoints {
		e.mu.Lock()
		for _, h := range e.hits {
			p.Twice += int64(h.again)
		}
		e.mu.Unlock()
	}
	p.Twice = max(p.Twice, 0)
	return nil
}

// redrivenIn are the redrive's requests that arrived in [from, to), and how many of them
// were refused.
func (g *group) redrivenIn(from, to time.Duration) (all, refused int) {
	for _, e := range g.endpoints {
		e.mu.Lock()
		for _, a := range e.redriven {
			if a.at >= from && a.at < to {
				all++
				if !a.taken {
					refused++
				}
			}
		}
		e.mu.Unlock()
	}
	return all, refused
}

// firstRefused is when the first of the redrive's requests after a time was refused.
func (g *group) firstRefused(after time.Duration) (time.Duration, bool) {
	first, found := time.Duration(0), false
	for _, e := range g.endpoints {
		e.mu.Lock()
		for _, a := range e.redriven {
			if !a.taken && a.at >= after && (!found || a.at < first) {
				first, found = a.at, true
			}
		}
		e.mu.Unlock()
	}
	return first, found
}
