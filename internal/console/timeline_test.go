package console

import (
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/client"
)

var accepted = time.Date(2031, 5, 4, 14, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return accepted.Add(d) }

// tried is a delivery with three failures: an answer, a timeout, a worker that died.
func tried(state client.State) client.Delivery {
	return client.Delivery{
		State: state, AcceptedAt: accepted, Attempts: 3, LastOutcome: "lease_lost",
		Evidence: []client.Attempt{
			{
				Attempt: 1, StartedAt: at(0), Duration: client.Duration(40 * time.Millisecond), Outcome: "http_5xx", Status: 503,
				Phases: &client.Phases{Dial: 5, TLS: 10, FirstByte: 20, Body: 5},
			},
			{
				Attempt: 2, StartedAt: at(5 * time.Second), Duration: client.Duration(10 * time.Second), Outcome: "timeout",
				Phases: &client.Phases{Dial: 1000},
			},
			{Attempt: 3, StartedAt: at(time.Minute), Duration: client.Duration(30 * time.Second), Outcome: "lease_lost"},
		},
	}
}

func TestPicture(t *testing.T) {
	t.Parallel()
	plan := &client.Schedule{End: client.ScheduleEnd{Attempts: 5}, Attempts: []client.ScheduledAttempt{{Attempt: 5, Window: client.Duration(80 * time.Second)}}}
	scheduled, leased, dead, delivered, cancelled := tried(client.Scheduled), tried(client.Leased), tried(client.Dead), tried(client.Delivered), tried(client.Cancelled)
	scheduled.NextAttemptAt = at(2 * time.Minute)
	leased.Attempts, leased.LastAttemptAt = 4, at(2*time.Minute)
	dead.EndedAt, dead.Reason = at(90*time.Second), "exhausted"
	delivered.Attempts, delivered.LastAttemptAt, delivered.EndedAt = 4, at(3*time.Minute), at(3*time.Minute+time.Second)
	cancelled.EndedAt = at(4 * time.Minute)
	late := tried(client.Dead)
	late.Evidence, late.EndedAt = late.Evidence[1:], at(time.Hour)
	for name, c := range map[string]struct {
		d    client.Delivery
		plan *client.Schedule
		want string // what is on the rail
	}{
		"scheduled": {scheduled, plan, "accepted|waited 0 ms|1 · http_5xx (503)|waited 4.9 s|2 · timeout|waited 45 s|3 · lease_lost|waits 30 s|4 · due|if it fails: up to 1 min 20 s more|5 · then"},
		"the last":  {scheduled, &client.Schedule{}, "accepted|waited 0 ms|1 · http_5xx (503)|waited 4.9 s|2 · timeout|waited 45 s|3 · lease_lost|waits 30 s|4 · due|if it fails, it is dead"},
		"leased":    {leased, nil, "accepted|waited 0 ms|1 · http_5xx (503)|waited 4.9 s|2 · timeout|waited 45 s|3 · lease_lost|waited 30 s|4 · is out"},
		"dead":      {dead, nil, "accepted|waited 0 ms|1 · http_5xx (503)|waited 4.9 s|2 · timeout|waited 45 s|3 · lease_lost|waited 0 ms|dead: exhausted"},
		"delivered": {delivered, nil, "accepted|waited 0 ms|1 · http_5xx (503)|waited 4.9 s|2 · timeout|waited 45 s|3 · lease_lost|waited 1 min 30 s|4 · delivered"},
		"cancelled": {cancelled, nil, "accepted|waited 0 ms|1 · http_5xx (503)|waited 4.9 s|2 · timeout|waited 45 s|3 · lease_lost|waited 2 min 30 s|cancelled"},
		"cut":       {late, nil, "accepted|earlier attempts are not kept|2 · timeout|waited 45 s|3 · lease_lost|waited 58 min 30 s|dead: lease_lost"},
		"untouched": {client.Delivery{State: client.Scheduled, AcceptedAt: accepted, NextAttemptAt: accepted}, nil, "accepted|waits 0 ms|1 · due"},
	} {
		p := pictureOf(c.d, c.plan)
		var got []string
		end := 0.0
		for _, s := range p.Steps {
			got = append(got, s.What)
			if s.Y != end || s.H < shortestWait || s.Text() < s.Y || s.Text() > s.Bottom() {
				t.Errorf("%s: %q stands at %g, %g high, after %g", name, s.What, s.Y, s.H, end)
			}
			end = s.Bottom()
			x := 0.0
			for _, b := range s.Bars {
				if b.X < x-0.1 || b.X+b.Width > 100.2 {
					t.Errorf("%s: %q has the bar %+v", name, s.What, b)
				}
				x = b.X + b.Width
			}
		}
		if all := strings.Join(got, "|"); all != c.want || end != p.Height {
			t.Errorf("%s: got  %s\nwant %s", name, all, c.want)
		}
	}
}

// Where an attempt's time went: what answered is told from what was silent.
func TestPhaseBars(t *testing.T) {
	t.Parallel()
	all := tried(client.Dead).Evidence
	names := func(a client.Attempt, longest time.Duration) (s string) {
		for _, b := range phaseBars(a, longest) {
			s += b.Name + " "
		}
		return s
	}
	for i, want := range []string{"connect answer read ", "connect silent ", ""} {
		if got := names(all[i], lengthOf(all[i])); got != want {
			t.Errorf("attempt %d has the bars %q, want %q", i+1, got, want)
		}
	}
	if got := names(all[0], time.Minute); got != "" {
		t.Errorf("40 ms of a minute are seen as %q", got)
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"{\n  \"a\": 1\r\n}":  "{\n  \"a\": 1\n}\n",
		"a\u202Eb\x1b[0m\nc":  "ab [0m\nc\n",
		"\tindented\n\n\nend": "\tindented\n\n\nend\n",
	} {
		if got, cut := lines(in, 100); got != want || cut {
			t.Errorf("%q: got %q, cut %v", in, got, cut)
		}
	}
	if got, cut := lines("äöüß", 3); got != "äöü\n" || !cut {
		t.Errorf("cut to %q", got)
	}
}
