package subscriber

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/seal"
)

// ErrUnreadable is returned for a subscriber whose URL, secrets and headers are
// sealed, and cannot be opened here. It wraps seal.ErrUnknownKey (the process was not given the key) or
// seal.ErrDamaged. It is our fault, never the subscriber's or its endpoint's.
var ErrUnreadable = errors.New("sealed, and cannot be opened here")

// Option is for New, NewDirectory and NewCheckup.
type Option func(*options)

type options struct {
	codec codec
	dir   *Directory
}

func apply(opts []Option) (o options) {
	for _, set := range opts {
		set(&o)
	}
	return o
}

// WithKeyring seals what is written and opens what is sealed. Without one, or with
// nil, secrets are stored in the clear. What was stored in the clear is read
// either way, so that a keyring can be introduced, and by Reseal completed.
func WithKeyring(r *seal.Keyring) Option { return func(o *options) { o.codec.ring = r } }

// WithDirectory lets a Store's filtered List read from a Directory, which need not
// look at every subscriber in Redis for the few of one account.
func WithDirectory(d *Directory) Option { return func(o *options) { o.dir = d } }

// stored is the blob that Redis keeps. Id and version are not in it: they stand
// beside it, and a copy could only disagree. Field names are for ever; a field
// may be added, with a zero value or a default that means what was meant before.
type stored struct {
	Account   string          `json:"account"`
	Name      string          `json:"name,omitempty"`
	Class     string          `json:"class"`
	Filter    Filter          `json:"filter"`
	Policy    delivery.Policy `json:"policy"`
	Paused    bool            `json:"paused,omitempty"`
	CreatedAt time.Time       `json:"created_at"`
	UpdatedAt time.Time       `json:"updated_at"`

	confidential

	// Sealed is the confidential part under a key, in place of it. All else stays
	// readable without a key: events still find whom they are for, and wait.
	Sealed string `json:"sealed,omitempty"`
}

// confidential is what a copy of Redis is not to give away: a URL may hold a token.
type confidential struct {
	URL     string            `json:"url,omitempty"`
	Secrets []Secret          `json:"secrets,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// codec makes blobs and reads them.
type codec struct{ ring *seal.Keyring }

// marshal makes the blob of a subscriber, secrets included: sealed if there is a
// key to seal with, to be opened under the subscriber's id alone.
func (c codec) marshal(s Subscriber) ([]byte, error) {
	out := stored{
		Account: s.Account, Name: s.Name, Class: s.Class, Filter: s.Filter, Policy: s.Policy,
		Paused: s.Paused, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
		confidential: confidential{URL: s.URL, Secrets: s.Secrets, Headers: s.Headers},
	}
	if c.ring.ID() != "" {
		plain, err := json.Marshal(out.confidential)
		if err == nil {
			out.confidential = confidential{}
			out.Sealed, err = c.ring.Seal(plain, []byte(s.ID))
		}
		if err != nil {
			return nil, fmt.Errorf("seal subscriber %s: %w", s.ID, err)
		}
	}
	blob, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encode subscriber %s: %w", s.ID, err)
	}
	return blob, nil
}

// unmarshal reads what marshal wrote, under whatever key of the ring or none.
// Unknown fields are skipped, and a policy field that the blob's writer did not
// know has its default. The error never quotes the blob. Beside ErrUnreadable
// stands the subscriber without its confidential part.
func (c codec) unmarshal(from config) (*Subscriber, error) {
	in := stored{Policy: delivery.DefaultPolicy()}
	if err := json.Unmarshal(from.Blob, &in); err != nil {
		return nil, fmt.Errorf("decode subscriber %s at version %d: %w", from.ID, from.Version, err)
	}
	s := &Subscriber{
		ID: from.ID, Account: in.Account, Name: in.Name, Class: in.Class, Filter: in.Filter,
		Policy: in.Policy, Paused: in.Paused,
		CreatedAt: in.CreatedAt, UpdatedAt: in.UpdatedAt, Version: from.Version,
	}
	if in.Sealed != "" {
		var err error
		if in.confidential, err = c.open(in.Sealed, from); err != nil {
			return s, err
		}
	}
	s.URL, s.Headers, s.Secrets = in.URL, in.Headers, in.Secrets
	for i := range s.Secrets {
		if s.Secrets[i].ID == "" { // made before secrets had ids, when there was one of each
			s.Secrets[i].ID = secretPrefix + strings.TrimPrefix(s.ID, idPrefix)
		}
	}
	return s, nil
}

func (c codec) open(sealed string, from config) (part confidential, err error) {
	plain, err := c.ring.Open(sealed, []byte(from.ID))
	if err == nil {
		err = json.Unmarshal(plain, &part)
	}
	switch {
	case err == nil:
		return part, nil
	case errors.Is(err, seal.ErrUnknownKey):
		err = fmt.Errorf("%w: give this process the key, by FANOUT_SECRETS_KEY or --secrets-key-file", err)
	}
	return confidential{}, fmt.Errorf("subscriber %s at version %d is %w: %w", from.ID, from.Version, ErrUnreadable, err)
}

// sealedUnder says under which key a blob is sealed; "" if it is in the clear, or
// cannot be read at all.
func sealedUnder(blob []byte) string {
	var in struct {
		Sealed string `json:"sealed"`
	}
	if json.Unmarshal(blob, &in) != nil {
		return ""
	}
	id, err := seal.KeyID(in.Sealed)
	if err != nil {
		return ""
	}
	return id
}
