package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fanout/fanout/client"
)

// tell says an error in words that its reader can act on, and returns the exit code.
func (s *session) tell(ctx context.Context, err error) int {
	if hinted, is := errors.AsType[*hintedError](err); is {
		defer s.notef("  %s", hinted.hint)
	}
	var (
		problem *client.Problem
		bad     *usageError
		said    *failedError
	)
	if _, unwell := errors.AsType[*unwellError](err); unwell {
		return exitUnavailable
	}
	switch {
	case errors.As(err, &bad):
		s.notef("fanout: %s", bad.text)
		return exitUsage
	case errors.As(err, &said):
		if said.text != "" {
			s.notef("fanout: %s", said.text)
		}
		return exitFailed
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		s.notef("fanout: interrupted")
		return exitFailed
	case errors.As(err, &problem):
		s.tellProblem(problem)
		if errors.Is(err, client.ErrUnavailable) {
			return exitUnavailable
		}
		return exitFailed
	case errors.Is(err, client.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		s.tellAway(err)
		return exitUnavailable
	}
	s.notef("fanout: %v", err)
	return exitFailed
}

// parameter is one of a query by its name, and by that of the flag if it is another.
func parameter(name string) string {
	switch name {
	case "subscriber_id":
		return name + " (--subscriber)"
	case "event_id":
		return name + " (--event)"
	}
	return name
}

// tellProblem is the server's own sentence, then each thing that is wrong, then where
// to find the request in its logs.
func (s *session) tellProblem(p *client.Problem) {
	sentence := p.Detail
	if sentence == "" {
		sentence = p.Title
	}
	s.notef("fanout: %s", sentence)
	for _, e := range p.Errors {
		where := e.Pointer + parameter(e.Parameter)
		if where == "" {
			where = "(the whole body)"
		}
		s.notef("  %s: %s", where, e.Detail)
	}
	switch {
	case errors.Is(p, client.ErrUnauthenticated):
		s.notef("  Set %s, or --key-file, to a key of this server (%s).", keyVariable, s.API)
	case strings.HasPrefix(p.Code, "http_"): // a proxy's page, or another server
		s.notef("  Is %s a fanout API? Set --api or FANOUT_API.", s.API)
	}
	line := fmt.Sprintf("  %s", p.Code)
	if p.Status != 0 {
		line += fmt.Sprintf(", status %d", p.Status)
	}
	if p.RequestID != "" {
		line += ", request " + p.RequestID
	}
	s.notef("%s", line)
}

// tellAway says what was tried and what to set.
func (s *session) tellAway(err error) {
	unsettled := s.answer.unsettled()
	if unsettled {
		s.notef("fanout: %s gave no answer, and whether it was done is not known", s.API)
	} else {
		s.notef("fanout: %s gave no answer", s.API)
	}
	s.notef("  %s: %v", s.answer.tried(), err)
	if s.answer.timedOut() {
		s.notef("  Its time was up: --timeout gives it more than %s.", s.answer.limit)
	}
	if unsettled { // it was there when the change went out
		if _, told := errors.AsType[*hintedError](err); !told {
			s.notef("  Look whether it was done before you do it again.")
		}
		return
	}
	s.notef("  Is the service running there? Set --api or FANOUT_API to its address; `fanout dev` starts one on this machine.")
}
