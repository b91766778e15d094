package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/examples"
)

const (
	// pace between two events of the file: about what a person can follow.
	pace = 160 * time.Millisecond
	// livePace between two events once the file is through: the page lives, and
	// the terminal can be read.
	livePace = 3 * time.Second
	// settleFor is how long the last deliveries may take to end. The slowest of
	// the cast, with its breaker's rests, needs about 7 s.
	settleFor = 20 * time.Second
	lookEvery = 150 * time.Millisecond
)

// Options of Run.
type Options struct {
	// BaseURL of the API, such as http://127.0.0.1:8080. Required.
	BaseURL string
	// PageURL of the on-call page; default BaseURL and /oncall.
	PageURL string
	// End makes the play end by itself and judge the outcome. The ledger must have
	// begun with the process: a fresh data folder.
	End bool
	// Lines is the handler that the service logs through, so that attempts appear
	// among the play's own lines, with names instead of ids. Without it only Out
	// is written to, and no attempt is seen.
	Lines *Handler
	// Out is where the play writes if there are no Lines; default os.Stdout.
	Out io.Writer
	// Logger gets the play's own troubles; default: one over Lines.
	Logger *slog.Logger
	// State says on the banner where the state is kept, and for how long.
	State string
	// Events is the file, NDJSON; default examples.Shipments.
	Events []byte
	// Pace and LivePace replace the defaults above 0.
	Pace, LivePace time.Duration
}

// Run plays: it opens the receivers, registers the demo's subscribers, posts the
// file and prints what comes of it. It expects a service at BaseURL, running or
// about to, whose dispatcher may call loopback addresses by http on any port.
//
// Without End it goes on posting an event now and then until ctx ends, and then
// returns nil. With End it returns when nothing is pending, or after 20 s; its last
// line is the Figures; the error is ErrWrong if the ledger, the receipts and the
// endpoints do not agree, if a signature did not verify, or if a dead letter lacks
// its evidence.
func Run(ctx context.Context, o Options) (Figures, error) {
	p, err := newPlay(ctx, o)
	if err != nil {
		return Figures{}, err
	}
	f, err := p.run(ctx)
	err = errors.Join(err, p.close(ctx))
	if o.End {
		p.screen.sayf("%s\n", f) // even if it is wrong: then most of all
		return f, err
	}
	if ctx.Err() != nil {
		err = nil // the way in which it ends
	}
	return f, err
}

// play is one run.
type play struct {
	o         Options
	api       *api
	receivers *receivers
	scene     *scene
	stage     *stage
	screen    *screen
	watch     *watch
	through   atomic.Bool // the file is
	log       *slog.Logger
	events    []event
	suffix    string // makes the ids of this run its own

	subscribers map[string]*receiver // by id
	promised    map[string]int       // deliveries, by event id
	repeats     int                  // posts that were called duplicates
	work        sync.WaitGroup
	stopWork    context.CancelFunc
}

func newPlay(ctx context.Context, o Options) (*play, error) {
	if o.Out == nil {
		o.Out = os.Stdout
	}
	if o.Lines == nil {
		o.Lines = NewHandler(o.Out, UseColor(o.Out))
	}
	if o.Logger == nil {
		o.Logger = slog.New(o.Lines)
	}
	if o.PageURL == "" {
		o.PageURL = o.BaseURL + "/oncall"
	}
	if o.Events == nil {
		o.Events = examples.Shipments
	}
	if o.Pace <= 0 {
		o.Pace = pace
	}
	if o.LivePace <= 0 {
		o.LivePace = livePace
	}
	events, err := parseEvents(o.Events)
	if err != nil {
		return nil, err
	}
	api, err := newAPI(o.BaseURL)
	if err != nil {
		return nil, err
	}
	rs, err := openReceivers(ctx, cast())
	if err != nil {
		return nil, err
	}
	return &play{
		o: o, api: api, receivers: rs, scene: newScene(),
		stage: o.Lines.stage, screen: o.Lines.stage.screen, watch: &watch{screen: o.Lines.stage.screen},
		log: o.Logger, events: events,
		suffix:      "-" + strconv.FormatInt(time.Now().UnixMilli(), 36),
		subscribers: map[string]*receiver{}, promised: map[string]int{},
	}, nil
}

// run is the play from the first call to the last look.
func (p *play) run(ctx context.Context) (Figures, error) {
	if err := p.prepare(ctx); err != nil {
		return Figures{}, err
	}
	p.banner()
	expectRepeats, err := p.postFile(ctx)
	if err != nil {
		return Figures{}, err
	}
	look, err := p.settle(ctx)
	if err != nil {
		return Figures{}, err
	}
	p.scene.buried(ctx)
	f, err := p.facts(ctx, look)
	if err != nil {
		return Figures{}, err
	}
	f.expectRepeats = expectRepeats
	p.summary(f)
	p.through.Store(true)
	if p.o.End {
		return f.figures(), f.check()
	}
	return f.figures(), p.live(ctx)
}

