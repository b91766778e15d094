package delivery

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// idPrefix marks a delivery id wherever it is seen: a header, a log, a URL.
const idPrefix = "dlv_"

// idLen is the length of every delivery id: the prefix, four hex digits of the
// subscriber's hash, and 96 bits of hash in base 32.
const idLen = len(idPrefix) + 4 + 20

// alphabet is Crockford's base 32 in lower case: no i, l, o, u to misread.
const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// ErrBadID is returned for a string that cannot be a delivery id.
var ErrBadID = errors.New("not a delivery id")

// NewID derives the id of the delivery of one event to one subscriber. The same
// pair gives the same id for ever, which is what makes enqueueing idempotent
// and gives the receiver a key to dedupe on. 96 bits keep the chance of any
// collision among 10^12 live deliveries below one in 10^5.
func NewID(eventID, subscriberID string) string {
	h := sha256.New()
	h.Write([]byte(eventID))
	h.Write([]byte{0}) // a separator no id contains: ("ab","c") is not ("a","bc")
	h.Write([]byte(subscriberID))
	sum := h.Sum(nil)

	var b strings.Builder
	b.Grow(idLen)
	b.WriteString(idPrefix)
	fmt.Fprintf(&b, "%04x", Hash16(subscriberID))
	// 12 bytes are 96 bits; base 32 takes 5 at a time, so 20 digits hold 100
	// and the last digit carries a single bit.
	var acc uint64
	var bits uint
	for _, c := range sum[:12] {
		acc = acc<<8 | uint64(c)
		bits += 8
		for bits >= 5 {
			bits -= 5
			b.WriteByte(alphabet[acc>>bits&31])
		}
	}
	b.WriteByte(alphabet[acc<<(5-bits)&31])
	return b.String()
}

// Hash16 is the 16 bits of a subscriber's (or event's) id that choose its
// partition: p = Hash16 mod P.
func Hash16(id string) uint16 {
	sum := sha256.Sum256([]byte(id))
	return binary.BigEndian.Uint16(sum[:2])
}

// IDHash16 reads the subscriber's Hash16 back out of a delivery id, so that an
// id alone finds its partition. It returns ErrBadID for anything else.
func IDHash16(id string) (uint16, error) {
	if len(id) != idLen || !strings.HasPrefix(id, idPrefix) {
		return 0, fmt.Errorf("%q: %w", id, ErrBadID)
	}
	h, err := strconv.ParseUint(id[len(idPrefix):len(idPrefix)+4], 16, 16)
	if err != nil {
		return 0, fmt.Errorf("%q: %w", id, ErrBadID)
	}
	for _, c := range id[len(idPrefix)+4:] {
		if !strings.ContainsRune(alphabet, c) {
			return 0, fmt.Errorf("%q: %w", id, ErrBadID)
		}
	}
	return uint16(h), nil
}
