package redrive_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/fault"
	"github.com/fanout/fanout/internal/redrive"
	"github.com/fanout/fanout/internal/schedule"
)

// The whole road: planned, a canary, an approval, a ramp, and done.
func TestTheWholeRoad(t *testing.T) {
	t.Parallel()
	contract(t, func(t *testing.T, w *world) {
		ids := w.die("picked", "s1", 30)
		w.pass(72 * time.Hour) // long past their max_age
		id := w.create(redrive.Order{Reason: "their deploy was bad", MaxRate: 5})
		w.want(id, redrive.Planning, "")
		w.step()
		if v := w.want(id, redrive.Canary, ""); v.Matched != 30 || v.Skipped != 0 || v.Tally.Waiting() != 30 {
			t.Fatalf("%+v", v)
		}
		w.step()
		if sent := w.serve(always(200)); !slices.Equal(sent, ids[:1]) {
			t.Fatalf("sent %v, want the one that died first", sent)
		}
		w.step()
		v := w.want(id, redrive.Awaiting, "")
		if !v.CanaryPassed || len(v.Canaries) != 1 || v.Canaries[0].State != delivery.Delivered || v.Canaries[0].RedriveGeneration != 1 {
			t.Fatalf("%+v", v.Canaries)
		}
		for range 5 { // nobody approves
			w.step()
			if sent := w.serve(always(200)); len(sent) > 0 {
				t.Fatalf("sent %v without an approval", sent)
			}
		}
		var invalid *fault.Invalid
		if _, err := w.svc.Approve(w.ctx, id, "key_1", " "); !errors.As(err, &invalid) {
			t.Fatalf("approved without a sentence: %v", err)
		}
		w.want(id, redrive.Awaiting, "")
		w.approve(id)
		var rates []int
		for w.view(id).State == redrive.Running {
			w.step()
			rates = append(rates, len(w.serve(always(200))))
		}
		if total := sum(rates); total != 29 || slices.Max(rates) > 5 || rates[1] > 1 || len(rates) > 25 {
			t.Errorf("released %v a second", rates)
		}
		v = w.want(id, redrive.Done, "")
		if want := (schedule.Tally{Claimed: 30, Released: 30, Delivered: 30}); v.Tally != want || !v.Closed {
			t.Errorf("%+v", v.Tally)
		}
		w.generations(ids, 1)
		w.nothingLeft()
		var told []string
		for _, a := range w.told {
			told = append(told, a.Name)
		}
		if diff := cmp.Diff([]string{"redrive.await_approval", "redrive.end"}, told); diff != "" {
			t.Error(diff)
		}
		if left, err := w.svc.List(w.ctx, "", 10); err != nil || len(left) != 1 || left[0].ID != id {
			t.Errorf("listed %v, %v", left, err)
		}
	})
}

func sum(ns []int) (total int) {
	for _, n := range ns {
		total += n
	}
	return total
}

// A cohort has those that its filter is for, and that were dead when it was made.
func TestPlanning(t *testing.T) {
	t.Parallel()
	contract(t, func(t *testing.T, w *world) {
		a := w.die("picked", "s1", 3)
		w.pass(time.Hour)
		since := w.now
		w.class["s2"] = "gold"
		b := w.die("lost", "s2", 2)
		w.pass(time.Hour)
		until := w.now
		w.post("gone0", "s3")
		w.serve(always(404))
		c := []string{delivery.NewID("gone0", "s3")}
		tests := []struct {
			name   string
			filter redrive.Filter
			ids    []string
			want   []string
		}{
			{"all", redrive.Filter{}, nil, slices.Concat(a, b, c)},
			{"of a subscriber", redrive.Filter{SubscriberID: "s2"}, nil, b},
			{"of a class", redrive.Filter{Class: "gold"}, nil, b},
			{"by outcome", redrive.Filter{Outcome: delivery.HTTP404}, nil, nil},
			{"by reason", redrive.Filter{Reason: delivery.Exhausted}, nil, slices.Concat(a, b, c)},
			{"by event type", redrive.Filter{EventType: "shipment.lost"}, nil, b},
			{"of no event type", redrive.Filter{EventType: "shipment"}, nil, nil},
			{"since", redrive.Filter{Since: since}, nil, slices.Concat(b, c)},
			{"until", redrive.Filter{Until: since}, nil, a},
			{"between", redrive.Filter{Since: since, Until: until}, nil, b},
			{"all that there is", redrive.Filter{SubscriberID: "s1", Class: "standard", EventType: "shipment.picked", Outcome: delivery.HTTP5xx}, nil, a},
			{"named", redrive.Filter{}, []string{b[1], a[0], delivery.NewID("never", "s1"), b[1]}, []string{a[0], b[1]}},
		}
		for _, tt := range tests {
			o := redrive.Order{Reason: "a test of filters", Filter: tt.filter, IDs: tt.ids}
			p, err := w.svc.Preview(w.ctx, o)
			w.ok(err)
			id := w.create(o)
			w.step()
			members, err := w.NextOfCohort(w.ctx, id, 100)
			w.ok(err)
			if !slices.Equal(members, tt.want) || p.Matching != int64(len(tt.want)) {
				t.Errorf("%s: members %v, %d in the preview, want %v", tt.name, members, p.Matching, tt.want)
			}
			w.audit()
			if _, err = w.svc.Abort(w.ctx, id, "key_1", "only planned"); len(tt.want) > 0 {
				w.ok(err)
			}
			w.step()
			w.nothingLeft()
		}
	})
}

