package subscriber

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/fanout/fanout/internal/delivery"
)

// SettleMargin is what a lease lasts beyond the attempt timeout: the attempt may
// use all of its time, and its verdict must still get home. It covers the wait
// for a settle batch, one Redis call that runs into its deadline, and a second
// try of it after a failover.
const SettleMargin = 15 * time.Second

// idPrefix marks a subscriber id wherever it is seen.
const idPrefix = "sub_"

// Subscriber is one registered endpoint.
type Subscriber struct {
	// ID is "sub_" and a ULID in its canonical upper case. It is never used again
	// once the subscriber is deleted.
	ID string
	// Account groups subscribers of one owner; fixed at creation.
	Account string
	// Name is for people; may be "".
	Name string
	// URL may carry a token in its query: never log it, never trace it.
	URL string
	// Class is one of the configured ones; it selects the age objective.
	Class  string
	Filter Filter
	Policy delivery.Policy
	// Secrets sign every request, each active one. At least one; the newest first,
	// which alone has no end.
	Secrets []Secret
	// Headers go out with every request.
	Headers Headers
	// Paused subscribers still get deliveries, which wait.
	Paused bool
	// CreatedAt and UpdatedAt are Redis time, in whole ms, UTC.
	CreatedAt, UpdatedAt time.Time
	// Version grows by at least one with every change.
	Version int64
}

// LeaseTime is how long a lease on this subscriber's deliveries lasts.
func (s Subscriber) LeaseTime() time.Duration {
	return time.Duration(s.Policy.AttemptTimeout) + SettleMargin
}

// Format prints who it is, under every verb: a URL may hold a token, and a
// subscriber ends up in a log line or a test failure sooner or later.
func (s Subscriber) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "subscriber %s (account %s, version %d)", s.ID, s.Account, s.Version)
}

// LogValue is the same for slog.
func (s Subscriber) LogValue() slog.Value {
	return slog.GroupValue(slog.String("subscriber_id", s.ID), slog.String("account", s.Account),
		slog.String("class", s.Class), slog.Int64("version", s.Version))
}

// MarshalJSON refuses: what an API shows is that API's to choose, and the stored
// form is made by the codec alone. It keeps secrets out of any JSON by accident.
func (s Subscriber) MarshalJSON() ([]byte, error) {
	return nil, fmt.Errorf("subscriber %s: refusing to marshal a subscriber whole: it holds secrets", s.ID)
}

// newID makes an id with a prefix. The time in it is public; the 80 bits beside it are from
// crypto/rand, so that no id can be guessed from another.
func newID(prefix string, now time.Time) (string, error) {
	id, err := ulid.New(ulid.Timestamp(now), rand.Reader)
	if err != nil {
		return "", fmt.Errorf("make an id: %w", err)
	}
	return prefix + id.String(), nil
}
