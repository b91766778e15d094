package webhook

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// short is an attempt timeout that a test can wait for.
const short = 150 * time.Millisecond

// endedAt fails unless the attempt ended at its timeout: no earlier, and not far
// beyond it, on a machine that may be busy.
func endedAt(t *testing.T, a Answer, timeout time.Duration) {
	t.Helper()
	if a.Duration < timeout || a.Duration > timeout+5*time.Second {
		t.Errorf("ended after %s, timeout %s", a.Duration, timeout)
	}
}

func TestNeverAnswers(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	url, conns := raw(t, func(_ int, _ net.Conn, r *bufio.Reader) {
		if swallow(t, r) {
			block(r) // until the sender lets go of the connection
			close(gone)
		}
	})
	r := newRequest(url)
	r.Timeout = short
	a := newSender(t).Send(t.Context(), r)
	if a.Outcome != delivery.Timeout || a.Status != 0 || a.Err != "timeout while waiting for an answer" {
		t.Errorf("%+v", a)
	}
	endedAt(t, a, short)
	<-gone
	if conns.Load() != 1 {
		t.Errorf("%d connections", conns.Load())
	}
}

// TestNeverShakesHands: the deadline covers TLS.
func TestNeverShakesHands(t *testing.T) {
	t.Parallel()
	url, _ := raw(t, func(_ int, _ net.Conn, r *bufio.Reader) { _, _ = io.Copy(io.Discard, r) })
	r := newRequest(strings.Replace(url, "http://", "https://", 1))
	r.Timeout = short
	a := newSender(t).Send(t.Context(), r)
	if a.Outcome != delivery.Timeout || a.Err != "timeout while in the TLS handshake" {
		t.Errorf("%+v", a)
	}
	endedAt(t, a, short)
}

// TestNeverResolves: the deadline covers the name.
func TestNeverResolves(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	s := newSender(t, func(o *Options) {
		o.Resolver = resolver(t, func(string, int) []netip.Addr { <-hold; return nil })
	})
	t.Cleanup(func() { close(hold) })
	r := newRequest("http://slow.example/")
	r.Timeout = short
	a := s.Send(t.Context(), r)
	if a.Outcome != delivery.Timeout || a.Err != "timeout while resolving the name" {
		t.Errorf("%+v", a)
	}
	endedAt(t, a, short)
}

// TestNeverConnects fills the queue of a listener that accepts nothing, so that
// the kernel drops further SYNs, and wants the dial itself to end.
func TestNeverConnects(t *testing.T) {
	t.Parallel()
	fd, addr := bound(t)
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for range 64 { // until one does not get through
		c, err := net.DialTimeout("tcp4", addr, 100*time.Millisecond)
		if err != nil {
			break
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	r := newRequest("http://" + addr)
	r.Timeout = short
	a := newSender(t).Send(t.Context(), r)
	if a.Outcome != delivery.Timeout || a.Err != "timeout while connecting" {
		t.Errorf("%+v", a)
	}
	waitFor(t, func() bool { return !dialling() })
}

// dialling says whether any goroutine is still in boundedDial.
func dialling() bool {
	buf := make([]byte, 1<<20)
	return strings.Contains(string(buf[:runtime.Stack(buf, true)]), "webhook.newTransport.boundedDial")
}

func waitFor(t *testing.T, what func() bool) {
	t.Helper()
	end := time.Now().Add(10 * time.Second)
	for !what() {
		if time.Now().After(end) {
			t.Fatal("it never happened")
		}
		runtime.Gosched()
	}
}

// TestDribbles: 200, and then a byte at a time for ever. It ends at the attempt
// timeout, and the status stands: see Send.
func TestDribbles(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]delivery.Outcome{200: delivery.OK, 503: delivery.HTTP5xx, 410: delivery.Gone} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			gone := make(chan struct{})
			url, _ := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
				defer close(gone)
				if !swallow(t, r) {
					return
				}
				fmt.Fprintf(c, "HTTP/1.1 %d X\r\nRetry-After: 9\r\nContent-Length: 100000\r\n\r\n", code)
				for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
					if _, err := c.Write([]byte("x")); err != nil {
						tick.Stop()
						return
					}
				}
			})
			r := newRequest(url)
			r.Timeout = short
			a := newSender(t).Send(t.Context(), r)
			if a.Outcome != want || a.Status != code {
				t.Errorf("%+v", a)
			}
			if code == 503 && (a.RetryAfter != 9*time.Second || !strings.HasPrefix(a.Excerpt, "xx")) {
				t.Errorf("%+v", a)
			}
			endedAt(t, a, short)
			<-gone // the slot is free, and so is the connection
		})
	}
}

// TestDribblesHeaders: the deadline covers the headers; no status was read.
func TestDribblesHeaders(t *testing.T) {
	t.Parallel()
	url, _ := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
		if !swallow(t, r) {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
		for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
			if _, err := io.WriteString(c, "X: y\r\n"); err != nil {
				tick.Stop()
				return
			}
		}
	})
	r := newRequest(url)
	r.Timeout = short
	if a := newSender(t).Send(t.Context(), r); a.Outcome != delivery.Timeout || a.Err != "timeout while reading the answer" {
		t.Errorf("%+v", a)
	}
}

