//go:build !cluster

// A cluster's client goes to the addresses that the nodes name, past any proxy.

package e2e

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// tap is a TCP proxy in front of Redis that counts round trips: a request that
// follows an answer on the same connection begins a new one.
type tap struct {
	addr  string
	trips atomic.Int64
}

func newTap(t testing.TB, target string) *tap {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{addr: ln.Addr().String()}
	var conns sync.WaitGroup
	t.Cleanup(func() {
		_ = ln.Close()
		conns.Wait()
	})
	conns.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", target)
			if err != nil {
				_ = c.Close()
				continue
			}
			var asking atomic.Bool
			conns.Go(func() {
				pipe(s, c, func() {
					if !asking.Swap(true) {
						p.trips.Add(1)
					}
				})
			})
			conns.Go(func() { pipe(c, s, func() { asking.Store(false) }) })
		}
	})
	return p
}

// pipe copies until either side ends, and says so before each piece.
func pipe(dst, src net.Conn, piece func()) {
	defer dst.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			piece()
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// An idle dispatcher leaves Redis alone: at most 5 round trips a second, counted
// on the wire, while a delivery that arrives is still sent at once.
func TestIdleDispatcherIsQuiet(t *testing.T) {
	t.Parallel()
	s := start(t)
	wire := newTap(t, s.seeds[0])
	s.dispatcherAt([]string{wire.addr})
	e := s.endpoint(always(http.StatusOK))
	s.subscribe(e.URL, "shipment.delivered", "")
	s.post("warm", "shipment.delivered", "{}")
	s.delivery("warm", "delivered")

	const window = 6 * time.Second // as long as it takes to tell 5 a second from 6
	before, began := wire.trips.Load(), time.Now()
	<-time.After(window)
	rate := float64(wire.trips.Load()-before) / time.Since(began).Seconds()
	t.Logf("round_trips_per_second=%.2f", rate)
	if rate > 5 || rate == 0 {
		t.Fatalf("%.2f round trips a second while idle, want at most 5 (and more than none)", rate)
	}
}

// BenchmarkRoad measures the way of one event on an idle service, from the
// producer's 202 to the request at the receiver, all on loopback. A receiver that
// is reached before the 202 counts as 0.
func BenchmarkRoad(b *testing.B) {
	s := start(b)
	e := s.endpoint(always(http.StatusOK))
	s.subscribe(e.URL, "shipment.delivered", "")
	var lags []time.Duration
	i := 0
	for b.Loop() {
		s.post(fmt.Sprint("e", i), "shipment.delivered", `{"n":1}`)
		accepted := time.Now()
		<-e.came
		log := e.requests()
		lags = append(lags, max(0, log[len(log)-1].at.Sub(accepted)))
		i++
	}
	slices.Sort(lags)
	at := func(q float64) float64 { return float64(lags[int(q*float64(len(lags)-1))].Microseconds()) / 1000 }
	b.ReportMetric(at(0.5), "p50-ms")
	b.ReportMetric(at(0.99), "p99-ms")
}
