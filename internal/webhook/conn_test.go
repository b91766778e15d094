package webhook

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"

	"github.com/fanout/fanout/internal/delivery"
)

func countRequests(n *atomic.Int64) http.HandlerFunc {
	return func(http.ResponseWriter, *http.Request) { n.Add(1) }
}

// self is the authority's own certificate, used as an endpoint's.
func (a *authority) self() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{a.cert.Raw}, PrivateKey: a.key}
}

// tlsListener shakes hands, and answers nothing.
func tlsListener(t *testing.T, c *tls.Config) string {
	t.Helper()
	l := tls.NewListener(listen(t), c)
	var done sync.WaitGroup
	done.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		done.Wait()
	})
	return "https://" + l.Addr().String() + "/"
}

// TestNoReplayOnADeadConnection: the endpoint answers one request, reads a second
// on the kept-alive connection and closes it without answering. net/http would
// send that again if it could; the endpoint must see no third.
func TestNoReplayOnADeadConnection(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	url, conns := raw(t, func(n int, c net.Conn, r *bufio.Reader) {
		for swallow(t, r) {
			if seen := requests.Add(1); n == 1 && seen == 2 {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	s := newSender(t)
	if a := s.Send(t.Context(), newRequest(url)); a.Outcome != delivery.OK {
		t.Fatalf("first: %+v", a)
	}
	a := s.Send(t.Context(), newRequest(url))
	if a.Outcome != delivery.Reset || !a.Phases.Reused {
		t.Errorf("second: %+v", a)
	}
	if requests.Load() != 2 || conns.Load() != 1 {
		t.Errorf("%d requests over %d connections for 2 attempts", requests.Load(), conns.Load())
	}
	if a := s.Send(t.Context(), newRequest(url)); a.Outcome != delivery.OK || a.Phases.Reused {
		t.Errorf("third: %+v", a)
	}
}

// TestNoReplayOverHTTP2: a stream that is reset, refused streams included, is one
// request.
func TestNoReplayOverHTTP2(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	var requests atomic.Int64
	url, conns := serveTLS(t, ca.issue(t, nil), true, func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("came as %s", r.Proto)
		}
		if requests.Add(1) == 2 {
			panic(http.ErrAbortHandler) // RST_STREAM
		}
		_, _ = w.Write([]byte("ok"))
	})
	s := newSender(t, func(o *Options) { o.RootCAs = ca.pool })
	for i, want := range []delivery.Outcome{delivery.OK, delivery.Reset, delivery.OK} {
		if a := s.Send(t.Context(), newRequest(url)); a.Outcome != want {
			t.Errorf("attempt %d: %+v", i+1, a)
		}
	}
	if requests.Load() != 3 || conns.Load() != 1 {
		t.Errorf("%d requests over %d connections", requests.Load(), conns.Load())
	}
}

// TestEndlessBodyOverHTTP2: the endpoint may push no more than a window at us.
func TestEndlessBodyOverHTTP2(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	var sent atomic.Int64
	gone := make(chan struct{})
	url, _ := serveTLS(t, ca.issue(t, nil), true, func(w http.ResponseWriter, _ *http.Request) {
		defer close(gone)
		chunk := make([]byte, 4096)
		for {
			n, err := w.Write(chunk)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	s := newSender(t, func(o *Options) { o.RootCAs = ca.pool })
	if a := s.Send(t.Context(), newRequest(url)); a.Outcome != delivery.OK {
		t.Errorf("%+v", a)
	}
	<-gone
	if sent.Load() > 4*h2Window {
		t.Errorf("took %d bytes for a window of %d", sent.Load(), h2Window)
	}
}

// TestARefusingNeighbour: 200 deliveries to a healthy host, each after one to a
// dead one, use one connection.
func TestARefusingNeighbour(t *testing.T) {
	t.Parallel()
	dead := refusing(t)
	url, conns := serve(t, status(200, "fine"))
	s := newSender(t)
	for range 200 {
		if a := s.Send(t.Context(), newRequest(dead)); a.Outcome != delivery.Connect {
			t.Fatalf("neighbour: %+v", a)
		}
		if a := s.Send(t.Context(), newRequest(url)); a.Outcome != delivery.OK {
			t.Fatalf("host: %+v", a)
		}
	}
	if conns.Load() != 1 {
		t.Errorf("%d connections for 200 deliveries", conns.Load())
	}
}

// TestManyHosts: no bound over all hosts, so each is dialled once in two rounds.
func TestManyHosts(t *testing.T) {
	t.Parallel()
	const hosts = 120 // above net/http's bound of 100
	s := newSender(t)
	var urls []string
	var conns []*atomic.Int64
	for range hosts {
		url, n := serve(t, status(200, ""))
		urls, conns = append(urls, url), append(conns, n)
	}
	for range 2 {
		for _, url := range urls {
			if a := s.Send(t.Context(), newRequest(url)); a.Outcome != delivery.OK {
				t.Fatalf("%+v", a)
			}
		}
	}
	for i, n := range conns {
		if n.Load() != 1 {
			t.Errorf("host %d was dialled %d times", i, n.Load())
		}
	}
}

// TestConcurrentSends share a Sender, under the race detector.
func TestConcurrentSends(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	url, conns := serve(t, countRequests(&requests))
	s := newSender(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 25 {
				r := newRequest(url)
				r.DeliveryID = fmt.Sprintf("dlv_%d_%d", i, j)
				if a := s.Send(t.Context(), r); a.Outcome != delivery.OK {
					t.Errorf("%+v", a)
				}
			}
		})
	}
	all.Wait()
	if requests.Load() != 200 || conns.Load() > 100 {
		t.Errorf("%d requests over %d connections", requests.Load(), conns.Load())
	}
}

// TestMemoryIsFlat: 300 endless answers cost no more than their buffers.
func TestMemoryIsFlat(t *testing.T) {
	block := []byte(strings.Repeat("m", 256<<10))
	url, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		for {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})
	s := newSender(t)
	heap := func() uint64 {
		runtime.GC() //nolint:revive // what is reachable is the point
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	var kept []Answer
	for range 300 {
		kept = append(kept, s.Send(t.Context(), newRequest(url)))
	}
	if after := heap(); after > before+2<<20 {
		t.Errorf("grew from %d to %d bytes", before, after)
	}
	runtime.KeepAlive(kept) // 1 KiB each: an excerpt must not hold on to what it was cut from
}

// TestNoReplayOfARefusedStream: REFUSED_STREAM tells a client that it may send
// again at once (RFC 9113, 8.7), and net/http does if it has the body. The
// schedule owns retries: the endpoint must see one stream.
func TestNoReplayOfARefusedStream(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	l := tls.NewListener(listen(t), &tls.Config{
		Certificates: []tls.Certificate{ca.issue(t, nil)}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12,
	})
	var streams atomic.Int64
	var done sync.WaitGroup
	done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			done.Go(func() {
				defer func() { _ = c.Close() }()
				refuseStreams(c, &streams)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		done.Wait()
	})
	s := newSender(t, func(o *Options) { o.RootCAs = ca.pool })
	r := newRequest("https://" + l.Addr().String() + "/")
	if a := s.Send(t.Context(), r); a.Outcome != delivery.Reset {
		t.Errorf("%+v", a)
	}
	if streams.Load() != 1 {
		t.Errorf("%d streams for one attempt", streams.Load())
	}
}

// refuseStreams speaks just enough HTTP/2 to refuse every stream.
func refuseStreams(c net.Conn, streams *atomic.Int64) {
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	f := http2.NewFramer(c, c)
	if f.WriteSettings() != nil {
		return
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		if h, ok := frame.(*http2.HeadersFrame); ok {
			streams.Add(1)
			if f.WriteRSTStream(h.StreamID, http2.ErrCodeRefusedStream) != nil {
				return
			}
		}
	}
}
