package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/fanout/fanout/client"
)

// Bounds of what is read before it is posted, and of a line; the API's body takes 8 MiB.
const (
	batchEvents = 1000
	batchBytes  = 8 << 20
	maxLine     = 1 << 20
)

const progressEvery = time.Second

type eventsBatch struct {
	File string `arg:"" default:"-" help:"File with one event a line, - for stdin. Each is posted as it is written." optional:""`
}

// Run posts the lines of a file. Lines are read as they are sent, so that a stream
// without an end works too.
func (l *eventsBatch) Run(ctx context.Context, s *session) error {
	from := s.in
	if l.File != "-" {
		f, err := os.Open(l.File)
		if err != nil {
			return usage("%v", err)
		}
		defer func() { _ = f.Close() }()
		from = f
	}
	s.patient = true
	b := &poster{s: s, lines: lines{r: bufio.NewReaderSize(from, 64<<10)}, told: time.Now()}
	err := b.all(ctx)
	b.sum()
	switch {
	case err != nil:
		s.notef("Stopped behind line %d of %s: what became of the lines after it is not known. %s", b.done, nameOf(l.File), b.again())
		return err
	case b.refused > 0:
		others := ""
		if b.refused < b.settled() {
			others = "; all others are accepted"
		}
		return &failedError{fmt.Sprintf("%d of %s refused, and nothing is stored of %s%s. %s",
			b.refused, count(b.settled(), "event was", "events were"), itThem(b.refused), others, b.again())}
	}
	return nil
}

func nameOf(file string) string {
	if file == "-" {
		return "stdin"
	}
	return file
}

func wasWere(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

func itThem(n int) string {
	if n == 1 {
		return "it"
	}
	return "them"
}

// poster posts the lines.
type poster struct {
	s     *session
	lines lines
	done  int // the last line whose fate is known
	// noID counts events that came without an id and are accepted, noIDMaybe those of
	// whom that is not known. One that was refused is stored nowhere.
	noID, noIDMaybe int

	told time.Time

	accepted, duplicates, refused int
	deliveries                    int
	results                       int // that are written
	events                        int // that came, accepted or not
}

// item is one event's result as the API gives it, beside its line. Its place and its
// pointers are those in the whole, as if all lines had been one batch.
type item struct {
	Line       int             `json:"line"`
	Index      int             `json:"index"`
	Status     int             `json:"status"`
	ID         string          `json:"id,omitempty"`
	Deliveries *int            `json:"deliveries,omitempty"`
	Duplicate  *bool           `json:"duplicate,omitempty"`
	AcceptedAt time.Time       `json:"accepted_at,omitzero"`
	Problem    *client.Problem `json:"problem,omitempty"`
}

// again says what can be posted again. What is known by an id is accepted once; an event
// that came without one is posted twice, if it was accepted at all.
func (p *poster) again() string {
	if p.noID+p.noIDMaybe == 0 {
		return "The whole can be posted again: an event that has an id is accepted once."
	}
	return "What has an id can be posted again, and is accepted once."
}

// settled is how many have a known fate.
func (p *poster) settled() int { return p.accepted + p.duplicates + p.refused }

func (p *poster) all(ctx context.Context) error {
	for {
		part, end, err := p.chunk()
		if err != nil {
			return err
		}
		if err := p.post(ctx, part); err != nil {
			return err
		}
		p.done = p.lines.n
		if end {
			return nil
		}
		if time.Since(p.told) >= progressEvery {
			p.told = time.Now()
			p.s.notef("%s: %d accepted, %d accepted before, %d refused", count(p.done, "line", "lines"), p.accepted, p.duplicates, p.refused)
		}
	}
}

// event is a line that can be posted, or what keeps it from being.
type event struct {
	line, index int
	body        rawEvent
	bad         string
	noID        bool // that in the body was made here
}

// chunk reads the lines of one post.
func (p *poster) chunk() (part []event, end bool, err error) {
	for size := 0; len(part) < batchEvents && size < batchBytes && !end; {
		line, fits, err := p.lines.next()
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, false, fmt.Errorf("read line %d: %w", p.lines.n, err)
		}
		end = err != nil
		line = bytes.TrimSpace(line)
		if len(line) == 0 && fits {
			continue
		}
		size += len(line)
		e, err := p.event(line, fits)
		if err != nil {
			return nil, false, err
		}
		part = append(part, e)
	}
	return part, end, nil
}

