package demo

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/delivery"
)

// The escapes of ECMA-48 that any terminal knows.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

const clockFormat = "15:04:05.000"

// Widths of columns, in characters, such that a line stays within 100.
const (
	wordWidth    = 18
	nameWidth    = 12
	kindWidth    = 27
	excerptWidth = 76
	valueWidth   = 300
)

// screen is the terminal. Whatever is one piece is written in one Write.
type screen struct {
	mu     sync.Mutex
	out    io.Writer
	colour bool
}

func (s *screen) write(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := io.WriteString(s.out, text); err != nil {
		return fmt.Errorf("write to the terminal: %w", err)
	}
	return nil
}

// say writes lines of the play itself. A terminal that is gone must not end it.
func (s *screen) sayf(format string, a ...any) { _ = s.write(fmt.Sprintf(format, a...)) }

func (s *screen) paint(text string, codes ...string) string {
	if !s.colour || len(codes) == 0 {
		return text
	}
	return "\x1b[" + strings.Join(codes, ";") + "m" + text + "\x1b[0m"
}

// attempt writes one attempt, and below it the evidence of a dead letter.
func (s *screen) attempt(a attempt, evidence *client.Delivery) error {
	word, code := "✓ delivered", green
	switch a.next {
	case delivery.Delivered:
	case delivery.Dead:
		word, code = "✗ dead letter", red
	default:
		word, code = "↻ retry"+inTime(a.due, a.at), yellow
	}
	number := fmt.Sprintf("%d", a.number)
	if a.maxAttempts > 0 {
		number = fmt.Sprintf("%d/%d", a.number, a.maxAttempts)
	}
	answer := a.outcome
	if a.status > 0 {
		answer = fmt.Sprintf("%d", a.status)
	}
	sig := string(a.signature)
	if a.signature == forged {
		sig = s.paint(sig, bold, red)
	}
	line := strings.TrimRight(fmt.Sprintf("%s %s %s %s %-5s %-8s %s",
		s.paint(a.at.Format(clockFormat), dim), s.paint(pad(word, wordWidth), code),
		pad(a.name, nameWidth), pad(a.kind, kindWidth), number, printable(answer, 16), sig), " ")
	if evidence != nil {
		line += s.evidence(a, *evidence)
	}
	return s.write(line + "\n")
}

// evidence is what a dead letter keeps: why it ended, and the last answer.
func (s *screen) evidence(a attempt, d client.Delivery) string {
	indent := "\n" + strings.Repeat(" ", len(clockFormat)+1) + s.paint("│ ", red)
	attempts := "1 attempt"
	if d.Attempts != 1 {
		attempts = fmt.Sprintf("%d attempts", d.Attempts)
	}
	text := fmt.Sprintf("%s%s after %s, kept as %s", indent, printable(a.reason, 32), attempts, d.ID)
	if len(d.Evidence) == 0 {
		return text
	}
	last := d.Evidence[len(d.Evidence)-1]
	what := "answered: " + last.Excerpt
	if last.Excerpt == "" {
		what = "went wrong: " + last.Error
	}
	return text + indent + s.paint(printable(what, excerptWidth), dim)
}

// trouble writes a warning or an error of any part of the service.
func (s *screen) trouble(at time.Time, level slog.Level, message string, attrs []slog.Attr) error {
	word, codes := "! warning", []string{yellow}
	if level >= slog.LevelError {
		word, codes = "! ERROR", []string{bold, red}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s", s.paint(at.Format(clockFormat), dim), s.paint(pad(word, wordWidth), codes...), printable(message, valueWidth))
	for _, a := range attrs {
		if v := a.Value.Resolve(); v.Kind() != slog.KindGroup && a.Key != "" {
			fmt.Fprintf(&b, " %s", s.paint(a.Key+"="+printable(v.String(), valueWidth), dim))
		}
	}
	b.WriteByte('\n')
	return s.write(b.String())
}

// inTime says how long a retry waits, to two or three digits.
func inTime(due, now time.Time) string {
	if due.IsZero() {
		return ""
	}
	wait, unit := due.Sub(now), time.Millisecond
	switch {
	case wait >= 10*time.Second:
		unit = time.Second
	case wait >= time.Second:
		unit = 10 * time.Millisecond
	}
	if wait = wait.Round(unit); wait <= 0 {
		return " at once"
	}
	return " in " + wait.String()
}

// pad makes a text exactly so wide.
func pad(s string, width int) string {
	s = printable(s, width)
	return s + strings.Repeat(" ", width-utf8.RuneCountInString(s))
}