// prepare takes away what an earlier run left and registers the cast.
func (p *play) prepare(ctx context.Context) error {
	if err := p.api.ready(ctx); err != nil {
		return err
	}
	if _, err := p.api.sweep(ctx); err != nil {
		return fmt.Errorf("delete the subscribers of an earlier run: %w", err)
	}
	for _, rc := range p.receivers.list {
		created, err := p.api.register(ctx, rc.role, p.receivers.url(rc.role))
		if err != nil {
			return err
		}
		rc.setSecret(created.Secret)
		p.subscribers[created.ID] = rc
		p.scene.enter(created.ID, rc)
	}
	p.stage.scene.Store(p.scene)
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.stopWork = stop
	p.work.Go(func() { p.scene.gravedigger(work, p.api, p.screen) })
	p.work.Go(func() { p.watch.run(work, p.api, p.watchEvery, p.nameOf) })
	return nil
}

func (p *play) watchEvery() time.Duration {
	if p.through.Load() {
		return liveWatchEvery
	}
	return watchEvery
}

// nameOf is who a subscriber is, or "". All are known by the time it is asked.
func (p *play) nameOf(id string) string {
	if rc := p.subscribers[id]; rc != nil {
		return rc.role.name
	}
	return ""
}

// postFile posts every line, and says how many of them were there before.
func (p *play) postFile(ctx context.Context) (repeats int, err error) {
	tick := time.NewTicker(p.o.Pace)
	defer tick.Stop()
	posted := map[string]bool{}
	for _, e := range p.events {
		if posted[string(e.line)] {
			repeats++
		}
		posted[string(e.line)] = true
		if err := p.post(ctx, e, p.suffix); err != nil {
			return repeats, err
		}
		select {
		case <-ctx.Done():
			return repeats, ctx.Err()
		case <-tick.C:
		}
	}
	return repeats, nil
}

// post accepts one event and keeps account of its receipt.
func (p *play) post(ctx context.Context, e event, suffix string) error {
	id, body := e.with(suffix)
	p.scene.announce(id, e.kind)
	receipt, err := p.api.post(ctx, body)
	if err != nil {
		return fmt.Errorf("post event %s: %w", id, err)
	}
	_, before := p.promised[id]
	p.promised[id] = receipt.Deliveries
	// A receipt that says duplicate without an earlier one of ours is the second
	// try after a lost answer: the event was accepted once.
	if receipt.Duplicate && before {
		p.repeats++
	}
	return nil
}

// settle waits until what was promised is accepted and nothing is pending, and
// returns the last look, whatever it shows, when that takes too long.
func (p *play) settle(ctx context.Context) (client.OnCall, error) {
	p.screen.sayf("%s the file is through; waiting for what is still on its way\n",
		p.screen.paint(time.Now().Format(clockFormat), dim))
	patience, cancel := context.WithTimeout(ctx, settleFor)
	defer cancel()
	for {
		// The look may be of a moment ago, before the last events: hence the sum.
		look, err := p.api.onCall(ctx)
		if err != nil {
			return look, fmt.Errorf("look at the ledger: %w", err)
		}
		l := look.Ledger
		if l.Pending == 0 && look.OpenEvents == 0 && l.Accepted >= int64(p.sum()) {
			return look, nil
		}
		if rest(patience, lookEvery) != nil {
			return look, ctx.Err()
		}
	}
}

// sum is what the receipts promised.
func (p *play) sum() (n int) {
	for _, deliveries := range p.promised {
		n += deliveries
	}
	return n
}

// facts gathers both sides of the account.
func (p *play) facts(ctx context.Context, look client.OnCall) (facts, error) {
	f := facts{ledger: look.Ledger, promised: p.sum(), repeats: p.repeats}
	ids := make(map[string]string, len(p.subscribers)) // by name
	all := make([]string, 0, len(p.subscribers))
	for id, rc := range p.subscribers {
		ids[rc.role.name] = id
		all = append(all, id)
	}
	var err error
	if f.dead, err = p.api.deadLetters(ctx, all); err != nil {
		return f, fmt.Errorf("list the dead letters: %w", err)
	}
	for _, rc := range p.receivers.list {
		f.endpoints = append(f.endpoints, witness{
			role: rc.role, subscriberID: ids[rc.role.name], tally: rc.count(), standing: p.watch.of(ids[rc.role.name]),
			requests: func(id string) int { return rc.sighted(id).requests },
		})
	}
	return f, nil
}

// live goes round the file, an event every few seconds, until ctx ends. Trouble
// is told and passes: whoever watches may be about to see it heal.
func (p *play) live(ctx context.Context) error {
	tick := time.NewTicker(p.o.LivePace)
	defer tick.Stop()
	for round := 1; ; round++ {
		suffix := p.suffix + "." + strconv.FormatInt(int64(round), 36)
		clear(p.promised) // nobody adds up any more
		for _, e := range p.events {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			if err := p.post(ctx, e, suffix); err != nil && ctx.Err() == nil {
				p.log.WarnContext(ctx, "cannot post a demo event; trying the next", "error", err)
			}
		}
	}
}

// close ends the receivers, after what they are answering, and then whatever
// prints: the last attempts still have their names.
func (p *play) close(ctx context.Context) error {
	err := p.receivers.close(ctx)
	p.stage.scene.CompareAndSwap(p.scene, nil)
	if p.stopWork != nil {
		p.stopWork()
	}
	p.work.Wait()
	p.scene.leftovers(p.screen)
	p.api.Close()
	return err
}
