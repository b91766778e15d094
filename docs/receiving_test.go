package docs_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// Every status leads to what receiving.md says: its outcome, what becomes of the
// delivery, and whom it speaks of.
func TestAnswersAreDocumented(t *testing.T) {
	t.Parallel()
	rows := map[string][]string{} // by status, or class as in "5xx"
	for _, row := range tableOf(t, "receiving.md", "| status | outcome | the delivery | it speaks of |") {
		for status := range strings.SplitSeq(strings.TrimPrefix(row[0], "other "), ", ") {
			rows[status] = row
		}
	}
	check := func(what string, row []string, o delivery.Outcome) {
		t.Helper()
		if !strings.Contains(" "+row[1]+" ", " "+string(o)+" ") {
			t.Errorf("%s is %q, by the code it is %s", what, row[1], o)
		}
		fate := map[delivery.Kind]string{delivery.Success: "delivered", delivery.Transient: "again", delivery.Terminal: "dead"}[o.Kind()]
		if !strings.HasPrefix(row[2], fate) {
			t.Errorf("%s: the delivery is %q, by the code %s", what, row[2], fate)
		}
		blame := strings.Replace(string(o.Blame()), "none", "-", 1)
		if row[3] != blame {
			t.Errorf("%s speaks of %q, by the code of %s", what, row[3], blame)
		}
	}
	for status := 200; status < 600; status++ {
		what := strconv.Itoa(status)
		row, ok := rows[what]
		if !ok {
			row, ok = rows[what[:1]+"xx"]
		}
		if !ok {
			t.Fatalf("%s is in no row", what)
		}
		check(what, row, delivery.Classify(status))
	}
	none := rows["none"]
	for _, o := range []delivery.Outcome{delivery.Timeout, delivery.Connect, delivery.Reset, delivery.DNS, delivery.TLS} {
		check("no answer", none, o)
	}
	check("no HTTP", rows["outside of 200 to 599"], delivery.Classify(999))
	check("no HTTP", rows["outside of 200 to 599"], delivery.Classify(199))
}

// The defaults and the length of the schedule are those of the policy.
func TestReceiversDefaultsAreDocumented(t *testing.T) {
	t.Parallel()
	doc := read(t, "receiving.md")
	p := delivery.DefaultPolicy()
	seconds := func(d delivery.Duration) string { return fmt.Sprintf("%.0f s", time.Duration(d).Seconds()) }
	hours := func(d delivery.Duration) string { return fmt.Sprintf("%.0f h", time.Duration(d).Hours()) }
	for name, want := range map[string]string{
		"attempt_timeout": seconds(p.AttemptTimeout), "max_in_flight": strconv.Itoa(p.MaxInFlight),
		"backoff_base": seconds(p.BackoffBase), "backoff_cap": hours(p.BackoffCap),
		"max_attempts": strconv.Itoa(p.MaxAttempts), "max_age": hours(p.MaxAge), "retry_after_cap": hours(p.RetryAfterCap),
	} {
		m := regexp.MustCompile("`" + name + "` \\(([^)]+)\\)").FindStringSubmatch(doc)
		if len(m) != 2 || m[1] != want {
			t.Errorf("%s is given as %q, want %q", name, m, want)
		}
	}
	longest := time.Duration(p.MaxAttempts) * time.Duration(p.AttemptTimeout)
	for attempt := 1; attempt < p.MaxAttempts; attempt++ {
		longest += delivery.Window(p, attempt)
	}
	if want := fmt.Sprintf("in %.1f hours on average and %.1f at most", longest.Hours()/2, longest.Hours()); !strings.Contains(doc, want) {
		t.Errorf("the schedule is %s", want)
	}
}
