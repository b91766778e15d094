package oncall

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

func TestAge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		due  time.Time
		want time.Duration
	}{
		{"nothing is due", time.Time{}, 0},
		{"due now", redisNow, 0},
		{"due a millisecond ago", ago(time.Millisecond), time.Millisecond},
		{"due for a day", ago(24 * time.Hour), 24 * time.Hour},
		{"not due yet", redisNow.Add(time.Minute), 0},
		{"due in another zone", ago(time.Second).In(time.FixedZone("", 3600)), time.Second},
	} {
		if got := Age(redisNow, c.due); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	s := calm()
	s.Ages = append(s.Ages,
		schedule.Ages{Class: "standard", Lane: delivery.Fresh, Eligible: ago(9 * time.Second)}, // older, from elsewhere
		schedule.Ages{Class: "standard", Lane: delivery.Fresh, Eligible: ago(time.Second)},
		schedule.Ages{Class: "unheard", Lane: delivery.Fresh, Eligible: ago(time.Hour)},
		schedule.Ages{Class: "standard", Lane: "unheard", Eligible: ago(time.Hour)},
	)
	got := snapshot(twoClasses, s, time.Now(), nil)
	want := []Class{
		{Name: "express", SLO: 5 * time.Second, Lanes: []Lane{
			{Name: delivery.Fresh, Eligible: 12 * time.Millisecond}, {Name: delivery.Retry}, {Name: delivery.Redrive},
		}},
		{Name: "standard", SLO: 30 * time.Second, Lanes: []Lane{
			{Name: delivery.Fresh, Eligible: 9 * time.Second},
			{Name: delivery.Retry, Limited: 3 * time.Second, Held: 2 * time.Hour},
			{Name: delivery.Redrive},
		}},
		// Not to be overlooked, and held to the tightest SLO.
		{Name: "other", SLO: 5 * time.Second, Other: true, Lanes: []Lane{
			{Name: delivery.Fresh, Eligible: time.Hour}, {Name: delivery.Retry}, {Name: delivery.Redrive},
		}},
	}
	if !got.Others {
		t.Error("a class that is not configured went unseen")
	}
	if calm := snapshot(twoClasses, calm(), time.Now(), nil); calm.Others || len(calm.shown()) != 2 {
		t.Error("a class for others is shown, and there are none")
	}
	if diff := cmp.Diff(want, got.Classes); diff != "" {
		t.Errorf("classes (-want +got):\n%s", diff)
	}
	if !got.At.Equal(redisNow) || got.Ledger != s.Ledger || got.Leases != 64 || got.Ready != 12 || got.Scheduled != 9 ||
		got.DeadLetters != 4 || got.OpenEvents != 1 {
		t.Errorf("counts were not taken over: %+v", got)
	}
}

// Limited and held deliveries are somebody else's wait: they never breach.
func TestBreaching(t *testing.T) {
	t.Parallel()
	const slo = 30 * time.Second
	for _, c := range []struct {
		name string
		lane Lane
		want bool
	}{
		{"nothing", Lane{}, false},
		{"exactly the SLO", Lane{Eligible: slo}, false},
		{"past it", Lane{Eligible: slo + 1}, true},
		{"limited for an hour", Lane{Limited: time.Hour}, false},
		{"held for an hour", Lane{Held: time.Hour}, false},
	} {
		class := Class{Name: "standard", SLO: slo, Lanes: []Lane{{Name: delivery.Fresh}, c.lane}}
		if got := class.Breaching(); got != c.want {
			t.Errorf("%s: breaching is %v, want %v", c.name, got, c.want)
		}
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	never := deadLetter(delivery.HeldFull, "")
	never.History, never.Attempts, never.LastOutcome, never.LastStatus = nil, 0, "", 0
	gone := deadLetter(delivery.Exhausted, "")
	gone.History, gone.EndedAt, gone.LastAttemptAt = nil, time.Time{}, ago(time.Hour)
	got := failuresOf([]schedule.DeadLetter{deadLetter(delivery.Exhausted, "busy"), never, gone})

	base := Failure{
		DeliveryID: never.ID, SubscriberID: "sub_01JDN8ZKQ2M4T7V9X1B3C5D7EF", EventID: "evt_01JDN9Q4R6S8V0W2X4Y6Z8A0BC",
		Outcome: delivery.HTTP5xx, Reason: delivery.Exhausted, Status: 503, Attempts: 15, At: ago(time.Minute),
		Said: "answered 503: busy",
	}
	wantNever, wantGone := base, base
	wantNever.Outcome, wantNever.Reason, wantNever.Status = delivery.HeldFull, delivery.HeldFull, 0
	wantNever.Attempts, wantNever.Said = 0, "never attempted"
	wantGone.At, wantGone.Said = ago(time.Hour), ""
	if diff := cmp.Diff([]Failure{base, wantNever, wantGone}, got); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
	if n := len(failuresOf(make([]schedule.DeadLetter, 25))); n != 10 {
		t.Errorf("of 25 dead letters %d are shown, want 10", n)
	}
}
