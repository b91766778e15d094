package cli

import (
	"bufio"
	"context"
	"fmt"
	"strings"
)

// confirm asks before what cannot be undone. Only a person at a terminal is asked: a
// script has said what it wants by calling.
func (s *session) confirm(ctx context.Context, yes bool, question string) error {
	if yes || !s.terminal {
		return nil
	}
	_, _ = fmt.Fprintf(s.err, "%s [y/N] ", clean(question))
	said := make(chan string, 1)
	go func() { // a read of a terminal does not end with ctx
		line, _ := bufio.NewReader(s.in).ReadString('\n')
		said <- line
	}()
	select {
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // the caller's own
	case line := <-said:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return &failedError{"nothing was done"}
	}
}
