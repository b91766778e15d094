package runbook

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The play: the commands of two sections of the runbook, in their order, by the words
// before the first thing to fill in.
var (
	redrive = section{"## Redrive: dead letters are sent again", []string{
		"fanout dead ls", "fanout dead show", "fanout dead discard",
		"fanout subscribers show", "fanout subscribers resume",
		"fanout redrive plan", "fanout redrive start", "fanout redrive show", "fanout redrive approve",
		"fanout redrive watch", "fanout redrive pause", "fanout redrive resume",
		"fanout redrive show", "fanout audit",
	}}
	rollout = section{"## A new worker version: a small slice first", []string{
		"fanout redrive ls", "fanout redrive pause",
		"dispatcher", "fanout status",
		"curl", "curl", "fanout deliveries show",
		"kill", "fanout status",
		"fanout redrive resume", "fanout redrive watch",
	}}
)

// section is a part of the runbook.
type section struct {
	title string
	play  []string
}

// commands are the lines in the section's blocks of shell.
func (s section) commands(t testing.TB) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(page), "\n"+s.title+"\n")
	if !found {
		t.Fatalf("the runbook has no %q", s.title)
	}
	if end := strings.Index(text, "\n## "); end >= 0 {
		text = text[:end]
	}
	var all []string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		all = append(all, strings.Split(strings.TrimSpace(block[1]), "\n")...)
	}
	return all
}

// words of a command before the first that is a flag or is to be filled in.
func words(line string) string {
	var out []string
	for w := range strings.FieldsSeq(line) {
		if strings.HasPrefix(w, "-") || strings.ToUpper(w) == w {
			break
		}
		out = append(out, w)
	}
	return strings.Join(out, " ")
}

// The play has each command of the page, and no other: who changes one is told here, long
// before anybody needs the page at night.
func TestThePlayIsThePage(t *testing.T) {
	t.Parallel()
	for _, s := range []section{redrive, rollout} {
		var page []string
		for _, line := range s.commands(t) {
			page = append(page, words(line))
		}
		if !slices.Equal(page, s.play) {
			t.Errorf("%s: the page has\n%s\nand the play\n%s", s.title, strings.Join(page, "\n"), strings.Join(s.play, "\n"))
		}
	}
}
