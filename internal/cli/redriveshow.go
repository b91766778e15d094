package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/fanout/fanout/client"
)

func previewRows(t *table, p client.RedrivePreview) {
	matching := fmt.Sprint(p.Matching)
	if p.AtLeast {
		matching = "at least " + matching
	}
	t.row("dead letters", matching)
	t.row("subscribers", fmt.Sprint(p.Subscribers))
	h := p.HeadRoom
	t.row("head-room", fmt.Sprintf("%s (%s carried, %s arrive; %d of %d slots in use)",
		perSecond(h.PerSecond), perSecond(h.CapacityPerSecond), perSecond(h.ArrivalsPerSecond), h.SlotsInUse, h.Slots))
	t.row("released", "up to "+perSecond(p.RatePerSecond))
	t.row("takes", "about "+span(time.Duration(p.Takes)))
}

func shareTable(t *table, p client.RedrivePreview) {
	t.header("SUBSCRIBER", "DEAD LETTERS")
	for _, s := range p.BySubscriber {
		t.row(s.SubscriberID, fmt.Sprint(s.DeadLetters))
	}
	if more := p.Subscribers - len(p.BySubscriber); more > 0 {
		t.row(fmt.Sprintf("and %d more", more))
	}
}

func causeTable(t *table, p client.RedrivePreview) {
	t.header("DIED OF", "DEAD LETTERS")
	for _, c := range p.ByReason {
		t.row(c.Reason, fmt.Sprint(c.DeadLetters))
	}
}

// perSecond is a rate as a person says it.
func perSecond(rate float64) string {
	if rate >= 100 || rate == float64(int(rate)) {
		return fmt.Sprintf("%.0f/s", rate)
	}
	return fmt.Sprintf("%.3g/s", rate)
}

func redriveTable(t *table, all []client.Redrive, now time.Time) {
	t.header("REDRIVE", "STATE", "DEAD LETTERS", "DELIVERED", "REASON", "WHY IT STANDS", "MADE", "BY")
	for _, r := range all {
		delivered := ""
		if r.Tally != nil {
			delivered = fmt.Sprint(r.Tally.Delivered)
		}
		t.row(r.ID, string(r.State), fmt.Sprint(r.Matched-r.Skipped), delivered, oneLine(r.Reason, 40), oneLine(stands(r), 60), when(r.CreatedAt, now), r.CreatedBy)
	}
}

// stands is why nothing is released, "" if something is.
func stands(r client.Redrive) string {
	switch {
	case r.State == client.RedriveAwaiting:
		return "somebody is to say what the canary did"
	case r.Stopped != "":
		return r.StoppedBy + ": " + r.Stopped
	}
	return r.HeldBack
}

func redriveRows(t *table, r client.Redrive, now time.Time) {
	t.row("id", r.ID)
	t.row("state", string(r.State))
	t.maybe("why it stands", stands(r))
	t.row("reason", r.Reason)
	t.row("chosen", chosen(r))
	t.row("each", fmt.Sprintf("%s, within %s", count(r.AttemptBudget, "attempt", "attempts"), span(time.Duration(r.Within))))
	t.row("made", when(r.CreatedAt, now)+" by "+r.CreatedBy)
	members := fmt.Sprintf("%d matched, %d could not be had", r.Matched, r.Skipped)
	if !r.Planned {
		members += " so far"
	}
	t.row("members", members)
	t.row("canaries", fmt.Sprintf("%d; delivered: %s", r.Canaries, yesNo(r.CanaryPassed)))
	if r.Effect != "" {
		t.row("approved", when(r.ApprovedAt, now)+" by "+r.ApprovedBy)
		t.row("effect", r.Effect)
	}
	if r.State == client.RedriveRunning {
		t.row("released", rateOf(r))
	}
	if y := r.Tally; y != nil {
		t.row("tally", fmt.Sprintf("%d delivered, %d dead again, %d out, %d waiting, %d cancelled, %d left, %d let go of %d",
			y.Delivered, y.Dead, y.Out, y.Waiting, y.Cancelled, y.Over, y.LetGo, y.Claimed))
	}
	t.maybe("ended", when(r.EndedAt, now))
}

func rateOf(r client.Redrive) string {
	if r.RateLimit <= r.RatePerSecond { // none is known yet, or it is reached
		return perSecond(r.RatePerSecond)
	}
	return fmt.Sprintf("%s, up to %s", perSecond(r.RatePerSecond), perSecond(r.RateLimit))
}

// allDead are those that no filter chooses among.
const allDead = "all dead letters"

// chosen says which dead letters it is made of.
func chosen(r client.Redrive) string {
	if r.Filter == nil {
		return count(len(r.IDs), "delivery by its id", "deliveries by their ids")
	}
	var said []string
	at := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return stamp(t)
	}
	f := r.Filter
	for _, p := range [][2]string{
		{"subscriber", f.SubscriberID},
		{"class", f.Class},
		{"outcome", f.Outcome},
		{"died of", f.Reason},
		{"type", f.Type},
		{"since", at(f.Since)},
		{"until", at(f.Until)},
	} {
		if p[1] != "" {
			said = append(said, p[0]+" "+p[1])
		}
	}
	if len(said) == 0 {
		return allDead
	}
	return strings.Join(said, ", ")
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// canarySays is what became of a canary, with what the receiver answered.
func canarySays(d client.Delivery) string {
	text := string(d.State)
	if d.LastOutcome != "" {
		text += ", " + outcome(d.LastOutcome, d.LastStatus)
	}
	if n := len(d.Evidence); n > 0 && d.Evidence[n-1].Excerpt != "" {
		text += fmt.Sprintf(": %q", oneLine(d.Evidence[n-1].Excerpt, 200))
	}
	return clean(text)
}
