package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
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

// Looks overlap with what happens: a delivery may die between the look at what is
// pending and the look at the dead, or without ever having been seen to wait.
func TestTailBetweenTwoLooks(t *testing.T) {
	t.Parallel()
	const (
		waits = `{"id":"dlv_1","state":"scheduled"}`
		died  = `{"id":"dlv_1","state":"dead","ended_at":"2026-03-01T12:00:00Z"}`
		quick = `{"id":"dlv_2","state":"dead","ended_at":"2026-03-01T12:00:01Z"}`
		old   = `{"id":"dlv_0","state":"dead","ended_at":"2026-03-01T11:00:00Z"}`
		again = `{"id":"dlv_0","state":"dead","ended_at":"2026-03-01T12:00:02Z"}`
	)
	letter := func(d string) string { return `{"reason":"exhausted","delivery":` + d + `}` }
	looks := []struct {
		pending, dead []string
		shows         string
	}{
		{[]string{waits}, []string{letter(old)}, "dlv_1 scheduled"},
		{nil, []string{letter(old)}, "dlv_1 dead"}, // not yet among the dead
		{nil, []string{letter(died), letter(old)}, ""},
		{nil, []string{letter(quick), letter(died), letter(old)}, "dlv_2 dead"},
		{nil, []string{letter(again), letter(quick), letter(died)}, "dlv_0 dead"}, // after a redrive
		{nil, []string{letter(again), letter(quick), letter(died)}, ""},
	}
	now := 0
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := died
		switch r.URL.Path {
		case "/v1/deliveries":
			answer = `{"data":[` + strings.Join(looks[now].pending, ",") + `],"next_cursor":null}`
		case "/v1/dead-letters":
			answer = `{"data":[` + strings.Join(looks[now].dead, ",") + `],"next_cursor":null}`
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(api.Close)
	var out, errs shared
	s := newSession(Remote{API: api.URL, Output: "json", Timeout: patience}, strings.NewReader(""), &out, &errs)
	t.Cleanup(s.close)
	f := newFollower(s, "sub_1")
	for ; now < len(looks); now++ {
		before := len(out.String())
		if err := f.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := ""
		if text := out.String()[before:]; text != "" {
			var d client.Delivery
			if err := strictRead(text, &d); err != nil {
				t.Fatalf("look %d: %v: %s", now+1, err, text)
			}
			got = d.ID + " " + string(d.State)
		}
		if got != looks[now].shows {
			t.Errorf("look %d shows %q, want %q", now+1, got, looks[now].shows)
		}
	}
}

// What the server says of a parameter can be acted on: it is told by its flag too.
func TestParametersAreToldByTheirFlags(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := &session{err: &out}
	s.tellProblem(&client.Problem{Status: http.StatusBadRequest, Code: "invalid_parameter", Detail: "No.", Errors: []client.FieldProblem{
		{Parameter: "subscriber_id", Detail: "is needed"}, {Parameter: "limit", Detail: "is none"}, {Pointer: "/ids", Detail: "are none"},
	}})
	for _, want := range []string{"subscriber_id (--subscriber): is needed", "  limit: is none", "  /ids: are none"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, out.String())
		}
	}
}
