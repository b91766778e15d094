package loadtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/httpapi"
	"github.com/fanout/fanout/internal/subscriber"
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

// call posts to the API, and reads the answer into out unless that is nil.
func call(ctx context.Context, base, path string, in []byte, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, bytes.NewReader(in))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := caller.Do(req)
	if err != nil {
		if ue := (*url.Error)(nil); errors.As(err, &ue) {
			err = ue.Err // it repeats the URL
		}
		return fmt.Errorf("POST %s: %w", path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("POST %s: read the answer: %w", path, err)
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("POST %s: %d %s", path, resp.StatusCode, b)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}

// Subscribers filter on the attribute audience: it names one group, or everyone.
const (
	audience = "audience"
	everyone = "everyone"
)

// registration is what registers a subscriber, every field of its policy set.
type registration struct {
	Account string            `json:"account"`
	Name    string            `json:"name"`
	URL     string            `json:"url"`
	Filter  subscriber.Filter `json:"filter"`
	Policy  delivery.Policy   `json:"policy"`
}

// register makes a subscriber of an endpoint. It takes events that are for its
// group, and those for everyone.
func register(ctx context.Context, base string, e *endpoint, p delivery.Policy) error {
	body, err := json.Marshal(registration{
		Account: "loadtest", Name: e.group.name, URL: e.url, Policy: p,
		Filter: subscriber.Filter{Types: []string{"*"}, Attributes: map[string][]string{audience: {e.group.name, everyone}}},
	})
	if err != nil {
		return fmt.Errorf("register a subscriber: %w", err)
	}
	var created httpapi.SubscriberCreated
	if err := call(ctx, base, "/v1/subscribers", body, &created); err != nil {
		return fmt.Errorf("register a subscriber: %w", err)
	}
	e.subscriber = created.ID
	return nil
}
