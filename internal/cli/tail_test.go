package cli

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/fanout/fanout/client"
)

// Each change of a delivery is a line, from its first sight to its end.
func TestTail(t *testing.T) {
	t.Parallel()
	s := newService(t)
	made := s.subscriber(http.StatusServiceUnavailable, "--types=*", "--policy=max_attempts=2,breaker_failures=1,backoff_base=1s,backoff_cap=1s")
	s.ok("subscribers", "pause", made.ID)
	s.ok("trigger", "shipment.created")
	table := start(t, s.args("tail", made.ID, "--interval=100ms")...)
	lines := start(t, s.args("tail", made.ID, "--interval=100ms", "-o", "json")...)
	until(t, "both have seen it wait", func() bool {
		return strings.Contains(table.out.String(), "scheduled") && strings.Contains(lines.out.String(), `"scheduled"`)
	})
	s.ok("subscribers", "resume", made.ID)
	until(t, "both have seen it die", func() bool {
		return strings.Contains(table.out.String(), "dead") && strings.Contains(lines.out.String(), `"dead"`)
	})
	if code := table.end(t); code != exitOK || !strings.Contains(table.err.String(), "on hold: paused") || !strings.HasPrefix(table.out.String(), "SEEN") {
		t.Errorf("exit code %d\n%s%s", code, table.out.String(), table.err.String())
	}
	lines.end(t)
	var last client.Delivery
	deaths := 0
	for line := range strings.Lines(lines.out.String()) {
		var d client.Delivery
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if d.State == client.Dead {
			deaths++
		}
		if now := fingerprint(d); now == fingerprint(last) {
			t.Errorf("twice the same: %s", line)
		}
		last = d
	}
	if deaths != 1 || last.State != client.Dead || last.Attempts != 2 {
		t.Errorf("%d deaths, at last %+v", deaths, last)
	}
	if r := run(t, "", s.args("tail", "sub_none")...); r.code != exitFailed {
		t.Errorf("of nobody: %+v", r)
	}
}
