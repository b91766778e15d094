//go:build chaos

package chaos

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/test/audit"
)

// redriven is a redrive as the API shows it.
type redriven struct {
	ID, State, Stopped string
	EndedAt            time.Time `json:"ended_at"`
	Tally              struct{ Claimed, Waiting, Released, Out, Delivered, Dead, Cancelled, Over int }
}

// A redrive whose processes are killed in turn, and Redis too, loses none of its
// members and delivers each: twice only where a worker died with it. Whenever the guard
// pauses it, an operator lets it go on. The long form:
//
//	make chaos-redrive
func TestRedriveSurvives(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "redrive", cast{apis: 2, dispatchers: 2})
	defer w.close()
	n := flags.redrive
	s := w.newSub("redriven-0", `"redriven"`, 1)
	w.create(s, `{"attempt_timeout":"1s","max_attempts":1,"max_in_flight":64,"backoff_base":"10ms","backoff_cap":"50ms"}`)
	var well atomic.Bool
	w.receivers.hook(s.Name, func(in *request, rw http.ResponseWriter, r *http.Request) {
		if well.Load() { // slowly, so that some are on their way whenever a worker dies
			wait(r, 50*time.Millisecond)
			w.receivers.answer(in, rw, http.StatusOK)
			return
		}
		w.receivers.answer(in, rw, http.StatusUnprocessableEntity)
	})
	w.mustGoOn()
	ids := w.bury(s, n)
	well.Store(true)

	var r redriven
	a := w.insist(http.MethodPost, "/v1/redrives", fmt.Sprintf(
		`{"filter":{"subscriber_id":%q},"reason":"its endpoint is back","max_rate":1000,"attempt_budget":10}`, s.ID), http.StatusCreated)
	r.ID = a.ID
	w.look(&r, func() bool { return r.State == "awaiting_approval" })
	w.insist(http.MethodPost, "/v1/redrives/"+r.ID+"/approve", `{"effect":"the first is there once"}`, http.StatusOK, http.StatusConflict)
	resumed := w.killInTurn(&r)

	if y := r.Tally; r.State != "done" || y.Claimed != n || y.Delivered != n || y.Dead+y.Over+y.Cancelled+y.Waiting+y.Out != 0 {
		w.wrong("the redrive is %+v, want all of %d delivered", r, n)
	}
	w.heal()
	w.check("all")
	w.each(ids)
	w.inAudit(r, resumed)
	w.finish()
	fmt.Printf("chaos: redrive of %d: %s, resumed %d times\n", n, w.summary(), resumed)
}

// bury posts n events to a subscriber that refuses them, and returns the ids of their
// deliveries.
func (w *world) bury(s *sub, n int) []string {
	w.Helper()
	var ids []string
	for at := 0; at < n; at += 1000 {
		var events []string
		for i := at; i < min(at+1000, n); i++ {
			e := &posted{ID: fmt.Sprintf("redriven-%d", i), Type: "redriven", First: time.Now()}
			events = append(events, fmt.Sprintf(`{"id":%q,"type":"redriven","shipment_id":"s","occurred_at":"2026-11-30T12:00:00Z","data":{"n":%d}}`, e.ID, i))
			ids = append(ids, delivery.NewID(e.ID, s.ID))
			w.truth.with(func() { w.truth.events[e.ID] = e })
			figures.events.Add(1)
		}
		a := w.insist(http.MethodPost, "/v1/events/batch", `{"events":[`+strings.Join(events, ",")+`]}`, http.StatusOK)
		var receipt struct{ Accepted int }
		if json.Unmarshal(a.Body, &receipt) != nil || receipt.Accepted != len(events) {
			w.wrong("%d of %d events were accepted", receipt.Accepted, len(events))
		}
	}
	w.truth.with(func() {
		for _, e := range w.truth.events {
			e.Accepted, e.AcceptedAt, e.Last, e.Deliveries = true, time.Now(), time.Now(), 1
		}
	})
	w.quiet()
	w.mustGoOn()
	return ids
}

// look reads a redrive, from whoever answers, until it is as wanted.
func (w *world) look(r *redriven, is func() bool) {
	w.Helper()
	if !until(quietWithin, func() bool { return w.read(r) && is() }) {
		w.wrong("the redrive stays %+v", *r)
		w.mustGoOn()
	}
}

