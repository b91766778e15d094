package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// names is a DNS server whose answers change while it runs.
type names struct {
	conn  net.PacketConn
	mu    sync.Mutex
	addrs map[string][]netip.Addr // in the order in which they are given out; the last one stays
}

// newNames starts it, and gives the resolver that asks it alone.
func newNames(t testing.TB) (*names, *net.Resolver) {
	t.Helper()
	conn, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &names{conn: conn, addrs: map[string][]netip.Addr{}}
	var serving sync.WaitGroup
	serving.Go(n.serve)
	t.Cleanup(func() {
		_ = conn.Close()
		serving.Wait()
	})
	return n, &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp4", conn.LocalAddr().String())
	}}
}

// set has a name resolve to one address after the other, and stay at the last.
func (n *names) set(name string, addrs ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range addrs {
		n.addrs[name] = append(n.addrs[name], netip.MustParseAddr(a))
	}
}

func (n *names) next(name string) (netip.Addr, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.addrs[name]
	if len(all) == 0 {
		return netip.Addr{}, false
	}
	if len(all) > 1 {
		n.addrs[name] = all[1:]
	}
	return all[0], true
}

func (n *names) serve() {
	buf := make([]byte, 1500)
	for {
		size, from, err := n.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:size]) != nil || len(m.Questions) != 1 {
			continue
		}
		m.Response, m.Authoritative, m.Additionals = true, true, nil
		q := m.Questions[0]
		name := strings.TrimSuffix(q.Name.String(), ".")
		switch q.Type {
		case dnsmessage.TypeA:
			a, ok := n.next(name)
			if !ok {
				m.RCode = dnsmessage.RCodeNameError
				break
			}
			m.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET},
				Body:   &dnsmessage.AResource{A: a.As4()},
			}}
		default: // it has no address of another kind
			n.mu.Lock()
			if len(n.addrs[name]) == 0 {
				m.RCode = dnsmessage.RCodeNameError
			}
			n.mu.Unlock()
		}
		if out, err := m.Pack(); err == nil {
			_, _ = n.conn.WriteTo(out, from)
		}
	}
}

// refusing is a port of 127.0.0.1 that refuses connections until listen is called.
// It stays bound meanwhile, so that nobody else comes to listen there.
func refusing(t testing.TB) (addr string, listen func() net.Listener) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "refusing")
	t.Cleanup(func() { _ = f.Close() })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	in4, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		t.Fatalf("bound to %v", name)
	}
	return fmt.Sprintf("127.0.0.1:%d", in4.Port), func() net.Listener {
		if err := syscall.Listen(fd, 16); err != nil {
			t.Fatal(err)
		}
		ln, err := net.FileListener(f)
		if err != nil {
			t.Fatal(err)
		}
		return ln
	}
}

// A refused connection is transient, and the delivery arrives when somebody
// listens on that very port.
func TestRefusedConnection(t *testing.T) {
	t.Parallel()
	s := start(t)
	addr, listen := refusing(t)
	s.subscribe("http://"+addr+"/hook", "refused", persistent)
	s.post("refused", "refused", `{}`)
	var v view
	s.until("it was tried twice", func() bool { v = s.look("refused"); return v.Attempts >= 2 && v.State == "scheduled" })
	for _, a := range v.Evidence {
		if a.Outcome != "connect" || !strings.Contains(a.Error, "refused") {
			t.Errorf("the evidence says %s: %q", a.Outcome, a.Error)
		}
	}
	e := s.unstarted(always(http.StatusOK))
	_ = e.Listener.Close()
	e.Listener = listen()
	e.Start()
	s.delivery("refused", "delivered")
	s.saw(e, 1)
}

// So is a name that does not resolve, until it does.
func TestNameDoesNotResolve(t *testing.T) {
	t.Parallel()
	dns, resolver := newNames(t)
	s := start(t, func(c *setup) { c.names = resolver })
	e := s.endpoint(always(http.StatusOK))
	url := strings.Replace(e.URL, "127.0.0.1", "nowhere.invalid", 1)
	s.subscribe(url, "dead.name", quick)
	s.post("dead.name", "dead.name", `{}`)
	v := s.dead("dead.name", "exhausted")
	s.expect(v, "dns", "dns", "dns")
	if !strings.Contains(v.Evidence[0].Error, "nowhere.invalid") {
		t.Errorf("the evidence says %q", v.Evidence[0].Error)
	}

	s.subscribe(url, "back", persistent)
	s.post("back", "back", `{}`)
	s.until("it was tried twice", func() bool { return s.look("back").Attempts >= 2 })
	dns.set("nowhere.invalid", "127.0.0.1")
	s.delivery("back", "delivered")
	s.saw(e, 1)
}

// forbidden listens on 127.0.0.2, which may not be called, and counts connections.
// Where loopback is 127.0.0.1 alone, as on macOS, nobody can listen there; the
// verdict is the same.
func (s *service) forbidden() (port string, connections *atomic.Int64) {
	s.Helper()
	connections = new(atomic.Int64)
	ln, err := new(net.ListenConfig).Listen(s.Context(), "tcp4", "127.0.0.2:0")
	if err != nil {
		s.Logf("nobody listens at the blocked address: %v", err)
		return "9", connections
	}
	s.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			_ = c.Close()
		}
	}()
	_, port, err = net.SplitHostPort(ln.Addr().String())
	s.ok(err)
	return port, connections
}

// An address that may not be called is refused where it stands in the URL, to the
// face of whoever registers it, and else at the dial: at once, for good, and
// without a connection. That a name led to a good address before changes nothing.
func TestBlockedAddress(t *testing.T) {
	t.Parallel()
	dns, resolver := newNames(t)
	s := start(t, func(c *setup) { c.names = resolver })

	for _, url := range []string{
		"http://127.0.0.2/", "http://[::1]/", "http://10.0.0.1/", "http://169.254.169.254/latest", "http://0x7f000001/",
	} {
		status, b := s.do("POST", "/v1/subscribers", fmt.Sprintf(`{"url":%q}`, url))
		if status != http.StatusUnprocessableEntity || !strings.Contains(string(b), `"/url"`) {
			t.Errorf("%s was answered %d: %s", url, status, b)
		}
	}

	port, connections := s.forbidden()
	dns.set("inside.example", "127.0.0.2")
	s.subscribe("http://inside.example:"+port+"/", "inside", persistent)
	s.post("inside", "inside", `{}`)
	v := s.dead("inside", "blocked_address")
	s.expect(v, "blocked_address")
	if !strings.Contains(v.Evidence[0].Error, "loopback") {
		t.Errorf("the evidence says %q", v.Evidence[0].Error)
	}

	// The endpoint must not keep its connection: the next attempt has to dial.
	e := s.unstarted(always(http.StatusServiceUnavailable))
	e.Config.SetKeepAlivesEnabled(false)
	e.Start()
	dns.set("rebound.example", "127.0.0.1", "127.0.0.2")
	s.subscribe(strings.Replace(e.URL, "127.0.0.1", "rebound.example", 1), "rebound", persistent)
	s.post("rebound", "rebound", `{}`)
	s.expect(s.dead("rebound", "blocked_address"), "http_5xx", "blocked_address")
	s.saw(e, 1)
	if n := connections.Load(); n != 0 {
		t.Errorf("%d connections to a blocked address", n)
	}
}
