package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// RedriveState is where a redrive stands.
type RedriveState string

// The states; done and aborted are final.
const (
	RedrivePlanning RedriveState = "planning"          // its members are being claimed
	RedriveCanary   RedriveState = "canary"            // the first of them is out
	RedriveAwaiting RedriveState = "awaiting_approval" // it was delivered; say what you have checked
	RedriveRunning  RedriveState = "running"
	RedrivePaused   RedriveState = "paused" // by somebody, or by the guard
	RedriveDone     RedriveState = "done"
	RedriveAborted  RedriveState = "aborted"
)

// Final says whether nothing more is released.
func (s RedriveState) Final() bool { return s == RedriveDone || s == RedriveAborted }

// RedriveOrder says which dead letters to send again, why, and how carefully. It has a
// Filter or IDs; an empty Filter is all dead letters.
type RedriveOrder struct {
	Filter *DeadLetterFilter `json:"filter,omitempty"`
	IDs    []string          `json:"ids,omitempty"` // at most 1000
	Reason string            `json:"reason"`        // 3 to 500 characters, for the audit
	// AttemptBudget of each, 1 to 10; 0 is 2.
	AttemptBudget int `json:"attempt_budget,omitempty"`
	// Canaries are sent before anybody approves, 1 to 10; 0 is 1.
	Canaries int `json:"canaries,omitempty"`
	// MaxRate is how many are released a second at most; 0 is half of the head-room.
	MaxRate float64 `json:"max_rate,omitempty"`
	// Within is how long each may take from its release, 1 minute to 30 days; 0 is 24 hours.
	Within Duration `json:"within,omitempty"`
}

// Redrive is a set of dead letters on its way.
type Redrive struct {
	ID            string            `json:"id"`
	State         RedriveState      `json:"state"`
	Filter        *DeadLetterFilter `json:"filter,omitempty"`
	IDs           []string          `json:"ids,omitempty"`
	Reason        string            `json:"reason"`
	AttemptBudget int               `json:"attempt_budget"`
	Canaries      int               `json:"canaries"`
	MaxRate       float64           `json:"max_rate,omitempty"`
	Within        Duration          `json:"within"`
	CreatedBy     string            `json:"created_by"`
	CreatedAt     time.Time         `json:"created_at"`

	Planned bool  `json:"planned"`
	Matched int64 `json:"matched"`
	Skipped int64 `json:"skipped"` // matched, and could not be had

	CanaryIDs    []string  `json:"canary_ids"`
	CanaryPassed bool      `json:"canary_passed"`
	ApprovedBy   string    `json:"approved_by,omitempty"`
	ApprovedAt   time.Time `json:"approved_at,omitzero"`
	Effect       string    `json:"effect,omitempty"` // what was checked
	// CanaryDeliveries have their evidence; only GetRedrive has them.
	CanaryDeliveries []Delivery `json:"canary_deliveries,omitempty"`

	RatePerSecond float64   `json:"rate_per_second"`
	RateLimit     float64   `json:"rate_limit,omitempty"` // 0 before it runs
	HeldBack      string    `json:"held_back,omitempty"`  // why nothing is released although it runs
	Stopped       string    `json:"stopped,omitempty"`    // why it is paused or aborted
	StoppedBy     string    `json:"stopped_by,omitempty"` // a key's id, or guard
	StoppedAt     time.Time `json:"stopped_at,omitzero"`
	EndedAt       time.Time `json:"ended_at,omitzero"`
	// Tally is nil in lists and after changes, unless it has ended.
	Tally *RedriveTally `json:"tally,omitempty"`
}

// RedriveTally counts a redrive's members.
type RedriveTally struct {
	Claimed   int64 `json:"claimed"`
	Waiting   int64 `json:"waiting"` // yet to be released
	Released  int64 `json:"released"`
	Out       int64 `json:"out"` // released, and not ended
	Delivered int64 `json:"delivered"`
	Dead      int64 `json:"dead"` // again
	Cancelled int64 `json:"cancelled"`
	Over      int64 `json:"over"`   // left before they were released
	LetGo     int64 `json:"let_go"` // given back unreleased
}