func (w *world) read(r *redriven) bool {
	for _, c := range w.apis() {
		if state, _ := c.look(); state != up {
			continue
		}
		a := w.call(w.ctx, c, http.MethodGet, "/v1/redrives/"+r.ID, "")
		if a.Status == http.StatusOK {
			*r = redriven{}
			return json.Unmarshal(a.Body, r) == nil
		}
	}
	return false
}

// killInTurn kills one after the other until the redrive is done, and says how often it
// had to be resumed.
func (w *world) killInTurn(r *redriven) (resumed int) {
	const alive, dead = 2500 * time.Millisecond, 700 * time.Millisecond
	targets := append([]*child{nil}, w.children...) // nil is Redis
	deadline := time.Now().Add(flags.redriveWithin)
	for turn := 0; ; turn++ {
		for end := time.Now().Add(alive); time.Now().Before(end); pause(w.ctx, 100*time.Millisecond) {
			if !w.read(r) {
				continue
			}
			if r.State == "paused" {
				w.notef("paused: %s", r.Stopped)
				resumed++
				w.insist(http.MethodPost, "/v1/redrives/"+r.ID+"/resume", `{"reason":"it goes on after a kill"}`, http.StatusOK, http.StatusConflict)
			}
			if !r.EndedAt.IsZero() {
				return resumed
			}
		}
		if time.Now().After(deadline) {
			w.wrong("the redrive is not done after %s: %+v", flags.redriveWithin, *r)
			return resumed
		}
		figures.kills.Add(1)
		c := targets[turn%len(targets)]
		if c == nil {
			w.notef("kill -9 of redis at %+v", r.Tally)
			w.hurtRedis(fault{Kind: kill})
			<-time.After(dead)
			w.healRedis(fault{Kind: kill})
			continue
		}
		w.notef("kill -9 of %s at %+v", c.name, r.Tally)
		c.kill9()
		<-time.After(dead)
		if err := c.start(); err != nil {
			w.wrong("%v", err)
		}
	}
}

// each checks that every delivery was delivered, and again only where a lease was lost.
func (w *world) each(ids []string) {
	w.Helper()
	snapshot, err := audit.Read(w.ctx, w.rdb)
	w.ok(err)
	log := w.receivers.requests()
	again := 0
	for _, id := range ids {
		d, taken := snapshot.Deliveries[id], 0
		for _, r := range log[id] {
			if r.Status/100 == 2 {
				taken++
			}
		}
		switch {
		case d == nil || d.State != delivery.Delivered || taken == 0:
			w.wrong("%s was not delivered: %+v, %d times taken", id, d, taken)
		case taken > 1+d.LeaseLosses:
			w.wrong("%s was taken %d times, and its lease lost %d times", id, taken, d.LeaseLosses)
		case d.RedriveGeneration != 1:
			w.wrong("%s was redriven %d times", id, d.RedriveGeneration)
		}
		again += max(taken-1, 0)
	}
	w.notef("%d were sent again where a worker died", again)
}

// inAudit checks that what was done to a redrive is written down.
func (w *world) inAudit(r redriven, resumed int) {
	w.Helper()
	var list struct {
		Data []struct {
			Action, Reason string
			Actor          struct{ ID string }
		}
	}
	seen := map[string]int{}
	if !until(10*time.Second, func() bool {
		a := w.insist(http.MethodGet, "/v1/audit?limit=200&target="+r.ID, "", http.StatusOK)
		clear(seen)
		if json.Unmarshal(a.Body, &list) != nil {
			return false
		}
		for _, e := range list.Data {
			seen[e.Action+" by "+e.Actor.ID]++
			if e.Reason == "" && e.Action != "resumeRedrive" {
				w.wrong("%+v has no reason", e)
			}
		}
		return seen["createRedrive by local"] > 0 && seen["awaitRedriveApproval by guard"] > 0 && seen["endRedrive by guard"] > 0
	}) {
		w.wrong("the audit has %v of a redrive that was resumed %d times", seen, resumed)
	}
	w.notef("the audit has %v", seen)
}
