package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fanout/fanout/client"
)

const (
	// callTimeout bounds one attempt at a call. The server gives up earlier.
	callTimeout = 15 * time.Second
	// persistFor is how long a call is repeated through a service that starts, or
	// whose Redis is away: about every persistGap.
	persistFor = 15 * time.Second
	persistGap = 200 * time.Millisecond
	// maxDeadLetters is the longest list that the API gives.
	maxDeadLetters = 200
)

// api is the public HTTP API, as any user has it.
type api struct {
	*client.Client

	base string
}

func newAPI(base string) (*api, error) {
	c, err := client.New(
		base, "", client.WithAttemptTimeout(callTimeout), client.WithRetries(int(persistFor/time.Millisecond)),
		client.WithBackoff(2*persistGap, 2*persistGap), client.WithRetryAfterCap(0), // people watch
	)
	return &api{Client: c, base: base}, err
}

// insist bounds a call that is repeated.
func insist(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, persistFor)
}

// ready waits until the service can do its work.
func (a *api) ready(ctx context.Context) error {
	ctx, cancel := insist(ctx)
	defer cancel()
	if err := a.Ready(ctx); err != nil {
		return fmt.Errorf("the service did not become ready: %w", err)
	}
	return nil
}

// subscribers are those of the demo, from all pages of the list.
func (a *api) subscribers(ctx context.Context) (ours []client.Subscriber, err error) {
	ctx, cancel := insist(ctx)
	defer cancel()
	for s, err := range a.Subscribers(ctx, client.SubscriberFilter{}) {
		if err != nil {
			return nil, err
		}
		if s.Account == account {
			ours = append(ours, s)
		}
	}
	return ours, nil
}

// sweep deletes the subscribers that an earlier run left, and says how many.
func (a *api) sweep(ctx context.Context) (int, error) {
	old, err := a.subscribers(ctx)
	if err != nil {
		return 0, err
	}
	for _, s := range old {
		// Their receivers are gone: there is no answer to wait for.
		if err := a.remove(ctx, s.ID); err != nil && !errors.Is(err, client.ErrNotFound) {
			return 0, err
		}
	}
	return len(old), nil
}

func (a *api) remove(ctx context.Context, id string) error {
	ctx, cancel := insist(ctx)
	defer cancel()
	_, err := a.DeleteSubscriber(ctx, id, false, client.If{})
	return err
}

// register creates a role's subscriber. The secret is shown this once.
func (a *api) register(ctx context.Context, r character, endpoint string) (client.CreatedSubscriber, error) {
	created, err := a.CreateSubscriber(ctx, client.SubscriberInput{
		Account: new(account), Name: &r.name, URL: &endpoint, Filter: new(client.Filter(r.filter)), Policy: &r.policy,
	})
	if err != nil {
		return created, fmt.Errorf("register %s: %w", r.name, err)
	}
	return created, nil
}

// post accepts an event.
func (a *api) post(ctx context.Context, body []byte) (client.Receipt, error) {
	ctx, cancel := insist(ctx)
	defer cancel()
	return a.PostRaw(ctx, body)
}

func (a *api) onCall(ctx context.Context) (client.OnCall, error) {
	ctx, cancel := insist(ctx)
	defer cancel()
	return a.OnCall(ctx)
}

// deadLetters are the newest of the play's subscribers.
func (a *api) deadLetters(ctx context.Context, subscribers []string) ([]client.DeadLetter, error) {
	ctx, cancel := insist(ctx)
	defer cancel()
	list, err := a.ListDeadLetters(ctx, client.DeadLetterFilter{}, client.Page{Limit: maxDeadLetters})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Data, func(d client.DeadLetter) bool {
		return !slices.Contains(subscribers, d.Delivery.SubscriberID)
	}), nil
}

// rest waits, unless ctx ends first.
func rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
