package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/delivery"
)

// sentences are the explanation: what it is, what happened, what comes next, and what
// a person can do about it. They are read aloud, so each stands by itself.
func (f facts) sentences(now time.Time) []string {
	said := []string{f.what(), f.where(now)}
	if attempts := f.attempts(now); len(attempts) > 0 {
		said = append(append(said, "", "What happened:"), attempts...)
	}
	said = append(said, "", "What comes next:")
	said = append(said, f.next(now)...)
	said = append(said, "", "What you can do:")
	return append(said, f.options()...)
}

func (f facts) what() string {
	d := f.delivery
	event, to := "event "+d.EventID, "subscriber "+d.SubscriberID
	if f.event != nil {
		event += fmt.Sprintf(" (%s, shipment %s)", f.event.Type, f.event.ShipmentID)
	}
	if f.lost != "" {
		event += ", whose record " + f.lost + ","
	}
	switch {
	case f.subscriber == nil:
		to += ", which " + f.unseen
	case f.subscriber.Name != "":
		to += fmt.Sprintf(" (%s) at %s", oneLine(f.subscriber.Name, 60), endpointOf(f.subscriber.URL))
	default:
		to += " at " + endpointOf(f.subscriber.URL)
	}
	return fmt.Sprintf("Delivery %s carries %s to %s.", d.ID, event, to)
}

// where says where it stands.
func (f facts) where(now time.Time) string {
	d := f.delivery
	accepted := "It was accepted " + when(d.AcceptedAt, now)
	switch d.State {
	case client.Delivered:
		return fmt.Sprintf("%s and delivered %s, at attempt %d.", accepted, when(d.EndedAt, now), d.Attempts)
	case client.Dead:
		return fmt.Sprintf("%s and died %s: %s.", accepted, when(d.EndedAt, now), f.death())
	case client.Cancelled:
		return fmt.Sprintf("%s and cancelled %s, after %s.", accepted, when(d.EndedAt, now), count(d.Attempts, "attempt", "attempts"))
	case client.Leased:
		return fmt.Sprintf("%s. A worker leased it %s, as attempt %d%s.", accepted, when(d.LastAttemptAt, now), d.Attempts, f.budget())
	case client.Scheduled:
		return fmt.Sprintf("%s and waits for its attempt %d%s.", accepted, d.Attempts+1, f.budget())
	default: // of a newer server
		return fmt.Sprintf("%s, and its state is %s.", accepted, d.State)
	}
}

// budget is known while the policy grants it: a redrive's is the redrive's own.
func (f facts) budget() string {
	if f.subscriber == nil || f.delivery.RedriveGeneration > 0 {
		return ""
	}
	return fmt.Sprintf(" of at most %d", f.subscriber.Policy.MaxAttempts)
}

// death is why it ended: by its reason, or by what can be seen.
func (f facts) death() string {
	d := f.delivery
	last := "at the last of its attempts " + meaning(d.LastOutcome, d.LastStatus)
	switch delivery.Outcome(f.reason) {
	case "":
		if d.LastOutcome == "" {
			return "it ended before any attempt"
		}
		return last
	case delivery.Exhausted:
		return fmt.Sprintf("its budget of %s is spent, and %s", count(d.Attempts, "attempt", "attempts"), last)
	case delivery.Expired:
		if d.LastOutcome == "" {
			return "its time (until " + stamp(d.ExpiresAt) + ") ran out before any attempt"
		}
		return "its next attempt would have come after its time was over (" + stamp(d.ExpiresAt) + "), and " + last
	case delivery.HeldFull:
		return "it came while as many deliveries as are allowed (max_held) waited for a subscriber on hold"
	case delivery.Gone:
		return "its endpoint answered 410 Gone, which also disabled the subscriber"
	default:
		said := meaning(f.reason, d.LastStatus)
		if delivery.Outcome(f.reason).Blame() == delivery.Endpoint { // it may be well a minute later
			return said + ", which ends a delivery at once; as it speaks of the endpoint, it counts towards the breaker too"
		}
		return said + ", which no other attempt would change"
	}
}

