package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/subscriber"
)

// next says what comes next, and why then.
func (f facts) next(now time.Time) []string {
	d := f.delivery
	switch d.State {
	case client.Delivered:
		return []string{"Nothing: it is done."}
	case client.Cancelled:
		return []string{"Nothing: it is not sent any more."}
	case client.Dead:
		return []string{f.again() + " Its payload and its attempts are kept for 30 days after its end."}
	case client.Leased:
		return append(append(f.lease(now), f.holds(now)...), f.end(now))
	default: // scheduled
		said := append(f.holds(now), f.due(now)...)
		return append(said, f.end(now))
	}
}

// again says what sends a dead letter again: the redrive that has it, or nothing yet.
func (f facts) again() string {
	const kept = "Nothing by itself: a dead letter is sent again only if an operator redrives it"
	r := f.redrive
	switch {
	case f.untold:
		return kept + ", unless a redrive that is under way has it: " + withRole(f.role, "redrive ls", "fanout redrive ls lists them") + "."
	case f.redriveID == "":
		return kept + "."
	case r == nil:
		return fmt.Sprintf("Redrive %s has it, and sends it again when its turn comes.", f.redriveID)
	}
	has := "Redrive " + r.ID + " has it, and "
	switch r.State {
	case client.RedrivePlanning, client.RedriveCanary:
		return has + fmt.Sprintf("is at %s: it is sent again as one of the canaries (%d), or after them, when an operator has approved what they did.", r.State, r.Canaries)
	case client.RedriveAwaiting:
		return has + "waits for an operator to approve what its canary did: it is sent again after that, when its turn comes."
	case client.RedriveRunning:
		line := has + "runs: it is sent again when its turn comes."
		if r.HeldBack != "" {
			line += " Nothing is released now: " + strings.TrimSuffix(r.HeldBack, ".") + "."
		}
		return line
	case client.RedrivePaused:
		return has + fmt.Sprintf("is paused by %s (%s): it is sent again after a resume, when its turn comes.", r.StoppedBy, strings.TrimSuffix(r.Stopped, "."))
	default: // done or aborted: whatever it has still is about to be let go
		return has + fmt.Sprintf("is %s: it lets go of it unsent. After that it is sent again only if an operator redrives it anew.", r.State)
	}
}

// lease says what a leased delivery waits for. Whether its worker is alive cannot be
// seen from outside, so that both cases are told.
func (f facts) lease(now time.Time) []string {
	const gone = "If the worker is gone, that cannot be seen before then"
	if f.subscriber == nil || f.delivery.LastAttemptAt.IsZero() {
		return []string{
			"The attempt ends by an answer, by its timeout, or with its lease, which lasts " + span(subscriber.SettleMargin) + " beyond that.",
			gone + ": the delivery waits until the lease has ended, and is taken back then.",
		}
	}
	timeout := time.Duration(f.subscriber.Policy.AttemptTimeout)
	over := f.delivery.LastAttemptAt.Add(timeout)
	ends := over.Add(subscriber.SettleMargin)
	lasts := fmt.Sprintf("by the policy as it is now, %s for the attempt and %s to bring its outcome home", span(timeout), span(subscriber.SettleMargin))
	if !ends.After(now) {
		return []string{
			fmt.Sprintf("Its lease ended %s (%s), and no outcome came: its worker is gone, or cannot reach Redis.", when(ends, now), lasts),
			fmt.Sprintf("Any dispatcher that is at work takes it back within seconds as lease_lost, to be tried again%s. If it stays like this, none is at work.", f.afterLoss()),
		}
	}
	attempt := fmt.Sprintf("If its worker is at work, the attempt ends by an answer, or by its timeout %s.", when(over, now))
	if !over.After(now) {
		attempt = fmt.Sprintf("The attempt's timeout passed %s and no outcome has come: its worker is bringing it home, or is gone.", when(over, now))
	}
	return []string{
		attempt,
		fmt.Sprintf("The lease ends %s (%s). %s: the delivery waits until then, and is taken back as lease_lost, to be tried again%s.", when(ends, now), lasts, gone, f.afterLoss()),
	}
}

