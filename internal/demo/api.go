package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/fanout/fanout/internal/httpapi"
)

const (
	// callTimeout bounds one call of the API. The server gives up earlier.
	callTimeout = 15 * time.Second
	// persistFor is how long a call is repeated through a service that starts, or
	// whose Redis is away. Every call here may be repeated: events carry ids.
	persistFor = 15 * time.Second
	persistGap = 200 * time.Millisecond
	maxAnswer  = 16 << 20 // bytes
	// maxDeadLetters is the longest list that the API gives.
	maxDeadLetters = 200
)

// api is the public HTTP API, as any user has it.
type api struct {
	base   string
	client *http.Client
}

func newAPI(base string) *api {
	// No proxy from the environment: the service is on this machine.
	return &api{base: base, client: &http.Client{Transport: &http.Transport{}, Timeout: callTimeout}}
}

// refusal is an answer that was not wanted.
type refusal struct {
	method, path string
	status       int
	problem      httpapi.Problem
}

func (e *refusal) Error() string {
	return fmt.Sprintf("%s %s: %d %s %s", e.method, e.path, e.status, e.problem.Code, e.problem.Detail)
}

// call makes one request and reads the answer into out, unless that is nil.
func (a *api) call(ctx context.Context, method, path string, in []byte, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader(in))
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := a.client.Do(req)
	if err != nil {
		if ue := (*url.Error)(nil); errors.As(err, &ue) {
			err = ue.Err // it repeats the URL
		}
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer func() { _ = resp.Body.Close() }() // read to its end, or given up
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s %s: read the answer: %w", method, path, err)
	}
	if resp.StatusCode/100 != 2 {
		e := &refusal{method: method, path: path, status: resp.StatusCode}
		_ = json.Unmarshal(b, &e.problem) // the status alone says enough
		return e
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("%s %s: read the answer: %w", method, path, err)
	}
	return nil
}

// insist is call, repeated while the service is away: no answer, or a 503.
func (a *api) insist(ctx context.Context, method, path string, in []byte, out any) error {
	limit, cancel := context.WithTimeout(ctx, persistFor)
	defer cancel()
	for {
		err := a.call(limit, method, path, in, out)
		var no *refusal
		if err == nil || (errors.As(err, &no) && no.status != http.StatusServiceUnavailable) {
			return err
		}
		if rest(limit, persistGap) != nil {
			return errors.Join(err, ctx.Err())
		}
	}
}

// ready waits until the service can do its work.
func (a *api) ready(ctx context.Context) error {
	if err := a.insist(ctx, http.MethodGet, "/readyz", nil, nil); err != nil {
		return fmt.Errorf("the service did not become ready: %w", err)
	}
	return nil
}

// subscribers are those of the demo, from all pages of the list.
func (a *api) subscribers(ctx context.Context) ([]httpapi.Subscriber, error) {
	var ours []httpapi.Subscriber
	for cursor := ""; ; {
		var page httpapi.SubscriberList
		query := url.Values{"limit": {"200"}}
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		if err := a.insist(ctx, http.MethodGet, "/v1/subscribers?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		for _, s := range page.Data {
			if s.Account == account {
				ours = append(ours, s)
			}
		}
		if page.NextCursor == nil {
			return ours, nil
		}
		cursor = *page.NextCursor
	}
}

// sweep deletes the subscribers that an earlier run left, and says how many.
func (a *api) sweep(ctx context.Context) (int, error) {
	old, err := a.subscribers(ctx)
	if err != nil {
		return 0, err
	}
	for _, s := range old {
		// Their receivers are gone: there is no answer to wait for.
		err := a.insist(ctx, http.MethodDelete, "/v1/subscribers/"+s.ID+"?wait=0", nil, nil)
		if no := (*refusal)(nil); err != nil && (!errors.As(err, &no) || no.status != http.StatusNotFound) {
			return 0, err
		}
	}
	return len(old), nil
}

// register creates a role's subscriber. The secret is shown this once.
func (a *api) register(ctx context.Context, r character, endpoint string) (httpapi.SubscriberCreated, error) {
	var created httpapi.SubscriberCreated
	body, err := json.Marshal(httpapi.SubscriberInput{
		Account: new(account), Name: &r.name, URL: &endpoint, Filter: &r.filter, Policy: &r.policy,
	})
	if err != nil {
		return created, fmt.Errorf("register %s: %w", r.name, err)
	}
	// Not insist: a repeat after a lost answer would make a second subscriber.
	if err := a.call(ctx, http.MethodPost, "/v1/subscribers", body, &created); err != nil {
		return created, fmt.Errorf("register %s: %w", r.name, err)
	}
	return created, nil
}

// post accepts an event.
func (a *api) post(ctx context.Context, body []byte) (receipt httpapi.EventReceipt, err error) {
	err = a.insist(ctx, http.MethodPost, "/v1/events", body, &receipt)
	return receipt, err
}

func (a *api) onCall(ctx context.Context) (look httpapi.OnCall, err error) {
	err = a.insist(ctx, http.MethodGet, "/v1/oncall", nil, &look)
	return look, err
}

func (a *api) delivery(ctx context.Context, id string) (d httpapi.Delivery, err error) {
	err = a.call(ctx, http.MethodGet, "/v1/deliveries/"+url.PathEscape(id), nil, &d)
	return d, err
}

// deadLetters are the newest of some subscribers.
func (a *api) deadLetters(ctx context.Context, subscribers []string) ([]httpapi.DeadLetter, error) {
	var list httpapi.DeadLetterList
	path := fmt.Sprintf("/v1/dead-letters?limit=%d", maxDeadLetters)
	if err := a.insist(ctx, http.MethodGet, path, nil, &list); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Data, func(d httpapi.DeadLetter) bool {
		return !slices.Contains(subscribers, d.Delivery.SubscriberID)
	}), nil
}

func (a *api) close() { a.client.CloseIdleConnections() }

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
