//go:build chaos

package chaos

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/test/audit"
)

// outage is a Redis that takes nothing for a while.
type outage struct {
	name       string
	length     func() time.Duration
	begin, end func(w *world)
	// settles says that what is accepted goes on to its end meanwhile.
	settles bool
	redis   []string
}

func outages() []outage {
	long := func() time.Duration { return flags.outage }
	short := func() time.Duration { return flags.readOnly }
	f := func(k kind) (begin, end func(w *world)) {
		return func(w *world) { w.hurtRedis(fault{Kind: k}) }, func(w *world) { w.healRedis(fault{Kind: k}) }
	}
	all := []outage{
		{name: "gone", length: long},
		{name: "full", length: short, settles: true},
		{name: "read-only", length: short},
		{name: "without replicas", length: short},
		{name: "restarted", length: func() time.Duration { return 0 }, redis: slowLoading},
	}
	for i, k := range []kind{kill, redisFull, redisReadOnly, redisNoReplicas, redisLoading} {
		all[i].begin, all[i].end = f(k)
	}
	return all
}

// Redis takes nothing for a while: both processes stay up, say that they are not
// ready and why, refuse events, and go on by themselves when it is over. What was
// accepted before is delivered, once.
func TestOutages(t *testing.T) {
	t.Parallel()
	for _, o := range outages() {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "outage "+o.name, cast{apis: 1, dispatchers: 1, redis: o.redis})
			defer w.close()
			o.play(w)
			w.finish()
		})
	}
}

func (o outage) play(w *world) {
	healthy, open := w.register("healthy-0"), make(chan struct{})
	out := w.newSub("extra-0", `"in.flight"`, 10) // a request is on its way when the outage begins
	w.create(out, `{"attempt_timeout":"60s","max_attempts":10}`)
	w.receivers.hook(out.Name, func(in *request, rw http.ResponseWriter, r *http.Request) {
		<-open
		w.receivers.answer(in, rw, http.StatusOK)
	})
	w.mustGoOn()
	w.settleIn()
	if o.redis != nil {
		w.makeLoadingSlow()
	}
	rng := stream(1, "outage", 0)
	flying := w.post(w.ctx, rng, "flying", "in.flight")
	id := delivery.NewID(flying.ID, out.ID)
	w.await(id, 1)
	w.setPaused(healthy, true)
	waiting := w.post(w.ctx, rng, "waiting", "fast") // and another waits
	if !flying.Accepted || !waiting.Accepted {
		w.wrong("not accepted before the outage")
	}

	o.begin(w)
	began := time.Now()
	// The endpoint answers while nobody can take its answer down.
	time.AfterFunc(time.Second, func() { close(open) })
	var ends sync.WaitGroup
	if o.length() == 0 { // a restart: the outage is how long it loads
		// The test's Redis may be handled by this goroutine alone, so others look.
		ends.Go(func() { o.watch(w, began, true) })
		o.end(w)
		ends.Wait()
	} else {
		o.watch(w, began, false)
	}
	if o.settles {
		w.setPaused(healthy, false)
		w.awaitState(id, delivery.Delivered)
		w.awaitState(delivery.NewID(waiting.ID, healthy.ID), delivery.Delivered)
	}
	if o.length() > 0 {
		<-time.After(time.Until(began.Add(o.length())))
		o.end(w)
	}
	w.notef("the outage is over")

	w.awaitReady(readyWithin)
	if e := w.post(w.ctx, rng, "after", "fast"); !e.Accepted {
		w.wrong("not accepted after the outage")
	}
	w.resumeAll()
	w.check("all")
	w.awaitState(id, delivery.Delivered)
	if n := len(w.receivers.requests()[id]); n != 1 {
		w.wrong("what was on its way when the outage began was sent %d times", n)
	}
	w.compareResources()
	for _, c := range w.children {
		if c.pid() != c.first {
			w.wrong("%s did not stay up", c.name)
		}
	}
}

// watch checks that everybody is unready and says why, and that events are refused
// throughout. Once is enough where the outage may end at any moment.
func (o outage) watch(w *world, began time.Time, once bool) {
	for _, c := range w.children {
		status, says := 0, ""
		if !until(10*time.Second, func() bool { status, says = w.ready(c); return status == http.StatusServiceUnavailable }) {
			w.wrong("%s says %d %s %s after Redis was %s", c.name, status, says, time.Since(began), o.name)
		}
		if len(strings.Fields(says)) < 4 {
			w.wrong("%s is unready and does not say why: %q", c.name, says)
		}
		w.notef("%s is unready: %s", c.name, says)
	}
	if once {
		return
	}
	e := &posted{ID: "during", Type: "fast", First: time.Now(), Body: `{"id":"during","type":"fast","shipment_id":"s",` +
		`"occurred_at":"2026-11-30T12:00:00Z","data":{}}`}
	w.truth.with(func() { w.truth.events[e.ID] = e })
	refused := 0
	for end := began.Add(o.length() * 3 / 4); time.Now().Before(end) || refused == 0; pause(w.ctx, 300*time.Millisecond) {
		a := w.postOnce(e, w.apis()[0])
		if a.Status != http.StatusServiceUnavailable && a.Err == nil {
			w.wrong("an event was answered %d while Redis was %s: %s", a.Status, o.name, a.Body)
		}
		if a.Status == http.StatusServiceUnavailable {
			refused++
		}
		if status, _ := w.ready(w.dispatchers()[0]); status == http.StatusOK {
			w.wrong("the dispatcher says that it is ready while Redis is %s", o.name)
		}
		if time.Since(began) > o.length()+20*time.Second {
			w.wrong("no post was answered by 503")
			break
		}
	}
	w.notef("%d posts were refused", refused)
}

// await waits until so many requests of a delivery have come.
func (w *world) await(id string, n int) {
	w.Helper()
	if !until(quietWithin, func() bool { return len(w.receivers.requests()[id]) >= n }) {
		w.wrong("%d requests of %s came, want %d", len(w.receivers.requests()[id]), id, n)
		w.mustGoOn()
	}
}

// awaitState waits until a delivery is in a state, and returns it.
func (w *world) awaitState(id string, want delivery.State) *audit.Delivery {
	w.Helper()
	var d *audit.Delivery
	if !until(quietWithin, func() bool {
		s, err := audit.Read(w.ctx, w.rdb)
		if err != nil || s.Deliveries[id] == nil {
			return false
		}
		d = s.Deliveries[id]
		return d.State == want
	}) {
		w.wrong("%s is not %s: %+v", id, want, d)
		w.mustGoOn()
	}
	return d
}
