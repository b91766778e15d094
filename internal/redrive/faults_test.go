package redrive_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/redrive"
	"github.com/fanout/fanout/internal/schedule"
)

var errDied = errors.New("died here")

// flaky is an engine and a store of which one call fails: before it was made, or after,
// its answer lost.
type flaky struct {
	redrive.Letters
	on    bool
	at, n int // the call that fails, and how many were made
	after bool
	where string // the call that failed
}

// dies says whether the call that is about to be made is the one.
func (f *flaky) dies(name string) bool {
	if !f.on {
		return false
	}
	f.n++
	if f.n == f.at {
		f.where = name
	}
	return f.n == f.at
}

func call[T any](f *flaky, name string, do func() (T, error)) (T, error) {
	if !f.dies(name) {
		return do()
	}
	var none T
	if f.after {
		_, _ = do()
	}
	return none, errDied
}

func (f *flaky) Now(ctx context.Context) (time.Time, error) {
	return call(f, "now", func() (time.Time, error) { return f.Letters.Now(ctx) })
}

func (f *flaky) Sample(ctx context.Context, classes []string) (schedule.Sample, error) {
	return call(f, "sample", func() (schedule.Sample, error) { return f.Letters.Sample(ctx, classes) })
}

func (f *flaky) Workers(ctx context.Context) ([]schedule.WorkerReport, error) {
	return call(f, "workers", func() ([]schedule.WorkerReport, error) { return f.Letters.Workers(ctx) })
}

func (f *flaky) Standings(ctx context.Context, ids []string) ([]schedule.Standing, error) {
	return call(f, "standings", func() ([]schedule.Standing, error) { return f.Letters.Standings(ctx, ids) })
}

func (f *flaky) DeadLettersPage(ctx context.Context, sub, after string, limit int) (page []schedule.Evidence, next string, err error) {
	page, err = call(f, "page", func() ([]schedule.Evidence, error) {
		var page []schedule.Evidence
		var err error
		page, next, err = f.Letters.DeadLettersPage(ctx, sub, after, limit)
		return page, err
	})
	return page, next, err
}

func (f *flaky) Deliveries(ctx context.Context, ids []string) ([]delivery.Delivery, error) {
	return call(f, "deliveries", func() ([]delivery.Delivery, error) { return f.Letters.Deliveries(ctx, ids) })
}

func (f *flaky) Claim(ctx context.Context, cohort string, ids []string) ([]schedule.ClaimResult, error) {
	return call(f, "claim", func() ([]schedule.ClaimResult, error) { return f.Letters.Claim(ctx, cohort, ids) })
}

func (f *flaky) Unclaim(ctx context.Context, cohort string, limit int) (int, error) {
	return call(f, "unclaim", func() (int, error) { return f.Letters.Unclaim(ctx, cohort, limit) })
}

func (f *flaky) Redrive(ctx context.Context, cohort string, budget int, within time.Duration, ids []string) ([]schedule.ClaimResult, error) {
	return call(f, "redrive", func() ([]schedule.ClaimResult, error) { return f.Letters.Redrive(ctx, cohort, budget, within, ids) })
}

func (f *flaky) Tally(ctx context.Context, cohort string) (schedule.Tally, error) {
	return call(f, "tally", func() (schedule.Tally, error) { return f.Letters.Tally(ctx, cohort) })
}

func (f *flaky) NextOfCohort(ctx context.Context, cohort string, limit int) ([]string, error) {
	return call(f, "next", func() ([]string, error) { return f.Letters.NextOfCohort(ctx, cohort, limit) })
}

func (f *flaky) OutOfCohort(ctx context.Context, cohort string, limit int) ([]string, error) {
	return call(f, "out", func() ([]string, error) { return f.Letters.OutOfCohort(ctx, cohort, limit) })
}

func (f *flaky) ForgetCohort(ctx context.Context, cohort string) error {
	_, err := call(f, "forget", func() (int, error) { return 0, f.Letters.ForgetCohort(ctx, cohort) })
	return err
}

// The commands of the store fail likewise.
func (f *flaky) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *flaky) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f *flaky) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.Contains(fmt.Sprint(cmd.Args()...), "{fo:redrive}:") {
			return next(ctx, cmd)
		}
		_, err := call(f, "store: "+cmd.Name(), func() (int, error) { return 0, next(ctx, cmd) })
		if errors.Is(err, errDied) {
			cmd.SetErr(err)
		}
		return err
	}
}

