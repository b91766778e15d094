package delivery

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Duration is a time.Duration that reads and writes as a Go string ("10s") in
// JSON, YAML and flags.
type Duration time.Duration

// MarshalText writes "1h0m0s".
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what time.ParseDuration reads.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("want a duration such as %q: %w", "10s", err)
	}
	*d = Duration(v)
	return nil
}

// Override is what a policy's classify makes of a status.
type Override string

// The overrides.
const (
	OverrideRetry Override = "retry"
	OverrideDead  Override = "dead"
)

// Policy is how hard one subscriber is tried. Every field is finite: nothing is
// retried for ever.
type Policy struct {
	// AttemptTimeout bounds one attempt over dial, TLS, headers and body.
	// 100ms to 60s: a longer hang costs a slot for longer than any webhook needs.
	AttemptTimeout Duration `json:"attempt_timeout"`
	// MaxAttempts is the budget, 1 to 100.
	MaxAttempts int `json:"max_attempts"`
	// BackoffBase is the first window, 10ms to backoff_cap.
	BackoffBase Duration `json:"backoff_base"`
	// BackoffCap is the widest window, up to 24h.
	BackoffCap Duration `json:"backoff_cap"`
	// MaxAge is how long after accept a delivery is still worth sending; 1s to
	// 30 days, and never below one attempt_timeout.
	MaxAge Duration `json:"max_age"`
	// MaxInFlight caps concurrent attempts over all dispatchers, 1 to 1000.
	MaxInFlight int `json:"max_in_flight"`
	// RatePerSecond caps attempts a second, 0 (no cap) to 10000.
	RatePerSecond float64 `json:"rate_per_second"`
	// Burst is how many attempts may go at once under a rate; 0 means what
	// AtOnce says. Meaningless, hence refused, without a rate.
	Burst int `json:"burst"`
	// BreakerFailures consecutive endpoint failures open the breaker; from 1,
	// below max_attempts unless that is 1.
	BreakerFailures int `json:"breaker_failures"`
	// RetryAfterCap clamps what a Retry-After may ask for; up to 24h.
	RetryAfterCap Duration `json:"retry_after_cap"`
	// MaxHeld is how many deliveries may wait while the subscriber is on hold,
	// 1 to 10,000,000.
	MaxHeld int `json:"max_held"`
	// Classify overrides what a status (400-599) leads to.
	Classify map[int]Override `json:"classify,omitempty"`
}

// DefaultPolicy is used for what a subscriber leaves out: 15 attempts over a
// mean of 2.7 hours, none later than a day.
func DefaultPolicy() Policy {
	return Policy{
		AttemptTimeout:  Duration(10 * time.Second),
		MaxAttempts:     15,
		BackoffBase:     Duration(5 * time.Second),
		BackoffCap:      Duration(time.Hour),
		MaxAge:          Duration(24 * time.Hour),
		MaxInFlight:     16,
		BreakerFailures: 5,
		RetryAfterCap:   Duration(time.Hour),
		MaxHeld:         100_000,
	}
}

// FieldError is one broken bound of a policy. Field is the JSON name, so that an
// API can point at it.
type FieldError struct {
	Field, Detail string
}

func (e FieldError) Error() string { return e.Field + ": " + e.Detail }

// maxAgeBound is the longest that a delivery may be kept trying: everything that
// outlives a delivery is sized by it.
const maxAgeBound = Duration(30 * 24 * time.Hour)

