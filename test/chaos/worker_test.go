//go:build chaos

package chaos

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/delivery"
)

// duel is a world with two dispatchers, of which the first alone runs when the
// event is posted.
type duel struct {
	*world
	first, second *child
	id            string // of the delivery
}

// answers decides how the nth request (from 1) of the duel's delivery is answered.
type answers func(d *duel, n int, in *request, w http.ResponseWriter, r *http.Request)

// newDuel returns when the first request has arrived.
func newDuel(t *testing.T, name, policy string, attempts int, answer answers) *duel {
	t.Helper()
	d := &duel{world: newWorld(t, name, cast{apis: 1, dispatchers: 2})}
	t.Cleanup(d.close)
	d.first, d.second = d.dispatchers()[0], d.dispatchers()[1]
	s := d.newSub("extra-0", `"duel"`, attempts)
	d.create(s, policy)
	d.receivers.hook(s.Name, func(in *request, w http.ResponseWriter, r *http.Request) {
		answer(d, len(d.receivers.requests()[in.ID]), in, w, r)
	})
	d.second.kill9()
	d.id = delivery.NewID("duel", s.ID)
	if e := d.post(d.ctx, stream(1, name, 0), "duel", "duel"); !e.Accepted {
		d.wrong("not accepted")
	}
	d.mustGoOn()
	d.await(d.id, 1)
	return d
}

func (d *duel) startSecond() {
	d.Helper()
	d.ok(d.second.start())
}

// hangs is a policy under which a lease is lost after 16 s.
const hangs = `{"attempt_timeout":"1s","max_attempts":5,"backoff_base":"10ms","backoff_cap":"20ms"}`

// A worker that was stopped past its lease wakes when another has delivered: that
// stays so, and its own verdict is counted as late.
func TestWorkerStoppedPastItsLease(t *testing.T) {
	t.Parallel()
	d := newDuel(t, "stopped worker", hangs, 5, firstHangs)
	d.first.freeze()
	d.startSecond()
	d.awaitState(d.id, delivery.Delivered)
	late := func() float64 {
		return d.metric(d.first, `fanout_settles_total{result="stale"}`) + d.metric(d.first, `fanout_settles_total{result="already"}`)
	}
	d.first.thaw()
	if !until(readyWithin, func() bool { return late() == 1 }) {
		d.wrong("the verdict of the worker that woke was counted as late %v times, want 1", late())
	}
	if got := d.awaitState(d.id, delivery.Delivered); got.DeliveryCount != 2 || got.LeaseLosses != 1 || got.Attempts != 1 {
		d.wrong("%+v", got)
	}
	d.check("all")
	d.finish()
}

// firstHangs lets the first request hang until its sender is gone.
func firstHangs(d *duel, n int, in *request, w http.ResponseWriter, r *http.Request) {
	if n == 1 {
		<-r.Context().Done()
		return
	}
	d.receivers.answer(in, w, http.StatusOK)
}

// A worker that is killed in the middle of the only attempt that a delivery has is
// taken for an accident: the delivery is sent again.
func TestWorkerKilledInTheOnlyAttempt(t *testing.T) {
	t.Parallel()
	d := newDuel(t, "killed worker", strings.Replace(hangs, `"max_attempts":5`, `"max_attempts":1`, 1), 1, firstHangs)
	d.first.kill9()
	d.startSecond()
	if got := d.awaitState(d.id, delivery.Delivered); got.DeliveryCount != 2 || got.LeaseLosses != 1 || got.Attempts != 1 {
		d.wrong("%+v", got)
	}
	d.check("all")
	d.finish()
}

// A delivery that kills each worker that sends it ends all the same: after
// max_attempts + 3 leases, dead-lettered, with all of them in its evidence.
func TestDeliveryThatKillsItsWorkers(t *testing.T) {
	t.Parallel()
	const attempts = 2
	d := newDuel(t, "deadly delivery", strings.NewReplacer(`"max_attempts":5`, `"max_attempts":2`, `{`, `{"breaker_failures":1,`).Replace(hangs),
		attempts, func(d *duel, _ int, _ *request, _ http.ResponseWriter, _ *http.Request) { d.first.kill9() })
	const leases = attempts + delivery.MaxLeaseLosses
	for n := 1; n <= leases; n++ {
		d.await(d.id, n)
		if !until(readyWithin, func() bool { state, _ := d.first.look(); return state == down }) {
			d.wrong("the worker lives")
		}
		d.expireLease(d.id)
		d.ok(d.first.start())
	}
	got := d.awaitState(d.id, delivery.Dead)
	if got.DeliveryCount != leases || got.LeaseLosses != leases || got.Attempts != attempts || got.Reason != delivery.Exhausted {
		d.wrong("%+v", got)
	}
	if n := len(got.History); n != leases {
		d.wrong("%d attempts in the evidence, want %d", n, leases)
	}
	if n := len(d.receivers.requests()[d.id]); n != leases {
		d.wrong("%d requests came, want %d", n, leases)
	}
	d.finish()
}

// metric reads one series of a process; -1 if it is not there.
func (w *world) metric(c *child, series string) float64 {
	a := w.call(w.ctx, c, http.MethodGet, "/metrics", "")
	for line := range strings.Lines(string(a.Body)) {
		if v, ok := strings.CutPrefix(line, series+" "); ok {
			f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
			if err == nil {
				return f
			}
		}
	}
	return -1
}

// expireLease lets the time of a lease pass at once: its worker is dead, and the
// wait would show nothing more.
func (w *world) expireLease(id string) {
	w.Helper()
	keys, err := w.rdb.Keys(w.ctx, "{fo:*}:leases").Result()
	w.ok(err)
	for _, k := range keys {
		w.ok(w.rdb.ZAddXX(w.ctx, k, redis.Z{Score: float64(time.Now().UnixMilli() - 1), Member: id}).Err())
	}
}
