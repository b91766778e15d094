package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fanout/fanout/client"
)

// keysCmd are the commands about keys.
type keysCmd struct {
	Ls     keysLs     `cmd:"" help:"List keys, by id, revoked and expired ones too."`
	Create keysCreate `cmd:"" help:"Make a key. It is printed, this once."`
	Revoke keysRevoke `cmd:"" help:"End a key for good."`
	Self   keysSelf   `cmd:"" help:"Show who the service takes you for."`
}

type keysLs struct{ listing }

// Run lists keys.
func (l *keysLs) Run(ctx context.Context, s *session) error {
	return list(ctx, s, l.listing, func(ctx context.Context, c *client.Client, p client.Page) (client.List[client.Key], error) {
		return c.ListKeys(ctx, p)
	}, func(t *table, all []client.Key) { keyTable(t, all, time.Now()) })
}

func keyTable(t *table, all []client.Key, now time.Time) {
	t.header("ID", "NAME", "ROLE", "ACCOUNT", "STATE", "LAST USED", "EXPIRES", "CREATED", "BY")
	for _, k := range all {
		t.row(k.ID, oneLine(k.Name, 24), string(k.Role), k.Account, keyState(k, now), when(k.LastUsedAt, now),
			when(k.ExpiresAt, now), when(k.CreatedAt, now), k.CreatedBy)
	}
}

func keyState(k client.Key, now time.Time) string {
	switch {
	case !k.RevokedAt.IsZero():
		return "revoked"
	case !k.ExpiresAt.IsZero() && !k.ExpiresAt.After(now):
		return "expired"
	}
	return "ok"
}

type keysCreate struct {
	Name    string        `help:"Whose key it is, for people." required:"true"`
	Role    string        `enum:"producer,subscriber,viewer,operator,admin" help:"producer posts; subscriber keeps its account's; viewer reads; operator repairs; admin may all." required:"true"`
	Account string        `help:"The account of a key of role subscriber."`
	Expires time.Duration `help:"How long it is good for, such as 720h; default for ever." placeholder:"DURATION"`
	Rate    float64       `help:"Requests a second that it may make; default the server's own." placeholder:"N"`
}

// Run makes a key.
func (l *keysCreate) Run(ctx context.Context, s *session) error {
	in := client.NewKey{Name: l.Name, Role: client.Role(l.Role), Account: l.Account, RatePerSecond: l.Rate}
	if l.Expires < 0 {
		return usage("--expires must be above 0")
	}
	if l.Expires > 0 {
		in.ExpiresAt = time.Now().Add(l.Expires).UTC().Truncate(time.Second)
	}
	k, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.CreatedKey, error) { return c.CreateKey(ctx, in) })
	if err != nil {
		return err
	}
	s.shownOnce("the key")
	now := time.Now()
	return s.show(func(t *table) {
		t.row("id", k.ID)
		t.row("key", k.Token)
		t.row("name", k.Name)
		t.row("role", string(k.Role))
		t.maybe("account", k.Account)
		t.maybe("expires", when(k.ExpiresAt, now))
	})
}

type keysRevoke struct {
	ID  keyID `arg:"" help:"The key's id, as fanout keys ls shows it." name:"key"`
	Yes bool  `help:"Do not ask." short:"y"`
}

// Run revokes a key.
func (l *keysRevoke) Run(ctx context.Context, s *session) error {
	k, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.Key, error) { return c.GetKey(ctx, string(l.ID)) })
	if err != nil {
		return err
	}
	question := fmt.Sprintf("Revoke %s (%s, %s)? Whoever uses it is refused within a second, and for good.", k.ID, oneLine(k.Name, 40), k.Role)
	if err := s.confirm(ctx, l.Yes, question); err != nil {
		return err
	}
	k, err = ask(ctx, s, func(ctx context.Context, c *client.Client) (client.Key, error) { return c.RevokeKey(ctx, string(l.ID)) })
	if err != nil {
		return err
	}
	return s.show(func(t *table) {
		t.row("id", k.ID)
		t.row("name", k.Name)
		t.row("revoked", when(k.RevokedAt, time.Now()))
	})
}

type keysSelf struct{}

// Run shows who one is.
func (*keysSelf) Run(ctx context.Context, s *session) error {
	who, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.Identity, error) { return c.Self(ctx) })
	if err != nil {
		return err
	}
	return s.show(func(t *table) {
		t.row("id", who.ID)
		t.row("name", who.Name)
		t.row("role", string(who.Role))
		t.maybe("account", who.Account)
	})
}

// auditCmd lists changes.
type auditCmd struct {
	listing

	Action string `help:"Only this operation, such as pauseSubscriber." placeholder:"OPERATION"`
	Target string `help:"Only changes of this id." placeholder:"ID"`
	Key    string `help:"Only changes made with the key of this id." name:"key-id" placeholder:"ID"`
}

// Run lists the audit, newest first.
func (l *auditCmd) Run(ctx context.Context, s *session) error {
	f := client.AuditFilter{Action: l.Action, Target: l.Target, KeyID: l.Key}
	return list(ctx, s, l.listing, func(ctx context.Context, c *client.Client, p client.Page) (client.List[client.AuditEntry], error) {
		return c.ListAudit(ctx, f, p)
	}, func(t *table, all []client.AuditEntry) { auditTable(t, all, time.Now()) })
}

func auditTable(t *table, all []client.AuditEntry, now time.Time) {
	t.header("WHEN", "WHO", "DID", "TO", "WHY", "CHANGE", "REQUEST")
	for _, e := range all {
		t.row(when(e.At, now), e.Actor.Name+" ("+e.Actor.ID+")", e.Action, e.Target, oneLine(e.Reason, 60), change(e.Before, e.After), e.RequestID)
	}
}

// change is what was and what is, as far as a row has room for it.
func change(before, after json.RawMessage) string {
	const room = 60
	switch {
	case len(before) == 0:
		return oneLine(string(after), room)
	case len(after) == 0:
		return oneLine(string(before), room) + " is gone"
	}
	return oneLine(string(before), room) + " -> " + oneLine(string(after), room)
}
