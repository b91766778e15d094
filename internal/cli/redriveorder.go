package cli

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/fanout/fanout/client"
)

// order are the flags of plan and start. What is nil was not given: a 0 that was given
// must not come to mean the default.
type order struct {
	selection

	IDs      []deliveryID   `arg:"" help:"These deliveries and no others." name:"delivery" optional:""`
	All      bool           `help:"All dead letters that there are."`
	Budget   *int           `help:"Attempts of each, 1 to 10; default 2." placeholder:"N"`
	Canaries *int           `help:"How many are sent before anybody approves, 1 to 10; default 1." placeholder:"N"`
	MaxRate  *float64       `help:"How many are released a second at most, 0.01 to 1000; default half of the head-room." placeholder:"N"`
	Within   *time.Duration `help:"How long each may take from its release, 1m to 720h; default 24h." placeholder:"DURATION"`
}

// The API's bounds on an order.
const (
	mostBudget   = 10
	mostCanaries = 10
	leastRate    = 0.01 // a second
	mostRate     = 1000
	leastWithin  = time.Minute
	mostWithin   = 720 * time.Hour
)

// order makes what the API is asked for. Nothing at all must not come to mean
// everything.
func (o *order) order(reason string) (client.RedriveOrder, error) {
	out := client.RedriveOrder{IDs: texts(o.IDs), Reason: reason}
	if err := o.careful(&out); err != nil {
		return out, err
	}
	f := o.filter()
	chosen := f != client.DeadLetterFilter{}
	switch {
	case len(o.IDs) > 0 && (chosen || o.All):
		return out, usage("name deliveries, or choose them by flags: not both")
	case len(o.IDs) == 0 && !chosen && !o.All:
		return out, usage("say which dead letters: by their ids, by flags such as --subscriber, or --all")
	case chosen && o.All:
		return out, usage("--all is all of them: it goes without the flags that choose")
	case len(o.IDs) == 0:
		out.Filter = &f
	}
	return out, nil
}

// careful puts in how carefully they are sent, within the API's bounds: some of what is
// beyond them (NaN, an infinity) has no JSON, and none would get there.
func (o *order) careful(out *client.RedriveOrder) error {
	if n := o.Budget; n != nil {
		if out.AttemptBudget = *n; *n < 1 || *n > mostBudget {
			return usage("--budget must be from 1 to %d attempts, is %d; left out, it is 2", mostBudget, *n)
		}
	}
	if n := o.Canaries; n != nil {
		if out.Canaries = *n; *n < 1 || *n > mostCanaries {
			return usage("--canaries must be from 1 to %d, is %d; left out, it is 1", mostCanaries, *n)
		}
	}
	if rate := o.MaxRate; rate != nil {
		if out.MaxRate = *rate; !(*rate >= leastRate && *rate <= mostRate) { // written so that NaN fails
			return usage("--max-rate must be from %g to %d a second, is %v; left out, it is half of the head-room", leastRate, mostRate, *rate)
		}
	}
	if d := o.Within; d != nil {
		if out.Within = client.Duration(*d); *d < leastWithin || *d > mostWithin {
			return usage("--within must be from %s to %s, is %s; left out, it is 24h", "1m", "720h", *d)
		}
	}
	return nil
}

// nothingMatches says for which filter nothing is there, and what of it cannot be meant: a name that was mistyped must not look as if all were well.
func (f selection) nothingMatches(ctx context.Context, s *session) {
	if said := chosen(client.Redrive{Filter: new(f.filter())}); said != allDead {
		s.notef("No dead letter matches: %s.", said)
	}
	f.suspect(ctx, s)
}

// suspect warns of what in a filter cannot be meant.
func (f selection) suspect(ctx context.Context, s *session) {
	if strings.ContainsAny(f.Type, "*?") {
		s.notef("warning: --type is one type to the letter, and %q is a pattern", f.Type)
	}
	if f.Subscriber != "" {
		_, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.Subscriber, error) {
			return c.GetSubscriber(ctx, string(f.Subscriber))
		})
		if errors.Is(err, client.ErrNotFound) {
			s.notef("warning: there is no subscriber %s: fanout subscribers ls lists them", f.Subscriber)
		}
	}
	if f.Class != "" {
		f.unknownClass(ctx, s)
	}
}

// unknownClass warns of a class that nothing has. It can be told only by a key that may
// see what on-call sees.
func (f selection) unknownClass(ctx context.Context, s *session) {
	look, err := lookAt(ctx, s)
	if err != nil {
		return
	}
	var names []string
	for _, c := range look.Classes {
		if c.Configured {
			names = append(names, c.Class)
		}
	}
	slices.Sort(names)
	if len(names) > 0 && !slices.Contains(names, f.Class) {
		s.notef("warning: no class that is configured has the name %q; there are %s", f.Class, strings.Join(names, ", "))
	}
}

// doubted adds to an error how to see whether a change was made, if that is not known.
func (s *session) doubted(err error, look string) error {
	if !s.unsure(err) {
		return err
	}
	return &hintedError{err, look}
}

// unsure: a change went to the server, and no answer says what became of it.
func (s *session) unsure(err error) bool {
	return s.answer.unsettled() && (errors.Is(err, client.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled))
}
