package loadtest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fanout/fanout/client"
)

// persistFor is how long a post is repeated. It has an id, so that is safe.
const persistFor = 30 * time.Second

// event is one that was accepted.
type event struct {
	id       string
	audience string
	accepted time.Duration // by Redis's clock, since origin
	// late is from when the post was to go out until its answer: the rate is held
	// whatever the service does, so what it keeps waiting shows here.
	late time.Duration
}

// for says whether a group gets the event.
func (e event) reaches(g *group) bool { return e.audience == everyone || e.audience == g.name }

// producer posts events.
type producer struct {
	api    *client.Client
	origin time.Time
	want   func(audience string) int // how many subscribers an event is for

	mu     sync.Mutex
	next   int
	events []event
	failed error // the first post that never went through
	again  int   // posts repeated
}

// filling brings a body to about 512 bytes.
var filling = strings.Repeat("x", 300)

// post posts one event that was to go out at, until it is accepted.
func (p *producer) post(ctx context.Context, to string, at time.Duration) {
	p.mu.Lock()
	p.next++
	id := fmt.Sprintf("load-%07d", p.next)
	p.mu.Unlock()
	err := p.submit(ctx, client.Event{
		ID: id, Type: "shipment.updated", ShipmentID: "shp_" + id, OccurredAt: p.origin.Add(at).UTC(),
		Attributes: map[string]string{audience: to}, Data: json.RawMessage(`{"note":"` + filling + `"}`),
	}, to, at)
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.failed == nil {
			p.failed = err
		}
	}
}

func (p *producer) submit(ctx context.Context, e client.Event, to string, at time.Duration) error {
	limit, cancel := context.WithTimeout(ctx, persistFor)
	defer cancel()
	var receipt client.Receipt
	for {
		var err error
		if receipt, err = p.api.Post(limit, e); err == nil {
			break
		}
		p.mu.Lock()
		p.again++
		p.mu.Unlock()
		if pause(limit, 100*time.Millisecond) != nil {
			return err
		}
	}
	if want := p.want(to); receipt.Deliveries != want {
		return fmt.Errorf("event %s was accepted for %d subscribers, want %d", e.ID, receipt.Deliveries, want)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, event{
		id: e.ID, audience: to, accepted: receipt.AcceptedAt.Sub(p.origin), late: time.Since(p.origin) - at,
	})
	return nil
}

// accepted is all events so far.
func (p *producer) accepted() ([]event, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clip(p.events), p.failed
}

// steady posts at a rate until it is stopped. The loop is open: a post that is
// slow to be answered holds no other up. Stop returns when all are answered.
func (p *producer) steady(ctx context.Context, to string, perSecond float64) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var posts sync.WaitGroup
	begin := time.Since(p.origin)
	posts.Go(func() {
		for i := 0; ; i++ {
			at := begin + time.Duration(float64(i)/perSecond*float64(time.Second))
			if pause(ctx, at-time.Since(p.origin)) != nil {
				return
			}
			posts.Go(func() { p.post(context.WithoutCancel(ctx), to, at) })
		}
	})
	return func() { cancel(); posts.Wait() }
}

// flood posts n events as fast as a number of callers gets answers.
func (p *producer) flood(ctx context.Context, to string, n, callers int) {
	var posts sync.WaitGroup
	work := make(chan struct{})
	for range callers {
		posts.Go(func() {
			for range work {
				p.post(ctx, to, time.Since(p.origin))
			}
		})
	}
	for range n {
		if ctx.Err() != nil {
			break
		}
		work <- struct{}{}
	}
	close(work)
	posts.Wait()
}
