package demo

import (
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/subscriber"
)

// account marks the subscribers of the demo: a later run deletes them by it, and
// touches no others.
const account = "demo"

// manner is how an endpoint treats its requests.
type manner string

const (
	healthy   manner = "healthy"   // 200
	flaky     manner = "flaky"     // 503 to the first one or two of each webhook-id, then 204
	hanging   manner = "hanging"   // no answer at all
	rejecting manner = "rejecting" // 422, and says why
)

// delivers says whether the endpoint takes an event in the end.
func (m manner) delivers() bool { return m == healthy || m == flaky }

// character is one subscriber of the play.
type character struct {
	name   string
	manner manner
	gets   string // its filter, for people
	does   string // its endpoint's manner, for people
	filter subscriber.Filter
	policy subscriber.PolicyPatch
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
			name: "flaky-shop", manner: flaky, gets: "carrier fedex", does: "answers 503 once or twice, then 204",
			filter: subscriber.Filter{Types: []string{"shipment.*"}, Attributes: map[string][]string{"carrier": {"fedex"}}},
			policy: patience(5, 5*time.Second),
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
			name: "hung-erp", manner: hanging, gets: "exception, returned", does: "never answers: dead after 2 attempts of 1s",
			filter: subscriber.Filter{Types: []string{"shipment.exception", "shipment.returned"}},
			policy: patience(2, time.Second),
		},
	}
}

// patience is a policy for people who watch.
func patience(attempts int, timeout time.Duration) subscriber.PolicyPatch {
	return subscriber.PolicyPatch{
		MaxAttempts:    new(attempts),
		AttemptTimeout: new(delivery.Duration(timeout)),
		BackoffBase:    new(delivery.Duration(300 * time.Millisecond)),
		BackoffCap:     new(delivery.Duration(2 * time.Second)),
		MaxAge:         new(delivery.Duration(time.Minute)),
	}
}