// attempts says what became of each that is kept. A success keeps no evidence.
func (f facts) attempts(now time.Time) (said []string) {
	d := f.delivery
	failed := d.Attempts
	if d.State == client.Delivered || d.State == client.Leased {
		failed--
	}
	// A request that was out at the cancel is charged, and its worker's word comes too late.
	out := d.State == client.Cancelled && d.Attempts > 0 && (len(d.Evidence) == 0 || d.Evidence[len(d.Evidence)-1].Attempt < d.Attempts)
	if out {
		failed--
	}
	if n := failed - len(d.Evidence); n > 0 {
		said = append(said, fmt.Sprintf("- Of %s that failed the evidence is not kept.", count(n, "earlier attempt", "earlier attempts")))
	}
	for _, a := range d.Evidence {
		line := fmt.Sprintf("- Attempt %d, %s: %s", a.Attempt, when(a.StartedAt, now), meaning(a.Outcome, a.Status))
		if delivery.Outcome(a.Outcome) != delivery.LeaseLost { // nobody knows how long that was out
			line += ", after " + span(time.Duration(a.Duration))
		}
		line += "."
		if a.Error != "" && a.Status == 0 {
			line += " The error: " + strings.TrimSuffix(oneLine(a.Error, 200), ".") + "."
		}
		if _, vain, is := strings.Cut(a.Error, "; its Retry-After "); is { // ignored, or cut short
			line += " Its Retry-After " + vain + "."
		} else if a.RetryAfter > 0 {
			line += fmt.Sprintf(" It asked to be left alone for %s.", a.RetryAfter)
		}
		if a.Excerpt != "" {
			line += fmt.Sprintf(" It said: %q.", oneLine(a.Excerpt, 200))
		}
		said = append(said, line)
	}
	if out {
		said = append(said, fmt.Sprintf("- Attempt %d, %s: its request was out when the delivery was cancelled, and what came of it is not recorded. The endpoint may have taken it.", d.Attempts, when(d.LastAttemptAt, now)))
	}
	// A success after a failure is among the evidence.
	told := slices.ContainsFunc(d.Evidence, func(a client.Attempt) bool {
		return a.Attempt == d.Attempts && delivery.Outcome(a.Outcome) == delivery.OK
	})
	if d.State == client.Delivered && !told {
		said = append(said, fmt.Sprintf("- Attempt %d, %s: the endpoint took it%s.", d.Attempts, when(d.LastAttemptAt, now), inBrackets(d.LastStatus)))
	}
	if d.Releases > 0 {
		said = append(said, fmt.Sprintf("- Workers handed it back unsent %s; that costs no attempt.", times(d.Releases)))
	}
	if d.LeaseLosses > 0 {
		said = append(said, fmt.Sprintf("- A worker was lost with it %s: whether the endpoint got that request is not known, and the first %d of these cost no attempt.", times(d.LeaseLosses), delivery.MaxLeaseLosses))
	}
	if d.RedriveGeneration > 0 {
		said = append(said, fmt.Sprintf("- It died before and was sent again by an operator %s.", times(d.RedriveGeneration)))
	}
	return said
}

func inBrackets(status int) string {
	if status == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d)", status)
}

// count is a number of things in words.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}

// meaning is an outcome as the end of "Attempt 1: ...".
func meaning(name string, status int) string {
	switch o := delivery.Outcome(name); o {
	case delivery.Timeout:
		return "no whole answer came within the attempt timeout"
	case delivery.Connect:
		return "no connection to the endpoint could be made"
	case delivery.Reset:
		return "the connection broke before an answer came"
	case delivery.DNS:
		return "the name of the endpoint's host could not be resolved"
	case delivery.TLS:
		return "no TLS could be agreed on, as with a bad certificate"
	case delivery.LeaseLost:
		return "the worker that was sending it was lost"
	case delivery.BlockedAddress:
		return "the endpoint's address is one that this service may not call"
	case delivery.BadRequest:
		return "the request could not be built or signed, which is no fault of the endpoint"
	case delivery.PayloadMissing:
		return "its stored body was not there, which is a fault of the service"
	case delivery.HTTP3xx:
		return fmt.Sprintf("the endpoint answered with a redirect%s, and redirects are not followed", inBrackets(status))
	case delivery.Gone:
		return "the endpoint answered 410 Gone"
	default:
		if status != 0 {
			return fmt.Sprintf("the endpoint answered %d", status)
		}
		return "it came to " + string(o)
	}
}
