//go:build crash

package crash

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/test/audit"
	"github.com/fanout/fanout/test/redistest"
)

const (
	// diesWithin bounds the way to a point: one that follows an expired lease comes
	// after 17 s on an idle machine.
	diesWithin = 90 * time.Second
	// healsWithin bounds the end of everything: leases that the dead left expire
	// after 17 s, and may do so twice.
	healsWithin = 120 * time.Second
)

// policy has the shortest lease that makes sense: 2 s, and 15 s to settle. Endpoints
// that refuse a delivery once may do so many times in a row, and are not to be rested
// for that; the breaker of the one that always fails opens all the same.
const policy = `{"attempt_timeout":"2s","max_attempts":50,"breaker_failures":40,"backoff_base":"50ms","backoff_cap":"200ms"}`

// scenario is how a point is reached.
type scenario struct {
	nth         int    // at which pass the process dies; 0 is the 25th
	via         string // a point at which a life before died, to leave something to finish
	subscribers int    // 0 is 4
	partitions  int    // 0 is 4
	// provoke does what it takes, beside events, once the process runs that will die.
	provoke func(r *run)
	// calm undoes it once the process has died.
	calm func(r *run)
}

var scenarios = map[string]scenario{
	// More subscribers in a partition than a chunk holds.
	"api.enqueue.chunk": {nth: 1, subscribers: schedule.ChunkSize + 20, partitions: 1},
	// An event whose expansion was cut off is resumed 10 s later.
	"api.resume.claimed":  {nth: 1, via: "api.enqueue.before"},
	"api.tombstone.after": {nth: 1, provoke: (*run).deleteNever},
	"api.cancel.after":    {nth: 1, provoke: (*run).deleteNever},
	"api.trim.before":     {nth: 1},
	"api.trim.after":      {nth: 1},
	// Whose config cannot be read is handed back.
	"dispatcher.release.before": {nth: 1, provoke: (*run).damageConfig, calm: (*run).repairConfig},
	"dispatcher.release.after":  {nth: 1, provoke: (*run).damageConfig, calm: (*run).repairConfig},
	// A lease that a dead worker left is reclaimed.
	"dispatcher.reclaim.before": {nth: 1, via: "dispatcher.send.before"},
	"dispatcher.reclaim.after":  {nth: 1, via: "dispatcher.send.before"},
}

// run is one point under one setting of Redis.
type run struct {
	*testing.T
	scenario
	point  string
	always bool // appendfsync always; else everysec, and a power cut with the death

	redis      *redistest.Redis
	rdb        *redis.Client
	engine     *schedule.Engine
	receiver   *receiver
	producer   *producer
	api        *process
	dispatcher *process

	never   string // a subscriber that answers 503 for ever
	config  string // the key of a config that was damaged
	blob    string // and what it held
	deleted bool
}

func (r *run) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// url is the API's; a test that outlives one of its lives asks again.
func (r *run) url() string { addr, _ := r.api.said(); return "http://" + addr }

func (r *run) redisArgs() []string {
	return []string{
		"--listen=127.0.0.1:0", "--redis-addr=" + r.redis.Addr(), "--redis-partitions=" + strconv.Itoa(r.partitions),
		"--allow-http", "--allow-any-port", "--allow-cidr=127.0.0.1/32",
	}
}

func (r *run) startAPI(at string) {
	r.Helper()
	p, err := start("fanout", at, append([]string{"serve"}, r.redisArgs()...)...)
	r.ok(err)
	r.Cleanup(p.kill)
	r.api = p
}

func (r *run) startDispatcher(at string) {
	r.Helper()
	p, err := start("dispatcher", at, append(r.redisArgs(), "--slots=30", "--grace=5s")...)
	r.ok(err)
	r.Cleanup(p.kill)
	r.dispatcher = p
}

