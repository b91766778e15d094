package oncall

import (
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/schedule"
)

// One is told as one.
func TestOneIsNotMany(t *testing.T) {
	t.Parallel()
	now := time.Now()
	one := facts{s: Snapshot{At: now, LateEvents: 1}}
	one.s.Fleet.Known, one.s.Fleet.Attempts = true, 1
	quiet := one.concentrated().Sentence
	one.s.Holds = []HeldSubscriber{{ID: "sub_1", Reasons: []schedule.Hold{schedule.Breaker}, Since: now.Add(-time.Minute), Pending: 1}}
	for want, got := range map[string]string{
		"0 of 1 attempt of the last minute failed.":                                                quiet,
		"1 subscriber is failing, and held by the breaker: 1 delivery waits for the first of them": one.concentrated().Sentence,
		"1 event was not expanded in time":                                                         one.gapText(),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q does not say %q", got, want)
		}
	}
}
