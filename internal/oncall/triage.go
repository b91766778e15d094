package oncall

import (
	"time"

	"github.com/fanout/fanout/internal/schedule"
)

// Diagnosis is what is most likely the matter. It is also the anchor of its section in
// docs/runbook.md, with - for _.
type Diagnosis string

// The diagnoses, in the order in which they are looked for: the first that fits is it.
const (
	BlindSampler       Diagnosis = "blind"               // Redis does not answer: nothing is known
	NotSampled         Diagnosis = "starting"            // not looked yet
	LedgerGap          Diagnosis = "ledger_gap"          // something accepted may get no outcome
	NotReady           Diagnosis = "not_ready"           // Redis refuses writes, or may lose them
	NoWorkers          Diagnosis = "no_workers"          // work waits, and no dispatcher is there
	ConcentratedOutage Diagnosis = "concentrated_outage" // a few subscribers make most failures
	WidespreadFailures Diagnosis = "widespread_failures" // many subscribers fail at once: look at us first
	RetryPressure      Diagnosis = "retry_pressure"      // retries fall due faster than slots carry them
	SaturatedWorkers   Diagnosis = "saturated_workers"   // slots are full and work waits
	StaleDeliveries    Diagnosis = "stale_deliveries"    // work waits, and none of the above says why
	Healthy            Diagnosis = "healthy"
)

// Diagnoses are all of them, in that order.
var Diagnoses = []Diagnosis{
	BlindSampler, NotSampled, LedgerGap, NotReady, NoWorkers, ConcentratedOutage, WidespreadFailures, RetryPressure,
	SaturatedWorkers, StaleDeliveries, Healthy,
}

// Says is the answer to a question of triage.
type Says string

// The answers. Watch says that it is so and does no harm yet, or will be soon.
const (
	No      Says = "no"
	Watch   Says = "watch"
	Yes     Says = "yes"
	Unknown Says = "unknown"
)

// QuestionID names a question.
type QuestionID string

// The four questions, in the order in which they are asked.
const (
	AskSLO          QuestionID = "slo"          // is a class breaching, or about to breach, its SLO?
	AskConcentrated QuestionID = "concentrated" // are failures concentrated?
	AskSaturated    QuestionID = "saturated"    // are workers saturated?
	AskRetries      QuestionID = "retries"      // are retries released too fast?
)

// Evidence is one fact that an answer stands on. Link is where to look, a path of this
// server such as /v1/subscribers/sub_1; "" if there is nothing more to see.
type Evidence struct {
	Text string
	Link string
}

// Answer is a question and what the figures say to it.
type Answer struct {
	ID       QuestionID
	Question string
	Says     Says
	Sentence string
	Evidence []Evidence
}

// Triage is what an engineer who has just been woken needs: what is the matter, whether
// it is worth being awake for, and the four answers that lead there. It follows from a
// Snapshot and a Past alone.
type Triage struct {
	Diagnosis Diagnosis
	// Page says that somebody must act now; without it whatever is the matter can wait
	// until morning.
	Page     bool
	Sentence string
	// Runbook is the anchor of the section to follow in docs/runbook.md.
	Runbook string
	Answers [4]Answer
	// Notes are what is worth knowing beside it, none of which pages.
	Notes []Evidence
}

// Triage is the diagnosis of now.
func (o *OnCall) Triage() Triage {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.triage()
}

// triage is Triage for who holds o.mu.
func (o *OnCall) triage() Triage { return Diagnose(o.latest, o.past, o.sight(), o.blindAfter) }

// Past is what was, for charts. Nobody may write to it.
func (o *OnCall) Past() Past {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.past
}

// LiveRedrive is a redrive under way.
type LiveRedrive struct {
	ID, State, Reason string
	CreatedBy         string
	CreatedAt         time.Time
	// Rate is how many it releases a second now, MaxRate its limit.
	Rate, MaxRate float64
	// Members it has; Released of them, and how those ended so far.
	Members, Released, Delivered, Dead int64
	// Canaries that it sent, to be looked at before it is approved.
	Canaries []string
	// Stopped is why it is paused; HeldBack why it releases nothing now.
	Stopped, HeldBack string
}

// Memory is that of Redis in bytes, all nodes together. Max is 0 without a limit.
type Memory struct{ Used, Max int64 }

// releaseMinutes is how far the release curve looks ahead.
const releaseMinutes = schedule.DueMinutes

// Release is how many deliveries fall due by themselves, minute by minute: retries and
// redriven ones, for a first attempt is due at once. Those of subscribers on hold are
// among them, and wait longer. Due[0] is the minute that begins at From, the present one:
// also what of it has fallen due already.
type Release struct {
	From time.Time
	Due  [releaseMinutes]int64
}

// peak is the minute with the most, from the given one on.
func (r Release) peak(from int) (minute int, due int64) {
	for i := from; i < len(r.Due); i++ {
		if r.Due[i] > due {
			minute, due = i, r.Due[i]
		}
	}
	return minute, due
}

// gapsOf adds up what the reconciliation found.
func gapsOf(gaps map[schedule.Gap]int64) (n int64) {
	for _, found := range gaps {
		n += found
	}
	return n
}