// TestEndlessBody: cut at the cap, whatever more there is, and memory stays flat.
func TestEndlessBody(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]delivery.Outcome{200: delivery.OK, 500: delivery.HTTP5xx} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			var sent atomic.Int64
			gone := make(chan struct{})
			chunk := fmt.Sprintf("%x\r\n%s\r\n", 4096, strings.Repeat("z", 4096))
			url, _ := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
				defer close(gone)
				if !swallow(t, r) {
					return
				}
				fmt.Fprintf(c, "HTTP/1.1 %d X\r\nTransfer-Encoding: chunked\r\n\r\n", code)
				for {
					n, err := io.WriteString(c, chunk)
					sent.Add(int64(n))
					if err != nil {
						return
					}
				}
			})
			a := newSender(t).Send(t.Context(), newRequest(url))
			if a.Outcome != want || a.Duration >= newRequest(url).Timeout || len(a.Excerpt) > 1024 {
				t.Errorf("%+v", a)
			}
			<-gone
			// What lies in the sockets' buffers was sent too: some MiB at the very most.
			if sent.Load() > 64<<20 {
				t.Errorf("took %d bytes", sent.Load())
			}
		})
	}
}

// TestHangsUp: closes and resets, before the answer or in its middle.
func TestHangsUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script func(c net.Conn, r *bufio.Reader)
		want   delivery.Outcome
		status int
	}{
		"closes at once":           {func(net.Conn, *bufio.Reader) {}, delivery.Reset, 0},
		"closes after the request": {func(_ net.Conn, r *bufio.Reader) { swallow(t, r) }, delivery.Reset, 0},
		"resets after the request": {func(c net.Conn, r *bufio.Reader) { swallow(t, r); reset(c) }, delivery.Reset, 0},
		"resets at once":           {func(c net.Conn, _ *bufio.Reader) { reset(c) }, delivery.Reset, 0},
		"cut in the status line":   {func(c net.Conn, r *bufio.Reader) { swallow(t, r); _, _ = io.WriteString(c, "HTTP/1.1 2") }, delivery.Unknown, 0},
		"cut in the headers": {func(c net.Conn, r *bufio.Reader) {
			swallow(t, r)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX:")
		}, delivery.Reset, 0},
		"cut in the body of a 200": {func(c net.Conn, r *bufio.Reader) {
			swallow(t, r)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
		}, delivery.OK, 200},
		"cut in the body of a 500": {func(c net.Conn, r *bufio.Reader) {
			swallow(t, r)
			_, _ = io.WriteString(c, "HTTP/1.1 500 X\r\nContent-Length: 9\r\n\r\nabc")
		}, delivery.HTTP5xx, 500},
		"not HTTP": {func(c net.Conn, r *bufio.Reader) {
			swallow(t, r)
			_, _ = io.WriteString(c, "220 mail.example ESMTP\r\n")
		}, delivery.Unknown, 0},
		"endless headers": {func(c net.Conn, r *bufio.Reader) {
			swallow(t, r)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			for {
				if _, err := io.WriteString(c, "X-Filler: "+strings.Repeat("y", 1000)+"\r\n"); err != nil {
					return
				}
			}
		}, delivery.Unknown, 0},
		"switches protocols": {func(c net.Conn, r *bufio.Reader) {
			swallow(t, r)
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			block(r) // would never end by itself
		}, delivery.Unknown, -1},
		"continues first": {func(c net.Conn, r *bufio.Reader) {
			swallow(t, r)
			_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n")
		}, delivery.OK, 204},
		"HTTP/1.0 without a length": {func(c net.Conn, r *bufio.Reader) {
			swallow(t, r)
			_, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\nfine")
		}, delivery.OK, 200},
		"status beyond the table": {func(c net.Conn, r *bufio.Reader) {
			swallow(t, r)
			_, _ = io.WriteString(c, "HTTP/1.1 999 Request denied\r\nContent-Length: 0\r\n\r\n")
		}, delivery.Unknown, 999},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, conns := raw(t, func(_ int, conn net.Conn, r *bufio.Reader) { c.script(conn, r) })
			a := newSender(t).Send(t.Context(), newRequest(url))
			if a.Outcome != c.want || c.status >= 0 && a.Status != c.status || conns.Load() != 1 {
				t.Errorf("%+v over %d connections", a, conns.Load())
			}
			if (a.Err == "") != (c.want == delivery.OK) || a.Duration > 5*time.Second {
				t.Errorf("%+v", a)
			}
		})
	}
}

// reset closes a connection with RST instead of FIN.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// TestRefusesThenIsBack: connect, and delivered once somebody listens.
func TestRefusesThenIsBack(t *testing.T) {
	t.Parallel()
	s := newSender(t)
	url := refusing(t)
	a := s.Send(t.Context(), newRequest(url))
	if a.Outcome != delivery.Connect || !strings.HasPrefix(a.Err, "cannot connect: ") || !strings.Contains(a.Err, "refused") {
		t.Errorf("%+v", a)
	}
	up, _ := serve(t, status(200, ""))
	if a := s.Send(t.Context(), newRequest(up)); a.Outcome != delivery.OK {
		t.Errorf("back: %+v", a)
	}
}

