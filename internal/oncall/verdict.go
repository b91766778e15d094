package oncall

import (
	"fmt"
	"strings"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// State is what on-call is told in a word.
type State string

// The states, the one that matters most first: who cannot see must not be told
// that all is well.
const (
	Starting   State = "starting"   // there was no sample yet
	Blind      State = "blind"      // the last sample is too old to judge by
	Breaching  State = "breaching"  // an eligible delivery is older than its class's SLO
	Unbalanced State = "unbalanced" // in time, but the ledger does not add up
	Within     State = "within"
)

// Word is the state as a person reads it.
func (s State) Word() string {
	switch s {
	case Starting:
		return "Starting"
	case Blind:
		return "Blind"
	case Breaching:
		return "Breaching"
	case Unbalanced:
		return "Out of balance"
	case Within:
		return "Within SLO"
	}
	return string(s)
}

// Why is the cause of a wait, as far as a sample can tell.
type Why string

// The causes.
const (
	NoLease Why = "no_lease" // eligible, and no worker holds any lease: are they running?
	Busy    Why = "busy"     // eligible, and workers hold other leases
	Limited Why = "limited"  // its subscriber is at its own cap or rate
	Held    Why = "held"     // its subscriber is on hold
)

// Wait is one delivery that waits.
type Wait struct {
	Class string
	Lane  delivery.Lane
	Age   time.Duration
	SLO   time.Duration
	Why   Why
}

// ratio orders waits by how much of their SLO is used.
func (w Wait) ratio() float64 { return float64(w.Age) / float64(w.SLO) }

// Verdict is a snapshot in one sentence.
type Verdict struct {
	State State
	// Worst is the eligible wait that uses most of its SLO; its Age is 0 when
	// nothing waits.
	Worst Wait
	// Others is how many further classes breach.
	Others int
	// Aside are the oldest limited and the oldest held wait, when older than
	// their class's SLO: not the workers' doing, but worth a look.
	Aside     []Wait
	Imbalance int64
	Stale     time.Duration
}

// Judge reads a snapshot that is stale by the given time; past blindAfter it says
// Blind whatever the snapshot holds.
func Judge(s Snapshot, stale, blindAfter time.Duration) Verdict {
	v := Verdict{State: Within, Imbalance: s.Imbalance(), Stale: stale}
	breaching := 0
	var limited, held Wait
	for _, c := range s.Classes {
		if c.Breaching() {
			breaching++
		}
		for _, l := range c.Lanes {
			worse(&v.Worst, Wait{c.Name, l.Name, l.Eligible, c.SLO, eligibleWhy(s)})
			worse(&limited, Wait{c.Name, l.Name, l.Limited, c.SLO, Limited})
			worse(&held, Wait{c.Name, l.Name, l.Held, c.SLO, Held})
		}
	}
	for _, w := range []Wait{limited, held} {
		if w.Age > w.SLO {
			v.Aside = append(v.Aside, w)
		}
	}
	switch {
	case s.Taken.IsZero():
		v.State = Starting
	case stale > blindAfter:
		v.State = Blind
	case breaching > 0:
		v.State, v.Others = Breaching, breaching-1
	case v.Imbalance != 0:
		v.State = Unbalanced
	}
	return v
}

// worse keeps the wait that uses more of its SLO.
func worse(to *Wait, w Wait) {
	if w.Age > 0 && (to.Age == 0 || w.ratio() > to.ratio()) {
		*to = w
	}
}

func eligibleWhy(s Snapshot) Why {
	if s.Leases == 0 {
		return NoLease
	}
	return Busy
}

// Sentence is the verdict in words, in two parts that read as one: steady stays
// the same while the situation does, so that a screen reader speaks only when
// there is news; running holds the figures that change every second.
func (v Verdict) Sentence() (steady, running string) {
	switch v.State {
	case Starting:
		return "Waiting for the first sample from Redis.", ""
	case Blind:
		return "Redis does not answer, so nothing below is current",
			fmt.Sprintf(": the last sample is %s old.", ageText(v.Stale))
	case Breaching:
		return v.breach()
	case Unbalanced:
		return "The ledger does not add up, though every class is within its SLO",
			fmt.Sprintf(": accepted differs from the sum of its states by %+d.", v.Imbalance)
	case Within:
	}
	if v.Worst.Age == 0 {
		return "Every class is within its SLO", "; nothing eligible is waiting."
	}
	return "Every class is within its SLO", fmt.Sprintf("; the oldest eligible delivery has waited %s (%s, %s lane).",
		ageText(v.Worst.Age), v.Worst.Class, v.Worst.Lane)
}

func (v Verdict) breach() (steady, running string) {
	lead, cause, others := "Class", "wait for a free worker", ""
	if v.Imbalance != 0 {
		lead = "The ledger does not add up, and class"
	}
	if v.Worst.Why == NoLease {
		cause = "wait while no worker holds a lease (is a dispatcher running?)"
	}
	switch {
	case v.Others == 1:
		others = " (one more class is late)"
	case v.Others > 1:
		others = fmt.Sprintf(" (%d more classes are late)", v.Others)
	}
	steady = fmt.Sprintf("%s %s is past its SLO of %s%s: eligible deliveries of the %s lane %s",
		lead, v.Worst.Class, sloText(v.Worst.SLO), others, v.Worst.Lane, cause)
	return steady, fmt.Sprintf(", the oldest for %s.", ageText(v.Worst.Age))
}

// Text says what an aside means, figures last.
func (w Wait) Text() string {
	cause := "its subscriber is on hold"
	if w.Why == Limited {
		cause = "its subscriber is at its own cap or rate"
	}
	return fmt.Sprintf("oldest %s delivery in %s, %s lane: %s (%s)", w.Why, w.Class, w.Lane, ageText(w.Age), cause)
}

// ageText writes a duration for a person: two significant units at most.
func ageText(d time.Duration) string {
	switch d = max(d, 0); {
	case d == 0:
		return "0 s"
	case d < time.Second:
		return fmt.Sprintf("%d ms", max(1, d.Milliseconds()))
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return twoUnits(int(d.Minutes()), "min", int(d.Seconds())%60, "s")
	case d < 48*time.Hour:
		return twoUnits(int(d.Hours()), "h", int(d.Minutes())%60, "min")
	}
	return twoUnits(int(d.Hours())/24, "d", int(d.Hours())%24, "h")
}

// sloText is ageText for a round figure that does not move.
func sloText(d time.Duration) string { return strings.Replace(ageText(d), ".0 s", " s", 1) }

func twoUnits(a int, unitA string, b int, unitB string) string {
	if b == 0 {
		return fmt.Sprintf("%d %s", a, unitA)
	}
	return fmt.Sprintf("%d %s %d %s", a, unitA, b, unitB)
}
