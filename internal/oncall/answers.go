package oncall

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// The questions as a person reads them.
var questions = map[QuestionID]string{
	AskSLO:          "Is a class past its SLO, or about to be?",
	AskConcentrated: "Are failures concentrated?",
	AskSaturated:    "Are workers saturated?",
	AskRetries:      "Are retries released too fast?",
}

func answer(id QuestionID, says Says, format string, a ...any) Answer {
	return Answer{ID: id, Question: questions[id], Says: says, Sentence: fmt.Sprintf(format, a...)}
}

func (a *Answer) showf(format string, args ...any) {
	a.Evidence = append(a.Evidence, Evidence{Text: fmt.Sprintf(format, args...)})
}

func unanswered() (out [4]Answer) {
	for i, id := range []QuestionID{AskSLO, AskConcentrated, AskSaturated, AskRetries} {
		out[i] = answer(id, Unknown, "Not known: there is no current sample.")
	}
	return out
}

// slo answers the first question.
func (f facts) slo() Answer {
	var a Answer
	switch {
	case len(f.late) > 0:
		c := f.late[0]
		a = answer(AskSLO, Yes, "Class %s is past its SLO of %s: its oldest eligible delivery has waited %s.",
			classText(c.Name), sloText(c.SLO), ageText(c.Oldest().Eligible))
	case len(f.soon) > 0:
		c := f.soon[0]
		a = answer(AskSLO, Watch, "Class %s is at %s of its SLO of %s, and would pass it in %s as it grew in the last minute.",
			classText(c.Name), ageText(c.Oldest().Eligible), sloText(c.SLO), ageText(f.breachIn(c)))
	case len(f.blink) > 0:
		c := f.blink[0]
		a = answer(AskSLO, Watch, "Class %s is past its SLO of %s, for %s only.", classText(c.Name), sloText(c.SLO), ageText(c.LateFor))
	default:
		a = answer(AskSLO, No, "Every class is within its SLO.")
	}
	for _, c := range f.s.shown() {
		oldest := c.Oldest()
		if oldest.Eligible == 0 {
			a.showf("%s: nothing eligible waits; SLO %s", c.Name, sloText(c.SLO))
			continue
		}
		a.showf("%s: %s in the %s lane; SLO %s", c.Name, ageText(oldest.Eligible), oldest.Name, sloText(c.SLO))
	}
	return a
}

// concentrated answers the second. Breakers hide an outage from the attempts: after five
// failures there is one probe now and then. So what they hold counts as well.
func (f facts) concentrated() Answer {
	fl := f.s.Fleet
	if !fl.Known {
		return answer(AskConcentrated, Unknown, "Not known: the dispatchers' reports cannot be read.")
	}
	broken := f.broken()
	var a Answer
	switch {
	case f.widespread():
		a = answer(AskConcentrated, No, "Failures are spread: %s attempts of the last minute fail, of %s or more.",
			percent(fl.Failures, fl.Attempts), counted(int64(fl.FailingTotal), "subscriber", "subscribers"))
	case fl.Failures >= fewFailures && fl.failShare() >= failShare && f.top() >= topShare:
		n := min(topFew, len(fl.Failing))
		first := fl.Failing[0]
		a = answer(AskConcentrated, Yes, "%s of the failures of the last minute are of %s, class %s, mostly %s, since %s UTC.",
			percentOf(f.top()), counted(int64(n), "subscriber", "subscribers"), classText(first.Class), first.Outcome, stampOf(first.Since).Clock)
	case len(broken) > 0:
		first := broken[0]
		a = answer(AskConcentrated, Yes, "%s failing, and held by the breaker: %s for the first of them, since %s UTC.",
			counted(int64(len(broken)), "subscriber is", "subscribers are"), counted(first.Pending, "delivery waits", "deliveries wait"), stampOf(first.Since).Clock)
	case fl.Failures >= fewFailures:
		a = answer(AskConcentrated, No, "%s of %s of the last minute failed, of %s or more: nobody stands out.",
			number(fl.Failures), counted(fl.Attempts, "attempt", "attempts"), counted(int64(fl.FailingTotal), "subscriber", "subscribers"))
	default:
		a = answer(AskConcentrated, No, "%s of %s of the last minute failed.", number(fl.Failures), counted(fl.Attempts, "attempt", "attempts"))
	}
	for _, r := range fl.Recent[:min(5, len(fl.Recent))] {
		a.showf("%s: %s %s", classText(r.Class), number(r.Count), r.Outcome)
	}
	if len(fl.Recent) == 0 {
		a.showf("no attempt ended in the last minute")
	}
	for _, one := range fl.Failing[:min(5, len(fl.Failing))] {
		a.Evidence = append(a.Evidence, Evidence{
			fmt.Sprintf("%s (%s): %s, %s of all, %s, since %s UTC", one.SubscriberID, classText(one.Class),
				counted(one.Count, "failure", "failures"), percentOf(one.Share), one.Outcome, stampOf(one.Since).Clock),
			subscriberPath(one.SubscriberID),
		})
	}
	for _, h := range broken[:min(5, len(broken))] {
		a.Evidence = append(a.Evidence, Evidence{
			fmt.Sprintf("%s: on hold (%s) since %s UTC, %s pending", h.ID, reasonsText(h.Reasons), stampOf(h.Since).Clock, number(h.Pending)),
			subscriberPath(h.ID),
		})
	}
	return a
}

