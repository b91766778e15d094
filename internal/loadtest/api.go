package loadtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/delivery"
)

// callTimeout bounds one call of the API.
const callTimeout = 15 * time.Second

// caller has no proxy from the environment: all is on this machine.
var caller = &http.Client{
	Transport: &http.Transport{MaxIdleConnsPerHost: 256}, Timeout: callTimeout,
}

func get(ctx context.Context, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	return caller.Do(req)
}

// newClient calls the API as any program does, but once: what is repeated, and how
// long each call took, is counted here.
func newClient(base string) (*client.Client, error) {
	return client.New(base, "", client.WithRetries(0), client.WithAttemptTimeout(callTimeout), client.WithTransport(caller.Transport))
}

// Subscribers filter on the attribute audience: it names one group, or everyone.
const (
	audience = "audience"
	everyone = "everyone"
)

// register makes a subscriber of an endpoint. It takes events that are for its
// group, and those for everyone.
func register(ctx context.Context, api *client.Client, e *endpoint, p delivery.Policy) error {
	policy, err := input(p)
	if err != nil {
		return fmt.Errorf("register a subscriber: %w", err)
	}
	created, err := api.CreateSubscriber(ctx, client.SubscriberInput{
		Account: new("loadtest"), Name: &e.group.name, URL: &e.url, Policy: policy,
		Filter: &client.Filter{Types: []string{"*"}, Attributes: map[string][]string{audience: {e.group.name, everyone}}},
	})
	if err != nil {
		return fmt.Errorf("register a subscriber: %w", err)
	}
	e.subscriber = created.ID
	return nil
}

// input is a policy as the API takes it, every field set.
func input(p delivery.Policy) (*client.PolicyInput, error) {
	b, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	var in client.PolicyInput
	return &in, json.Unmarshal(b, &in)
}
