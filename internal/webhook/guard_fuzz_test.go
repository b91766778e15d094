package webhook

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// dials notes what one request would dial.
type dials struct {
	mu    sync.Mutex
	addrs [][2]string // network and address
	asked bool        // a name was looked up
}

type dialsKey struct{}

var errNoDial = errors.New("nothing is dialled in this test")

// wouldDial is what net/http makes of a URL, down to the address that it hands to
// the kernel, where it is stopped.
func wouldDial(t *testing.T, tr *http.Transport, u *url.URL) *dials {
	t.Helper()
	d := new(dials)
	ctx := httptrace.WithClientTrace(context.WithValue(t.Context(), dialsKey{}, d), &httptrace.ClientTrace{
		DNSStart: func(httptrace.DNSStartInfo) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.asked = true
		},
	})
	req := (&http.Request{Method: http.MethodPost, URL: u, Host: u.Host, Header: http.Header{}}).WithContext(ctx)
	resp, err := tr.RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
		t.Errorf("%s was called", u.Host)
	}
	return d
}

// stoppedTransport dials nothing.
func stoppedTransport() *http.Transport {
	dialer := &net.Dialer{
		Resolver: &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errNoDial }},
		ControlContext: func(ctx context.Context, network, address string, _ syscall.RawConn) error {
			if d, ok := ctx.Value(dialsKey{}).(*dials); ok {
				d.mu.Lock()
				defer d.mu.Unlock()
				d.addrs = append(d.addrs, [2]string{network, address})
			}
			return errNoDial
		},
	}
	return &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}
}

// FuzzURLGuard: the check of the text and the check at the dial agree about every
// literal address, however it is written. What CheckURL lets pass is not refused
// at the dial; what it refuses for its address is refused there for the same
// reason.
func FuzzURLGuard(f *testing.F) {
	list, err := os.ReadFile("testdata/blocked_endpoints.txt")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		text, _, _ := strings.Cut(line, "\t")
		f.Add(text)
	}
	for _, host := range []string{
		"1.1.1.1", "10.1.2.3", "[::ffff:10.1.2.3]", "[::ffff:a01:203]", "[fd00::1]", "[2606:4700::1111]", "[::1%25lo]", "1.1.1.1.", "01.1.1.1",
		"1.1.1.1:8443", "[::]:1", "1.1.1.1%2e", "%31.1.1.1", "１.1.1.1", "①.①.①.①", "1。1。1。1", "0x1.1.1.1", "16843009", "localhost", "a.localhost.",
		"[64:ff9b::1.1.1.1]", "[::ffff:0:1.1.1.1]", "[0:0:0:0:0:ffff:7f00:1]", "[1:2:3:4:5:6:7:8]", "1.1.1.1\t", "[::1", "::1", "[1.1.1.1]", "255.255.255.255",
	} {
		f.Add("https://" + host + "/hook?x=1#y")
		f.Add("http://" + host)
	}
	guards := []*Guard{
		NewGuard(GuardOptions{AllowHTTP: true, AnyPort: true}),
		NewGuard(GuardOptions{AllowHTTP: true, AnyPort: true, AllowCIDRs: []netip.Prefix{
			netip.MustParsePrefix("::ffff:10.0.0.0/104"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("127.0.0.1/32"),
		}}),
		NewGuard(GuardOptions{Ports: []uint16{443, 8443}}),
	}
	transport := stoppedTransport()
	f.Fuzz(func(t *testing.T, text string) {
		for i, g := range guards {
			err := g.CheckURL(text)
			if err == nil {
				u, err := g.parse(text)
				if err != nil {
					t.Fatalf("guard %d: %q passes, and cannot be sent to: %v", i, text, err)
				}
				d := wouldDial(t, transport, u)
				for _, a := range d.addrs {
					if err := g.Control(a[0], a[1], nil); err != nil && !d.asked {
						t.Fatalf("guard %d: %q passes, and at the dial: %v", i, text, err)
					}
				}
				if _, err := netip.ParseAddr(u.Hostname()); (err == nil) == d.asked {
					t.Fatalf("guard %d: %q is taken for an address: %v, and looked up: %v", i, text, err == nil, d.asked)
				}
				continue
			}
			var blocked *BlockedError
			if !errors.As(err, &blocked) {
				t.Fatalf("%q: %v is no *BlockedError", text, err)
			}
			if _, address := words[blocked.Verdict]; !address {
				continue
			}
			u, err := url.Parse(text)
			if err != nil {
				t.Fatalf("%q has an address, and cannot be parsed: %v", text, err)
			}
			for _, a := range wouldDial(t, transport, u).addrs {
				var at *BlockedError
				if err := g.Control(a[0], a[1], nil); !errors.As(err, &at) || at.Verdict != blocked.Verdict {
					t.Fatalf("guard %d: %q is refused (%v), and at the dial of %s: %v", i, text, blocked, a[1], err)
				}
			}
		}
	})
}
