package oncall

import (
	"fmt"
	"strings"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// State is what on-call is told in a word.
type State string

// The states, the one that matters most first: who cannot see must not be told
// that all is well.
const (
	Starting   State = "starting"   // there was no sample yet
	Blind      State = "blind"      // the last sample is too old to judge by, or there was none for as long
	Breaching  State = "breaching"  // an eligible delivery is older than its class's SLO
	Unbalanced State = "unbalanced" // in time, but the ledger does not add up
	Unready    State = "unready"    // in time, but Redis refuses writes or may lose them
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
	case Unready:
		return "Not ready"
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
	Gone    Why = "gone"     // its worker is gone, and no dispatcher reclaims expired leases: are they running?
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

// reclaimPatience is how long leases may stay expired before it is news: a running
// dispatcher reclaims them within a few seconds.
const reclaimPatience = 10 * time.Second

// Sight is what the sampler knows beside its last snapshot.
type Sight struct {
	// Stale is the time since the last sample, or since Began if there was none.
	Stale time.Duration
	Began time.Time // when sampling began, local time
	// Error is why the last look failed, empty if it did not. Trouble is why the
	// service is not ready, empty if it is. Both are fit to be shown.
	Error, Trouble string
}

// Verdict is a snapshot in one sentence.
type Verdict struct {
	State State
	// Worst is the eligible wait that uses most of its SLO; its Age is 0 when
	// nothing waits.
	Worst Wait
	// Others is how many further classes breach.
	Others int
	// Abandoned says that workers are gone and nobody reclaims their leases;
	// Strangers that Redis holds deliveries of classes unknown here.
	Abandoned, Strangers bool
	// Aside are the oldest limited and the oldest held wait, when older than
	// their class's SLO: not the workers' doing, but worth a look.
	Aside []Wait
	// OnHold and Held are how many subscribers are on hold and how many deliveries
	// wait for them: no breach of ours, however many and however old.
	OnHold, Held int64
	Imbalance    int64
	Sight
	sampled bool
}

// Judge reads a snapshot by how it was come by. Past blindAfter without a good
// sample it says Blind whatever the snapshot holds.
func Judge(s Snapshot, sight Sight, blindAfter time.Duration) Verdict {
	v := Verdict{
		State: Within, OnHold: s.OnHold, Held: s.Held, Imbalance: s.Imbalance(), Strangers: s.Others,
		Sight: sight, sampled: !s.Taken.IsZero(),
	}
	breaching := 0
	for _, c := range s.Classes {
		if c.Breaching() {
			breaching++
		}
	}
	v.Abandoned = s.Expired > 0 && (breaching > 0 || s.ExpiredFor > reclaimPatience)
	v.Worst, v.Aside = waits(s, eligibleWhy(s, v.Abandoned))
	switch {
	case sight.Stale > blindAfter:
		v.State = Blind
	case !v.sampled:
		v.State = Starting
	case breaching > 0:
		v.State, v.Others = Breaching, breaching-1
	case v.Imbalance != 0:
		v.State = Unbalanced
	case sight.Trouble != "":
		v.State = Unready
	}
	return v
}

// waits picks the worst wait of each kind.
func waits(s Snapshot, why Why) (worst Wait, aside []Wait) {
	var limited, held Wait
	for _, c := range s.Classes {
		for _, l := range c.Lanes {
			worse(&worst, Wait{c.Name, l.Name, l.Eligible, c.SLO, why})
			worse(&limited, Wait{c.Name, l.Name, l.Limited, c.SLO, Limited})
			worse(&held, Wait{c.Name, l.Name, l.Held, c.SLO, Held})
		}
	}
	for _, w := range []Wait{limited, held} {
		if w.Age > w.SLO {
			aside = append(aside, w)
		}
	}
	return worst, aside
}

// worse keeps the wait that uses more of its SLO.
func worse(to *Wait, w Wait) {
	if w.Age > 0 && (to.Age == 0 || w.ratio() > to.ratio()) {
		*to = w
	}
}

func eligibleWhy(s Snapshot, isAbandoned bool) Why {
	switch {
	case isAbandoned:
		return Gone
	case s.Leases-s.Expired <= 0:
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
		return v.blind()
	case Breaching:
		return v.breach()
	case Unbalanced:
		return "The ledger does not add up, though every class is within its SLO",
			fmt.Sprintf(": accepted differs from the sum of its states by %+d.", v.Imbalance)
	case Unready:
		return v.Trouble + ". Every class is within its SLO", v.oldest()
	case Within:
	}
	return "Every class is within its SLO", v.oldest()
}

// oldest says how near the nearest wait is to its SLO.
func (v Verdict) oldest() string {
	if v.Worst.Age == 0 {
		return "; nothing eligible is waiting."
	}
	return fmt.Sprintf("; the oldest eligible delivery has waited %s (%s, %s lane).",
		ageText(v.Worst.Age), classText(v.Worst.Class), v.Worst.Lane)
}

func (v Verdict) blind() (steady, running string) {
	if v.sampled {
		steady = "Redis does not answer, so nothing below is current"
		running = fmt.Sprintf(": the last sample is %s old.", ageText(v.Stale))
	} else {
		at := stampOf(v.Began)
		steady = fmt.Sprintf("Redis has not answered since this server began to ask on %s at %s UTC, so there is nothing to show",
			at.Day, at.Clock)
		running = fmt.Sprintf(": no sample for %s.", ageText(v.Stale))
	}
	if v.Error != "" {
		running += " The last error: " + v.Error + "."
	}
	return steady, running
}

func (v Verdict) breach() (steady, running string) {
	class := "Class " + v.Worst.Class
	if v.Worst.Class == schedule.OtherClass {
		class = "A " + unknownClass
	}
	if v.Imbalance != 0 {
		class = "The ledger does not add up, and " + strings.ToLower(class[:1]) + class[1:]
	}
	cause, others := "wait for a free worker", ""
	switch v.Worst.Why {
	case NoLease:
		cause = "wait while no worker holds a lease (is a dispatcher running?)"
	case Gone:
		cause = "wait, and " + abandoned
	case Busy, Limited, Held:
	}
	switch {
	case v.Others == 1:
		others = " (one more class is late)"
	case v.Others > 1:
		others = fmt.Sprintf(" (%d more classes are late)", v.Others)
	}
	steady = fmt.Sprintf("%s is past its SLO of %s%s: eligible deliveries of the %s lane %s",
		class, sloText(v.Worst.SLO), others, v.Worst.Lane, cause)
	return steady, fmt.Sprintf(", the oldest for %s.", ageText(v.Worst.Age))
}

// Notes are what the sentence leaves out because something graver comes first.
// They have no figures, for the reason that Sentence gives.
func (v Verdict) Notes() (notes []string) {
	if v.State == Starting || v.State == Blind {
		return nil // nothing is known now
	}
	if v.Trouble != "" && v.State != Unready {
		notes = append(notes, v.Trouble+".")
	}
	if v.Abandoned && v.State != Breaching {
		notes = append(notes, "Deliveries wait, and "+abandoned+".")
	}
	if v.Strangers && (v.State != Breaching || v.Worst.Class != schedule.OtherClass) {
		notes = append(notes, "There are deliveries of a "+unknownClass+".")
	}
	return notes
}

const (
	unknownClass = "class that this server was not told of (--class)"
	abandoned    = "their worker is gone: no dispatcher reclaims expired leases (are dispatchers running?)"
)

// classText names a class.
func classText(name string) string {
	if name == schedule.OtherClass {
		return "a " + unknownClass
	}
	return name
}

// Text says what an aside means, figures last.
func (w Wait) Text() string {
	cause := "its subscriber is on hold"
	if w.Why == Limited {
		cause = "its subscriber is at its own cap or rate"
	}
	return fmt.Sprintf("oldest %s delivery in %s, %s lane: %s (%s)", w.Why, classText(w.Class), w.Lane, ageText(w.Age), cause)
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
