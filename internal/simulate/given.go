package simulate

import (
	"errors"
	"fmt"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// Given are fields of a scenario that somebody gave; nil is left out. A zero that was
// given must not come to mean the default: whoever asks what 0 slots do, and is shown
// what 100 do, is misled.
type Given struct {
	Rate        *float64           `yaml:"rate"`
	Duration    *delivery.Duration `yaml:"duration"`
	RunOn       *delivery.Duration `yaml:"run_on"`
	Seed        *uint64            `yaml:"seed"`
	Slots       *int               `yaml:"slots"`
	Dispatchers *int               `yaml:"dispatchers"`
}

// Apply puts what was given into a scenario, within the bounds of Validate. Errors are
// ErrScenario, and name each field by names, such as --slots for "slots".
func (g Given) Apply(s *Scenario, name func(field string) string) error {
	var errs []error
	check := func(why string, field string) {
		if why != "" {
			errs = append(errs, fmt.Errorf("%s: %s", name(field), why))
		}
	}
	if g.Rate != nil {
		s.Rate = *g.Rate
		check(s.badRate(), "rate")
	}
	if g.Duration != nil {
		s.Duration = *g.Duration
		check(badTime(s.Duration), "duration")
	}
	if g.RunOn != nil {
		s.RunOn = *g.RunOn
		check(badTime(s.RunOn), "run_on")
	}
	if g.Seed != nil {
		if s.Seed = *g.Seed; s.Seed == 0 {
			check("must be 1 or more, is 0", "seed")
		}
	}
	if g.Slots != nil {
		s.Slots = *g.Slots
		check(badCount(s.Slots, maxSlots), "slots")
	}
	if g.Dispatchers != nil {
		s.Dispatchers = *g.Dispatchers
		check(badCount(s.Dispatchers, maxDispatchers), "dispatchers")
	}
	if len(errs) > 0 {
		return fmt.Errorf("%w: %w", ErrScenario, errors.Join(errs...))
	}
	return nil
}

// badRate says what is wrong with the rate, "" for nothing. None at all is one only
// beside flows, which bring events of their own.
func (s *Scenario) badRate() string {
	if s.Rate > 0 && s.Rate <= maxRate || s.Rate == 0 && len(s.Flows) > 0 { // NaN is neither
		return ""
	}
	return fmt.Sprintf("must be above 0, and at most %d events a second, is %v", maxRate, s.Rate)
}

func badTime(d delivery.Duration) string {
	if d >= delivery.Duration(time.Millisecond) && d <= maxDuration {
		return ""
	}
	return fmt.Sprintf("must be from 1ms to 720h, is %s", time.Duration(d))
}

func badCount(n, most int) string {
	if n >= 1 && n <= most {
		return ""
	}
	return fmt.Sprintf("must be from 1 to %d, is %d", most, n)
}