// Validate checks every bound, then the rules that span two fields, and returns
// all that is wrong as joined FieldErrors, or nil.
func (p Policy) Validate() error {
	const day = Duration(24 * time.Hour)
	var errs []error
	bad := func(field, format string, a ...any) {
		errs = append(errs, FieldError{field, fmt.Sprintf(format, a...)})
	}
	dur := func(field string, v, lo, hi Duration) {
		if v < lo || v > hi {
			bad(field, "must be from %s to %s, is %s", time.Duration(lo), time.Duration(hi), time.Duration(v))
		}
	}
	num := func(field string, v, lo, hi int) {
		if v < lo || v > hi {
			bad(field, "must be from %d to %d, is %d", lo, hi, v)
		}
	}
	dur("attempt_timeout", p.AttemptTimeout, Duration(100*time.Millisecond), Duration(time.Minute))
	num("max_attempts", p.MaxAttempts, 1, 100)
	dur("backoff_base", p.BackoffBase, Duration(10*time.Millisecond), day)
	dur("backoff_cap", p.BackoffCap, Duration(10*time.Millisecond), day)
	dur("max_age", p.MaxAge, Duration(time.Second), maxAgeBound)
	num("max_in_flight", p.MaxInFlight, 1, 1000)
	if !(p.RatePerSecond >= 0 && p.RatePerSecond <= 10_000) { // written so that NaN fails
		bad("rate_per_second", "must be from 0 (no limit) to 10000, is %v", p.RatePerSecond)
	}
	num("burst", p.Burst, 0, 10_000)
	num("breaker_failures", p.BreakerFailures, 1, 100)
	dur("retry_after_cap", p.RetryAfterCap, 0, day)
	num("max_held", p.MaxHeld, 1, 10_000_000)
	for status, o := range p.Classify {
		if status < 400 || status > 599 {
			bad("classify", "status %d cannot be overridden: only 400 to 599 can", status)
		}
		if o != OverrideRetry && o != OverrideDead {
			bad("classify", "status %d is %q: must be %q or %q", status, o, OverrideRetry, OverrideDead)
		}
	}

	if p.BackoffBase > p.BackoffCap {
		bad("backoff_base", "%s is above backoff_cap %s", time.Duration(p.BackoffBase), time.Duration(p.BackoffCap))
	}
	if p.AttemptTimeout > p.MaxAge {
		bad("attempt_timeout", "%s is above max_age %s: a first attempt could outlive its delivery",
			time.Duration(p.AttemptTimeout), time.Duration(p.MaxAge))
	}
	if p.MaxAttempts > 1 && p.BreakerFailures >= p.MaxAttempts {
		bad("breaker_failures", "%d is not below max_attempts %d: a delivery would die before its endpoint is given a rest",
			p.BreakerFailures, p.MaxAttempts)
	}
	if p.Burst > 0 && p.RatePerSecond == 0 {
		bad("burst", "%d has no meaning while rate_per_second is 0", p.Burst)
	}
	return errors.Join(errs...)
}

// Warnings says what is allowed and yet hardly meant. Of a backoff_cap that is the
// default nothing is said: nobody chose it, and that it is not reached does no harm.
func (p Policy) Warnings() []string {
	var w []string
	if p.MaxAttempts > 1 && p.BackoffCap != DefaultPolicy().BackoffCap && Window(p, p.MaxAttempts-1) < time.Duration(p.BackoffCap) {
		w = append(w, fmt.Sprintf("backoff_cap %s is never reached: the widest window of %d attempts is %s",
			time.Duration(p.BackoffCap), p.MaxAttempts, Window(p, p.MaxAttempts-1)))
	}
	if p.RetryAfterCap >= p.MaxAge {
		w = append(w, fmt.Sprintf("retry_after_cap %s is not below max_age %s: one Retry-After can expire a delivery at its first attempt",
			time.Duration(p.RetryAfterCap), time.Duration(p.MaxAge)))
	}
	return w
}

// AtOnce is how many attempts may go at once under the rate: burst, or, if that is
// 0, what the rate gives in a second, rounded up: a rate of 0.2 must let one go. 0
// without a rate.
func (p Policy) AtOnce() int {
	if p.Burst > 0 || p.RatePerSecond <= 0 {
		return p.Burst
	}
	return int(math.Ceil(p.RatePerSecond))
}

// kind is what a result leads to under this policy: its classify first, then the
// table. An override never turns an answer into a success or back.
func (p Policy) kind(r Result) Kind {
	k := r.Outcome.Kind()
	if k == Success || r.Status == 0 {
		return k
	}
	switch p.Classify[r.Status] {
	case OverrideRetry:
		return Transient
	case OverrideDead:
		return Terminal
	}
	return k
}
