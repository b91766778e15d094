//go:build chaos

package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// quietWithin bounds the wait for everything that can move: the longest lease
	// is 18 s, and a delivery may lose several in a row.
	quietWithin = 90 * time.Second
	readyWithin = 20 * time.Second
)

// heal undoes whatever may still be broken, the endpoints as well, and waits until
// all are ready. Breakers that are open then need not rest any longer.
func (w *world) heal() {
	w.receivers.setIll(false)
	for _, p := range w.proxies {
		p.set(pass, 0)
	}
	for _, c := range w.children {
		c.thaw()
		if state, _ := c.look(); state == down {
			if err := c.start(); err != nil {
				w.wrong("%v", err)
			}
		}
	}
	w.gone.Wait()
	w.notef("healed")
	w.awaitReady(readyWithin)
	w.notef("all are ready")
	w.probeAll()
}

// settleIn sends a few events through before the faults, so that pools and
// connections stand, and then notes what each process uses.
func (w *world) settleIn() {
	rng := stream(0, "warm-up", 0)
	for i := range 8 {
		e := w.post(w.ctx, rng, fmt.Sprintf("warm-%s-%d", w.name, i), "fast")
		if !e.Accepted {
			w.wrong("%s was not accepted before any fault", e.ID)
		}
	}
	w.mustGoOn()
	w.quiet()
	w.closeConnections()
	for _, c := range w.children {
		w.usage[c.name] = w.uses(c)
	}
}

// standing is what Redis says of the work that is left.
type standing struct{ pending, held, leases, open int64 }

func (s standing) quiet() bool { return s.pending == s.held && s.leases == 0 && s.open == 0 }

func (s standing) String() string {
	return fmt.Sprintf("%d pending, %d of them held, %d leases, %d events not expanded", s.pending, s.held, s.leases, s.open)
}

// quiet waits until only held deliveries are pending.
func (w *world) quiet() {
	var s standing
	var err error
	if !until(quietWithin, func() bool { s, err = w.left(); return err == nil && s.quiet() }) {
		w.wrong("not quiet %s after all was healed: %s, %v", quietWithin, s, err)
	}
	w.notef("quiet: %s", s)
}

// left counts in Redis, by few commands.
func (w *world) left() (standing, error) {
	ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
	defer cancel()
	var s standing
	ledgers, err := w.rdb.Keys(ctx, "{fo:*}:ledger").Result()
	if err != nil {
		return s, err
	}
	opens, err := w.rdb.Keys(ctx, "{fo:e*}:open").Result()
	if err != nil {
		return s, err
	}
	for _, key := range ledgers {
		prefix := strings.TrimSuffix(key, "ledger")
		n, err := w.rdb.HGet(ctx, key, "pending").Int64()
		if err != nil && !errors.Is(err, redis.Nil) {
			return s, err
		}
		s.pending += n
		s.leases += w.rdb.ZCard(ctx, prefix+"leases").Val()
		for id, sub := range w.truth.byID() {
			if sub.Paused {
				s.held += w.rdb.ZCard(ctx, prefix+"pend:"+id).Val()
			}
		}
	}
	for _, key := range opens {
		s.open += w.rdb.ZCard(ctx, key).Val()
	}
	return s, nil
}

// usage is what a process holds on to.
type usage struct{ descriptors, goroutines int }

// uses asks a process for its own count of goroutines, and the kernel for its
// descriptors.
func (w *world) uses(c *child) usage {
	ctx, cancel := context.WithTimeout(w.ctx, 10*time.Second)
	defer cancel()
	u := usage{goroutines: -1}
	u.descriptors, _ = descriptors(c.pid())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.address()+"/metrics", http.NoBody)
	if err != nil {
		return u
	}
	res, err := w.http.Do(req)
	if err != nil {
		return u
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	for line := range strings.Lines(string(b)) {
		if n, ok := strings.CutPrefix(line, "go_goroutines "); ok {
			u.goroutines, _ = strconv.Atoi(strings.TrimSpace(n))
		}
	}
	return u
}

// closeConnections ends what the test itself keeps open to the processes, and what
// they keep open to its receivers.
func (w *world) closeConnections() {
	w.http.CloseIdleConnections()
	w.receivers.CloseClientConnections()
}

// slack is what a process may use beyond its start: connections to Redis up to
// its pool's size, the connection of the question itself, and a few in between.
const slack = poolSize + 8

// compareResources checks that the processes which lived through everything hold
// on to no more than at their start.
func (w *world) compareResources() {
	for _, c := range w.children {
		if c.pid() != c.first {
			continue // it was killed: it is a new one
		}
		var now usage
		before := w.usage[c.name]
		if !until(15*time.Second, func() bool {
			w.closeConnections()
			now = w.uses(c)
			return now.goroutines > 0 && now.goroutines <= before.goroutines+slack && now.descriptors <= before.descriptors+slack
		}) {
			w.wrong("%s held %+v at the start and holds %+v now", c.name, before, now)
		}
		w.notef("%s: at the start %+v, now %+v", c.name, before, now)
	}
}

// summary is one line about a round.
func (w *world) summary() string {
	accepted, unknown := 0, 0
	w.truth.with(func() {
		for _, e := range w.truth.events {
			switch {
			case e.Accepted:
				accepted++
			case e.Unknown:
				unknown++
			}
		}
	})
	requests := 0
	for _, rs := range w.receivers.requests() {
		requests += len(rs)
	}
	var states []string
	for s, n := range w.states {
		states = append(states, fmt.Sprintf("%s=%d", s, n))
	}
	slices.Sort(states)
	return fmt.Sprintf("accepted=%d unknown=%d requests=%d %s", accepted, unknown, requests, strings.Join(states, " "))
}
