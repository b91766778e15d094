package webhook

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/fanout/fanout/internal/subscriber"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Published with the Standard Webhooks libraries: a secret to nobody.
const vectorSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// here allows what tests listen on, and nothing else that is not public.
var here = GuardOptions{
	AllowHTTP: true, AnyPort: true,
	AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
}

// newSender makes a Sender that may call 127.0.0.1, and closes it in the end.
func newSender(t testing.TB, change ...func(*Options)) *Sender {
	t.Helper()
	o := Options{Guard: NewGuard(here), Version: "test"}
	for _, c := range change {
		c(&o)
	}
	s := New(o)
	t.Cleanup(s.Close)
	return s
}

// newRequest is an attempt with ample time.
func newRequest(url string) Request {
	return Request{
		URL: url, Secrets: []subscriber.Secret{{Value: vectorSecret}},
		DeliveryID: "dlv_0001", Attempt: 1, DeliveryCount: 1,
		Timestamp: time.Now(), Body: []byte(`{"data":{"b":1,"a":12345678901234567890}}`),
		Timeout: 10 * time.Second, RetryAfterCap: time.Hour,
	}
}

// serve answers by h, over plain HTTP/1.1, and counts connections.
func serve(t testing.TB, h http.HandlerFunc) (url string, conns *atomic.Int64) {
	t.Helper()
	conns = new(atomic.Int64)
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.URL, conns
}

// status answers with one status and body.
func status(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}
}

// raw is an endpoint below HTTP: script gets each connection, numbered from 1,
// which is closed when it returns. The connections are closed too when the test
// ends, so that a script may simply block in a read.
func raw(t testing.TB, script func(n int, c net.Conn, r *bufio.Reader)) (url string, conns *atomic.Int64) {
	t.Helper()
	l := listen(t)
	conns = new(atomic.Int64)
	var open sync.WaitGroup
	var mu sync.Mutex
	var all []net.Conn
	open.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n := int(conns.Add(1))
			mu.Lock()
			all = append(all, c)
			mu.Unlock()
			open.Go(func() {
				defer func() { _ = c.Close() }()
				script(n, c, bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range all {
			_ = c.Close()
		}
		mu.Unlock()
		open.Wait()
	})
	return "http://" + l.Addr().String() + "/hook", conns
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// refusing is the URL of a port where nothing listens. It stays bound, so that no
// other test comes to listen there.
func refusing(t testing.TB) string {
	t.Helper()
	_, addr := bound(t)
	return "http://" + addr + "/"
}

// bound is a socket on a port of 127.0.0.1, not listening.
func bound(t testing.TB) (fd int, addr string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	in4, _ := name.(*syscall.SockaddrInet4)
	return fd, fmt.Sprintf("127.0.0.1:%d", in4.Port)
}

// swallow reads one request whole.
func swallow(t testing.TB, r *bufio.Reader) bool {
	t.Helper()
	req, err := http.ReadRequest(r)
	if err != nil {
		return false
	}
	buf := make([]byte, req.ContentLength)
	if _, err := readFull(r, buf); err != nil {
		t.Errorf("request body: %v", err)
		return false
	}
	return true
}

func readFull(r *bufio.Reader, buf []byte) (int, error) {
	n := 0
	for n < len(buf) {
		m, err := r.Read(buf[n:])
		n += m
		if err != nil {
			return n, err //nolint:wrapcheck // a test's
		}
	}
	return n, nil
}

// block waits for the other side to go away.
func block(r *bufio.Reader) { _, _ = r.ReadByte() }

// authority is a CA of the test's own.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, // so that it can be an endpoint's, self-signed
		IsCA:        true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &authority{cert, key, pool}
}

// issue makes a certificate for 127.0.0.1, changed by the caller.
func (a *authority) issue(t testing.TB, change func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "endpoint"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if change != nil {
		change(tmpl)
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// serveTLS serves h with a certificate, over HTTP/2 if asked to.
func serveTLS(t testing.TB, cert tls.Certificate, h2 bool, h http.HandlerFunc) (string, *atomic.Int64) {
	t.Helper()
	conns := new(atomic.Int64)
	srv := httptest.NewUnstartedServer(h)
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	srv.EnableHTTP2 = h2
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv.URL, conns
}

// resolver answers by real DNS over UDP: answers(name, n) gives the addresses for
// the n-th question about a name (from 1), or nil for "no such name".
func resolver(t testing.TB, answers func(name string, n int) []netip.Addr) *net.Resolver {
	t.Helper()
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() { answerDNS(pc, answers) })
	ctx := t.Context() // package net asks on for seconds after its caller has gone
	t.Cleanup(func() {
		_ = pc.Close()
		done.Wait()
	})
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "udp4", pc.LocalAddr().String())
		if err == nil {
			context.AfterFunc(ctx, func() { _ = c.Close() })
		}
		return c, err
	}}
}

func answerDNS(pc net.PacketConn, answers func(string, int) []netip.Addr) {
	asked := map[string]int{}
	buf := make([]byte, 1500)
	for {
		n, from, err := pc.ReadFrom(buf)
		if err != nil {
			return
		}
		var q dnsmessage.Message
		if q.Unpack(buf[:n]) != nil || len(q.Questions) != 1 {
			continue
		}
		q.Response, q.Authoritative, q.Additionals = true, true, nil
		name := q.Questions[0].Name
		if q.Questions[0].Type == dnsmessage.TypeA {
			key := strings.TrimSuffix(name.String(), ".")
			asked[key]++
			for _, a := range answers(key, asked[key]) {
				q.Answers = append(q.Answers, dnsmessage.Resource{
					Header: dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET},
					Body:   &dnsmessage.AResource{A: a.As4()},
				})
			}
			if len(q.Answers) == 0 {
				q.RCode = dnsmessage.RCodeNameError
			}
		} // any other type: no error and no answer
		if out, err := q.Pack(); err == nil {
			_, _ = pc.WriteTo(out, from)
		}
	}
}