// broken are subscribers whose breaker opened within the hour and for whom something
// waits. One that has been down for longer is known, and one that is paused or disabled
// was meant to be.
func (f facts) broken() (out []HeldSubscriber) {
	for _, h := range f.s.Holds {
		if slices.Contains(h.Reasons, schedule.Breaker) && !h.needsPerson() && h.Pending > 0 && f.s.At.Sub(h.Since) <= FineFor {
			out = append(out, h)
		}
	}
	slices.SortStableFunc(out, func(a, b HeldSubscriber) int { return int(b.Pending - a.Pending) })
	return out
}

func subscriberPath(id string) string { return "/v1/subscribers/" + url.PathEscape(id) }

func reasonsText(reasons []schedule.Hold) string {
	words := make([]string, len(reasons))
	for i, r := range reasons {
		words[i] = string(r)
	}
	return strings.Join(words, ", ")
}

// saturated answers the third.
func (f facts) saturated() Answer {
	fl := f.s.Fleet
	if !fl.Known {
		return answer(AskSaturated, Unknown, "Not known: the dispatchers' reports cannot be read.")
	}
	waits := len(f.late)+len(f.soon) > 0
	slow := fl.SlowLimit > 0 && float64(fl.inPool("slow")) >= fullShare*float64(fl.SlowLimit)
	var a Answer
	switch {
	case len(fl.Workers) == 0 && f.v.Worst.Age > 0:
		a = answer(AskSaturated, Yes, "No dispatcher reports, and work waits.")
	case len(fl.Workers) == 0:
		a = answer(AskSaturated, Watch, "No dispatcher reports; nothing eligible waits.")
	case fl.RedisLatency >= slowRedis:
		a = answer(AskSaturated, f.ifWaits(waits), "Redis is slow: a call takes the dispatchers %s in the mean.", ageText(fl.RedisLatency))
	case fl.busy() >= fullShare:
		a = answer(AskSaturated, f.ifWaits(waits), "%d of %d slots are in use%s.", fl.Used, fl.Slots, keeping(waits))
	case f.busy() >= fullShare:
		a = answer(AskSaturated, f.ifWaits(waits), "%d of %d slots are in use, and %s of them were in the last %s%s.",
			fl.Used, fl.Slots, percentOf(f.busy()), ageText(fullOver), keeping(waits))
	case slow:
		a = answer(AskSaturated, f.ifWaits(waits), "The slots for subscribers that take long are full (%d of %d)%s; others are free.",
			fl.inPool("slow"), fl.SlowLimit, keeping(waits))
	default:
		a = answer(AskSaturated, No, "%d of %d slots are in use.", fl.Used, fl.Slots)
	}
	for _, u := range fl.Uses {
		if u.Used > 0 {
			a.showf("%s pool, %s lane: %s in use", u.Pool, u.Lane, counted(int64(u.Used), "slot", "slots"))
		}
	}
	if fl.Capacity > 0 {
		a.showf("%.0f attempts a second now; the slots carry %.0f at %s each", fl.PerSecond, fl.Capacity,
			ageText(time.Duration(fl.SlotSeconds*float64(time.Second))))
	}
	if f.s.Limited > 0 {
		a.showf("%s at the subscriber's own cap or rate: more slots would not help them", counted(f.s.Limited, "lane waits", "lanes wait"))
	}
	if fl.RedisLatency > 0 {
		a.showf("%s; a call of Redis takes the slowest %s in the mean", counted(int64(len(fl.Workers)), "dispatcher", "dispatchers"), ageText(fl.RedisLatency))
	} else {
		a.showf("%s", counted(int64(len(fl.Workers)), "dispatcher", "dispatchers"))
	}
	return a
}

