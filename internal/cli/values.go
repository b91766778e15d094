package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/fanout/fanout/client"
)

// Readers are how a command line's values are read, for whoever parses one: what kong
// says of a bad duration is a Go programmer's sentence.
func Readers() kong.Option {
	return kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(
		func(ctx *kong.DecodeContext, target reflect.Value) error {
			token, err := ctx.Scan.PopValue("duration")
			if err != nil {
				return err //nolint:wrapcheck // kong's own, which it words itself
			}
			d, err := durationOf(fmt.Sprint(token.Value))
			if err == nil {
				target.SetInt(int64(d))
			}
			return err
		}))
}

// durationOf reads a duration as Go writes it.
func durationOf(text string) (time.Duration, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	return 0, fmt.Errorf("%q is no duration: %s", text, missing(text))
}

// days and weeks are what people try first, and this program itself says "2d4h" of a
// time that has passed.
var days = regexp.MustCompile(`^(\d+)([dw])$`)

// missing says what keeps a text from being a duration.
func missing(text string) string {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return fmt.Sprintf("it needs a unit (ms, s, m or h), such as %ss", text)
	}
	if m := days.FindStringSubmatch(text); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil && n <= 10_000 {
			hours := n * 24
			if m[2] == "w" {
				hours *= 7
			}
			return fmt.Sprintf("the units are ms, s, m and h, so give %dh", hours)
		}
	}
	return "want numbers with their units (ms, s, m or h), such as 500ms, 30s or 1h30m"
}

// instant is a time in RFC 3339, kept as it was written: an event is posted with its
// occurred_at to the letter, and is another event with another spelling.
type instant string

var errInstant = errors.New("no time")

// UnmarshalText reads one.
func (i *instant) UnmarshalText(b []byte) error {
	text := string(b)
	if _, err := time.Parse(time.RFC3339, text); err != nil {
		why := "want a date and a time with an offset, such as 2026-03-01T09:30:00+01:00 or 2026-03-01T08:30:00Z"
		if _, err := time.Parse("2006-01-02T15:04:05", text); err == nil {
			why = fmt.Sprintf("it has no offset: %sZ is UTC, %s+01:00 an hour ahead of it", text, text)
		} else if _, err := time.Parse(time.DateOnly, text); err == nil {
			why = fmt.Sprintf("it is a date without a time, such as %sT09:30:00Z", text)
		}
		return fmt.Errorf("%q is %w: %s", text, errInstant, why)
	}
	*i = instant(text)
	return nil
}

// moment reads "2h", for two hours ago, or a time in RFC 3339.
type moment time.Time

// UnmarshalText reads one.
func (m *moment) UnmarshalText(b []byte) error {
	text := string(b)
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		*m = moment(time.Now().Add(-ago))
		return nil
	}
	var i instant
	if err := i.UnmarshalText(b); err == nil {
		at, err := time.Parse(time.RFC3339, text)
		*m = moment(at)
		return err //nolint:wrapcheck // it was read a line above
	}
	if days.MatchString(text) {
		return fmt.Errorf("%q: %s", text, missing(text))
	}
	return fmt.Errorf("%q is no moment: want how long ago, such as 2h, or a time such as 2026-11-30T13:00:00Z", text)
}

// waiting is a state that a subscriber's deliveries are listed by.
type waiting string

// UnmarshalText reads one.
func (w *waiting) UnmarshalText(b []byte) error {
	switch state := client.State(b); state {
	case client.Pending, client.Scheduled, client.Leased, client.Dead:
		*w = waiting(state)
		return nil
	case client.Delivered, client.Cancelled:
		return fmt.Errorf("those that are %s are listed by --event: a subscriber's are pending, scheduled, leased or dead", state)
	}
	return fmt.Errorf("%q is no state: want pending, scheduled, leased or dead", b)
}

// policyDurations are the fields of a policy that are durations.
var policyDurations = func() map[string]bool {
	out := map[string]bool{}
	for f := range reflect.TypeFor[client.PolicyInput]().Fields() {
		if f.Type == reflect.TypeFor[*client.Duration]() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			out[name] = true
		}
	}
	return out
}()

// policyField turns the text of --policy=NAME=TEXT into JSON: a number where it is
// one, else a string.
func policyField(name, text string) (any, error) {
	if policyDurations[name] {
		if _, err := durationOf(text); err != nil {
			return nil, err
		}
		return text, nil
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil && json.Valid([]byte(text)) {
		return json.Number(text), nil
	}
	return text, nil
}