// walk kills the process at the point, heals everything, and says what is wrong.
func (r *run) walk() (accepted, lost int, violations []string) {
	r.prepare()
	if r.via != "" {
		r.die(r.via, 10)
	}
	r.die(r.point, r.nth)
	if !r.always {
		r.redis.Kill9()
		r.ok(powerCut(r.redis.Dir(), time.Now()))
		r.redis.Restart()
	}
	if r.calm != nil {
		r.calm(r)
	}
	if strings.HasPrefix(r.point, "api.") {
		r.startAPI("")
	} else {
		r.startDispatcher("")
	}
	r.heal()
	r.ok(r.dispatcher.stop()) // so that nothing is sent while the accounts are read
	r.ok(r.api.stop())
	return r.check()
}

// prepare starts everything and registers the subscribers.
func (r *run) prepare() {
	if r.subscribers == 0 {
		r.subscribers = 4
	}
	if r.partitions == 0 {
		r.partitions = 4
	}
	if r.nth == 0 {
		r.nth = 25
	}
	fsync := redistest.Args("--aof-timestamp-enabled", "yes")
	if r.always {
		fsync = redistest.AOFAlways()
	}
	r.redis = redistest.Server(r, fsync)
	r.rdb = r.redis.Client()
	r.receiver = newReceiver()
	r.Cleanup(r.receiver.Close)
	r.producer = &producer{accepted: map[string]int{}, doubt: map[string]bool{}}
	var err error
	r.engine, err = schedule.Open(r.Context(), r.rdb, schedule.Options{Partitions: r.partitions})
	r.ok(err)
	r.startAPI("")
	for i := range r.subscribers {
		r.subscribe(fmt.Sprintf("/%d", i))
	}
	r.never = r.subscribe("/never")
	r.startDispatcher("")
	for i := range 5 { // so that there is something before
		if status := r.producer.post(r.Context(), r.url(), fmt.Sprintf("first-%d", i)); status != http.StatusAccepted {
			r.Fatalf("post to a service that is well: %d", status)
		}
	}
	if strings.HasPrefix(r.point, "api.") {
		r.ok(r.api.stop())
	} else {
		r.ok(r.dispatcher.stop())
	}
}

func (r *run) subscribe(path string) string {
	r.Helper()
	var sub struct{ ID string }
	body := fmt.Sprintf(`{"account":"a","name":"n","url":%q,"filter":{"types":["crash"]},"policy":%s}`, r.receiver.URL+path, policy)
	status, err := call(r.Context(), http.MethodPost, r.url()+"/v1/subscribers", body, &sub)
	r.ok(err)
	if status != http.StatusCreated {
		r.Fatalf("register: %d", status)
	}
	return sub.ID
}

// die runs the process until it dies at the nth pass of a point, under events.
func (r *run) die(point string, nth int) {
	r.Helper()
	at := fmt.Sprintf("%s#%d", point, nth)
	var p *process
	if strings.HasPrefix(point, "api.") {
		r.startAPI(at)
		p = r.api
	} else {
		r.startDispatcher(at)
		p = r.dispatcher
	}
	ctx, cancel := context.WithTimeout(r.Context(), diesWithin)
	defer cancel()
	drove := make(chan struct{})
	go func() { r.producer.drive(ctx, r.url); close(drove) }()
	if r.provoke != nil && point == r.point {
		r.provoke(r)
	}
	select {
	case <-p.exited:
	case <-ctx.Done():
	}
	cancel()
	<-drove
	if _, crashed := p.said(); !p.gone() || crashed != point {
		r.Fatalf("the process did not die at %s within %s, but at %q:\n%s", at, diesWithin, crashed, p.tail())
	}
}

// deleteNever deletes the subscriber that has pending deliveries. The answer may
// never come.
func (r *run) deleteNever() {
	r.until("it has pending deliveries", func() bool {
		r.receiver.mu.Lock()
		defer r.receiver.mu.Unlock()
		return len(r.receiver.requests) > 20
	})
	r.deleted = true
	_, _ = call(r.Context(), http.MethodDelete, r.url()+"/v1/subscribers/"+r.never, "", nil)
}

