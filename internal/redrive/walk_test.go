package redrive_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fanout/fanout/internal/redrive"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/test/redistest"
)

// counted is an engine that notes what was released, whoever hears of it.
type counted struct {
	redrive.Letters
	released map[string]int // by cohort and delivery
}

func (c counted) Redrive(ctx context.Context, cohort string, budget int, within time.Duration, ids []string) ([]schedule.ClaimResult, error) {
	results, err := c.Letters.Redrive(ctx, cohort, budget, within, ids)
	for i, r := range results {
		if r == schedule.Released {
			c.released[cohort+" "+ids[i]]++
		}
	}
	return results, err
}

// walker does what people, receivers and deaths may do, in any order.
type walker struct {
	*world
	f        *flaky
	released map[string]int
	events   int
	deleted  []string
	old      []schedule.Leased // leases whose deliveries have died: their answers may come late
	cohorts  []string
}

var subscribers = []string{"s1", "s2", "s3"}

// Whatever happens, in the end every cohort has ended, nothing is claimed, each dead
// letter was released once by a cohort at most, and the ledger and the places are right.
func TestWalk(t *testing.T) {
	t.Parallel()
	rdb := server(t)
	f := &flaky{}
	rdb.AddHook(f)
	rapid.Check(t, func(rt *rapid.T) {
		if err := redistest.Flush(t.Context(), rdb); err != nil {
			t.Fatal(err)
		}
		w := &walker{world: newWorld(t, rdb), f: f, released: map[string]int{}}
		f.Letters, f.on = counted{w.Engine, w.released}, false
		w.letters = f
		w.restart()
		w.events = 0
		actions := map[string]func(*rapid.T){
			"die": w.dies, "create": w.creates, "step": w.steps, "step again": w.steps, "serve": w.serves, "serve well": w.servesWell,
			"decide": w.decides, "approve": w.approves, "hold": w.holds, "late": w.late, "cancel": w.cancels, "delete": w.deletes,
			"wait": func(rt *rapid.T) { w.pass(time.Duration(rapid.IntRange(1, 5000).Draw(rt, "seconds")) * time.Second) },
		}
		w.dies(rt)
		w.creates(rt)
		names := make([]string, 0, len(actions))
		for name := range actions {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range rapid.SliceOfN(rapid.SampledFrom(names), 5, 40).Draw(rt, "actions") {
			actions[name](rt)
		}
		w.ends(rt)
	})
}

func (w *walker) alive(rt *rapid.T) (string, bool) {
	left := slices.DeleteFunc(slices.Clone(subscribers), func(s string) bool { return slices.Contains(w.deleted, s) })
	if len(left) == 0 {
		return "", false
	}
	return rapid.SampledFrom(left).Draw(rt, "subscriber"), true
}

func (w *walker) dies(rt *rapid.T) {
	sub, ok := w.alive(rt)
	for range rapid.IntRange(1, 6).Draw(rt, "letters") {
		if !ok {
			return
		}
		w.post(fmt.Sprint("picked", w.events), sub)
		w.events++
		w.pass(time.Millisecond)
		for _, l := range w.leased() {
			w.settle(l, 404)
			w.old = append(w.old, l)
		}
	}
}

func (w *walker) creates(rt *rapid.T) {
	o := redrive.Order{
		Reason: "a walk", MaxRate: rapid.SampledFrom([]float64{0.3, 1, 50}).Draw(rt, "rate"),
		Canaries: rapid.IntRange(1, 3).Draw(rt, "canaries"), Budget: rapid.IntRange(1, 3).Draw(rt, "budget"),
	}
	switch rapid.IntRange(0, 3).Draw(rt, "which") {
	case 1:
		o.Filter.SubscriberID = rapid.SampledFrom(subscribers).Draw(rt, "of")
	case 2:
		for range min(4, len(w.old)) {
			o.IDs = append(o.IDs, rapid.SampledFrom(w.old).Draw(rt, "id").ID)
		}
	case 3:
		o.Filter = redrive.Filter{Class: "standard", EventType: "shipment.picked"}
	}
	w.cohorts = append(w.cohorts, w.create(o))
}

// steps moves the cohorts, or dies at a call on the way.
func (w *walker) steps(rt *rapid.T) {
	w.pass(time.Second)
	w.f.at, w.f.n, w.f.where = rapid.IntRange(0, 40).Draw(rt, "dies at"), 0, ""
	w.f.after = rapid.Bool().Draw(rt, "after it")
	w.f.on = true
	err := w.svc.Step(w.ctx)
	w.f.on = false
	if err != nil && w.f.where == "" {
		rt.Fatal(err)
	}
	if err != nil {
		w.restart()
	}
	w.f.at = 0
}

func (w *walker) serves(rt *rapid.T) {
	w.serve(func(l schedule.Leased) int {
		w.old = append(w.old, l)
		return rapid.SampledFrom([]int{200, 200, 404, 503}).Draw(rt, "answer")
	})
}

func (w *walker) servesWell(*rapid.T) { w.serve(always(200)) }

// decides has an operator do something to a cohort, allowed or not.
func (w *walker) decides(rt *rapid.T) {
	id := rapid.SampledFrom(w.cohorts).Draw(rt, "cohort")
	var err error
	switch rapid.IntRange(0, 2).Draw(rt, "what") {
	case 0:
		_, err = w.svc.Pause(w.ctx, id, "key_1", "so it came to me")
	case 1:
		_, err = w.svc.Resume(w.ctx, id, "it is mended")
	case 2:
		_, err = w.svc.Abort(w.ctx, id, "key_1", "so it came to me")
	}
	if err != nil && !errors.Is(err, redrive.ErrState) {
		rt.Fatal(err)
	}
}

func (w *walker) approves(rt *rapid.T) {
	for _, id := range w.cohorts {
		if _, err := w.svc.Approve(w.ctx, id, "key_1", "seen in their system"); err != nil && !errors.Is(err, redrive.ErrState) {
			rt.Fatal(err)
		}
	}
}

func (w *walker) holds(rt *rapid.T) {
	if sub, ok := w.alive(rt); ok {
		on := rapid.Bool().Draw(rt, "on hold")
		w.terms(sub, func(tm *schedule.Terms) { tm.Paused = on })
	}
}

// late has a receiver's success come after the verdict.
func (w *walker) late(rt *rapid.T) {
	if len(w.old) > 0 {
		w.settle(rapid.SampledFrom(w.old).Draw(rt, "lease"), 200)
	}
}

func (w *walker) cancels(rt *rapid.T) {
	if len(w.old) > 0 {
		id := rapid.SampledFrom(w.old).Draw(rt, "delivery").ID
		if _, err := w.CancelDelivery(w.ctx, id); err != nil && !errors.Is(err, schedule.ErrFinal) {
			rt.Fatal(err)
		}
	}
}

func (w *walker) deletes(rt *rapid.T) {
	if sub, ok := w.alive(rt); ok && rapid.IntRange(0, 3).Draw(rt, "really") == 0 {
		w.ok(w.Tombstone(w.ctx, sub, ""))
		delete(w.class, sub)
		_, _, _, err := w.CancelPending(w.ctx, sub, 1000)
		w.ok(err)
		w.deleted = append(w.deleted, sub)
	}
}

// ends has an operator bring all to its end, and checks what must hold then.
func (w *walker) ends(rt *rapid.T) {
	for _, sub := range subscribers {
		if !slices.Contains(w.deleted, sub) {
			w.terms(sub, func(*schedule.Terms) {})
		}
	}
	for i := 0; ; i++ {
		open := 0
		for _, id := range w.cohorts {
			v := w.view(id)
			if v.Closed {
				continue
			}
			open++
			switch v.State {
			case redrive.Awaiting:
				w.approve(id)
			case redrive.Paused:
				_, err := w.svc.Resume(w.ctx, id, "it is mended")
				w.ok(err)
			case redrive.Planning, redrive.Canary, redrive.Running, redrive.Done, redrive.Aborted:
			}
			if i > 400 {
				rt.Fatalf("it never ends: %+v %+v", v.Cohort, v.Tally)
			}
		}
		if open == 0 {
			break
		}
		w.serve(always(200))
		if i%20 == 10 {
			w.pass(2 * time.Hour) // for retries
			w.serve(always(200))
		}
		w.step()
	}
	w.nothingLeft()
	released := int64(0)
	for _, id := range w.cohorts {
		v := w.view(id)
		released += v.Tally.Released
		if t := v.Tally; t.Waiting() < 0 || t.Claimed != v.Matched-v.Skipped {
			rt.Fatalf("%+v of %d, %d skipped", t, v.Matched, v.Skipped)
		}
	}
	for what, n := range w.released {
		if n > 1 {
			rt.Fatalf("%s was released %d times", what, n)
		}
	}
	if released != int64(len(w.released)) {
		rt.Fatalf("%d are counted, %d were released", released, len(w.released))
	}
}
