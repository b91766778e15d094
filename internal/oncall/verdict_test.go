package oncall

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	eligible := func(class string, lane delivery.Lane, age time.Duration) schedule.Ages {
		return schedule.Ages{Class: class, Lane: lane, Eligible: ago(age)}
	}
	for _, c := range []struct {
		name   string
		ages   []schedule.Ages
		change func(*schedule.Sample)
		stale  time.Duration
		dead   time.Duration // for how long leases have been expired
		state  State
		worst  Wait
		others int
		says   string

		trouble string
		notes   []string
	}{
		{
			name: "nothing waits", state: Within,
			says: "Every class is within its SLO; nothing eligible is waiting.",
		},
		{
			name: "some wait, in time", state: Within,
			ages:  []schedule.Ages{eligible("standard", delivery.Fresh, 3*time.Second)},
			worst: Wait{"standard", delivery.Fresh, 3 * time.Second, 30 * time.Second, Busy},
			says:  "Every class is within its SLO; the oldest eligible delivery has waited 3.0 s (standard, fresh lane).",
		},
		{
			name: "the tighter SLO is nearer, though its delivery is younger", state: Within,
			ages: []schedule.Ages{
				eligible("standard", delivery.Fresh, 6*time.Second), eligible("express", delivery.Retry, 4*time.Second),
			},
			worst: Wait{"express", delivery.Retry, 4 * time.Second, 5 * time.Second, Busy},
			says:  "Every class is within its SLO; the oldest eligible delivery has waited 4.0 s (express, retry lane).",
		},
		{
			name: "late, workers busy", state: Breaching,
			ages:  []schedule.Ages{eligible("standard", delivery.Retry, 48*time.Second)},
			worst: Wait{"standard", delivery.Retry, 48 * time.Second, 30 * time.Second, Busy},
			says: "Class standard is past its SLO of 30 s: eligible deliveries of the retry lane wait for a free worker," +
				" the oldest for 48 s.",
		},
		{
			name: "late, nobody works", state: Breaching,
			ages:   []schedule.Ages{eligible("express", delivery.Fresh, 2*time.Minute)},
			change: func(s *schedule.Sample) { s.Leases = 0 },
			worst:  Wait{"express", delivery.Fresh, 2 * time.Minute, 5 * time.Second, NoLease},
			says: "Class express is past its SLO of 5 s: eligible deliveries of the fresh lane wait while no worker holds" +
				" a lease (is a dispatcher running?), the oldest for 2 min.",
		},
		{
			name: "late, in the lease of a dead worker", state: Breaching,
			ages:   []schedule.Ages{eligible("standard", delivery.Fresh, 48*time.Second)},
			change: func(s *schedule.Sample) { s.ExpiredLeases = 1 },
			worst:  Wait{"standard", delivery.Fresh, 48 * time.Second, 30 * time.Second, Gone},
			says: "Class standard is past its SLO of 30 s: eligible deliveries of the fresh lane wait, and their worker is gone:" +
				" no dispatcher reclaims expired leases (are dispatchers running?), the oldest for 48 s.",
		},
		{
			name: "in time, and a lease that expired just now", state: Within,
			ages:   []schedule.Ages{eligible("standard", delivery.Fresh, time.Second)},
			change: func(s *schedule.Sample) { s.ExpiredLeases = 1 },
			worst:  Wait{"standard", delivery.Fresh, time.Second, 30 * time.Second, Busy},
			says:   "Every class is within its SLO; the oldest eligible delivery has waited 1.0 s (standard, fresh lane).",
		},
		{
			name: "in time, and every worker dead for a while", state: Within,
			ages:   []schedule.Ages{eligible("standard", delivery.Fresh, 12*time.Second)},
			change: func(s *schedule.Sample) { s.ExpiredLeases = s.Leases },
			dead:   11 * time.Second,
			worst:  Wait{"standard", delivery.Fresh, 12 * time.Second, 30 * time.Second, Gone},
			says:   "Every class is within its SLO; the oldest eligible delivery has waited 12 s (standard, fresh lane).",
			notes: []string{"Deliveries wait, and their worker is gone: no dispatcher reclaims expired leases" +
				" (are dispatchers running?)."},
		},
		{
			name: "late, of a class that is not configured", state: Breaching,
			ages:  []schedule.Ages{eligible(schedule.OtherClass, delivery.Fresh, 6*time.Second)},
			worst: Wait{schedule.OtherClass, delivery.Fresh, 6 * time.Second, 5 * time.Second, Busy},
			says: "A class that this server was not told of (--class) is past its SLO of 5 s: eligible deliveries of the" +
				" fresh lane wait for a free worker, the oldest for 6.0 s.",
		},
		{
			name: "in time, and a class that is not configured", state: Within,
			ages:  []schedule.Ages{{Class: schedule.OtherClass, Lane: delivery.Retry, Eligible: redisNow.Add(time.Hour)}},
			says:  "Every class is within its SLO; nothing eligible is waiting.",
			notes: []string{"There are deliveries of a class that this server was not told of (--class)."},
		},
		{
			name: "in time, and Redis full", state: Unready,
			trouble: "Redis refuses writes: raise maxmemory",
			says:    "Redis refuses writes: raise maxmemory. Every class is within its SLO; nothing eligible is waiting.",
		},
		{
			name: "late, and Redis full", state: Breaching,
			ages:    []schedule.Ages{eligible("standard", delivery.Retry, 48*time.Second)},
			trouble: "Redis refuses writes: raise maxmemory",
			worst:   Wait{"standard", delivery.Retry, 48 * time.Second, 30 * time.Second, Busy},
			says: "Class standard is past its SLO of 30 s: eligible deliveries of the retry lane wait for a free worker," +
				" the oldest for 48 s.",
			notes: []string{"Redis refuses writes: raise maxmemory."},
		},
		{
			name: "both late, and the books wrong", state: Breaching, others: 1,
			ages: []schedule.Ages{
				eligible("standard", delivery.Fresh, 40*time.Second), eligible("express", delivery.Redrive, 50*time.Second),
			},
			change: func(s *schedule.Sample) { s.Ledger.Dead++ },
			worst:  Wait{"express", delivery.Redrive, 50 * time.Second, 5 * time.Second, Busy},
			says: "The ledger does not add up, and class express is past its SLO of 5 s (one more class is late): eligible" +
				" deliveries of the redrive lane wait for a free worker, the oldest for 50 s.",
		},
		{
			name: "in time, and the books wrong", state: Unbalanced,
			change: func(s *schedule.Sample) { s.Ledger.Pending -= 2 },
			says: "The ledger does not add up, though every class is within its SLO:" +
				" accepted differs from the sum of its states by +2.",
		},
		{
			name: "limited and held long past the SLO", state: Within,
			ages: []schedule.Ages{{
				Class: "express", Lane: delivery.Fresh, Limited: ago(time.Hour), Held: ago(time.Hour),
			}},
			says: "Every class is within its SLO; nothing eligible is waiting.",
		},
		{
			name: "late, but nobody has looked for a minute", state: Blind, stale: time.Minute,
			ages:  []schedule.Ages{eligible("standard", delivery.Retry, 48*time.Second)},
			worst: Wait{"standard", delivery.Retry, 48 * time.Second, 30 * time.Second, Busy},
			says:  "Redis does not answer, so nothing below is current: the last sample is 1 min old.",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sample := calm()
			sample.Ages = c.ages
			if c.change != nil {
				c.change(&sample)
			}
			snap := snapshot(twoClasses, sample, time.Now(), nil)
			snap.ExpiredFor = c.dead
			v := Judge(snap, Sight{Stale: c.stale, Trouble: c.trouble}, 5*time.Second)
			if v.State != c.state || v.Others != c.others {
				t.Errorf("got %s and %d others, want %s and %d", v.State, v.Others, c.state, c.others)
			}
			if diff := cmp.Diff(c.worst, v.Worst); diff != "" {
				t.Errorf("worst (-want +got):\n%s", diff)
			}
			steady, running := v.Sentence()
			if steady+running != c.says {
				t.Errorf("says\n%s\nwant\n%s", steady+running, c.says)
			}
			if diff := cmp.Diff(c.notes, v.Notes()); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestJudgeStarting(t *testing.T) {
	t.Parallel()
	none := Snapshot{Classes: classesOf(twoClasses)}
	if v := Judge(none, Sight{Stale: 4 * time.Second}, 5*time.Second); v.State != Starting {
		t.Errorf("before the first sample the state is %s, want %s", v.State, Starting)
	}
	v := Judge(none, Sight{Stale: 42 * time.Second, Began: redisNow, Error: "connection refused"}, 5*time.Second)
	steady, running := v.Sentence()
	const want = "Redis has not answered since this server began to ask on 4 May at 14:03:02 UTC, so there is nothing to show" +
		": no sample for 42 s. The last error: connection refused."
	if v.State != Blind || steady+running != want {
		t.Errorf("with no sample for 42 s the state is %s, and it says\n%s\nwant\n%s", v.State, steady+running, want)
	}
}

// A steady situation must read the same every second: a screen reader speaks
// whenever the steady part changes.
func TestSentenceSteady(t *testing.T) {
	t.Parallel()
	at := func(age time.Duration) string {
		s := calm()
		s.Ages = append(s.Ages, schedule.Ages{Class: "standard", Lane: delivery.Retry, Eligible: ago(age)})
		steady, _ := Judge(snapshot(twoClasses, s, time.Now(), nil), Sight{}, 5*time.Second).Sentence()
		return steady
	}
	if a, b := at(time.Second), at(2*time.Second); a != b {
		t.Errorf("within the SLO the steady part went from %q to %q", a, b)
	}
	if a, b := at(48*time.Second), at(49*time.Second); a != b {
		t.Errorf("past the SLO the steady part went from %q to %q", a, b)
	}
}

func TestAside(t *testing.T) {
	t.Parallel()
	v := Judge(snapshot(twoClasses, calm(), time.Now(), nil), Sight{}, 5*time.Second)
	if len(v.Aside) != 1 { // limited for 3 s of 30 is no news
		t.Fatalf("got %d asides, want the held one only: %+v", len(v.Aside), v.Aside)
	}
	if got := v.Aside[0].Text(); !strings.Contains(got, "oldest held delivery in standard, retry lane: 2 h (") {
		t.Errorf("the aside reads %q", got)
	}
}

func TestAgeText(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second:                       "0 s",
		0:                                  "0 s",
		time.Nanosecond:                    "1 ms",
		999 * time.Millisecond:             "999 ms",
		1999 * time.Millisecond:            "1.9 s",
		10 * time.Second:                   "10 s",
		59*time.Second + 999_000_000:       "59 s",
		time.Minute:                        "1 min",
		61 * time.Second:                   "1 min 1 s",
		time.Hour + 5*time.Minute:          "1 h 5 min",
		47*time.Hour + 59*time.Minute:      "47 h 59 min",
		5*24*time.Hour + 3*time.Hour + 100: "5 d 3 h",
	} {
		if got := ageText(d); got != want {
			t.Errorf("%v reads %q, want %q", d, got, want)
		}
	}
}
