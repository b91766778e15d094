package access

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fanout/fanout/internal/fault"
)

// Bounds of a new key.
const (
	maxName    = 100 // characters: it stands in lists and in each audit entry
	maxAccount = 64  // bytes, as a subscriber's account
	// minRate is one request in 100 s: anything slower is a key to revoke.
	minRate = 0.01
	// maxRate is beyond what one API process answers.
	maxRate = 100_000
	// maxLife is as far ahead as an expiry may lie: beyond it one means "never".
	maxLife = 10 * 365 * 24 * time.Hour
)

// Key is what is known of a key. It holds neither the token nor its hash.
type Key struct {
	// ID is "key_" and a ULID: ids sort by when their keys were created.
	ID   string
	Name string
	Role Role
	// Account is that of a Subscriber's key, and empty for every other.
	Account string
	// RatePerSecond is how many requests each API process takes per second; 0 means
	// the default of the process.
	RatePerSecond float64
	// CreatedBy is the id of the key that created it.
	CreatedBy string
	// CreatedAt, ExpiresAt and RevokedAt are by the clock of the API process that
	// wrote them. Zero means that it does not expire, or is not revoked.
	CreatedAt, ExpiresAt, RevokedAt time.Time
	// LastUsedAt is right to a minute or so; zero means never.
	LastUsedAt time.Time
}

// Active says whether the key is taken at that time.
func (k Key) Active(now time.Time) bool {
	return k.RevokedAt.IsZero() && (k.ExpiresAt.IsZero() || now.Before(k.ExpiresAt))
}

// NewKey is what a key is created from.
type NewKey struct {
	// Name is 1 to 100 printable characters: it tells keys apart, and need not be
	// the only one of its kind.
	Name string
	Role Role
	// Account is for a Subscriber alone, which must have it: 1 to 64 of
	// A-Z a-z 0-9 . _ : -
	Account string
	// ExpiresAt is zero, or in the future by at most ten years.
	ExpiresAt time.Time
	// RatePerSecond is 0 for the default, or 0.01 to 100,000 requests per second.
	RatePerSecond float64
}

// Check returns a *fault.Invalid that names all that is wrong, or nil.
func (n NewKey) Check(now time.Time) error {
	var bad fault.List
	badName(&bad, n.Name)
	if !n.Role.Valid() {
		bad.Addf("/role", "must be one of producer, subscriber, viewer, operator, admin")
	}
	switch {
	case n.Role == Subscriber:
		badAccount(&bad, n.Account)
	case n.Account != "":
		bad.Addf("/account", "is for the role subscriber alone")
	}
	switch {
	case n.ExpiresAt.IsZero():
	case !n.ExpiresAt.After(now):
		bad.Addf("/expires_at", "must be in the future")
	case n.ExpiresAt.After(now.Add(maxLife)):
		bad.Addf("/expires_at", "must be within ten years; leave it out for a key that does not expire")
	}
	if r := n.RatePerSecond; r != 0 && (math.IsNaN(r) || r < minRate || r > maxRate) {
		bad.Addf("/rate_per_second", "must be 0 (the default) or from %g to %d", minRate, maxRate)
	}
	return bad.Sorted().Err("key")
}

func badName(bad *fault.List, name string) {
	switch {
	case !utf8.ValidString(name):
		bad.Addf("/name", "is not valid UTF-8")
	case strings.TrimSpace(name) == "":
		bad.Addf("/name", "is missing: say who or what will use the key")
	case utf8.RuneCountInString(name) > maxName:
		bad.Addf("/name", "is %d characters long, must be at most %d", utf8.RuneCountInString(name), maxName)
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		bad.Addf("/name", "holds what cannot be printed: remove control characters, line breaks and odd spaces")
	}
}

var accounts = regexp.MustCompile(fmt.Sprintf(`^[A-Za-z0-9._:-]{1,%d}$`, maxAccount))

func badAccount(bad *fault.List, account string) {
	if !accounts.MatchString(account) {
		bad.Addf("/account", "must be 1 to %d characters of A-Z a-z 0-9 . _ : -", maxAccount)
	}
}

// storedKey is the JSON that Redis keeps of a key: what never changes. When it was
// revoked and last used stands beside it. Field names are for ever.
type storedKey struct {
	SHA256        string    `json:"sha256"` // of the token, hex
	Name          string    `json:"name"`
	Role          Role      `json:"role"`
	Account       string    `json:"account,omitempty"`
	RatePerSecond float64   `json:"rate_per_second,omitempty"`
	CreatedBy     string    `json:"created_by"`
	CreatedAt     time.Time `json:"created_at"`
	ExpiresAt     time.Time `json:"expires_at,omitzero"`
}

// keyRow is a key as it lies in Redis.
type keyRow struct {
	id, blob      string
	revoked, used int64 // ms since the epoch; 0 for not
}

func encodeKey(k Key, h hash) (string, error) {
	blob, err := json.Marshal(storedKey{
		SHA256: hex.EncodeToString(h[:]), Name: k.Name, Role: k.Role, Account: k.Account,
		RatePerSecond: k.RatePerSecond, CreatedBy: k.CreatedBy, CreatedAt: k.CreatedAt, ExpiresAt: k.ExpiresAt,
	})
	return string(blob), err
}

// decode reads a row. Whatever is odd makes an error and no key: a hash that cannot
// be read must not match anything, and a rate that is no number must not be no limit.
func (r keyRow) decode() (Key, hash, error) {
	var in storedKey
	if err := json.Unmarshal([]byte(r.blob), &in); err != nil {
		return Key{}, hash{}, fmt.Errorf("decode key %s: %w", r.id, err)
	}
	sum, err := hex.DecodeString(in.SHA256)
	if err != nil || len(sum) != len(hash{}) {
		return Key{}, hash{}, fmt.Errorf("decode key %s: its hash is no SHA-256", r.id)
	}
	if math.IsNaN(in.RatePerSecond) || in.RatePerSecond < 0 {
		return Key{}, hash{}, fmt.Errorf("decode key %s: a rate of %g", r.id, in.RatePerSecond)
	}
	return Key{
		ID: r.id, Name: in.Name, Role: in.Role, Account: in.Account, RatePerSecond: in.RatePerSecond,
		CreatedBy: in.CreatedBy, CreatedAt: in.CreatedAt, ExpiresAt: in.ExpiresAt,
		RevokedAt: fromMs(r.revoked), LastUsedAt: fromMs(r.used),
	}, hash(sum), nil
}

// fromMs is zero for 0.
func fromMs(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