// RedrivePreview is what a redrive would take.
type RedrivePreview struct {
	Matching      int64          `json:"matching"`
	AtLeast       bool           `json:"at_least"` // there are more than were looked at
	Subscribers   int            `json:"subscribers"`
	BySubscriber  []RedriveShare `json:"by_subscriber"` // most first, at most 20
	ByReason      []RedriveCause `json:"by_reason"`
	HeadRoom      HeadRoom       `json:"head_room"`
	RatePerSecond float64        `json:"rate_per_second"`
	Takes         Duration       `json:"takes"`
	Warnings      []string       `json:"warnings"`
}

// RedriveShare is a subscriber's part.
type RedriveShare struct {
	SubscriberID string `json:"subscriber_id"`
	DeadLetters  int64  `json:"dead_letters"`
}

// RedriveCause is how many died for a reason.
type RedriveCause struct {
	Reason      string `json:"reason"`
	DeadLetters int64  `json:"dead_letters"`
}

// HeadRoom is what could be sent beyond what arrives.
type HeadRoom struct {
	CapacityPerSecond float64 `json:"capacity_per_second"`
	ArrivalsPerSecond float64 `json:"arrivals_per_second"`
	PerSecond         float64 `json:"per_second"`
	Slots             int     `json:"slots"`
	SlotsInUse        int     `json:"slots_in_use"`
}

// PreviewRedrive says what an order would take, and changes nothing. It takes a second
// or more.
func (c *Client) PreviewRedrive(ctx context.Context, o RedriveOrder) (RedrivePreview, error) {
	r := request{method: http.MethodPost, path: "/v1/redrives", query: url.Values{"dry_run": {"true"}}, wait: true}
	return send[RedrivePreview](ctx, c, r, o)
}

// CreateRedrive claims dead letters and sends the first of them, the canary. It is not
// made again after a lost answer: list the redrives then. ErrConflict: too many are
// under way.
func (c *Client) CreateRedrive(ctx context.Context, o RedriveOrder) (Redrive, error) {
	return send[Redrive](ctx, c, request{method: http.MethodPost, path: "/v1/redrives", repeat: unlessDone}, o)
}

// GetRedrive reads a redrive with its tally and its canaries.
func (c *Client) GetRedrive(ctx context.Context, id string) (Redrive, error) {
	return get[Redrive](ctx, c, path("/v1/redrives/", id, ""), nil)
}

// ListRedrives reads a page of redrives, newest first.
func (c *Client) ListRedrives(ctx context.Context, p Page) (List[Redrive], error) {
	return list[Redrive](ctx, c, "/v1/redrives", nil, p)
}

// Redrives goes through all pages.
func (c *Client) Redrives(ctx context.Context) iter.Seq2[Redrive, error] {
	return all(ctx, c.ListRedrives)
}

// ApproveRedrive lets the others go after the canary: effect says what was checked at
// the receiver. It is not repeated after a lost answer, as a second one is refused.
// ErrConflict: it does not await an approval.
func (c *Client) ApproveRedrive(ctx context.Context, id, effect string) (Redrive, error) {
	return c.steer(ctx, id, "/approve", unlessDone, map[string]string{"effect": effect})
}

// PauseRedrive stops the release; what is out goes on. ErrConflict: it has ended.
func (c *Client) PauseRedrive(ctx context.Context, id, reason string) (Redrive, error) {
	return c.steer(ctx, id, "/pause", anyway, map[string]string{"reason": reason})
}

// ResumeRedrive goes on where it was paused: reason says what has changed, as it overrules
// whoever paused it. It is not repeated after a lost answer. ErrConflict: it is not paused.
func (c *Client) ResumeRedrive(ctx context.Context, id, reason string) (Redrive, error) {
	return c.steer(ctx, id, "/resume", unlessDone, map[string]string{"reason": reason})
}

// AbortRedrive lets go of what was not released. ErrConflict: it is done.
func (c *Client) AbortRedrive(ctx context.Context, id, reason string) (Redrive, error) {
	return c.steer(ctx, id, "/abort", anyway, map[string]string{"reason": reason})
}

func (c *Client) steer(ctx context.Context, id, how string, again repeat, in map[string]string) (Redrive, error) {
	r := request{method: http.MethodPost, path: path("/v1/redrives/", id, how), repeat: again}
	return send[Redrive](ctx, c, r, in)
}
