package ingest

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"
)

// Meta is what a view of an event shows beside its state; data is in the body.
type Meta struct {
	Type       string            `json:"type"`
	ShipmentID string            `json:"shipment_id"`
	OccurredAt string            `json:"occurred_at"` // as sent
	Attributes map[string]string `json:"attributes,omitzero"`
}

// DecodeMeta reads the Meta that was stored with an event.
func DecodeMeta(b []byte) (Meta, error) {
	var m Meta
	if err := json.Unmarshal(b, &m); err != nil {
		return Meta{}, fmt.Errorf("read the meta of an event: %w", err)
	}
	return m, nil
}

// meta is the stored form of a valid post's small fields.
func (p Post) meta() []byte {
	b, err := json.Marshal(Meta{p.Type, p.ShipmentID, p.OccurredAt, p.Attributes})
	if err != nil {
		panic("ingest: strings always marshal: " + err.Error())
	}
	return b
}

// hashDomain names what is hashed and its layout. A new layout needs a new
// name, and makes a repeat of an older event a conflict.
const hashDomain = "fanout event post 1"

// hash tells a repeated post from another one under the same id: SHA-256 over
// the fields as sent, without the id, in 43 characters of base64. Each part
// carries its length, so no two different posts run together to the same
// bytes; absent attributes are not empty ones; data counts byte for byte.
//
// All but data is laid out first and written at once: 8 allocations; part by part it
// took 30.
func (p Post) hash() string {
	b := make([]byte, 0, 512)
	b = appendPart(b, hashDomain)
	b = appendPart(b, p.Type)
	b = appendPart(b, p.ShipmentID)
	b = appendPart(b, p.OccurredAt)
	if p.Attributes == nil {
		b = append(b, 0)
	} else {
		b = append(b, 1)
		b = appendLen(b, len(p.Attributes))
		for _, k := range slices.Sorted(maps.Keys(p.Attributes)) {
			b = appendPart(b, k)
			b = appendPart(b, p.Attributes[k])
		}
	}
	b = appendLen(b, len(p.Data))
	h := sha256.New()
	h.Write(b)
	h.Write(p.Data)
	return base64.RawURLEncoding.EncodeToString(h.Sum(b[:0]))
}

func appendPart(b []byte, s string) []byte { return append(appendLen(b, len(s)), s...) }

func appendLen(b []byte, n int) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(n)) //nolint:gosec // a length is never negative
}

// newEventID makes an id for an event that came without one: sortable by time,
// and 80 bits from crypto/rand so that nobody guesses another's event.
func newEventID(now time.Time) (string, error) {
	id, err := ulid.New(ulid.Timestamp(now), rand.Reader)
	if err != nil {
		return "", fmt.Errorf("make an event id: %w", err)
	}
	return "evt_" + id.String(), nil
}
