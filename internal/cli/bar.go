package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"
)

// bar is the last line of a terminal, which is written over again and again, and the
// lines that stay above it.
type bar struct {
	out   io.Writer
	width func() int // characters that fit on a line, at this moment
	shown int        // characters that stand on the line
}

// usualWidth is that of a terminal that does not say its own.
const usualWidth = 80

// newBar gives nil for what is no terminal that can write over a line.
func newBar(out io.Writer) *bar {
	f, is := out.(*os.File)
	if !is || !isTerminal(f) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return &bar{out: out, width: func() int {
		if n := widthOf(f); n > 0 {
			return n
		}
		if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
			return n
		}
		return usualWidth
	}}
}

// room is what a line may have: one character less than fits, because many terminals
// turn to the next line as soon as the last place is taken.
func (b *bar) room() int { return max(b.width()-1, 1) }

// redraw writes over the line. It is cut rather than wrapped: a second line would stay.
func (b *bar) redraw(line string) {
	room := b.room()
	line = cut(line, room)
	n := utf8.RuneCountInString(line)
	blanks := max(min(b.shown, room)-n, 0)
	_, _ = fmt.Fprintf(b.out, "\r%s%s%s", line, strings.Repeat(" ", blanks), strings.Repeat("\b", blanks))
	b.shown = n
}

// stay writes lines that stay, wrapped between words, where the bar was.
func (b *bar) stay(text string) {
	if b.shown > 0 {
		b.redraw("")
		_, _ = io.WriteString(b.out, "\r")
	}
	_, _ = io.WriteString(b.out, strings.Join(wrap(text, b.room()), "\n")+"\n")
}

// leave goes to a line of its own, so that what stands stays.
func (b *bar) leave() {
	if b != nil && b.shown > 0 {
		_, _ = io.WriteString(b.out, "\n")
		b.shown = 0
	}
}

// cut shortens to so many characters, the last of which says so.
func cut(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return strings.TrimRight(string([]rune(s)[:most-1]), " ") + "…"
}

// wrap breaks text between words; what follows the first line stands in by two.
func wrap(text string, room int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= room:
			line += " " + word
		default:
			lines, line = append(lines, line), "  "+word
		}
		for utf8.RuneCountInString(line) > room { // a word that is longer than a line
			r := []rune(line)
			lines, line = append(lines, string(r[:room])), string(r[room:])
		}
	}
	return append(lines, line)
}
