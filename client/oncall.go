package client

import (
	"context"
	"net/http"
	"time"
)

// OnCall is one look at the whole service.
type OnCall struct {
	Now          time.Time     `json:"now"`
	StaleSeconds float64       `json:"stale_seconds"`
	Triage       Triage        `json:"triage"`
	Classes      []OnCallClass `json:"classes"`
	Ledger       Ledger        `json:"ledger"`
	Leases       int64         `json:"leases"`
	// LeasesExpired have passed their end, and nobody has reclaimed them.
	LeasesExpired     int64           `json:"leases_expired"`
	Ready             int64           `json:"ready"`
	Scheduled         int64           `json:"scheduled"`
	SubscribersOnHold int64           `json:"subscribers_on_hold"`
	DeliveriesHeld    int64           `json:"deliveries_held"`
	InFlight          int64           `json:"in_flight"`
	Limited           int64           `json:"limited"`
	OldestDeadSeconds float64         `json:"oldest_dead_letter_seconds"`
	LateEvents        int64           `json:"late_events"`
	Fleet             Fleet           `json:"fleet"`
	Release           Release         `json:"release"`
	Redis             OnCallRedis     `json:"redis"`
	Gaps              []Gap           `json:"gaps"`
	Redrives          []OnCallRedrive `json:"redrives"`
	DeadLetters       int64           `json:"dead_letters"`
	OpenEvents        int64           `json:"open_events"`
	Trouble           string          `json:"trouble"` // of Redis, for a person; "" for none
	OnHold            []OnCallHeld    `json:"on_hold"`
	LastFailures      []OnCallFailure `json:"last_failures"`
}

// OnCallClass is a class of subscribers and its age objective.
type OnCallClass struct {
	Class      string       `json:"class"`
	Configured bool         `json:"configured"`
	SLOSeconds float64      `json:"slo_seconds"`
	Breaching  bool         `json:"breaching"`
	Lanes      []OnCallLane `json:"lanes"`
}

// OnCallLane has the ages of the oldest due deliveries of a lane; 0 if there are none.
type OnCallLane struct {
	Lane                     string  `json:"lane"`
	OldestEligibleAgeSeconds float64 `json:"oldest_eligible_age_seconds"`
	LimitedAgeSeconds        float64 `json:"limited_age_seconds"`
	HeldAgeSeconds           float64 `json:"held_age_seconds"`
}

// Ledger has exact counts of deliveries: accepted = pending + delivered + dead +
// cancelled.
type Ledger struct {
	Accepted  int64 `json:"accepted"`
	Pending   int64 `json:"pending"`
	Delivered int64 `json:"delivered"`
	Dead      int64 `json:"dead"`
	Cancelled int64 `json:"cancelled"`
	Balanced  bool  `json:"balanced"`
}

// OnCallHeld is a subscriber that is on hold.
type OnCallHeld struct {
	SubscriberID string       `json:"subscriber_id"`
	Reasons      []HoldReason `json:"reasons"`
	Since        time.Time    `json:"since"`
	Until        time.Time    `json:"until,omitzero"`
	Pending      int64        `json:"pending"`
}

// OnCallFailure is one failure.
type OnCallFailure struct {
	DeliveryID   string    `json:"delivery_id"`
	SubscriberID string    `json:"subscriber_id"`
	EventID      string    `json:"event_id"`
	Outcome      string    `json:"outcome"`
	Reason       string    `json:"reason"`
	Attempts     int       `json:"attempts"`
	At           time.Time `json:"at"`
}

// OnCall reads what on-call looks at.
func (c *Client) OnCall(ctx context.Context) (OnCall, error) {
	return get[OnCall](ctx, c, "/v1/oncall", nil)
}

// Ready returns nil if the server can do its work, and waits for that as long as a
// call may be made again.
func (c *Client) Ready(ctx context.Context) error {
	err := c.do(ctx, request{method: http.MethodGet, path: "/readyz"}, nil)
	return err
}
