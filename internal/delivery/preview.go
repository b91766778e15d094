package delivery

import "time"

// Step is one attempt of a Forecast: when it may start, counted from the moment
// the event was accepted.
type Step struct {
	// Attempt is numbered from 1.
	Attempt int
	// Earliest is the start if every draw of the backoff is 0 and every attempt
	// fails at once. Full jitter allows that, so it is 0 for each.
	Earliest time.Duration
	// Mean is the start if every draw is its mean and every attempt fails at once.
	// Beyond max_age it says that most deliveries never come to this attempt.
	Mean time.Duration
	// Latest is the start if every draw is its widest and every attempt takes its
	// whole timeout; never beyond max_age, after which no attempt starts.
	Latest time.Duration
}

// Forecast is what a policy does with a delivery whose endpoint fails for ever.
type Forecast struct {
	Steps []Step
	// End is what ends it in the mean: Exhausted (max_attempts) or Expired (the next
	// start would be beyond max_age), whichever comes first. EndsAfter is when that
	// is known, at the last attempt, and Attempts is how many were made by then.
	End       Outcome
	EndsAfter time.Duration
	Attempts  int
	// Latest is when the last of its attempts is over at the very latest.
	Latest time.Duration
}

// Preview says what a policy does: the first so many attempts (0, or more than
// max_attempts: all of them), and where it ends. It draws nothing, but the windows
// are those that Backoff draws from.
//
// It knows of the policy alone. A Retry-After, a hold, a cap, a rate or a want of
// slots makes a start later; lease losses may add up to MaxLeaseLosses leases.
func Preview(p Policy, attempts int) Forecast {
	if attempts < 1 || attempts > p.MaxAttempts {
		attempts = p.MaxAttempts
	}
	maxAge := time.Duration(p.MaxAge)
	f := Forecast{End: Exhausted}
	var mean, latest time.Duration
	for n := 1; n <= p.MaxAttempts; n++ {
		if n > 1 {
			w := Window(p, n-1).Truncate(time.Millisecond) // as it is drawn from
			mean += w / 2
			latest += time.Duration(p.AttemptTimeout) + w
		}
		if mean > maxAge {
			f.End = Expired // as Decide says it: at the failure before, not at max_age
		} else {
			f.EndsAfter, f.Attempts = mean, n
		}
		latest = min(latest, maxAge)
		if n <= attempts {
			f.Steps = append(f.Steps, Step{Attempt: n, Mean: mean, Latest: latest})
		}
	}
	f.Latest = latest + time.Duration(p.AttemptTimeout)
	return f
}
