package demo

import (
	"time"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/subscriber"
)

// account marks the subscribers of the demo: a later run deletes them by it, and
// touches no others.
const account = "demo"

// manner is how an endpoint treats its requests.
type manner string

const (
	healthy   manner = "healthy"   // 200
	flaky     manner = "flaky"     // 503 to the first refusals of each few requests, 204 to the others
	hanging   manner = "hanging"   // no answer to the first hangs of each cycle of requests, then 200
	failing   manner = "failing"   // 500
	rejecting manner = "rejecting" // 422, and says why
)

// What the endpoints that are not always bad do goes by their requests, in turn: so
// many are treated badly, and then the rest of the cycle well. The flaky one's are
// fewer in a row than open its breaker.
const (
	refusals, fewRequests = 2, 5
	hangs, manyRequests   = 3, 12
)

// delivers says whether the endpoint takes an event in the end.
func (m manner) delivers() bool { return m == healthy || m == flaky || m == hanging }

// character is one subscriber of the play.
type character struct {
	name   string
	manner manner
	gets   string // its filter, for people
	does   string // its endpoint's manner, for people
	filter subscriber.Filter
	policy client.PolicyInput
}

// maxAttempts is the budget that the role asks for.
func (r character) maxAttempts() int { return *r.policy.MaxAttempts }

// cast is everybody. Budgets and backoffs are short, for people who watch; real
// ones last hours. The max_age ends what has not ended otherwise.
func cast() []character {
	return []character{
		{
			name: "back-office", manner: healthy, gets: "every event", does: "answers 200",
			filter: subscriber.Filter{Types: []string{"*"}}, policy: patience(3, 5*time.Second),
		},
		{
			name: "dhl-desk", manner: healthy, gets: "carrier dhl", does: "answers 200",
			filter: subscriber.Filter{Types: []string{"*"}, Attributes: map[string][]string{"carrier": {"dhl"}}},
			policy: patience(3, 5*time.Second),
		},
		{
			name: "buyer-app", manner: healthy, gets: "delivered, out_for_delivery", does: "answers 200",
			filter: subscriber.Filter{Types: []string{"shipment.delivered", "shipment.out_for_delivery"}},
			policy: patience(3, 5*time.Second),
		},
		{
			name: "flaky-shop", manner: flaky, gets: "carrier fedex", does: "answers 503 to 2 of 5, else 204",
			filter: subscriber.Filter{Types: []string{"shipment.*"}, Attributes: map[string][]string{"carrier": {"fedex"}}},
			policy: patience(6, 5*time.Second),
		},
		{
			name: "picky-label", manner: rejecting, gets: "label_printed by postnl, ups", does: "answers 422: dead at once, with its reason",
			filter: subscriber.Filter{
				Types:      []string{"shipment.label_printed"},
				Attributes: map[string][]string{"carrier": {"postnl", "ups"}},
			},
			policy: patience(3, 5*time.Second),
		},
		{
			name: "old-crm", manner: failing, gets: "created by gls", does: "answers 500: dead after 3 attempts",
			filter: subscriber.Filter{Types: []string{"shipment.created"}, Attributes: map[string][]string{"carrier": {"gls"}}},
			policy: breaking(2, patience(3, 5*time.Second)),
		},
		{
			name: "hung-erp", manner: hanging, gets: "exception, returned", does: "hangs 3 times, then it is back",
			filter: subscriber.Filter{Types: []string{"shipment.exception", "shipment.returned"}},
			policy: breaking(2, patience(5, time.Second)),
		},
	}
}

// breaking is the policy with a breaker that opens after so many failures in a row.
func breaking(failures int, p client.PolicyInput) client.PolicyInput {
	p.BreakerFailures = new(failures)
	return p
}

// patience is a policy for people who watch.
func patience(attempts int, timeout time.Duration) client.PolicyInput {
	return client.PolicyInput{
		MaxAttempts:    new(attempts),
		AttemptTimeout: new(client.Duration(timeout)),
		BackoffBase:    new(client.Duration(300 * time.Millisecond)),
		BackoffCap:     new(client.Duration(2 * time.Second)),
		MaxAge:         new(client.Duration(time.Minute)),
	}
}
