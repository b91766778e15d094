package subscriber

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// stored is the blob that Redis keeps. Id and version are not in it: they stand
// beside it, and a copy could only disagree. Field names are for ever; a field
// may be added, with a zero value or a default that means what was meant before.
type stored struct {
	Account   string          `json:"account"`
	Name      string          `json:"name,omitempty"`
	URL       string          `json:"url"`
	Class     string          `json:"class"`
	Filter    Filter          `json:"filter"`
	Policy    delivery.Policy `json:"policy"`
	Secrets   []Secret        `json:"secrets"`
	Paused    bool            `json:"paused,omitempty"`
	CreatedAt time.Time       `json:"created_at"`
	UpdatedAt time.Time       `json:"updated_at"`
}

// marshalBlob makes the blob of a subscriber, secrets included.
func marshalBlob(s Subscriber) ([]byte, error) {
	blob, err := json.Marshal(stored{
		Account: s.Account, Name: s.Name, URL: s.URL, Class: s.Class, Filter: s.Filter, Policy: s.Policy,
		Secrets: s.Secrets, Paused: s.Paused, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
	})
	if err != nil {
		return nil, fmt.Errorf("encode subscriber %s: %w", s.ID, err)
	}
	return blob, nil
}

// unmarshalBlob reads what marshalBlob wrote. Unknown fields are skipped, and a
// policy field that the blob's writer did not know has its default. The error
// never quotes the blob.
func unmarshalBlob(c config) (*Subscriber, error) {
	in := stored{Policy: delivery.DefaultPolicy()}
	if err := json.Unmarshal(c.Blob, &in); err != nil {
		return nil, fmt.Errorf("decode subscriber %s at version %d: %w", c.ID, c.Version, err)
	}
	return &Subscriber{
		ID: c.ID, Account: in.Account, Name: in.Name, URL: in.URL, Class: in.Class, Filter: in.Filter,
		Policy: in.Policy, Secrets: in.Secrets, Paused: in.Paused,
		CreatedAt: in.CreatedAt, UpdatedAt: in.UpdatedAt, Version: c.Version,
	}, nil
}
