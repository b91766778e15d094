package cli

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fanout/fanout/client"
)

// screen is a terminal so far as a bar needs one: it wraps as real ones do.
type screen struct {
	width int
	lines [][]rune
	at    int
	wraps int
}

func (s *screen) Write(b []byte) (int, error) {
	if s.lines == nil {
		s.lines = [][]rune{nil}
	}
	for _, r := range string(b) {
		switch last := len(s.lines) - 1; r {
		case '\r':
			s.at = 0
		case '\n':
			s.lines, s.at = append(s.lines, nil), 0
		case '\b':
			s.at = max(s.at-1, 0)
		default:
			if s.at == s.width {
				s.lines, s.at = append(s.lines, nil), 0
				s.wraps++
				last++
			}
			for len(s.lines[last]) <= s.at {
				s.lines[last] = append(s.lines[last], ' ')
			}
			s.lines[last][s.at] = r
			s.at++
		}
	}
	return len(b), nil
}

func (s *screen) String() string {
	var b strings.Builder
	for _, line := range s.lines {
		b.WriteString(strings.TrimRight(string(line), " ") + "\n")
	}
	return b.String()
}

// What a terminal shows at the end of a redrive: each state once, in full, and the last
// look; nothing is left of the looks before, and no line was wrapped by the terminal.
func TestBarOnATerminal(t *testing.T) {
	t.Parallel()
	for _, width := range []int{120, 80, 40, 12, 2} {
		scr := &screen{width: width}
		w := watcher{s: &session{out: &keeper{w: scr}}, bar: &bar{out: scr, width: func() int { return width }}}
		for _, state := range []client.RedriveState{
			client.RedrivePlanning, client.RedriveCanary, client.RedriveAwaiting, client.RedriveRunning, client.RedriveRunning, client.RedrivePaused, client.RedriveDone,
		} {
			age := 12.5
			w.show(seen{Redrive: aRedrive(state), Age: &age})
		}
		w.bar.leave()
		text := scr.String()
		if scr.wraps > 0 {
			t.Errorf("width %d: %d lines were wrapped\n%s", width, scr.wraps, text)
		}
		if width < 40 {
			continue
		}
		if strings.Count(text, "[") != 1 || !strings.Contains(text, "] done; 1200 of 1200") || !strings.HasSuffix(text, "\n\n") || scr.at != 0 {
			t.Errorf("width %d:\n%s", width, text)
		}
		whole := strings.Join(strings.Fields(text), " ")
		if strings.Count(whole, "paused: guard: no dispatcher is at work") != 1 || strings.Count(whole, "Z running") != 1 {
			t.Errorf("width %d:\n%s", width, text)
		}
	}
}

func TestWrap(t *testing.T) {
	t.Parallel()
	for _, line := range wrap("one two three "+strings.Repeat("x", 30)+" four", 10) {
		if utf8.RuneCountInString(line) > 10 {
			t.Errorf("%q", line)
		}
	}
	if got := strings.Join(wrap("one two three four", 10), "|"); got != "one two|  three|  four" {
		t.Errorf("%q", got)
	}
}

// To stop watching stops nothing else, and says so.
func TestWatchIsStopped(t *testing.T) {
	t.Parallel()
	for state, says := range map[string]string{
		"running": "no longer watched; the redrive goes on by itself (running)", "awaiting_approval": "the redrive waits for a person (awaiting_approval)",
	} {
		api := answering(t, 200, "application/json", `{"id":"rdv_1","state":"`+state+`"}`)
		l := start(t, "redrive", "watch", "rdv_1", "--interval=100ms", "--api="+api)
		until(t, "it shows", func() bool { return strings.Contains(l.out.String(), state) })
		if code := l.end(t); code != exitFailed || !strings.Contains(l.err.String(), says) || !strings.Contains(l.err.String(), "fanout redrive watch rdv_1") {
			t.Errorf("exit code %d, %s", code, l.err.String())
		}
		if n := strings.Count(l.out.String(), "\n"); n != 1 {
			t.Errorf("%d lines for one state:\n%s", n, l.out.String())
		}
	}
}
