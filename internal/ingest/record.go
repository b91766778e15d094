package ingest

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
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
func (p Post) hash() string {
	h := sha256.New()
	hashText(h, hashDomain)
	hashText(h, p.Type)
	hashText(h, p.ShipmentID)
	hashText(h, p.OccurredAt)
	if p.Attributes == nil {
		h.Write([]byte{0})
	} else {
		h.Write([]byte{1})
		hashLen(h, len(p.Attributes))
		for _, k := range slices.Sorted(maps.Keys(p.Attributes)) {
			hashText(h, k)
			hashText(h, p.Attributes[k])
		}
	}
	hashLen(h, len(p.Data))
	h.Write(p.Data)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

func hashText(h hash.Hash, s string) {
	hashLen(h, len(s))
	h.Write([]byte(s))
}

func hashLen(h hash.Hash, n int) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n)) //nolint:gosec // a length is never negative
	h.Write(b[:])
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
