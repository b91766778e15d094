package loadtest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fanout/fanout/internal/webhook"
)

// manner is how an endpoint answers.
type manner int32

const (
	prompt   manner = iota // 204 after 5 ms
	hanging                // accepts, and never answers
	failing                // 500 at once
	slow                   // 204 after 5 s
	refusing               // 422 at once, which is final
)

const (
	promptAfter = 5 * time.Millisecond
	slowAfter   = 5 * time.Second
)

// bucket is the width of the bins in which requests are counted for the plots.
const bucket = 500 * time.Millisecond

// hit is what an endpoint saw of one webhook-id. Times are since the run's origin.
type hit struct {
	first    time.Duration // arrival of the first request
	taken    time.Duration // arrival of the first request that was answered 2xx; 0: none
	requests uint16
	again    uint16 // requests that arrived after a 2xx
	attempt  uint16 // highest fanout-attempt
}

// endpoint is one subscriber's, on a port of its own: connection pools and caps
// go by host and port.
type endpoint struct {
	group      *group
	url        string
	subscriber string // id, once registered
	srv        *http.Server

	inFlight, most atomic.Int32

	mu       sync.Mutex
	index    map[string]int32 // webhook-id -> hits
	hits     []hit
	redriven []again
}

// again is a request that a redrive sent, in the order of their answers.
type again struct {
	at    time.Duration // since the run's origin
	taken bool          // it was answered 2xx
}

// group is endpoints that behave alike.
type group struct {
	name      string
	bad       bool // not one of the healthy, whose ages are held to the bounds
	origin    time.Time
	endpoints []*endpoint
	manner    atomic.Int32
	refused   atomic.Int64   // requests answered 4xx or 5xx
	taken     atomic.Int64   // deliveries that were answered 2xx
	requests  []atomic.Int64 // by bucket since origin; the last takes what comes later
}

// longest is what the bins have room for; nothing runs for as long.
const longest = time.Hour

// open starts n endpoints, with room for perEndpoint deliveries each, so that
// none waits for memory to be copied.
func (g *group) open(ctx context.Context, n, perEndpoint int) error {
	g.requests = make([]atomic.Int64, int(longest/bucket)+1)
	for range n {
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("open an endpoint: %w", err)
		}
		e := &endpoint{
			group: g, url: "http://" + ln.Addr().String() + "/hook",
			index: make(map[string]int32, perEndpoint), hits: make([]hit, 0, perEndpoint),
		}
		e.srv = &http.Server{
			Handler: e, ReadHeaderTimeout: time.Minute,
			ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // the sender notes it
		}
		go func() { _ = e.srv.Serve(ln) }() // ends by close, which is no error
		g.endpoints = append(g.endpoints, e)
	}
	return nil
}

func (g *group) close() {
	for _, e := range g.endpoints {
		_ = e.srv.Close() // requests that hang are cut off
	}
}

// turn changes how the whole group answers, from the next request on.
func (g *group) turn(m manner) { g.manner.Store(int32(m)) }

// seen is all requests so far.
func (g *group) seen() (n int64) {
	for i := range g.requests {
		n += g.requests[i].Load()
	}
	return n
}

// mostInFlight is the highest count of requests at once at one endpoint.
func (g *group) mostInFlight() (most int32) {
	for _, e := range g.endpoints {
		most = max(most, e.most.Load())
	}
	return most
}

// ServeHTTP counts a request and answers it in the group's manner.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Since(e.group.origin)
	e.group.requests[min(int(at/bucket), len(e.group.requests)-1)].Add(1)
	n := e.inFlight.Add(1)
	defer e.inFlight.Add(-1)
	for most := e.most.Load(); n > most && !e.most.CompareAndSwap(most, n); {
		most = e.most.Load()
	}
	id := r.Header.Get(webhook.HeaderID)
	attempt, _ := strconv.Atoi(r.Header.Get("Fanout-Attempt")) // 0 if it is missing
	e.arrive(id, at, attempt)
	_, _ = io.Copy(io.Discard, r.Body) // net/http sees the sender go only once the body is read

	switch manner(e.group.manner.Load()) {
	case hanging:
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // to return would be to answer 200
	case failing:
		e.refuse(w, r, at, http.StatusInternalServerError)
		return
	case refusing:
		e.refuse(w, r, at, http.StatusUnprocessableEntity)
		return
	case slow:
		if pause(r.Context(), slowAfter) != nil {
			return
		}
	case prompt:
		if pause(r.Context(), promptAfter) != nil {
			return
		}
	}
	e.note(r, at, true)
	e.take(id, at)
	w.WriteHeader(http.StatusNoContent)
}

func (e *endpoint) refuse(w http.ResponseWriter, r *http.Request, at time.Duration, status int) {
	e.group.refused.Add(1)
	e.note(r, at, false)
	http.Error(w, "out of order", status)
}

// note keeps what a redrive sent.
func (e *endpoint) note(r *http.Request, at time.Duration, taken bool) {
	if r.Header.Get("Fanout-Redrive-Generation") == "0" {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.redriven = append(e.redriven, again{at, taken})
}

func (e *endpoint) arrive(id string, at time.Duration, attempt int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i, known := e.index[id]
	if !known {
		i = int32(len(e.hits)) //nolint:gosec // a run has far fewer
		e.index[id] = i
		e.hits = append(e.hits, hit{first: at})
	}
	h := &e.hits[i]
	h.requests++
	h.attempt = max(h.attempt, uint16(min(attempt, math.MaxUint16))) //nolint:gosec // bounded here
	if h.taken != 0 {
		h.again++
	}
}

// take notes that a 2xx is about to be answered to a request that came at.
func (e *endpoint) take(id string, at time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h := &e.hits[e.index[id]]; h.taken == 0 {
		h.taken = at
		e.group.taken.Add(1)
	}
}

// hit returns what was seen of a webhook-id.
func (e *endpoint) hit(id string) hit {
	e.mu.Lock()
	defer e.mu.Unlock()
	if i, ok := e.index[id]; ok {
		return e.hits[i]
	}
	return hit{}
}

// pause waits, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
