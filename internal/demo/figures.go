package demo

import (
	"errors"
	"fmt"

	"github.com/fanout/fanout/client"
)

// Figures are what the play came to.
type Figures struct {
	// Accepted, Delivered, Dead and Pending are deliveries, by the ledger.
	Accepted, Delivered, Dead, Pending int64
	// Attempts are requests that the endpoints saw; Verified those whose signature
	// was right; Duplicates answers 2xx to a webhook-id that had got one already.
	Attempts, Verified, Duplicates int
}

// String is the last line of a play that ends by itself.
func (f Figures) String() string {
	return fmt.Sprintf("accepted=%d delivered=%d dead=%d pending=%d attempts=%d verified=%d duplicates=%d",
		f.Accepted, f.Delivered, f.Dead, f.Pending, f.Attempts, f.Verified, f.Duplicates)
}

// ErrWrong is returned when what the service says and what the endpoints saw do
// not agree.
var ErrWrong = errors.New("the play came out wrong")

// facts are the two sides of the account, after the play.
type facts struct {
	// The service's side.
	ledger   client.Ledger
	dead     []client.DeadLetter
	promised int // deliveries, by the receipts of the distinct events posted
	repeats  int // posts that the service called duplicates

	// The world's side.
	expectRepeats int // lines of the file that had been posted before
	endpoints     []witness
}

// witness is one endpoint's side.
type witness struct {
	role         character
	subscriberID string
	tally        tally
	standing     standing
	requests     func(deliveryID string) int
}

func (f facts) total() (t tally) {
	for _, w := range f.endpoints {
		t.add(w.tally)
	}
	return t
}

func (f facts) figures() Figures {
	t := f.total()
	return Figures{
		Accepted: f.ledger.Accepted, Delivered: f.ledger.Delivered, Dead: f.ledger.Dead, Pending: f.ledger.Pending,
		Attempts: t.requests, Verified: t.verified, Duplicates: t.duplicates,
	}
}

// check holds the two sides against each other, and returns ErrWrong with all
// that does not agree. It is for a ledger that began with the play.
func (f facts) check() error {
	var wrong []error
	must := func(ok bool, format string, a ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf(format, a...))
		}
	}
	l, t := f.ledger, f.total()
	must(l.Balanced && l.Accepted == l.Pending+l.Delivered+l.Dead+l.Cancelled,
		"the ledger does not balance: %d accepted, %d pending, %d delivered, %d dead, %d cancelled",
		l.Accepted, l.Pending, l.Delivered, l.Dead, l.Cancelled)
	must(l.Accepted == int64(f.promised),
		"the ledger accepted %d deliveries, the receipts promised %d", l.Accepted, f.promised)
	must(l.Pending == 0, "%d deliveries are pending still", l.Pending)
	must(l.Cancelled == 0, "%d deliveries were cancelled, and nobody did that", l.Cancelled)
	must(f.repeats == f.expectRepeats,
		"%d posts were called duplicates, %d were", f.repeats, f.expectRepeats)

	must(t.bad == 0, "%d requests had a signature that does not verify", t.bad)
	must(t.requests == t.verified, "of %d requests %d were verified", t.requests, t.verified)
	must(l.Delivered == int64(t.delivered),
		"the ledger has %d delivered, the endpoints took %d distinct webhook-ids", l.Delivered, t.delivered)

	lost := 0
	for _, w := range f.endpoints {
		must(w.tally.requests > 0, "%s was sent nothing", w.role.name)
		if w.role.manner.delivers() {
			must(w.tally.delivered == w.tally.ids,
				"%s took %d of the %d webhook-ids that it saw", w.role.name, w.tally.delivered, w.tally.ids)
		} else {
			lost += w.tally.ids
		}
	}
	must(l.Dead == int64(lost) && lost > 0,
		"the ledger has %d dead letters, the endpoints that take nothing saw %d webhook-ids", l.Dead, lost)
	must(len(f.dead) == min(int(l.Dead), maxDeadLetters),
		"the ledger has %d dead letters, the list %d", l.Dead, len(f.dead))
	for _, d := range f.dead {
		if err := f.checkDead(d); err != nil {
			wrong = append(wrong, fmt.Errorf("dead letter %s: %w", d.Delivery.ID, err))
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%w: %w", ErrWrong, errors.Join(wrong...))
	}
	return nil
}

// checkDead asks one dead letter for its evidence, and whether its endpoint saw
// as many requests as were charged, and no more.
func (f facts) checkDead(d client.DeadLetter) error {
	ev := d.Delivery.Evidence
	switch {
	case d.Reason == "":
		return errors.New("it has no reason")
	case len(ev) != d.Delivery.Attempts || len(ev) == 0:
		return fmt.Errorf("it has evidence of %d of its %d attempts", len(ev), d.Delivery.Attempts)
	}
	last := ev[len(ev)-1]
	if last.Status != 0 && last.Excerpt == "" {
		return fmt.Errorf("it has no excerpt of its last answer, %d", last.Status)
	}
	for _, w := range f.endpoints {
		if w.subscriberID != d.Delivery.SubscriberID {
			continue
		}
		seen, leases := w.requests(d.Delivery.ID), d.Delivery.DeliveryCount-int64(d.Delivery.Releases)
		if seen == 0 || int64(seen) > leases {
			return fmt.Errorf("%s saw %d requests of it, under %d leases", w.role.name, seen, leases)
		}
		return nil
	}
	return errors.New("its subscriber is not of this play")
}