// TestDoesNotResolve: dns, and delivered once the name is there.
func TestDoesNotResolve(t *testing.T) {
	t.Parallel()
	s := newSender(t, func(o *Options) {
		o.Resolver = resolver(t, func(_ string, n int) []netip.Addr {
			if n == 1 {
				return nil
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
		})
	})
	up, _ := serve(t, status(200, ""))
	url := strings.Replace(up, "127.0.0.1", "shop.example", 1)
	if a := s.Send(t.Context(), newRequest(url)); a.Outcome != delivery.DNS || a.Err != "cannot resolve shop.example: no such host" {
		t.Errorf("%+v", a)
	}
	if a := s.Send(t.Context(), newRequest(url)); a.Outcome != delivery.OK || a.Phases.DNS <= 0 || a.Phases.Dial <= 0 {
		t.Errorf("back: %+v", a)
	}
}

// TestHasNoAddress: a name that no resolver is asked for is dns as well, by the system's
// resolver too.
func TestHasNoAddress(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*Sender{
		"ours": newSender(t), "another": newSender(t, func(o *Options) {
			o.Resolver = resolver(t, func(string, int) []netip.Addr { return []netip.Addr{netip.MustParseAddr("127.0.0.1")} })
		}),
	} {
		for _, host := range []string{"nowhere.onion", "NoWhere.Onion."} {
			a := s.Send(t.Context(), newRequest("http://"+host+":8080/in?token=t0ps3cret"))
			if a.Outcome != delivery.DNS || !strings.HasPrefix(a.Err, "cannot resolve ") || strings.Contains(a.Err, "t0ps3cret") {
				t.Errorf("%s, %s: %+v", name, host, a)
			}
		}
	}
}

// TestCertificates: tls, with the reason in words, and not one byte of the
// request has left.
func TestCertificates(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	for name, c := range map[string]struct {
		cert  tls.Certificate
		roots *x509.CertPool
		words string
	}{
		"expired": {ca.issue(t, func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
		}), ca.pool, "expired"},
		"not valid yet": {ca.issue(t, func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
		}), ca.pool, "not yet valid"},
		"wrong host": {ca.issue(t, func(c *x509.Certificate) {
			c.IPAddresses, c.DNSNames = nil, []string{"other.example"}
		}), ca.pool, "127.0.0.1"},
		"self-signed":     {newAuthority(t).self(), ca.pool, "unknown authority"},
		"other authority": {newAuthority(t).issue(t, nil), ca.pool, "unknown authority"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int64
			url, _ := serveTLS(t, c.cert, false, countRequests(&requests))
			s := newSender(t, func(o *Options) { o.RootCAs = c.roots })
			a := s.Send(t.Context(), newRequest(url))
			if a.Outcome != delivery.TLS || !strings.Contains(a.Err, c.words) || requests.Load() != 0 {
				t.Errorf("%+v after %d requests", a, requests.Load())
			}
		})
	}
}

// TestHandshakes that fail for another reason than the certificate.
func TestHandshakes(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	s := newSender(t, func(o *Options) { o.RootCAs = ca.pool })
	https := func(url string) string { return strings.Replace(url, "http://", "https://", 1) }

	plain, _ := serve(t, status(200, ""))
	garbage, _ := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
		_, _ = r.ReadByte()
		_, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.9\r\n")
	})
	hangsUp, _ := raw(t, func(_ int, _ net.Conn, r *bufio.Reader) { _, _ = r.ReadByte() })
	cert := ca.issue(t, nil)
	old := tlsListener(t, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
	mutual := tlsListener(t, &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12})

	for name, c := range map[string]struct {
		url  string
		want delivery.Outcome
	}{
		"speaks plain HTTP":     {https(plain), delivery.TLS},
		"speaks something else": {https(garbage), delivery.TLS},
		"hangs up":              {https(hangsUp), delivery.Reset},
		"TLS 1.1 alone":         {old, delivery.TLS},
		"wants a certificate":   {mutual, delivery.TLS},
	} {
		a := s.Send(t.Context(), newRequest(c.url))
		if a.Outcome != c.want || a.Err == "" {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

// TestOutOfSockets is ours, not the endpoint's: see ours.
func TestOutOfSockets(t *testing.T) {
	t.Parallel()
	for _, e := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS} {
		err := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", e)}
		if a := explain(t.Context(), err, &tracer{at: connecting}); a.Outcome != delivery.LeaseLost || a.Outcome.Blame() != delivery.Us {
			t.Errorf("%v: %+v", e, a)
		}
	}
}

// TestUntypedHandshakeError: crypto/tls gives most of its own no type; that the
// handshake failed says enough.
func TestUntypedHandshakeError(t *testing.T) {
	t.Parallel()
	err := errors.New("tls: server selected something odd")
	a := explain(t.Context(), err, &tracer{at: shaking, tlsErr: err})
	if a.Outcome != delivery.TLS || a.Err != err.Error() {
		t.Errorf("%+v", a)
	}
}