// event looks at a line: one that is not JSON would spoil the request for all others.
// An event without an id is given one, for the sake of the attempts of this run.
func (p *poster) event(line []byte, fits bool) (event, error) {
	e := event{line: p.lines.n, index: p.events, body: line}
	p.events++
	if !fits {
		e.bad = fmt.Sprintf("it is longer than %d MiB", maxLine>>20)
		return e, nil
	}
	if e.bad = notJSON(line); e.bad != "" || line[0] != '{' || e.body.has("id") {
		return e, nil
	}
	e.noID = true
	id, err := jsonField("id", client.NewID())
	if err != nil {
		return e, err
	}
	e.body, err = e.body.with(id)
	return e, err
}

// post sends what can be, and tells of each its fate, in the order of the lines.
func (p *poster) post(ctx context.Context, part []event) error {
	var good []json.RawMessage
	for _, e := range part {
		if e.bad == "" {
			good = append(good, json.RawMessage(e.body))
		}
	}
	fates, err := p.send(ctx, good)
	for _, e := range part {
		var fate client.BatchItem
		if e.bad == "" {
			fate, fates = fates[0], fates[1:]
		} else {
			fate = unread(e.bad)
		}
		if writeErr := p.take(e, fate); writeErr != nil {
			return writeErr
		}
	}
	return err
}

// send posts events. If they are refused as a whole, as one that is nested too deeply
// makes the server do, each half is posted by itself: the others are not to blame.
func (p *poster) send(ctx context.Context, events []json.RawMessage) ([]client.BatchItem, error) {
	if len(events) == 0 {
		return nil, nil
	}
	result, err := ask(ctx, p.s, func(ctx context.Context, c *client.Client) (client.BatchResult, error) {
		return c.PostBatchRaw(ctx, events)
	})
	var whole *client.Problem
	switch {
	case result.Results == nil: // it was not even tried
		return make([]client.BatchItem, len(events)), err
	case !errors.As(err, &whole) || !errors.Is(err, client.ErrInvalid):
		return result.Results, err
	case len(events) == 1:
		return []client.BatchItem{{Status: whole.Status, ID: result.Results[0].ID, Problem: whole}}, nil
	}
	half := len(events) / 2
	first, err := p.send(ctx, events[:half])
	if err != nil {
		return append(first, make([]client.BatchItem, len(events)-half)...), err
	}
	rest, err := p.send(ctx, events[half:])
	return append(first, rest...), err
}

// unsent is the title of the problem of a line that the server never saw.
const unsent = "Not sent"

// unread is the fate of such a line. Its status is the one that the server would have
// given, so that who reads the results need know no other.
func unread(why string) client.BatchItem {
	return client.BatchItem{Status: http.StatusBadRequest, Problem: &client.Problem{
		Type: "urn:fanout:problem:invalid_json", Title: unsent, Status: http.StatusBadRequest, Code: "invalid_json",
		Detail: why + ".",
	}}
}

// take counts and shows what became of an event, unless that is not known.
func (p *poster) take(e event, fate client.BatchItem) error {
	one := item{Line: e.line, Index: e.index, Status: fate.Status, ID: fate.ID, Problem: fate.Problem}
	if e.noID {
		p.without(fate, &one)
	}
	switch {
	case fate.Status/100 == 2:
		one.Deliveries, one.Duplicate, one.AcceptedAt = &fate.Deliveries, &fate.Duplicate, fate.AcceptedAt
		p.deliveries += fate.Deliveries
		if fate.Duplicate {
			p.duplicates++
		} else {
			p.accepted++
		}
	case fate.Problem == nil:
		return nil // no answer at all: the error of the whole says so
	case passing(fate.Problem):
		if !p.s.json() {
			return nil // likewise
		}
	default:
		p.refused++
	}
	switch {
	case p.s.json():
		return p.write(one)
	case fate.Problem != nil:
		p.tell(one)
	}
	return p.s.out.failure()
}

