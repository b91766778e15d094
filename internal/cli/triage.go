package cli

import (
	"context"
	"strings"
	"time"

	"github.com/fanout/fanout/client"
)

// triageCmd says what is the matter.
type triageCmd struct{}

// runbook is where the sections are that triage names.
const runbook = "docs/runbook.md"

// unwellError ends a command that has found the service unwell, and said so.
type unwellError struct{}

func (*unwellError) Error() string { return "the service is unwell" }

// Run prints the diagnosis, the four answers with their evidence, and the section of the
// runbook to follow. Whoever scripts it goes by the exit code: 3 is a page.
func (*triageCmd) Run(ctx context.Context, s *session) error {
	look, err := lookAt(ctx, s)
	if err != nil {
		return err
	}
	if s.json() {
		if err := s.document(s.answer.raw()); err != nil {
			return err
		}
	} else {
		for _, line := range triageLines(look) {
			s.sayf("%s", line)
		}
	}
	if look.Triage.Page {
		return &unwellError{}
	}
	return nil
}

func lookAt(ctx context.Context, s *session) (client.OnCall, error) {
	return ask(ctx, s, func(ctx context.Context, c *client.Client) (client.OnCall, error) { return c.OnCall(ctx) })
}

// staleAfter is when a look is old enough to be told so, in seconds: samples are taken
// each second.
const staleAfter = 5

func triageLines(o client.OnCall) (lines []string) {
	t := o.Triage
	const indent = "        "
	put := func(lead, text string) { lines = append(lines, lead+oneLine(text, 400)) }
	add := func(text string) { put("", text) }
	urgency := "nobody needs to act now"
	if t.Page {
		urgency = "ACT NOW"
	}
	add(strings.ReplaceAll(t.Diagnosis, "_", " ") + " (" + urgency + ")")
	add(t.Sentence)
	for _, a := range t.Answers {
		lines = append(lines, "")
		put(pad(clean(strings.ToUpper(a.Says)), len(indent)), a.Question)
		put(indent, a.Sentence)
		for _, e := range a.Evidence {
			put(indent+"- ", evidenceText(e))
		}
	}
	if len(t.Notes) > 0 {
		lines = append(lines, "", "Beside it:")
		for _, e := range t.Notes {
			put(indent+"- ", evidenceText(e))
		}
	}
	lines = append(lines, "", "Follow "+runbook+"#"+oneLine(t.Runbook, 64))
	if o.StaleSeconds > staleAfter {
		add("This is what was seen " + age(o.StaleSeconds) + " ago: the server sees nothing newer.")
	}
	return lines
}

func evidenceText(e client.TriageEvidence) string {
	if e.Link == "" {
		return e.Text
	}
	return e.Text + " (" + strings.TrimPrefix(e.Link, "/v1/") + ")"
}

func pad(s string, n int) string { return s + strings.Repeat(" ", max(1, n-len(s))) }

// age is so many seconds for a person.
func age(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d == 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