// damageConfig makes the newest version of a subscriber unreadable.
func (r *run) damageConfig() {
	ctx := r.Context()
	r.config = r.rdb.Keys(ctx, "*:cfg:"+r.never).Val()[0]
	r.blob = r.rdb.Get(ctx, r.config).Val()
	r.ok(r.rdb.Set(ctx, r.config, "damaged", 0).Err())
	r.ok(r.rdb.HIncrBy(ctx, strings.Replace(r.config, ":cfg:", ":sub:", 1), "v", 1).Err())
}

func (r *run) repairConfig() { r.ok(r.rdb.Set(r.Context(), r.config, r.blob, 0).Err()) }

// heal settles the producer's doubts, lets what cannot end be deleted, and waits
// until everything has ended.
func (r *run) heal() {
	r.Helper()
	for _, id := range slices.Sorted(maps.Keys(r.producer.doubt)) {
		r.until("an event in doubt is accepted: "+id, func() bool {
			return r.producer.post(r.Context(), r.url(), id) == http.StatusAccepted
		})
	}
	if !r.deleted {
		// Its deliveries go on failing; a delete is the end of them.
		r.until("the subscriber that always fails is deleted", func() bool {
			status, _ := call(r.Context(), http.MethodDelete, r.url()+"/v1/subscribers/"+r.never, "", nil)
			return status == http.StatusOK || status == http.StatusNotFound
		})
	}
	r.until("everything has ended", func() bool {
		s, err := r.engine.Sample(r.Context(), nil)
		return err == nil && s.Ledger.Pending == 0 && s.Leases == 0 && s.OpenEvents == 0
	})
}

func (r *run) until(what string, is func() bool) {
	r.Helper()
	for deadline := time.Now().Add(healsWithin); !is(); {
		if time.Now().After(deadline) {
			s, err := r.engine.Sample(r.Context(), nil)
			r.Fatalf("gave up waiting until %s; %+v, %v\napi: %s\ndispatcher: %s", what, s, err, r.api.tail(), r.dispatcher.tail())
		}
		select {
		case <-r.Context().Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// check holds what producers and endpoints know against what stands in Redis.
func (r *run) check() (accepted, lost int, violations []string) {
	say := func(format string, a ...any) { violations = append(violations, fmt.Sprintf(format, a...)) }
	s, err := audit.Read(r.Context(), r.rdb)
	r.ok(err)
	violations = append(violations, s.Faults()...)
	if s.Late != 0 || s.Open != 0 || s.Leases != 0 || s.Ledger.Pending != 0 {
		say("not ended: open %d, late %d, leases %d, %+v", s.Open, s.Late, s.Leases, s.Ledger)
	}
	for id, deliveries := range r.producer.accepted {
		e := s.Events[id]
		if e == nil {
			lost++
			continue
		}
		if e.Deliveries != deliveries {
			say("event %s: the producer was told %d deliveries, it has %d", id, deliveries, e.Deliveries)
		}
		for _, sub := range e.Planned {
			if d := s.Deliveries[delivery.NewID(id, sub)]; d == nil {
				lost++
				say("event %s was accepted and has no delivery for %s", id, sub)
			} else if d.State != delivery.Delivered && sub != r.never {
				say("%s is %s (%s): its endpoint is well", d.ID, d.State, d.Reason)
			}
		}
	}
	if !r.always {
		return len(r.producer.accepted), lost, violations // the rest is promised under always
	}
	for id, n := range r.receiver.requests {
		d := s.Deliveries[id]
		switch {
		case d == nil:
			say("%s was sent and has no record", id)
		case int64(n) > d.DeliveryCount-int64(d.Releases):
			say("%s: %d requests, delivery_count %d, releases %d", id, n, d.DeliveryCount, d.Releases)
		case r.receiver.had[id] && d.State != delivery.Delivered:
			say("%s was answered by a 2xx and is %s", id, d.State)
		}
	}
	return len(r.producer.accepted), lost, violations
}
