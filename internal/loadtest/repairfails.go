package loadtest

import (
	"context"
	"fmt"
	"time"

	"github.com/fanout/fanout/client"
)

// relapse is how the endpoint of a redrive begins to fail again, once so much of the
// cohort was delivered.
type relapse struct {
	manner manner
	name   string
	share  float64
}

// relapses: first an answer that says something of the payload, for which no breaker
// opens and the guard is alone; then one for which the breaker stops the sending and the
// guard the release.
var relapses = []relapse{
	{refusing, "422", 0.5},
	{failing, "500", 0.75},
}

// playRedriveFails: the endpoint of a redrive of 10,000 fails again half way, twice. It is
// measured how long the guard takes to pause, and what was sent meanwhile.
func playRedriveFails(ctx context.Context, r *run) error {
	p, g, err := r.graveyard(ctx, 10_000)
	if err != nil {
		return err
	}
	stop := r.steady(ctx, "healthy", steadyRate)
	if err := pause(ctx, warmFor); err != nil {
		return err
	}
	p.begin = r.now()
	r.mark("calm")
	if err := pause(ctx, r.of(10*time.Second, 3*time.Second)); err != nil {
		return err
	}
	id, err := r.toApproval(ctx, p, g)
	if err != nil {
		return err
	}
	if err := r.approve(ctx, id); err != nil {
		return err
	}
	if err := r.follow(ctx, p, id, r.relapse(ctx, p, g)); err != nil {
		return err
	}
	if err := r.end(ctx, stop); err != nil {
		return err
	}
	return r.conclude(p, g)
}

// outFor is how long what is out is watched after a pause: attempts take milliseconds.
const outFor = 2 * time.Second

// relapse has the endpoint fail when it is time, and measures the guard's answer. It is
// called at each look; stop is not nil if the redrive was paused just then.
func (r *run) relapse(ctx context.Context, p *Repair, g *group) onLook {
	next, since, failing := 0, time.Duration(0), false
	return func(now client.Redrive, stop *Stop) error {
		if next == len(relapses) || now.Tally == nil {
			return nil
		}
		this := relapses[next]
		if !failing {
			if failing = float64(now.Tally.Delivered) >= this.share*float64(p.Items); failing {
				since = r.now()
				r.mark(this.name)
				g.turn(this.manner)
			}
			return nil
		}
		if stop == nil {
			return nil
		}
		next, failing = next+1, false
		return r.timeStop(ctx, g, since, this.name, stop)
	}
}

// timeStop measures a pause, and has the endpoint well again.
func (r *run) timeStop(ctx context.Context, g *group, since time.Duration, manner string, stop *Stop) error {
	if err := pause(ctx, outFor); err != nil {
		return err
	}
	first, found := g.firstRefused(since)
	if !found {
		return fmt.Errorf("it was paused before anything was refused: %s", stop.Why)
	}
	at := time.Duration(stop.At * float64(time.Second))
	stop.Manner, stop.Seconds = manner, (at - first).Seconds()
	stop.Sent, stop.Refused = g.redrivenIn(first, at)
	stop.After, _ = g.redrivenIn(at, r.now())
	r.sayf("paused %.2f s after the first %s: %d sent meanwhile, %d after", stop.Seconds, manner, stop.Sent, stop.After)
	g.turn(prompt)
	// Its breaker need not rest any longer.
	_, err := r.api.ResumeSubscriber(ctx, g.endpoints[0].subscriber, client.If{})
	return err
}
