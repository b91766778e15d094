//go:build chaos

package chaos

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// served is how a subscriber is served, as the API shows it.
type served struct {
	Holds []struct{ Reason, Probe string }

	InFlight    int `json:"in_flight"`
	InFlightCap int `json:"in_flight_cap"`
	Failures    int `json:"consecutive_failures"`
	Pending     int
}

func (w *world) served(s *sub) served {
	w.Helper()
	a := w.insist(http.MethodGet, "/v1/subscribers/"+s.ID, "", http.StatusOK)
	var v struct{ Status served }
	w.ok(json.Unmarshal(a.Body, &v))
	return v.Status
}

// A worker that dies with requests in flight at a healthy endpoint takes none of its
// places with it, and says nothing against it: once its leases are reclaimed all is as
// it was, and what it had out is sent by another.
func TestWorkerKilledWithRequestsInFlight(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "killed in flight", cast{apis: 1, dispatchers: 2})
	defer w.close()
	first, second := w.dispatchers()[0], w.dispatchers()[1]
	second.kill9()
	const most = 4
	s := w.newSub("extra-0", `"flight"`, 5)
	w.create(s, strings.Replace(hangs, "{", fmt.Sprintf(`{"breaker_failures":1,"max_in_flight":%d,`, most), 1))
	rng, n := stream(1, w.name, 0), 0
	post := func() string {
		n++
		e := w.post(w.ctx, rng, fmt.Sprint("flight-", n), "flight")
		if !e.Accepted {
			w.wrong("%s was not accepted", e.ID)
		}
		return delivery.NewID(e.ID, s.ID)
	}
	for range 2 * most { // each success allows more
		w.awaitState(post(), delivery.Delivered)
	}
	w.receivers.hook(s.Name, func(in *request, rw http.ResponseWriter, r *http.Request) {
		if first.pid() == first.first && in.Count == 1 {
			<-r.Context().Done() // until its sender is dead
			return
		}
		w.receivers.answer(in, rw, http.StatusOK)
	})
	var ids []string
	for range most {
		ids = append(ids, post())
	}
	for _, id := range ids {
		w.await(id, 1)
	}
	first.kill9()
	w.ok(second.start())
	if got := w.served(s); got.InFlight != most {
		w.wrong("%+v, want %d in flight until the leases of the dead expire", got, most)
	}
	for _, id := range ids {
		w.expireLease(id)
	}
	for _, id := range ids {
		if d := w.awaitState(id, delivery.Delivered); d.LeaseLosses != 1 || d.Attempts != 1 {
			w.wrong("%+v, want a lease lost and no attempt spent", d)
		}
	}
	if got := w.served(s); got.InFlight != 0 || len(got.Holds) > 0 || got.Failures != 0 || got.InFlightCap != most {
		w.wrong("%+v, want nothing in flight, no hold and the cap %d as before", got, most)
	}
	w.check("all")
	w.finish()
}

// A breaker is not stuck behind a probe whose worker is dead: once its lease is
// reclaimed the next one goes at once, and it is another delivery.
func TestWorkerKilledInAProbe(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "killed in a probe", cast{apis: 1, dispatchers: 2})
	defer w.close()
	first, second := w.dispatchers()[0], w.dispatchers()[1]
	second.kill9()
	s := w.newSub("extra-0", `"probed"`, 5)
	w.create(s, strings.Replace(hangs, "{", `{"breaker_failures":2,`, 1))
	probes := make(chan string, 100) // with the first of them the world changes
	failures := 0
	w.receivers.hook(s.Name, func(in *request, rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		failures++
		n := failures
		w.mu.Unlock()
		if n <= 2 {
			w.receivers.answer(in, rw, http.StatusBadGateway)
			return
		}
		probes <- in.ID
		if n == 3 {
			first.kill9() // the second one to die; nothing runs now
			return
		}
		w.receivers.answer(in, rw, http.StatusOK)
	})
	rng := stream(1, w.name, 0)
	var ids []string
	for i := range 3 {
		e := w.post(w.ctx, rng, fmt.Sprint("probed-", i), "probed")
		ids = append(ids, delivery.NewID(e.ID, s.ID))
	}
	lost := <-probes
	if !until(readyWithin, func() bool { state, _ := first.look(); return state == down }) {
		w.wrong("the worker lives")
	}
	w.ok(second.start())
	if got := w.served(s); got.InFlight != 1 || len(got.Holds) != 1 || got.Holds[0].Probe != lost {
		w.wrong("%+v, want the breaker open, and %s out as its probe", got, lost)
	}
	w.expireLease(lost)
	expired := time.Now()
	for _, id := range ids {
		w.awaitState(id, delivery.Delivered)
	}
	if next := <-probes; next == lost {
		w.wrong("%s was the probe twice running", next)
	}
	w.notef("all were delivered %s after the probe's lease expired", time.Since(expired))
	if got := w.served(s); got.InFlight != 0 || len(got.Holds) > 0 {
		w.wrong("%+v, want nothing in flight and no hold", got)
	}
	w.check("all")
	w.finish()
}