// afterLoss says what losing a worker costs.
func (f facts) afterLoss() string {
	if f.delivery.LeaseLosses < delivery.MaxLeaseLosses {
		return "; it costs no attempt"
	}
	return fmt.Sprintf("; it costs an attempt, as it was lost %s before", times(f.delivery.LeaseLosses))
}

func (f facts) onHold() bool {
	return f.subscriber != nil && f.subscriber.Status != nil && len(f.subscriber.Status.Holds) > 0
}

// blind says why it is not known whether the subscriber is on hold; "" if it is known.
// Nothing may then be foretold as if there were no hold.
func (f facts) blind() string {
	switch {
	case f.subscriber == nil && f.unseen == unseenByKey:
		return "Whether its subscriber is on hold cannot be seen with your key"
	case f.subscriber != nil && f.subscriber.Status == nil:
		return "Whether its subscriber is on hold could not be read"
	}
	return ""
}

// holds are what keeps everything from being sent to the subscriber.
func (f facts) holds(now time.Time) (said []string) {
	if !f.onHold() {
		return nil
	}
	st := f.subscriber.Status
	for _, h := range st.Holds {
		line := fmt.Sprintf("The subscriber is on hold (%s). %s", h.Reason, h.Note) + thatTime(h, now)
		switch h.Probe {
		case "":
		case f.delivery.ID:
			line += " This very delivery is the probe."
		default:
			line += " The probe is " + h.Probe + "."
		}
		said = append(said, line)
	}
	if !st.OnHoldSince.IsZero() {
		said = append(said, fmt.Sprintf("It is on hold since %s; %s for it, and waiting costs no attempt.", when(st.OnHoldSince, now), count(int(st.Pending), "delivery waits", "deliveries wait")))
	}
	return said
}

// due says when the next attempt is due, and where that time comes from.
func (f facts) due(now time.Time) []string {
	d := f.delivery
	line := "The next attempt is due " + when(d.NextAttemptAt, now)
	later := d.NextAttemptAt.After(now)
	if now.Sub(d.NextAttemptAt) >= time.Second { // before that it is due now
		line = "The next attempt was due " + when(d.NextAttemptAt, now)
	}
	switch blind := f.blind(); {
	case later && f.onHold():
		line += ", and goes only when the hold has ended"
	case blind != "" && later:
		line += ". " + blind + ": if it is, it goes only when the hold has ended"
	case blind != "":
		line += ". " + blind + ": if it is, the hold keeps it back, and if not, it goes as soon as a worker has a slot for it"
	case later:
	case f.onHold():
		line += ": it would go now, but for the hold"
	case f.subscriber == nil: // deleted: nobody sends to it
	default:
		line += ": it goes as soon as a worker has a slot for it"
		st := f.subscriber.Status
		line += fmt.Sprintf(" and the subscriber has room (%d of at most %s in flight", st.InFlight, count(st.InFlightCap, "request is", "requests are"))
		if rate := f.subscriber.Policy.RatePerSecond; rate > 0 {
			line += fmt.Sprintf(", %g a second", rate)
		}
		line += ")"
	}
	said := []string{line + "."}
	if why := f.drawn(); why != "" {
		said = append(said, why)
	}
	return said
}

// drawn says which window the wait was drawn from. The draw is the same on every
// machine, so it can be told whether the due time is still the one that was drawn.
func (f facts) drawn() string {
	d := f.delivery
	if d.Attempts == 0 && len(d.Evidence) == 0 {
		return "It is the first attempt, which is due at once when the event is accepted."
	}
	if f.subscriber == nil || d.RedriveGeneration > 0 || len(d.Evidence) == 0 {
		return ""
	}
	p := backoffOf(f.subscriber.Policy)
	last := d.Evidence[len(d.Evidence)-1]
	window, wait := delivery.Window(p, last.Attempt), delivery.Backoff(p, d.ID, last.Attempt)
	why := fmt.Sprintf("After attempt %d the wait is drawn from a window of 0s to %s", last.Attempt, span(window))
	asked := min(last.RetryAfter, f.subscriber.Policy.RetryAfterCap)
	if time.Duration(asked) > wait {
		wait = time.Duration(asked)
		why += fmt.Sprintf("; the endpoint's Retry-After asked for more, %s", span(wait))
	}
	expected := last.StartedAt.Add(time.Duration(last.Duration) + wait)
	const slack = 2 * time.Second // the verdict comes home a little after the answer
	if off := d.NextAttemptAt.Sub(expected); off > slack || off < -slack {
		return why + fmt.Sprintf(". The time that came of it (%s) is no longer what counts: it was moved since, as a retry by hand, a probe or another policy does.", stamp(expected))
	}
	if asked > 0 && wait == time.Duration(asked) {
		return why + "."
	}
	return why + fmt.Sprintf(", and the draw was %s.", span(wait))
}

