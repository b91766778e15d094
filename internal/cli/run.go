package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// The exit codes.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnavailable = 3
)

// root is the command line as Run reads it.
type root struct {
	Remote
	Commands
}

// newParser makes the parser of root. Kong calls exit for --help.
func newParser(r *root, out, errs io.Writer, exit func(int)) *kong.Kong {
	k := kong.Must(r, kong.Name("fanout"), kong.Description("Talk to a fanout service over its API."),
		kong.Writers(out, errs), kong.Exit(exit), kong.UsageOnError(), Readers())
	for _, leaf := range k.Model.Leaves(false) {
		leaf.Detail = helpOf(leaf.FullPath())
	}
	return k
}

// Knows says whether the arguments name one of this package's commands, wherever the
// flags stand.
func Knows(args []string) bool {
	t, err := kong.Trace(newParser(new(root), io.Discard, io.Discard, func(int) {}), args)
	if err != nil {
		return false
	}
	for _, p := range t.Path {
		if p.Command != nil {
			return true
		}
	}
	return false
}

// Run runs one command, given without the program's name, and returns the exit code.
// The end of ctx, SIGINT and SIGTERM end it in good order; a second signal kills.
func Run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	ctx, restore := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer restore()
	context.AfterFunc(ctx, restore)
	if _, isFile := out.(*os.File); isFile {
		// A reader that went away must come as an error, not as the end: listen has a
		// subscriber to delete.
		signal.Ignore(syscall.SIGPIPE)
	}
	var r root
	helped := false
	k := newParser(&r, out, errs, func(int) { helped = true })
	kctx, err := k.Parse(args)
	switch {
	case helped:
		return exitOK
	case err != nil:
		return Misread(errs, err)
	}
	s := newSession(r.Remote, in, out, errs)
	defer s.close()
	kctx.BindTo(ctx, (*context.Context)(nil))
	kctx.Bind(s)
	return s.finish(ctx, kctx.Run())
}

// usageError is a command line that reads well and cannot be meant.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usage(format string, a ...any) error { return &usageError{fmt.Sprintf(format, a...)} }

// failedError ends a command that has said all there is to say.
type failedError struct{ text string }

func (e *failedError) Error() string { return e.text }

// finish turns what a command came to into the exit code, and says the error.
func (s *session) finish(ctx context.Context, err error) int {
	switch broken := s.out.failure(); {
	case broken == nil:
	case err == nil && !s.precious && errors.Is(broken, syscall.EPIPE):
		return exitOK // whoever read has seen enough
	case err == nil && !s.precious:
		err = fmt.Errorf("write the answer: %w", broken)
	case err == nil:
		err = fmt.Errorf("it was done, and the answer, which is shown only once, could not be written: %w", broken)
	case errors.Is(err, syscall.EPIPE):
		return exitFailed
	}
	if err == nil {
		return exitOK
	}
	return s.tell(ctx, err)
}
