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
	File string `arg:"" default:"-" help:"File with one event a line, - for stdin." optional:""`
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
	b := &poster{s: s, lines: lines{r: bufio.NewReaderSize(from, 64<<10)}, told: time.Now(), Results: []refusal{}}
	err := b.all(ctx)
	if err := b.sum(); err != nil {
		return err
	}
	switch {
	case err != nil:
		s.notef("Stopped behind line %d of %s. Events that have an id can be posted again: each is accepted once.", b.done, l.File)
		return err
	case b.Refused > 0:
		return &failedError{fmt.Sprintf("%d of %d events were refused", b.Refused, b.Accepted+b.Duplicates+b.Refused)}
	}
	return nil
}

// poster posts the lines, and is the answer of -o json.
type poster struct {
	s     *session
	lines lines
	done  int // the last line whose fate is known
	noID  int
	told  time.Time

	Accepted   int `json:"accepted"`
	Duplicates int `json:"duplicates"`
	Refused    int `json:"refused"`
	Deliveries int `json:"deliveries"`
	// Results are those that were refused.
	Results []refusal `json:"results"`
}

// refusal is a line that was not accepted.
type refusal struct {
	Line    int             `json:"line"`
	ID      string          `json:"id,omitempty"`
	Status  int             `json:"status"`
	Problem *client.Problem `json:"problem"`
}

func (p *poster) all(ctx context.Context) error {
	for {
		numbers, events, end, err := p.chunk()
		if err != nil {
			return err
		}
		if len(events) > 0 {
			if err := p.post(ctx, numbers, events); err != nil {
				return err
			}
		}
		p.done = p.lines.n
		if end {
			return nil
		}
		if time.Since(p.told) >= progressEvery {
			p.told = time.Now()
			p.s.notef("%d lines: %d accepted, %d accepted before, %d refused", p.done, p.Accepted, p.Duplicates, p.Refused)
		}
	}
}

// chunk reads the lines of one post.
func (p *poster) chunk() (numbers []int, events []client.Event, end bool, err error) {
	for size := 0; len(events) < batchEvents && size < batchBytes; {
		line, fits, err := p.lines.next()
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, nil, false, fmt.Errorf("read line %d: %w", p.lines.n, err)
		}
		end = err != nil
		size += len(line)
		var f eventFile
		switch {
		case !fits:
			p.refuse(p.lines.n, fmt.Sprintf("the line is longer than %d MiB", maxLine>>20))
		case len(bytes.TrimSpace(line)) == 0:
		default:
			if err := strictJSON(line, &f); err != nil {
				p.refuse(p.lines.n, err.Error())
				break
			}
			if f.ID == "" {
				p.noID++
			}
			numbers, events = append(numbers, p.lines.n), append(events, f.event())
		}
		if end {
			return numbers, events, true, nil //nolint:nilerr // io.EOF is the end
		}
	}
	return numbers, events, false, nil
}

// refuse is for lines that are no events.
func (p *poster) refuse(line int, why string) {
	p.Refused++
	p.Results = append(p.Results, refusal{Line: line, Status: http.StatusBadRequest, Problem: &client.Problem{
		Type: "about:blank", Title: "Not an event", Status: http.StatusBadRequest, Code: "invalid_line", Detail: why,
	}})
	p.tell(p.Results[len(p.Results)-1])
}

// tell shows a refusal when it happens: a long run must not keep them to its end.
func (p *poster) tell(r refusal) {
	if p.s.json() {
		return
	}
	parts := []string{r.Problem.Detail}
	for _, e := range r.Problem.Errors {
		parts = append(parts, e.Pointer+": "+e.Detail)
	}
	text := strings.Join(parts, "; ")
	name := ""
	if r.ID != "" {
		name = " " + r.ID
	}
	p.s.sayf("%s", clean(fmt.Sprintf("line %d%s refused (%d): %s", r.Line, name, r.Status, oneLine(text, 400))))
}

func (p *poster) post(ctx context.Context, numbers []int, events []client.Event) error {
	result, err := ask(ctx, p.s, func(ctx context.Context, c *client.Client) (client.BatchResult, error) {
		return c.PostBatch(ctx, events)
	})
	p.Accepted += result.Accepted
	p.Duplicates += result.Duplicates
	p.Refused += result.Refused
	for _, item := range result.Results {
		p.Deliveries += item.Deliveries
		if item.Problem == nil || errors.Is(item.Problem, client.ErrUnavailable) || errors.Is(item.Problem, client.ErrLimited) {
			continue // accepted, or its fate is not known: err says so
		}
		p.Results = append(p.Results, refusal{Line: numbers[item.Index], ID: item.ID, Status: item.Status, Problem: item.Problem})
		p.tell(p.Results[len(p.Results)-1])
	}
	return err
}

// sum shows what all came to.
func (p *poster) sum() error {
	if p.noID > 0 {
		p.s.notef("%d events had no id: to post the file again would post them twice.", p.noID)
	}
	if p.s.json() {
		b, err := json.Marshal(p)
		if err != nil {
			return fmt.Errorf("write the result: %w", err)
		}
		return p.s.document(b)
	}
	p.s.sayf("accepted %d, accepted before %d, refused %d; %d deliveries", p.Accepted, p.Duplicates, p.Refused, p.Deliveries)
	return nil
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