// What dies after a cohort was made is none of it, even if it is planned later.
func TestMembershipIsFrozen(t *testing.T) {
	t.Parallel()
	contract(t, func(t *testing.T, w *world) {
		ids := w.die("picked", "s1", 2)
		w.pass(time.Second)
		id := w.create(order)
		w.pass(time.Millisecond)
		w.die("late", "s1", 2)
		w.step()
		w.die("later", "s1", 2)
		w.step()
		members, err := w.NextOfCohort(w.ctx, id, 100)
		w.ok(err)
		out, err := w.OutOfCohort(w.ctx, id, 100)
		w.ok(err)
		if got := slices.Concat(out, members); !slices.Equal(got, ids) {
			t.Errorf("members %v, want %v", got, ids)
		}
	})
}

// A dead letter is in one live cohort only, and is another's when that has ended.
func TestOneLiveCohort(t *testing.T) {
	t.Parallel()
	contract(t, func(t *testing.T, w *world) {
		ids := w.die("picked", "s1", 3)
		first := w.create(order)
		w.step()
		second := w.create(order)
		w.step()
		v := w.want(second, redrive.Done, "")
		if v.Matched == 0 || v.Matched != v.Skipped {
			t.Fatalf("%+v", v.Cohort)
		}
		pending := w.post("fresh0", "s1")
		refused := w.create(redrive.Order{Reason: "one by name", IDs: []string{pending, ids[2]}})
		w.step()
		if v := w.want(refused, redrive.Done, ""); v.Matched != 2 || v.Skipped != 2 {
			t.Fatalf("while a retry is pending: %+v", v.Cohort)
		}
		_, err := w.svc.Abort(w.ctx, first, "key_1", "the other one is to have them")
		w.ok(err)
		w.serve(always(200))
		w.step()
		v = w.want(first, redrive.Aborted, "the other one")
		if v.Tally.LetGo != 2 || v.Tally.Delivered != 1 {
			t.Fatalf("%+v", v.Tally)
		}
		third := w.create(order)
		w.toRunning(third)
		w.finish(third, always(200))
		w.generations(ids, 1)
		w.nothingLeft()
	})
}

// Twice in succession, and old: an attempt budget and a time of its own each.
func TestTwiceInSuccession(t *testing.T) {
	t.Parallel()
	contract(t, func(t *testing.T, w *world) {
		ids := w.die("picked", "s1", 3)
		for generation := 1; generation <= 2; generation++ {
			w.pass(48 * time.Hour)
			id := w.create(order)
			w.toRunning2(id)
			failing := generation == 1
			w.finish(id, func(schedule.Leased) int {
				if failing {
					return 404
				}
				return 200
			})
			v := w.view(id)
			if failing && v.Tally.Dead != 2 || !failing && v.Tally.Delivered != 2 {
				t.Fatalf("generation %d: %+v", generation, v.Tally)
			}
			if expired, _, err := w.ExpiredDeliveries(w.ctx, 10); err != nil || len(expired) > 0 {
				t.Fatalf("%d expired at once, %v", len(expired), err)
			}
			w.nothingLeft()
		}
		w.generations(ids[:1], 1)
		w.generations(ids[1:], 2)
		d, err := w.Delivery(w.ctx, ids[2])
		w.ok(err)
		if d.Attempts != 3 || d.DeliveryCount != 3 {
			t.Errorf("its history does not go on: %+v", d)
		}
	})
}

// toRunning2 lets the canary pass if there is one to be had.
func (w *world) toRunning2(cohort string) {
	w.Helper()
	for range 10 {
		w.step()
		switch w.view(cohort).State {
		case redrive.Awaiting:
			w.approve(cohort)
			return
		case redrive.Canary:
			w.serve(always(200))
		case redrive.Planning, redrive.Running, redrive.Paused, redrive.Done, redrive.Aborted:
		}
		if w.view(cohort).State == redrive.Done {
			return
		}
	}
}

