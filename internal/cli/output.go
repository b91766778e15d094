package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// keeper writes until a write fails, and keeps that failure: a command need not look
// at each line that it prints.
type keeper struct {
	w   io.Writer
	err error
}

// Write is that of the writer below, until it fails.
func (k *keeper) Write(b []byte) (int, error) {
	if k.err != nil {
		return 0, k.err
	}
	n, err := k.w.Write(b)
	k.err = err
	return n, err //nolint:wrapcheck // io.Writer's own
}

func (k *keeper) failure() error { return k.err }

// sayf writes a line of the answer.
func (s *session) sayf(format string, a ...any) { _, _ = fmt.Fprintf(s.out, format+"\n", a...) }

// document writes one JSON document, indented; its values stay as they are.
func (s *session) document(raw json.RawMessage) error {
	var b bytes.Buffer
	if err := json.Indent(&b, bytes.TrimSpace(raw), "", "  "); err != nil {
		return fmt.Errorf("the answer is not JSON: %w", err)
	}
	b.WriteByte('\n')
	_, _ = s.out.Write(b.Bytes())
	return nil
}

// line writes one value as a line of NDJSON.
func (s *session) line(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write as JSON: %w", err)
	}
	_, _ = s.out.Write(append(b, '\n'))
	return s.out.failure()
}

// show writes an answer: as the API gave it, or as its table.
func (s *session) show(table func(*table)) error {
	if s.json() {
		return s.document(s.answer.raw())
	}
	s.table(table)
	return nil
}

func (s *session) table(fill func(*table)) {
	t := &table{colour: s.colour}
	fill(t)
	_, _ = io.WriteString(s.out, t.String())
}

// table lines up columns. A row with a name and a value alone is how one thing is
// shown.
type table struct {
	rows   [][]string
	head   bool
	colour bool
}

func (t *table) header(cells ...string) { t.head = true; t.row(cells...) }

// row adds a row. Its cells may come from anywhere, so they are cleaned.
func (t *table) row(cells ...string) {
	fit := make([]string, len(cells))
	for i, c := range cells {
		fit[i] = clean(strings.TrimRight(c, "\n"))
		if fit[i] == "" {
			fit[i] = "-"
		}
	}
	t.rows = append(t.rows, fit)
}

// maybe adds a row if there is a value.
func (t *table) maybe(name, value string) {
	if value != "" {
		t.row(name, value)
	}
}

// String is the table with two blanks between columns and none at the end of a line.
func (t *table) String() string {
	var widths []int
	for _, row := range t.rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for n, row := range t.rows {
		for i, c := range row {
			shown := c
			if t.colour {
				shown = paint(c, n == 0 && t.head)
			}
			b.WriteString(shown)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+2))
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// paint colours headings, and the words that a look at a table is for.
func paint(cell string, heading bool) string {
	code := ""
	switch {
	case heading:
		code = "1"
	case cell == "delivered", cell == "sending", cell == "ok":
		code = "32"
	case cell == "dead", cell == "revoked", strings.HasPrefix(cell, "on hold"):
		code = "31"
	case cell == "cancelled", cell == "expired":
		code = "33"
	}
	if code == "" {
		return cell
	}
	return "\x1b[" + code + "m" + cell + "\x1b[0m"
}

// clean makes text fit for a terminal: what comes from the network may hold escape
// sequences, or characters that turn the line around. Line breaks stay.
func clean(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	odd := func(r rune) bool { return r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) }
	if strings.IndexFunc(s, odd) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\t':
			b.WriteByte(' ')
		case odd(r):
			fmt.Fprintf(&b, "<%04x>", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// oneLine is clean text without line breaks, bounded to n characters.
func oneLine(s string, n int) string {
	s = clean(strings.Join(strings.Fields(s), " "))
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// stamp is a moment in UTC, to the second.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// when is a moment as people ask for it, how long ago, and as logs have it; "" for
// none.
func when(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return ago(t, now) + " (" + stamp(t) + ")"
}

func ago(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case d > -time.Second && d < time.Second:
		return "now"
	case d < 0:
		return "in " + span(-d)
	}
	return span(d) + " ago"
}

// span is a duration by its two greatest units, as a person says it.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	two := func(n, m time.Duration, big, small string) string {
		if m == 0 {
			return fmt.Sprintf("%d%s", n, big)
		}
		return fmt.Sprintf("%d%s%d%s", n, big, m, small)
	}
	const tenth = 100 * time.Millisecond
	if d.Round(tenth) >= 10*time.Second {
		d = d.Round(time.Second)
	}
	switch {
	case d < time.Millisecond && d != 0:
		return "under 1ms"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return strings.Replace(fmt.Sprintf("%.1fs", d.Seconds()), ".0s", "s", 1)
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return two(d/time.Minute, d%time.Minute/time.Second, "m", "s")
	case d < day:
		return two(d/time.Hour, d%time.Hour/time.Minute, "h", "m")
	}
	return two(d/day, d%day/time.Hour, "d", "h")
}

func isTerminal(v any) bool {
	f, ok := v.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && f.Name() != os.DevNull
}

// noColour is the variable of no-color.org.
const noColour = "NO_COLOR" //nolint:misspell // its name

// useColour: on a terminal that can, unless somebody asked for none.
func useColour(out io.Writer) bool {
	return isTerminal(out) && os.Getenv(noColour) == "" && os.Getenv("TERM") != "dumb"
}
