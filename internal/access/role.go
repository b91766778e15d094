package access

import (
	"context"
	"slices"
)

// Role says what a key may do. Which role may do which operation stands in the
// HTTP contract.
type Role string

// The roles. Each key has one.
const (
	// Producer posts events and looks at what became of them.
	Producer Role = "producer"
	// Subscriber manages the subscribers of one account, and sees their deliveries.
	Subscriber Role = "subscriber"
	// Viewer sees everything and changes nothing.
	Viewer Role = "viewer"
	// Operator repairs: it pauses, resumes, retries and cancels.
	Operator Role = "operator"
	// Admin may do everything, keys included.
	Admin Role = "admin"
)

var roles = []Role{Producer, Subscriber, Viewer, Operator, Admin}

// Roles are all roles, from the narrowest to the widest.
func Roles() []Role { return slices.Clone(roles) }

// Valid says whether it is a role that this version knows.
func (r Role) Valid() bool { return slices.Contains(roles, r) }

// Identity is who makes a request. The zero Identity is nobody and may nothing.
type Identity struct {
	// KeyID is the key's id, or "local" or "bootstrap", which are no stored keys.
	KeyID string `json:"key_id"`
	// Name is the key's name when the request was made.
	Name string `json:"name"`
	Role Role   `json:"role"`
	// Account is the only one that a Subscriber may touch; empty for all others.
	Account string `json:"account,omitempty"`
}

var (
	// Local is everybody while there is no key at all (Gate.Open).
	Local = Identity{KeyID: "local", Name: "local", Role: Admin}
	// Bootstrap is who holds the admin key of the process' own configuration.
	Bootstrap = Identity{KeyID: "bootstrap", Name: "bootstrap", Role: Admin}
)

type identityKey struct{}

// With returns a context that carries the identity.
func With(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, id)
}

// From is the identity that With put into the context; the zero Identity if none.
func From(ctx context.Context) Identity {
	id, _ := ctx.Value(identityKey{}).(Identity)
	return id
}
