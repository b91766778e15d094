package loadtest

import (
	"context"
	"slices"
	"time"

	"github.com/fanout/fanout/client"
)

// scenario is a play.
type scenario struct {
	name string
	play func(context.Context, *run) error
}

// scenarios in their order. Calm comes first: the others are measured by it.
var scenarios = []scenario{
	{calm, playCalm},
	{"hang", playHang},
	{"hang-small", playHangSmall},
	{outage, playOutage},
	{"backlog", playBacklog},
	{"slow", playSlow},
	{redriving, playRedrive},
	{redriveFails, playRedriveFails},
}

// Scenarios that are judged in ways of their own.
const (
	calm         = "calm"
	outage       = "outage"
	redriving    = "redrive"
	redriveFails = "redrive-fails"
)

// Names are all scenarios, in the order in which they are played.
func Names() []string {
	var names []string
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	return names
}

// chosen are the scenarios of the options, each once, in their own order.
func (o Options) chosen() []scenario {
	return slices.DeleteFunc(slices.Clone(scenarios), func(s scenario) bool {
		return len(o.Scenarios) > 0 && !slices.Contains(o.Scenarios, s.name)
	})
}

// steadyRate is events a second for everyone: with 20 to 40 endpoints 200 to 400
// deliveries a second, which two cores carry with ease, so that what is measured
// is who waits for whom.
const steadyRate = 10

// playCalm: 20 endpoints, all well. What comes of it is what the others are
// compared with.
func playCalm(ctx context.Context, r *run) error {
	if _, err := r.enter(ctx, cast{name: "healthy", endpoints: 20}); err != nil {
		return err
	}
	stop := r.steady(ctx, everyone, steadyRate)
	if err := pause(ctx, warmFor); err != nil {
		return err
	}
	r.measure()
	if err := pause(ctx, r.of(30*time.Second, 10*time.Second)); err != nil {
		return err
	}
	return r.end(ctx, stop)
}

// playHang: 20 of 40 endpoints stop answering in the middle of it all, at once.
func playHang(ctx context.Context, r *run) error {
	if _, err := r.enter(ctx, cast{name: "healthy", endpoints: 20}); err != nil {
		return err
	}
	bad, err := r.enter(ctx, cast{name: "hanging", endpoints: 20, bad: true})
	if err != nil {
		return err
	}
	stop := r.steady(ctx, everyone, steadyRate)
	if err := pause(ctx, warmFor+r.of(8*time.Second, 2*time.Second)); err != nil {
		return err
	}
	r.measure()
	r.mark("20 of 40 hang")
	bad.turn(hanging)
	// Longer than one attempt timeout in either form: a slot that was caught comes
	// free after 10 s, and may be caught again.
	if err := pause(ctx, r.of(50*time.Second, 13*time.Second)); err != nil {
		return err
	}
	return r.end(ctx, stop)
}

// playHangSmall: 5 of 10 endpoints hang from the first event on.
func playHangSmall(ctx context.Context, r *run) error {
	if _, err := r.enter(ctx, cast{name: "healthy", endpoints: 5}); err != nil {
		return err
	}
	if _, err := r.enter(ctx, cast{name: "hanging", endpoints: 5, bad: true, manner: hanging}); err != nil {
		return err
	}
	r.measure()
	stop := r.steady(ctx, everyone, 2*steadyRate)
	if err := pause(ctx, r.of(time.Minute, 12*time.Second)); err != nil {
		return err
	}
	return r.end(ctx, stop)
}

// playBacklog: one subscriber is resumed over all that piled up in its pause.
func playBacklog(ctx context.Context, r *run) error {
	n := 100_000
	if r.opts.Short {
		n = 10_000
	}
	if _, err := r.enter(ctx, cast{name: "healthy", endpoints: 20}); err != nil {
		return err
	}
	big, err := r.enter(ctx, cast{name: "backlog", endpoints: 1, bad: true, each: n, policy: holding(2 * n)})
	if err != nil {
		return err
	}
	subscriber := big.endpoints[0].subscriber
	if _, err := r.api.PauseSubscriber(ctx, subscriber, client.If{}); err != nil {
		return err
	}
	r.flood(ctx, big.name, n, 32)
	stop := r.steady(ctx, "healthy", steadyRate)
	if err := pause(ctx, warmFor); err != nil {
		return err
	}
	r.measure()
	r.mark("resumed")
	if _, err := r.api.ResumeSubscriber(ctx, subscriber, client.If{}); err != nil {
		return err
	}
	if err := pause(ctx, r.of(time.Minute, 10*time.Second)); err != nil {
		return err
	}
	return r.end(ctx, stop)
}

// playSlow: 200 endpoints succeed, each after 5 s, and are sent more than all
// slots could carry.
func playSlow(ctx context.Context, r *run) error {
	if _, err := r.enter(ctx, cast{name: "healthy", endpoints: 20}); err != nil {
		return err
	}
	if _, err := r.enter(ctx, cast{name: "slow", endpoints: 200, bad: true, manner: slow, each: 256}); err != nil {
		return err
	}
	stop := r.steady(ctx, "healthy", steadyRate)
	if err := pause(ctx, warmFor); err != nil {
		return err
	}
	r.measure()
	r.mark("200 slow ones")
	stopSlow := r.steady(ctx, "slow", 0.5)
	if err := pause(ctx, r.of(45*time.Second, 12*time.Second)); err != nil {
		return err
	}
	return r.end(ctx, stopSlow, stop)
}