// without counts an event that came without an id, by its fate. Refused, it has none:
// the one that was made for it names nothing, and nobody would find it in the file.
func (p *poster) without(fate client.BatchItem, one *item) {
	switch {
	case fate.Status/100 == 2:
		p.noID++
	case fate.Problem == nil, passing(fate.Problem):
		p.noIDMaybe++
	default:
		one.ID = ""
	}
}

// passing: the service could not take it for now, which is no refusal.
func passing(problem *client.Problem) bool {
	return errors.Is(problem, client.ErrUnavailable) || errors.Is(problem, client.ErrLimited)
}

// tell shows a refusal when it happens: a long run must not keep them to its end.
func (p *poster) tell(r item) {
	if r.Problem.Title == unsent {
		p.s.sayf("%s", clean(fmt.Sprintf("line %d was not sent: %s", r.Line, oneLine(r.Problem.Detail, 400))))
		return
	}
	name := ""
	if r.ID != "" {
		name = " " + r.ID
	}
	p.s.sayf("%s", clean(fmt.Sprintf("line %d%s refused (%d): %s", r.Line, name, r.Status, oneLine(reasonOf(r.Problem), 400))))
}

// reasonOf is all that a problem says, as one sentence.
func reasonOf(problem *client.Problem) string {
	if len(problem.Errors) == 0 {
		return problem.Detail
	}
	var parts []string
	for _, e := range problem.Errors {
		where := e.Pointer + e.Parameter
		if where == "" {
			where = "the event"
		}
		parts = append(parts, where+" "+e.Detail)
	}
	// The server's sentence ends in "; see errors.", and here they follow.
	whole := strings.TrimSuffix(strings.TrimRight(problem.Detail, ". "), "; see errors")
	return whole + ": " + strings.Join(parts, "; ")
}

// write adds a result to the document, which is written as it grows: a stream may be
// long.
func (p *poster) write(one item) error {
	if one.Problem != nil {
		whole := *one.Problem
		whole.Errors = make([]client.FieldProblem, len(one.Problem.Errors))
		for i, e := range one.Problem.Errors {
			if e.Parameter == "" {
				e.Pointer = fmt.Sprintf("/events/%d%s", one.Index, e.Pointer)
			}
			whole.Errors[i] = e
		}
		one.Problem = &whole
	}
	text, err := json.MarshalIndent(one, "    ", "  ")
	if err != nil {
		return fmt.Errorf("write the result of line %d: %w", one.Line, err)
	}
	before := "{\n  \"results\": [\n    "
	if p.results > 0 {
		before = ",\n    "
	}
	p.results++
	_, _ = io.WriteString(p.s.out, before+string(text))
	return p.s.out.failure()
}

// sum shows what all came to, and ends the document.
func (p *poster) sum() {
	if p.noID > 0 {
		p.s.notef("%s no id and %s accepted: to post %s again would be another event.",
			count(p.noID, "event had", "events had"), wasWere(p.noID), itThem(p.noID))
	}
	if p.noIDMaybe > 0 {
		p.s.notef("%s no id, and may have been accepted: to post %s again may be another event.", count(p.noIDMaybe, "event had", "events had"), itThem(p.noIDMaybe))
	}
	if !p.s.json() {
		p.s.sayf("accepted %d, accepted before %d, refused %d; %s", p.accepted, p.duplicates, p.refused, count(p.deliveries, "delivery", "deliveries"))
		return
	}
	before := "{\n  \"results\": ["
	if p.results > 0 {
		before = "\n  "
	}
	p.s.sayf("%s],\n  \"accepted\": %d,\n  \"duplicates\": %d,\n  \"refused\": %d\n}", before, p.accepted, p.duplicates, p.refused)
}

// lines reads lines of any length, of which it keeps those that are not too long.
type lines struct {
	r *bufio.Reader
	n int // of the line last read, from 1
}

func (l *lines) next() (line []byte, fits bool, err error) {
	l.n++
	fits = true
	for {
		part, err := l.r.ReadSlice('\n')
		if fits = fits && len(line)+len(part) <= maxLine; fits {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, fits, err //nolint:wrapcheck // io.EOF is looked for
		}
	}
}
