package delivery

import (
	"encoding/json"
	"math"
	"os"
	"testing"
	"time"
)

func TestParseRetryAfter(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("testdata/retry_after.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Header      string
		Now         time.Time
		WantSeconds int64  `json:"want_seconds"`
		Ignored     bool   `json:"ignored"`
		ClampedTo   string `json:"clamped_to"`
	}
	if err := json.Unmarshal(b, &cases); err != nil || len(cases) < 17 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	limit := time.Duration(DefaultPolicy().RetryAfterCap)
	for _, c := range cases {
		want := time.Duration(c.WantSeconds) * time.Second
		if c.ClampedTo != "" {
			want = limit
		}
		got, ok := ParseRetryAfter(c.Header, c.Now, limit)
		if ok == c.Ignored || got != want {
			t.Errorf("%q: %s, %v, want %s", c.Header, got, ok, want)
		}
	}
}

func TestParseRetryAfterEdges(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		header string
		limit  time.Duration
		want   time.Duration
		ok     bool
	}{
		{"\t12\t", time.Hour, 12 * time.Second, true},
		{"0012", time.Hour, 12 * time.Second, true},
		{"3600", time.Hour, time.Hour, true},
		{"3601", time.Hour, time.Hour, true},
		{"12", 0, 0, true}, // a policy that obeys nobody
		{"0", 0, 0, true},
		{"5", 5*time.Second - 1, 5*time.Second - 1, true},
		{"15", 15*time.Second - 1, 15*time.Second - 1, true},
		{"12\n", time.Hour, 0, false},
		{"+12", time.Hour, 0, false},
		{"12,13", time.Hour, 0, false},
		{"0x12", time.Hour, 0, false},
		{"１２", time.Hour, 0, false}, // full-width
		{"9223372036", math.MaxInt64, 9223372036 * time.Second, true},
		{"9223372037", math.MaxInt64, math.MaxInt64, true},                          // would overflow
		{"99999999999999999999999999999999999", math.MaxInt64, math.MaxInt64, true}, // many times over
		{"Mon, 30 Nov 2026 12:00:00 GMT", time.Hour, 0, true},
		{"Mon, 30 Nov 2026 12:00:01 GMT", time.Hour, time.Second, true},
		{"Mon, 30 Nov 2026 13:00:01 GMT", time.Hour, time.Hour, true},
		{"Mon, 30 Nov 2026 12:00:01 UTC", time.Hour, 0, false},
		{"Mon, 30 Nov 2026 12:00:01 +0100", time.Hour, 0, false},
		{"Mon, 31 Feb 2026 12:00:01 GMT", time.Hour, 0, false},
		{"2026-11-30T12:00:01Z", time.Hour, 0, false},
		{"Mon Dec  1 12:00:00 2025", time.Hour, 0, true},
		{"Mon, 01 Jan 0001 00:00:00 GMT", time.Hour, 0, true},
	} {
		got, ok := ParseRetryAfter(c.header, now, c.limit)
		if got != c.want || ok != c.ok {
			t.Errorf("%q up to %s: %s, %v, want %s, %v", c.header, c.limit, got, ok, c.want, c.ok)
		}
	}
}

// FuzzParseRetryAfter: from 0 to the limit, whatever comes, and 0 if ignored.
func FuzzParseRetryAfter(f *testing.F) {
	for _, s := range []string{
		"", "0", "120", "-1", "1e300", "NaN", "soon", "9223372037", "99999999999999999999999999",
		"Mon, 30 Nov 2026 12:05:00 GMT", "Monday, 30-Nov-26 12:05:00 GMT", "Mon Nov 30 12:05:00 2026",
	} {
		f.Add(s, int64(1_796_040_000), int64(time.Hour))
		f.Add(s, int64(math.MaxInt32), int64(math.MaxInt64))
	}
	f.Fuzz(func(t *testing.T, header string, now, limit int64) {
		if limit < 0 {
			return // a policy has none below 0
		}
		got, ok := ParseRetryAfter(header, time.Unix(now, 0), time.Duration(limit))
		if got < 0 || got > time.Duration(limit) || !ok && got != 0 {
			t.Errorf("%q at %d up to %d: %d, %v", header, now, limit, got, ok)
		}
	})
}