// busy is the part of the slots in use now, or in the last seconds if that was more: the
// mean of what was seen, or what so many attempts of that length take (Little's law).
func (f facts) busy() float64 {
	fl := f.s.Fleet
	sum, n := fl.busy(), 1.0
	for _, p := range f.past.Last(fullOver, f.s.At) {
		if p.Slots > 0 {
			sum += share(p.Used, p.Slots)
			n++
		}
	}
	most := max(fl.busy(), sum/n)
	if fl.Capacity > 0 {
		most = max(most, min(1, fl.PerSecond/fl.Capacity))
	}
	return most
}

// ifWaits: a full house is a matter only for those who wait outside.
func (f facts) ifWaits(waits bool) Says {
	if waits {
		return Yes
	}
	return Watch
}

func keeping(waits bool) string {
	if waits {
		return ""
	}
	return ", and keep up"
}

// retries answers the fourth. What waits for a hold falls due all the same and is not
// sent: the held are taken off the curve, all of them from each minute, so that pressure
// is spoken of only where it is certain.
func (f facts) retries() Answer {
	fl := f.s.Fleet
	inRetry := fl.inLane(delivery.Retry)
	part := share(inRetry, fl.Used)
	perMinute := 60 * fl.Capacity * retryLimitShare(fl)
	minute, peak := f.s.Release.peak(0)
	sent := max(0, peak-f.s.Held)
	full := fl.RetryLimit > 0 && float64(inRetry) >= fullShare*float64(fl.RetryLimit)
	waits := len(f.late)+len(f.soon) > 0
	var a Answer
	switch {
	case !fl.Known:
		return answer(AskRetries, Unknown, "Not known: the dispatchers' reports cannot be read.")
	case full && waits && f.staleRetry:
		a = answer(AskRetries, Yes, "Retries use %d of the %d slots that they may have, and more wait.", inRetry, fl.RetryLimit)
	case perMinute > 0 && float64(sent) > perMinute && minute <= 1:
		a = answer(AskRetries, Yes, "%s due in a minute, where the slots carry %s.", counted(sent, "retry falls", "retries fall"), number(int64(perMinute)))
	case perMinute > 0 && float64(sent) > perMinute:
		a = answer(AskRetries, Watch, "In %s %s due, where the slots carry %s a minute.", counted(int64(minute), "minute", "minutes"), counted(sent, "retry falls", "retries fall"), number(int64(perMinute)))
	case part >= retryShare && f.busy() >= fullShare && waits:
		a = answer(AskRetries, Yes, "Retries use %s of the slots in use.", percentOf(part))
	default:
		a = answer(AskRetries, No, "At most %s fall due in a minute of the next %d.", counted(peak, "retry", "retries"), releaseMinutes)
	}
	total := int64(0)
	for _, n := range f.s.Release.Due {
		total += n
	}
	a.showf("%s fall due in the next %d minutes, at most %s in one; %s of them may wait for a hold to end",
		counted(total, "retry", "retries"), releaseMinutes, number(peak), number(min(total, f.s.Held)))
	if perMinute > 0 {
		a.showf("the slots carry %s a minute, of %s", counted(int64(perMinute), "retry", "retries"), counted(int64(60*fl.Capacity), "attempt", "attempts"))
	}
	a.showf("retries use %s of the slots in use, and may have %d of %d", percentOf(part), fl.RetryLimit, fl.Slots)
	return a
}

// retryLimitShare is the part of the slots that retries may have.
func retryLimitShare(fl Fleet) float64 {
	if fl.RetryLimit == 0 {
		return 1
	}
	return share(fl.RetryLimit, fl.Slots)
}
