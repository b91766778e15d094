package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Filter says which events a subscriber gets.
type Filter struct {
	// Types are types (shipment.delivered), prefixes (shipment.*) or *.
	Types []string `json:"types,omitempty"`
	// Attributes: for every name given, the event must have one of the values. A
	// change with an empty map that is not nil takes them all away.
	Attributes map[string][]string `json:"attributes,omitzero"`
}

// SubscriberInput registers a subscriber, or changes one: what is nil has its
// default then, or stays as it is. new("text") makes a pointer.
type SubscriberInput struct {
	Account *string      `json:"account,omitempty"` // at registration only
	Name    *string      `json:"name,omitempty"`    // "" takes it away
	URL     *string      `json:"url,omitempty"`
	Class   *string      `json:"class,omitempty"`
	Filter  *Filter      `json:"filter,omitempty"`
	Policy  *PolicyInput `json:"policy,omitempty"`
	// Secret is one of your own, at registration only; left out, one is made.
	Secret *string `json:"secret,omitempty"`
	Paused *bool   `json:"paused,omitempty"`
	// Headers are sent with every request to the endpoint; answers show their names
	// alone. A change lays them over those that there are: a value sets one, nil takes
	// one away.
	Headers map[string]*string `json:"headers,omitzero"`
}

// PolicyInput is how hard a subscriber is tried. Bounds and defaults stand in the
// contract.
type PolicyInput struct {
	AttemptTimeout  *Duration         `json:"attempt_timeout,omitempty"`
	MaxAttempts     *int              `json:"max_attempts,omitempty"`
	BackoffBase     *Duration         `json:"backoff_base,omitempty"`
	BackoffCap      *Duration         `json:"backoff_cap,omitempty"`
	MaxAge          *Duration         `json:"max_age,omitempty"`
	MaxInFlight     *int              `json:"max_in_flight,omitempty"`
	RatePerSecond   *float64          `json:"rate_per_second,omitempty"`
	Burst           *int              `json:"burst,omitempty"`
	BreakerFailures *int              `json:"breaker_failures,omitempty"`
	RetryAfterCap   *Duration         `json:"retry_after_cap,omitempty"`
	MaxHeld         *int              `json:"max_held,omitempty"`
	Classify        map[string]string `json:"classify,omitzero"` // status to "retry" or "dead"
}

// Policy is how hard a subscriber is tried, every field set.
type Policy struct {
	AttemptTimeout  Duration          `json:"attempt_timeout"`
	MaxAttempts     int               `json:"max_attempts"`
	BackoffBase     Duration          `json:"backoff_base"`
	BackoffCap      Duration          `json:"backoff_cap"`
	MaxAge          Duration          `json:"max_age"`
	MaxInFlight     int               `json:"max_in_flight"`
	RatePerSecond   float64           `json:"rate_per_second"`
	Burst           int               `json:"burst"`
	BreakerFailures int               `json:"breaker_failures"`
	RetryAfterCap   Duration          `json:"retry_after_cap"`
	MaxHeld         int               `json:"max_held"`
	Classify        map[string]string `json:"classify,omitempty"`
}

// Subscriber is one registered endpoint.
type Subscriber struct {
	ID        string    `json:"id"`
	Account   string    `json:"account"`
	Name      string    `json:"name,omitempty"`
	URL       string    `json:"url"`
	Class     string    `json:"class"`
	Filter    Filter    `json:"filter"`
	Policy    Policy    `json:"policy"`
	Paused    bool      `json:"paused"`
	Version   int64     `json:"version"` // for If, as of this answer
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	// Headers has the names of the headers that are sent with every request; their
	// values are hidden.
	Headers map[string]string `json:"headers,omitempty"`
	// Secrets are those that sign, without their values.
	Secrets []SecretInfo `json:"secrets,omitempty"`
	// Status is how it is served at this moment; nil where the server could not say.
	Status   *SubscriberStatus `json:"status,omitempty"`
	Warnings []string          `json:"warnings,omitempty"`
}

// CreatedSubscriber is a new subscriber, with its secret for the only time.
type CreatedSubscriber struct {
	Subscriber

	Secret string `json:"secret"`
}

// SecretInfo is a signing secret without its value.
type SecretInfo struct {
	ID        string    `json:"id"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`  // zero: it does not
	PublicKey string    `json:"public_key,omitempty"` // of a whsk_: what verifies its v1a, "whpk_..."
}

// SubscriberStatus is how a subscriber is served at this moment.
type SubscriberStatus struct {
	Holds               []Hold    `json:"holds"` // all must end before anything is sent
	OnHoldSince         time.Time `json:"on_hold_since,omitzero"`
	InFlight            int       `json:"in_flight"`
	InFlightCap         int       `json:"in_flight_cap"`
	LatencyMS           int64     `json:"latency_ms,omitempty"`
	ConsecutiveFailures int       `json:"consecutive_failures"`
	Pending             int64     `json:"pending"`
	Waiting             Waiting   `json:"waiting"`
}

