package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/delivery"
)

// idKind is a thing that has an id: what the id begins with, and who shows it.
type idKind struct {
	prefix string
	a      string // the thing, with its article
	shows  string // commands; %s is the id
	finds  string // a command that finds such ids
}

// The kinds of ids. A producer may give its events ids of any form, so that what an
// event's id looks like says nothing for sure.
var (
	aDeliveryID   = idKind{"dlv_", "a delivery", "fanout explain %[1]s says what became of it, fanout dead show %[1]s what is kept of a dead one", "fanout deliveries ls --event=ID lists an event's; a receiver sees it as webhook-id"}
	anEventID     = idKind{"evt_", "an event", "fanout events show %[1]s shows it, fanout deliveries ls --event=%[1]s its deliveries", "the answer to its post has it"}
	aSubscriberID = idKind{"sub_", "a subscriber", "fanout subscribers show %[1]s shows it, fanout deliveries ls --subscriber=%[1]s its deliveries", "fanout subscribers ls lists them"}
	aRedriveID    = idKind{"rdv_", "a redrive", "fanout redrive show %[1]s shows it", "fanout redrive ls lists them"}
	aKeyID        = idKind{"key_", "a key", "fanout keys ls shows it, fanout audit --key-id=%[1]s what was done with it", "fanout keys ls lists them"}

	idKinds = []idKind{aDeliveryID, anEventID, aSubscriberID, aRedriveID, aKeyID}
)

// kindOf finds what an id names by the look of it.
func kindOf(id string) (idKind, bool) {
	for _, k := range idKinds {
		if strings.HasPrefix(id, k.prefix) {
			return k, true
		}
	}
	return idKind{}, false
}

// read takes an id of the kind, and says of any other what it is and which command it
// is for: that is known here, and the API would only not find it.
func (k idKind) read(id string) error {
	if strings.HasPrefix(id, k.prefix) {
		return nil
	}
	if other, known := kindOf(id); known {
		return fmt.Errorf("%s is the id of %s, and here goes that of %s (%s...): %s", id, other.a, k.a, k.prefix, fmt.Sprintf(other.shows, id))
	}
	if strings.HasPrefix(id, "fok_") { // it must not be repeated
		return fmt.Errorf("that is a key itself, and here goes the id of %s (%s...); revoke the key if others saw it", k.a, k.prefix)
	}
	return fmt.Errorf("%q is no id of %s: those begin with %s; %s", id, k.a, k.prefix, k.finds)
}

type (
	deliveryID   string
	subscriberID string
	redriveID    string
	keyID        string
)

// UnmarshalText reads one.
func (i *deliveryID) UnmarshalText(b []byte) error {
	*i = deliveryID(b)
	return aDeliveryID.read(string(b))
}

// UnmarshalText reads one.
func (i *subscriberID) UnmarshalText(b []byte) error {
	*i = subscriberID(b)
	return aSubscriberID.read(string(b))
}

// UnmarshalText reads one.
func (i *redriveID) UnmarshalText(b []byte) error {
	*i = redriveID(b)
	return aRedriveID.read(string(b))
}

// UnmarshalText reads one.
func (i *keyID) UnmarshalText(b []byte) error {
	*i = keyID(b)
	return aKeyID.read(string(b))
}

// texts are ids as the API takes them.
func texts[T ~string](ids []T) (out []string) {
	for _, id := range ids {
		out = append(out, string(id))
	}
	return out
}

// missingEvent adds to an error what an event's id that was not found looks like.
func missingEvent(id string, err error) error {
	k, known := kindOf(id)
	if !known || k.prefix == anEventID.prefix || !errors.Is(err, client.ErrNotFound) {
		return err
	}
	return &hintedError{err, fmt.Sprintf("%s looks like the id of %s: %s.", id, k.a, fmt.Sprintf(k.shows, id))}
}

// missingDelivery says of a delivery's id that was not found what keeps it from being
// one: a part of it is easily lost in copying.
func missingDelivery(id string, err error) error {
	if !errors.Is(err, client.ErrNotFound) {
		return err
	}
	if _, bad := delivery.IDHash16(id); bad != nil {
		return &hintedError{err, fmt.Sprintf("%s cannot be a whole id: a delivery's has %d characters, as %s.", id, len(sampleDelivery), sampleDelivery)}
	}
	return err
}

// sampleDelivery is what the id of a delivery looks like.
var sampleDelivery = delivery.NewID("evt_1", "sub_1")

// hintedError is an error with something to say after it.
type hintedError struct {
	error

	hint string
}

func (e *hintedError) Unwrap() error { return e.error }
