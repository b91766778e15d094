package demo

import (
	"context"
	"sync"
	"time"

	"github.com/fanout/fanout/client"
)

const (
	// mostDead is how many dead letters may wait for their evidence; one more is
	// printed without.
	mostDead = 256
	// evidenceFor is how long a verdict may be on its way to Redis before a dead
	// letter is printed without its evidence.
	evidenceFor = 2 * time.Second
	evidenceGap = 25 * time.Millisecond
)

// scene knows who acts: what the log calls by ids, people call by names.
type scene struct {
	mu    sync.Mutex
	subs  map[string]*receiver // by subscriber id
	kinds recent[string]       // event types by event id
	dead  chan deadLine
}

// deadLine is a dead letter to print, or if done is set a mark: all before it
// are printed when it is closed.
type deadLine struct {
	attempt attempt
	done    chan struct{}
}

func newScene() *scene {
	return &scene{subs: map[string]*receiver{}, dead: make(chan deadLine, mostDead)}
}

func (sc *scene) enter(subscriberID string, rc *receiver) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.subs[subscriberID] = rc
}

// announce gives an event's type. It comes before the post: the first attempt may
// be over when the answer arrives.
func (sc *scene) announce(eventID, kind string) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.kinds.put(eventID, kind)
}

// recognise fills in what the log does not say.
func (sc *scene) recognise(a *attempt) {
	sc.mu.Lock()
	rc, kind := sc.subs[a.subscriberID], sc.kinds.get(a.eventID)
	sc.mu.Unlock()
	if kind != "" {
		a.kind = kind
	}
	if rc == nil {
		return
	}
	a.name, a.maxAttempts = rc.role.name, rc.role.maxAttempts()
	switch s := rc.sighted(a.deliveryID); {
	case s.signed:
		a.signature = verified
	case s.seen:
		a.signature = forged
	}
}

// bury hands a dead letter to whoever prints it with its evidence, unless there
// are too many.
func (sc *scene) bury(a attempt) bool {
	select {
	case sc.dead <- deadLine{attempt: a}:
		return true
	default:
		return false
	}
}

// gravedigger prints dead letters until ctx ends, each when its evidence is there:
// the log line comes before the verdict has reached Redis.
func (sc *scene) gravedigger(ctx context.Context, api *api, screen *screen) {
	for {
		select {
		case <-ctx.Done():
			return
		case line := <-sc.dead:
			if line.done != nil {
				close(line.done)
				continue
			}
			_ = screen.attempt(line.attempt, evidence(ctx, api, line.attempt.deliveryID)) // as sayf
		}
	}
}

// evidence gets a delivery once it is dead, or nil if that takes too long.
func evidence(ctx context.Context, api *api, id string) *client.Delivery {
	ctx, cancel := context.WithTimeout(ctx, evidenceFor)
	defer cancel()
	for {
		d, err := api.GetDelivery(ctx, id)
		if err == nil && d.State == client.Dead {
			return &d
		}
		if rest(ctx, evidenceGap) != nil {
			return nil
		}
	}
}

// buried returns when every dead letter so far is printed, or ctx ends.
func (sc *scene) buried(ctx context.Context) {
	mark := deadLine{done: make(chan struct{})}
	select {
	case sc.dead <- mark:
	case <-ctx.Done():
		return
	}
	select {
	case <-mark.done:
	case <-ctx.Done():
	}
}

// leftovers prints the dead letters that the gravedigger left, without evidence.
func (sc *scene) leftovers(screen *screen) {
	for {
		select {
		case line := <-sc.dead:
			if line.done == nil {
				_ = screen.attempt(line.attempt, nil) // as sayf
			}
		default:
			return
		}
	}
}