func backoffOf(p client.Policy) delivery.Policy {
	return delivery.Policy{BackoffBase: delivery.Duration(p.BackoffBase), BackoffCap: delivery.Duration(p.BackoffCap)}
}

// end says when it is given up.
func (f facts) end(now time.Time) string {
	d := f.delivery
	expires := fmt.Sprintf("when its next attempt would come after %s (%s)", stamp(d.ExpiresAt), ago(d.ExpiresAt, now))
	if f.subscriber == nil || d.RedriveGeneration > 0 {
		return "It is given up when its attempt budget is spent, or " + expires + ", whichever comes first. It is then a dead letter."
	}
	left := max(0, f.subscriber.Policy.MaxAttempts-d.Attempts)
	return fmt.Sprintf("It is given up after attempt %d (%s left), or %s, whichever comes first. It is then a dead letter.",
		f.subscriber.Policy.MaxAttempts, count(left, "attempt", "attempts"), expires)
}

// options are the commands that make sense now.
func (f facts) options() (said []string) {
	d := f.delivery
	var barred []string // what the key may not do, and whose it is
	add := func(why, command string) {
		name := commandIn(command)
		if !may(f.role, name) {
			barred = append(barred, fmt.Sprintf("- With a key of role %s: %s", either(needs[name].roles), command))
			return
		}
		said = append(said, fmt.Sprintf("- %s: %s", why, command))
	}
	if d.State != client.Delivered && d.State != client.Cancelled && f.onHold() {
		var ends []string
		for _, h := range f.subscriber.Status.Holds {
			if h.Reason != client.Throttled { // which ends by itself alone
				ends = append(ends, string(h.Reason))
			}
		}
		if ends != nil {
			add(fmt.Sprintf("If the endpoint is well, end the hold (%s)", strings.Join(ends, ", ")), "fanout subscribers resume "+d.SubscriberID)
		}
	}
	switch d.State {
	case client.Scheduled:
		why := "Make it due now"
		if f.onHold() {
			why += ", for when the hold ends"
		}
		add(why, "fanout deliveries retry "+d.ID)
		fallthrough
	case client.Leased:
		add("Give it up", "fanout deliveries cancel "+d.ID+" --reason=...")
	case client.Dead:
		add("See all that is kept of its attempts", "fanout dead show "+d.ID)
		f.redriving(add)
		if f.subscriber != nil {
			add("See whether the endpoint is well by now", "fanout subscribers test "+d.SubscriberID)
		}
	case client.Delivered:
		add("If the receiver does not find it, look there for the webhook-id", d.ID)
	default:
	}
	if f.event != nil && f.lost == "" {
		add("See the event and its other deliveries", "fanout events show "+d.EventID)
	}
	return append(said, barred...)
}

// commandIn finds the name of a command in its line; "" if it is none.
func commandIn(line string) string {
	words := strings.Fields(line)
	if len(words) < 3 || words[0] != "fanout" {
		return ""
	}
	return words[1] + " " + words[2]
}

// redriving are the commands about the redrive that has a dead letter.
func (f facts) redriving(add func(why, command string)) {
	if f.redriveID == "" {
		return
	}
	add("See how that redrive does", "fanout redrive show "+f.redriveID)
	if f.redrive == nil {
		return
	}
	switch f.redrive.State {
	case client.RedriveAwaiting:
		add("If the canary did at the receiver what it should, let the others go", "fanout redrive approve "+f.redriveID+" --effect=...")
	case client.RedrivePaused:
		add("If what paused it is mended, go on", "fanout redrive resume "+f.redriveID+" --reason=...")
	default:
	}
}
