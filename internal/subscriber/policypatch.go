package subscriber

import (
	"maps"

	"github.com/fanout/fanout/internal/delivery"
)

// PolicyPatch is the part of a policy that a draft sets; nil is left as it is.
// Bounds are checked on the merged policy, never here.
type PolicyPatch struct {
	AttemptTimeout  *delivery.Duration `json:"attempt_timeout,omitempty"`
	MaxAttempts     *int               `json:"max_attempts,omitempty"`
	BackoffBase     *delivery.Duration `json:"backoff_base,omitempty"`
	BackoffCap      *delivery.Duration `json:"backoff_cap,omitempty"`
	MaxAge          *delivery.Duration `json:"max_age,omitempty"`
	MaxInFlight     *int               `json:"max_in_flight,omitempty"`
	RatePerSecond   *float64           `json:"rate_per_second,omitempty"`
	Burst           *int               `json:"burst,omitempty"`
	BreakerFailures *int               `json:"breaker_failures,omitempty"`
	RetryAfterCap   *delivery.Duration `json:"retry_after_cap,omitempty"`
	MaxHeld         *int               `json:"max_held,omitempty"`
	// Classify replaces every override there is; an empty map removes them.
	Classify *map[int]delivery.Override `json:"classify,omitempty"`
}

// Over is the policy with the patch laid over it. breaker_failures must stay
// below max_attempts, so one that was left to its default follows a new
// max_attempts: nobody is told off for a number that they never chose.
func (pp PolicyPatch) Over(p delivery.Policy) delivery.Policy {
	follows := p.BreakerFailures == defaultBreaker(p.MaxAttempts)
	set(&p.AttemptTimeout, pp.AttemptTimeout)
	set(&p.MaxAttempts, pp.MaxAttempts)
	set(&p.BackoffBase, pp.BackoffBase)
	set(&p.BackoffCap, pp.BackoffCap)
	set(&p.MaxAge, pp.MaxAge)
	set(&p.MaxInFlight, pp.MaxInFlight)
	set(&p.RatePerSecond, pp.RatePerSecond)
	set(&p.Burst, pp.Burst)
	set(&p.RetryAfterCap, pp.RetryAfterCap)
	set(&p.MaxHeld, pp.MaxHeld)
	if follows {
		p.BreakerFailures = defaultBreaker(p.MaxAttempts)
	}
	set(&p.BreakerFailures, pp.BreakerFailures)
	if pp.Classify != nil {
		p.Classify = maps.Clone(*pp.Classify)
	}
	if len(p.Classify) == 0 {
		p.Classify = nil // as it comes back from storage
	}
	return p
}

// defaultBreaker is the breaker_failures of whoever leaves it out: the default,
// or one below a smaller max_attempts; at least 1.
func defaultBreaker(maxAttempts int) int {
	return max(1, min(delivery.DefaultPolicy().BreakerFailures, maxAttempts-1))
}

// set overwrites a field if there is something to set.
func set[T any](field, v *T) {
	if v != nil {
		*field = *v
	}
}