// Wherever a runner dies, the next one brings the cohort to its end, and each of its
// members is released once: before and after each call that it makes.
func TestDiesAnywhere(t *testing.T) {
	t.Parallel()
	rdb := server(t)
	w := newWorld(t, rdb)
	f := &flaky{Letters: w.Engine}
	rdb.AddHook(f)
	w.letters = f
	w.restart()
	for at := 1; ; at++ {
		for _, after := range []bool{false, true} {
			f.at, f.n, f.after, f.where = at, 0, after, ""
			w.told = nil
			ids := w.die(fmt.Sprintf("picked%d%tx", at, after), "s1", 3)
			w.dying(f, ids)
			if f.where == "" {
				w.nothingLeft()
				t.Logf("%d calls", at-1)
				if at < 50 {
					t.Error("there should be more")
				}
				return
			}
		}
	}
}

// dying brings a cohort to its end, although its runner dies once.
func (w *world) dying(f *flaky, ids []string) {
	w.Helper()
	id := w.create(order)
	for range 40 {
		w.pass(time.Second)
		f.on = true
		err := w.svc.Step(w.ctx)
		f.on = false
		if err != nil && f.where == "" {
			w.Fatal(err)
		}
		if err != nil {
			w.restart()
		}
		w.serve(always(200))
		v := w.view(id)
		if v.State == redrive.Awaiting {
			w.approve(id)
		}
		if v.Closed {
			break
		}
	}
	v := w.view(id)
	if want := (schedule.Tally{Claimed: 3, Released: 3, Delivered: 3}); !v.Closed || v.State != redrive.Done || v.Tally != want {
		w.Fatalf("died at %d %s, after %v: %s %+v %+v", f.at, f.where, f.after, v.State, v.Tally, v.Cohort)
	}
	w.generations(ids, 1)
	told := map[string]int{}
	for _, a := range w.told {
		told[a.Name]++
	}
	for _, name := range []string{"redrive.await_approval", "redrive.end"} {
		if told[name] < 1 || told[name] > 2 {
			w.Fatalf("died at %d %s, after %v: told %v", f.at, f.where, f.after, told)
		}
	}
	if w.Failed() {
		w.Fatalf("died at %d %s, after %v", f.at, f.where, f.after)
	}
}

// Of two services one is the runner, and the other takes over when it has gone.
func TestOneRunner(t *testing.T) {
	t.Parallel()
	contract(t, func(t *testing.T, w *world) {
		w.die("picked", "s1", 3)
		one, two := w.svc, w.service(w.Engine)
		w.ok(one.Step(w.ctx))
		id := w.create(order)
		w.ok(two.Step(w.ctx))
		w.want(id, redrive.Planning, "")
		w.ok(one.Step(w.ctx))
		w.want(id, redrive.Canary, "")

		// One that ends gives its lease back.
		ctx, cancel := context.WithCancel(w.ctx)
		cancel()
		if err := one.Run(ctx); err != nil {
			t.Fatal(err)
		}
		w.svc = two
		w.step()
		w.serve(always(200))
		w.step()
		w.want(id, redrive.Awaiting, "")

		// One that was frozen, and wakes with what it knew, changes nothing.
		before := w.view(id).Cohort
		w.approve(id)
		if err := two.Stale(w.ctx, before); !errors.Is(err, redrive.ErrVersion) {
			t.Fatalf("a stale change: %v", err)
		}
		if v := w.want(id, redrive.Running, ""); v.Reserved > 100 {
			t.Errorf("%+v", v.Cohort)
		}
		w.finish(id, always(200))
	})
}

// A log that does not take an entry is told again.
func TestTheLogIsToldAgain(t *testing.T) {
	t.Parallel()
	contract(t, func(t *testing.T, w *world) {
		w.die("picked", "s1", 2)
		away, told := true, 0
		w.svc = redrive.New(w.rdb, w.Engine, redrive.Options{ClassOf: func(context.Context, string) (string, error) { return "standard", nil }, Audit: func(context.Context, redrive.Action) error {
			if away {
				return errDied
			}
			told++
			return nil
		}})
		id := w.create(order)
		w.step()
		w.step()
		w.serve(always(404))
		for range 3 {
			w.pass(time.Second)
			if err := w.svc.Step(w.ctx); !errors.Is(err, errDied) {
				t.Fatalf("%v", err)
			}
			w.want(id, redrive.Paused, "the canary failed")
		}
		away = false
		w.step()
		w.step()
		if told != 1 {
			t.Errorf("told %d times", told)
		}
	})
}
