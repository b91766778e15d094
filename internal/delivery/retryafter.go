package delivery

import (
	"strings"
	"time"
)

// ParseRetryAfter reads a Retry-After header (RFC 9110, 10.2.3): whole seconds,
// or any of the three forms of HTTP-date (5.6.7). The answer is from 0 to limit;
// a date in the past is 0, a number too large for any clock is the limit. ok is
// false for what the RFC does not allow (signs, fractions, words), which is then
// to be ignored.
func ParseRetryAfter(header string, now time.Time, limit time.Duration) (wait time.Duration, ok bool) {
	h := strings.Trim(header, " \t")
	if h == "" {
		return 0, false
	}
	if digits(h) {
		return clampSeconds(h, limit), true
	}
	for _, layout := range []string{
		"Mon, 02 Jan 2006 15:04:05 GMT",  // IMF-fixdate
		"Monday, 02-Jan-06 15:04:05 GMT", // RFC 850, obsolete
		time.ANSIC,                       // asctime, obsolete
	} {
		if t, err := time.Parse(layout, h); err == nil {
			return min(max(t.Sub(now), 0), limit), true
		}
	}
	return 0, false
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// clampSeconds reads a string of digits of any length without overflow.
func clampSeconds(s string, limit time.Duration) time.Duration {
	var d time.Duration
	for i := range len(s) {
		digit := time.Duration(s[i]-'0') * time.Second
		if d > (limit-digit)/10 { // so would d*10 + digit be, and it may overflow
			return limit
		}
		d = d*10 + digit
	}
	return min(d, limit)
}
