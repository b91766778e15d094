package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"time"
)

// Role says what a key may do.
type Role string

// The roles.
const (
	RoleProducer   Role = "producer"   // posts events
	RoleSubscriber Role = "subscriber" // keeps what belongs to its account
	RoleViewer     Role = "viewer"     // reads
	RoleOperator   Role = "operator"   // reads and repairs
	RoleAdmin      Role = "admin"      // may all
)

// NewKey is a key to be made.
type NewKey struct {
	Name          string    `json:"name"`
	Role          Role      `json:"role"`
	Account       string    `json:"account,omitempty"` // of a subscriber's key, and of no other
	ExpiresAt     time.Time `json:"expires_at,omitzero"`
	RatePerSecond float64   `json:"rate_per_second,omitempty"` // 0: the server's own
}

// Key is a key without its token.
type Key struct {
	ID            string    `json:"id"`
	Name          string    `json:"name"`
	Role          Role      `json:"role"`
	Account       string    `json:"account,omitempty"`
	RatePerSecond float64   `json:"rate_per_second,omitempty"`
	CreatedBy     string    `json:"created_by"`
	CreatedAt     time.Time `json:"created_at"`
	ExpiresAt     time.Time `json:"expires_at,omitzero"`
	LastUsedAt    time.Time `json:"last_used_at,omitzero"`
	RevokedAt     time.Time `json:"revoked_at,omitzero"`
}

// CreatedKey is a new key, with its token for the only time.
type CreatedKey struct {
	Key

	Token string `json:"key"`
}

// Identity is who a request is taken for.
type Identity struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Role    Role   `json:"role"`
	Account string `json:"account,omitempty"`
}

// CreateKey makes a key. It is not made again after a lost answer: list the keys then,
// and revoke the one that nobody has.
func (c *Client) CreateKey(ctx context.Context, k NewKey) (CreatedKey, error) {
	return send[CreatedKey](ctx, c, request{method: http.MethodPost, path: "/v1/keys", repeat: unlessDone}, k)
}

// GetKey reads a key.
func (c *Client) GetKey(ctx context.Context, id string) (Key, error) {
	return get[Key](ctx, c, path("/v1/keys/", id, ""), nil)
}

// RevokeKey ends a key for good. To revoke it again is safe.
func (c *Client) RevokeKey(ctx context.Context, id string) (Key, error) {
	return send[Key](ctx, c, request{method: http.MethodDelete, path: path("/v1/keys/", id, "")}, nil)
}

// ListKeys reads a page of keys, by id, revoked and expired ones too.
func (c *Client) ListKeys(ctx context.Context, p Page) (List[Key], error) {
	return list[Key](ctx, c, "/v1/keys", nil, p)
}

// Keys goes through all pages.
func (c *Client) Keys(ctx context.Context) iter.Seq2[Key, error] { return all(ctx, c.ListKeys) }

// Self says who the client is taken for.
func (c *Client) Self(ctx context.Context) (Identity, error) {
	return get[Identity](ctx, c, "/v1/keys/self", nil)
}

// AuditEntry is one change that the API made.
type AuditEntry struct {
	ID        string          `json:"id"`
	At        time.Time       `json:"at"`
	Actor     Identity        `json:"actor"`
	Action    string          `json:"action"` // the contract's operationId
	Target    string          `json:"target"`
	Account   string          `json:"account,omitempty"`
	Reason    string          `json:"reason,omitempty"`
	RequestID string          `json:"request_id"`
	Before    json.RawMessage `json:"before,omitempty"` // what changed, as it was
	After     json.RawMessage `json:"after,omitempty"`  // and as it is
}

// AuditFilter says which changes; the zero filter is all.
type AuditFilter struct{ Action, Target, KeyID string }

// ListAudit reads a page of the audit, newest first.
func (c *Client) ListAudit(ctx context.Context, f AuditFilter, p Page) (List[AuditEntry], error) {
	return list[AuditEntry](ctx, c, "/v1/audit", values("action", f.Action, "target", f.Target, "key_id", f.KeyID), p)
}

// Audit goes through all pages.
func (c *Client) Audit(ctx context.Context, f AuditFilter) iter.Seq2[AuditEntry, error] {
	return all(ctx, func(ctx context.Context, p Page) (List[AuditEntry], error) { return c.ListAudit(ctx, f, p) })
}