// HoldReason is why a subscriber is not sent to.
type HoldReason string

// The holds.
const (
	Paused    HoldReason = "paused"    // somebody said so
	Disabled  HoldReason = "disabled"  // its endpoint answered 410
	Throttled HoldReason = "throttled" // its endpoint asked for it by Retry-After
	Breaker   HoldReason = "breaker"   // its endpoint failed too often in a row
)

// Hold is one reason why a subscriber is not sent to.
type Hold struct {
	Reason HoldReason `json:"reason"`
	// Until is when it ends by itself, or the breaker's next probe goes; zero if only a
	// person, or a probe that is out, can end it.
	Until time.Time `json:"until,omitzero"`
	Probe string    `json:"probe,omitempty"` // the delivery that is out as the breaker's probe
	Note  string    `json:"note"`            // for a person
}

// Waiting are deliveries that wait, by lane.
type Waiting struct {
	Fresh   int64 `json:"fresh"`
	Retry   int64 `json:"retry"`
	Redrive int64 `json:"redrive"`
}

// If is a condition of a change: that the subscriber is at a version. The zero If is
// none. Such a change is not made again after a lost answer: it would find a version
// that it made itself.
type If struct{ Version int64 }

func (i If) header() map[string]string {
	if i.Version == 0 {
		return nil
	}
	return map[string]string{"If-Match": `"` + strconv.FormatInt(i.Version, 10) + `"`}
}

func (i If) repeat() repeat {
	if i.Version == 0 {
		return anyway
	}
	return unlessDone
}

// CreateSubscriber registers an endpoint. The secret is in this answer and in no
// other. It is not made again after a lost answer, which would register another: list
// the account's subscribers then.
func (c *Client) CreateSubscriber(ctx context.Context, in SubscriberInput) (CreatedSubscriber, error) {
	return send[CreatedSubscriber](ctx, c, request{method: http.MethodPost, path: "/v1/subscribers", repeat: unlessDone}, in)
}

// GetSubscriber reads a subscriber and its status.
func (c *Client) GetSubscriber(ctx context.Context, id string) (Subscriber, error) {
	return get[Subscriber](ctx, c, subscriberPath(id, ""), nil)
}

// SubscriberFilter says which subscribers; the zero filter is all.
type SubscriberFilter struct{ Account, Class string }

// ListSubscribers reads a page of subscribers, by id.
func (c *Client) ListSubscribers(ctx context.Context, f SubscriberFilter, p Page) (List[Subscriber], error) {
	return list[Subscriber](ctx, c, "/v1/subscribers", values("account", f.Account, "class", f.Class), p)
}

// Subscribers goes through all pages.
func (c *Client) Subscribers(ctx context.Context, f SubscriberFilter) iter.Seq2[Subscriber, error] {
	return all(ctx, func(ctx context.Context, p Page) (List[Subscriber], error) { return c.ListSubscribers(ctx, f, p) })
}

// PatchSubscriber changes what is given. Every attempt that is leased after the
// answer uses the new values. ErrPrecondition: it is at another version.
func (c *Client) PatchSubscriber(ctx context.Context, id string, in SubscriberInput, when If) (Subscriber, error) {
	return send[Subscriber](ctx, c, request{method: http.MethodPatch, path: subscriberPath(id, ""), repeat: when.repeat(), header: when.header()}, in)
}

// PauseSubscriber puts it on hold: its deliveries wait.
func (c *Client) PauseSubscriber(ctx context.Context, id string, when If) (Subscriber, error) {
	return send[Subscriber](ctx, c, request{method: http.MethodPost, path: subscriberPath(id, "/pause"), repeat: when.repeat(), header: when.header()}, nil)
}

// ResumeSubscriber ends the holds that a person can end.
func (c *Client) ResumeSubscriber(ctx context.Context, id string, when If) (Subscriber, error) {
	return send[Subscriber](ctx, c, request{method: http.MethodPost, path: subscriberPath(id, "/resume"), repeat: when.repeat(), header: when.header()}, nil)
}

// DeletedSubscriber is what the end of a subscriber came to.
type DeletedSubscriber struct {
	ID        string `json:"id"`
	Cancelled int    `json:"cancelled"`
	Remaining int    `json:"remaining"` // still to be cancelled
	Leases    int    `json:"leases"`    // requests that may still be in flight
}

// DeleteSubscriber deletes it and cancels what waits. With wait it returns when no
// request to the endpoint is in flight, within 90 s. To delete again is safe.
func (c *Client) DeleteSubscriber(ctx context.Context, id string, wait bool, when If) (DeletedSubscriber, error) {
	r := request{
		method: http.MethodDelete, path: subscriberPath(id, ""), wait: wait,
		header: when.header(), repeat: when.repeat(),
	}
	if !wait {
		r.query = url.Values{"wait": {"0"}}
	}
	var out DeletedSubscriber
	err := c.do(ctx, r, &out)
	return out, err
}

func subscriberPath(id, suffix string) string { return path("/v1/subscribers/", id, suffix) }
