package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os/signal"
	"syscall"
	"time"
)

// Stage is one part of a process.
type Stage struct {
	Name string
	// Run works until ctx ends, then finishes what it holds and returns. A return
	// before that, with or without an error, stops the whole process.
	Run func(ctx context.Context) error
	// Grace bounds the finishing; 0 means 10 s. A stage that needs longer is left
	// behind, and named in the error.
	Grace time.Duration
}

// Run starts all stages at once and ends them one after the other, in the order
// given, on SIGINT or SIGTERM, when ctx ends, or when any of them returns. A
// second signal kills the process at once.
//
// The order to give, and why: first what lets work in (the API: nothing new is
// accepted that could not be seen through), then what works (leasing stops,
// attempts in flight are settled), then what observes (samplers, the metrics
// listener: the stop itself can be watched), last what all of them stand on (a
// child Redis). It returns the stages' errors, joined.
func Run(ctx context.Context, logger *slog.Logger, stages ...Stage) error {
	ctx, restore := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer restore()
	base := context.WithoutCancel(ctx) // a signal must not reach all stages at once
	var all []*running
	ended := make(chan string, len(stages))
	for _, s := range stages {
		all = append(all, s.start(base, ended))
	}

	select {
	case <-ctx.Done():
		logger.Info("stopping; a second signal kills at once", "cause", context.Cause(ctx))
	case name := <-ended:
		logger.Info("stopping", "cause", "stage ended", "stage", name)
	}
	restore() // from here on a signal has its default effect: it kills
	var errs []error
	for _, r := range all {
		errs = append(errs, r.stop(logger))
	}
	return errors.Join(errs...)
}

type running struct {
	Stage
	cancel context.CancelFunc
	done   chan error
}

func (s Stage) start(ctx context.Context, ended chan<- string) *running {
	ctx, cancel := context.WithCancel(ctx)
	r := &running{Stage: s, cancel: cancel, done: make(chan error, 1)}
	if r.Grace == 0 {
		r.Grace = 10 * time.Second
	}
	go func() {
		r.done <- s.Run(ctx)
		ended <- s.Name
	}()
	return r
}

func (r *running) stop(logger *slog.Logger) error {
	begin := time.Now()
	r.cancel()
	timer := time.NewTimer(r.Grace)
	defer timer.Stop()
	select {
	case err := <-r.done:
		logger.Info("stopped", "stage", r.Name, "took_ms", time.Since(begin).Milliseconds())
		if err != nil && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("%s: %w", r.Name, err)
		}
		return nil
	case <-timer.C:
		return fmt.Errorf("%s: did not stop within %s", r.Name, r.Grace)
	}
}

// serveGrace is how long requests under way may take to finish; below the 10 s
// that a stage has.
const serveGrace = 8 * time.Second

// Serve has srv answer on ln until ctx ends, then lets requests under way finish
// for up to 8 s. The time limits of requests are srv's own.
func Serve(ctx context.Context, ln net.Listener, srv *http.Server) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	srv.BaseContext = func(net.Listener) context.Context { return base }
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	grace, stop := context.WithTimeout(base, serveGrace)
	defer stop()
	if err := srv.Shutdown(grace); err != nil {
		return errors.Join(fmt.Errorf("shut down %s: %w", ln.Addr(), err), srv.Close())
	}
	return nil
}