func TestAbort(t *testing.T) {
	t.Parallel()
	contract(t, func(t *testing.T, w *world) {
		id, ids := w.running(30, order)
		w.step()
		w.step()
		leased := w.leased()
		if len(leased) == 0 {
			t.Fatal("nothing is out")
		}
		_, err := w.svc.Abort(w.ctx, id, "key_2", "it was the wrong cohort")
		w.ok(err)
		w.step()
		v := w.want(id, redrive.Aborted, "the wrong cohort")
		if !v.EndedAt.IsZero() || v.Tally.Waiting() != 0 || v.Tally.Out() != int64(len(leased)) {
			t.Fatalf("%+v", v.Tally)
		}
		for _, l := range leased { // what is out goes on
			w.settle(l, 200)
		}
		w.step()
		v = w.want(id, redrive.Aborted, "the wrong cohort")
		if v.EndedAt.IsZero() || v.Tally.Delivered != int64(1+len(leased)) || v.Tally.LetGo != int64(29-len(leased)) || v.StoppedBy != "key_2" {
			t.Fatalf("%+v", v)
		}
		w.nothingLeft()
		if d, err := w.Delivery(w.ctx, ids[29]); err != nil || d.State != delivery.Dead {
			t.Fatalf("%+v, %v", d, err)
		}
	})
}

// Pause stops the release at once, and resume goes on slowly.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *testing.T, w *world) {
		id, _ := w.running(300, order)
		for range 20 {
			w.step()
			w.serve(always(200))
		}
		if v := w.view(id); v.Rate < 10 {
			t.Fatalf("rate %f", v.Rate)
		}
		_, err := w.svc.Pause(w.ctx, id, "key_2", "a look at their logs")
		w.ok(err)
		before := w.view(id).Tally
		for range 3 {
			w.step()
			if sent := w.serve(always(200)); len(sent) > 0 {
				t.Fatalf("%d released while paused: %+v %+v", len(sent), before, w.view(id).Tally)
			}
		}
		w.want(id, redrive.Paused, "a look")
		_, err = w.svc.Resume(w.ctx, id, "it is mended")
		w.ok(err)
		sent := 0
		for range 4 {
			w.step()
			sent += len(w.serve(always(200)))
		}
		if sent < 2 || sent > 6 {
			t.Errorf("%d in the first seconds after it was resumed", sent)
		}
		w.finish(id, always(200))
		w.nothingLeft()
	})
}

func TestWhatIsNotThere(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *testing.T, w *world) {
		for name, call := range map[string]func() error{
			"get":     func() error { _, err := w.svc.Get(w.ctx, "rdv_none"); return err },
			"approve": func() error { _, err := w.svc.Approve(w.ctx, "rdv_none", "k", "seen it"); return err },
			"pause":   func() error { _, err := w.svc.Pause(w.ctx, "rdv_none", "k", "why not"); return err },
			"resume":  func() error { _, err := w.svc.Resume(w.ctx, "rdv_none", "it is mended"); return err },
			"abort":   func() error { _, err := w.svc.Abort(w.ctx, "rdv_none", "k", "why not"); return err },
			"list":    func() error { _, err := w.svc.List(w.ctx, "rdv_none", 10); return err },
		} {
			if err := call(); !errors.Is(err, redrive.ErrNotFound) {
				t.Errorf("%s: %v", name, err)
			}
		}
		id := w.create(order)
		for name, err := range map[string]error{
			"pause": second(w.svc.Pause(w.ctx, id, "k", "")), "abort": second(w.svc.Abort(w.ctx, id, "k", "\n")),
		} {
			if invalid := (*fault.Invalid)(nil); !errors.As(err, &invalid) || invalid.Fields[0].Pointer != "/reason" {
				t.Errorf("%s without a reason: %v", name, err)
			}
		}
		w.step()
		if v := w.want(id, redrive.Done, ""); v.Tally != (schedule.Tally{}) {
			t.Errorf("with nobody in it: %+v", v)
		}
		var all []string
		for range 5 {
			w.pass(time.Millisecond)
			all = append(all, w.create(order))
		}
		page, err := w.svc.List(w.ctx, all[4], 3)
		w.ok(err)
		if len(page) != 3 || page[0].ID != all[3] || page[2].ID != all[1] {
			t.Errorf("%+v", page)
		}
		for range redrive.MaxLive - 5 {
			w.create(order)
		}
		if _, err := w.svc.Create(w.ctx, order, "k"); !errors.Is(err, redrive.ErrTooMany) {
			t.Errorf("one more than may be under way: %v", err)
		}
	})
}

func second[T any](_ T, err error) error { return err }
