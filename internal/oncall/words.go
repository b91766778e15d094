package oncall

import "time"

// The page's way of writing, for other pages of the same server.

// Clean makes a stranger's text fit to look at: at most limit characters, without line
// ends, control and format characters. cut says that it was longer.
func Clean(s string, limit int) (text string, cut bool) { return clean(s, limit) }

// Number groups digits by thousands.
func Number(n int64) string { return number(n) }

// Span writes a duration for a person: two significant units at most.
func Span(d time.Duration) string { return sloText(d) }

// Stamp is a time in UTC, so that two people on call read the same.
type Stamp = stamp

// StampOf is that of a time; nil for none.
func StampOf(t time.Time) *Stamp {
	if t.IsZero() {
		return nil
	}
	at := stampOf(t)
	return &at
}
