package oncall

import (
	"cmp"
	"slices"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// Age is how long something has been due: now - due, both by the Redis clock. It
// is 0 for a zero due time (there is nothing) and never negative: a head that
// was leased and put back within the sample may be due after it.
func Age(now, due time.Time) time.Duration {
	if due.IsZero() {
		return 0
	}
	return max(0, now.Sub(due))
}

// Lane holds the ages of the oldest heads in one lane of one class; 0 where there
// is none.
type Lane struct {
	Name delivery.Lane
	// Eligible waits for a worker only, and alone counts against the SLO. Limited
	// waits for its subscriber's cap or rate, Held for its subscriber's hold.
	Eligible, Limited, Held time.Duration
}

// Class is one class of subscribers against its age SLO. Lanes has every lane, in
// the order of service.
type Class struct {
	Name  string
	SLO   time.Duration
	Lanes []Lane
	// LateFor is how long every sample in a row has had it past its SLO. A subscriber at
	// its own cap or rate is eligible for the moment until it is served, with a head as old
	// as its backlog: one sample alone says little.
	LateFor time.Duration
	// Other marks the class schedule.OtherClass, which stands for all that this
	// server was not told of: by a typo or after a renaming there are deliveries
	// that nobody would see. Its SLO is the tightest of the configured ones,
	// because nobody knows which it should be.
	Other bool
}

// Oldest is the lane whose eligible head is the oldest; the first one served when
// equal.
func (c Class) Oldest() Lane {
	return slices.MaxFunc(c.Lanes, func(a, b Lane) int { return cmp.Compare(a.Eligible, b.Eligible) })
}

// Breaching says whether an eligible delivery is older than the SLO.
func (c Class) Breaching() bool { return c.Oldest().Eligible > c.SLO }

// Snapshot is one look at the whole engine. It is never changed once made.
type Snapshot struct {
	// At is Redis time when the sample was taken, Taken the local time when it
	// came back. The difference of two local times is how stale it is: the
	// clocks of two machines are not to be compared.
	At, Taken time.Time
	// Classes are in order of SLO, the tightest first; the last is always the one
	// for others, also when there are none.
	Classes []Class
	// Others says that Redis holds deliveries of classes not configured here.
	Others bool
	Ledger schedule.Ledger
	// Leases are deliveries that a worker holds or held when it went; the rest of
	// Ledger.Pending waits. Expired are those of Leases that are past their end:
	// nobody works on them, and a dispatcher has to reclaim them.
	Leases, Expired int64
	// ExpiredFor is how long every sample in a row has had expired leases. A
	// running dispatcher reclaims them within seconds.
	ExpiredFor time.Duration
	// Ready and Scheduled count pairs of a subscriber and a lane: awaiting a turn,
	// and with nothing due yet.
	Ready, Scheduled int64
	DeadLetters      int64 // kept as evidence
	// OnHold counts subscribers that are not sent to, Held their pending deliveries.
	// Those wait for a hold to end, and no worker could do anything about it.
	OnHold, Held int64
	// Holds are those on hold for longest, the longest first, at most 20.
	Holds      []HeldSubscriber
	OpenEvents int64 // accepted, not expanded yet
	LateEvents int64 // not expanded in time, and set aside for a person
	// Failures are the newest dead letters, newest first, at most 10.
	Failures []Failure

	// Limited counts pairs of a subscriber and a lane whose head is due while the
	// subscriber is at its own cap or rate.
	Limited int64
	// OldestDead is the age of the oldest dead letter that is kept; 0 if there is none.
	OldestDead time.Duration
	// Fleet is what dispatchers say, Release what falls due in the next minutes.
	Fleet   Fleet
	Release Release
	// Redrives are those under way, the oldest first.
	Redrives []LiveRedrive
	// Gaps are what the reconciliation found, by kind; anything but 0 needs a person.
	// GapExamples are some of them.
	Gaps        map[schedule.Gap]int64
	GapExamples []schedule.Finding
	Memory      Memory
	// Took is how long this look at Redis took.
	Took time.Duration
}

// InFlight are the deliveries that a worker has.
func (s Snapshot) InFlight() int64 { return max(0, s.Leases-s.Expired) }

// Imbalance is accepted less the sum of the states: 0, or deliveries were lost or
// counted twice.
func (s Snapshot) Imbalance() int64 {
	l := s.Ledger
	return l.Accepted - l.Pending - l.Delivered - l.Dead - l.Cancelled
}

// shown are the classes worth showing: the configured ones, and the one for others
// if there are any.
func (s Snapshot) shown() []Class {
	if s.Others {
		return s.Classes
	}
	return s.Classes[:max(0, len(s.Classes)-1)]
}

// Failure is a dead letter as on-call first sees it.
type Failure struct {
	DeliveryID, SubscriberID, EventID string
	// Outcome is the last attempt's, Reason why there is no other; the same when
	// it was never attempted.
	Outcome, Reason delivery.Outcome
	Status          int // of the last answer, 0 if none came
	Attempts        int
	At              time.Time
	// Said is what went wrong in words, and what the endpoint answered. It comes
	// from a stranger's server: whoever shows it escapes it.
	Said string
}

// classesOf lays out every class and lane at age 0, the one for others last.
func classesOf(slo map[string]time.Duration) []Class {
	classes := make([]Class, 0, len(slo)+1)
	for name, limit := range slo {
		classes = append(classes, Class{Name: name, SLO: limit, Lanes: lanesOf()})
	}
	slices.SortFunc(classes, func(a, b Class) int {
		return cmp.Or(cmp.Compare(a.SLO, b.SLO), cmp.Compare(a.Name, b.Name))
	})
	return append(classes, Class{Name: schedule.OtherClass, SLO: classes[0].SLO, Lanes: lanesOf(), Other: true})
}

func lanesOf() []Lane {
	lanes := make([]Lane, 0, len(delivery.Lanes))
	for _, l := range delivery.Lanes {
		lanes = append(lanes, Lane{Name: l})
	}
	return lanes
}

// snapshot turns a sample into ages. A class that is not configured here counts
// with the others; one that is listed twice keeps its older heads.
func snapshot(slo map[string]time.Duration, s schedule.Sample, taken time.Time, failures []Failure) Snapshot {
	classes := classesOf(slo)
	others := false
	for _, a := range s.Ages {
		c := slices.IndexFunc(classes, func(c Class) bool { return c.Name == a.Class })
		if c < 0 {
			c = len(classes) - 1
		}
		others = others || classes[c].Other
		l := slices.Index(delivery.Lanes, a.Lane)
		if l < 0 {
			continue
		}
		lane := &classes[c].Lanes[l]
		lane.Eligible = max(lane.Eligible, Age(s.Now, a.Eligible))
		lane.Limited = max(lane.Limited, Age(s.Now, a.Limited))
		lane.Held = max(lane.Held, Age(s.Now, a.Held))
	}
	return Snapshot{
		At: s.Now, Taken: taken, Classes: classes, Others: others, Ledger: s.Ledger,
		Leases: s.Leases, Expired: s.ExpiredLeases,
		Ready: s.Ready, Scheduled: s.Scheduled, DeadLetters: s.Dead, OnHold: s.OnHold, Held: s.Held, OpenEvents: s.OpenEvents, LateEvents: s.LateEvents,
		Failures: failures,
		Limited:  s.Limited, OldestDead: Age(s.Now, s.OldestDead), Release: Release{s.DueFrom, s.Due},
	}
}

// failuresOf shortens dead letters to what on-call reads first.
func failuresOf(dead []schedule.DeadLetter) []Failure {
	out := make([]Failure, 0, min(len(dead), maxFailures))
	for _, d := range dead[:min(len(dead), maxFailures)] {
		f := Failure{
			DeliveryID: d.ID, SubscriberID: d.SubscriberID, EventID: d.EventID,
			Outcome: d.LastOutcome, Reason: d.Reason, Status: d.LastStatus,
			Attempts: d.Attempts, At: d.EndedAt, Said: "never attempted",
		}
		if f.Outcome == "" {
			f.Outcome = f.Reason
		}
		if f.At.IsZero() {
			f.At = d.LastAttemptAt
		}
		if n := len(d.History); n > 0 {
			f.Said = said(d.History[n-1])
		} else if f.Attempts > 0 {
			f.Said = "" // its evidence is gone
		}
		out = append(out, f)
	}
	return out
}

// said joins what we say of an attempt with what the endpoint said.
func said(a delivery.Attempt) string {
	switch {
	case a.Excerpt == "":
		return a.Error
	case a.Error == "":
		return a.Excerpt
	}
	return a.Error + ": " + a.Excerpt
}
