package webhook

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fanout/fanout/internal/delivery"
)

// blockedEndpoints reads the shared list: URL, tab, reason.
func blockedEndpoints(t *testing.T) map[string]string {
	t.Helper()
	f, err := os.Open("testdata/blocked_endpoints.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	list := map[string]string{}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if url, reason, ok := strings.Cut(sc.Text(), "\t"); ok {
			list[url] = reason
		}
	}
	if len(list) < 26 {
		t.Fatalf("read only %d endpoints", len(list))
	}
	return list
}

// verdicts is what each reason of the list must be refused as, at the latest at
// the dial.
var verdicts = map[string]Verdict{
	"loopback": Loopback, "resolves to loopback": Loopback,
	"v4-mapped loopback": Loopback, "v4-mapped loopback, hex": Loopback,
	"this host": Unspecified, "unspecified": Unspecified,
	"private": Private, "unique-local metadata": Private,
	"link-local": LinkLocal, "link-local metadata": LinkLocal,
	"multicast": Multicast, "broadcast": Special,
	"decimal IPv4": Disguised, "hex IPv4": Disguised, "octal IPv4": Disguised, "short IPv4": Disguised,
	"full-width digits": Disguised, "ideographic full stops": Disguised,
	"userinfo": Userinfo, "scheme": Scheme, "port outside the policy": Port, "space": Malformed,
}

func TestBlockedEndpointsAtRegistration(t *testing.T) {
	t.Parallel()
	g := NewGuard(GuardOptions{AllowHTTP: true}) // else all would fail by their scheme
	for url, reason := range blockedEndpoints(t) {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			err := g.CheckURL(url)
			var blocked *BlockedError
			if !errors.As(err, &blocked) {
				t.Fatalf("%s: %v is no *BlockedError", url, err)
			}
			if want := verdicts[reason]; blocked.Verdict != want {
				t.Errorf("%s: %v, want %q", url, err, want)
			}
			if err := NewGuard(GuardOptions{}).CheckURL(url); err == nil {
				t.Errorf("%s passes where http is not allowed", url)
			}
		})
	}
}

// TestBlockedEndpointsAtTheSend: a URL that was stored under another guard is
// refused all the same, and no resolver is asked.
func TestBlockedEndpointsAtTheSend(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	s := New(Options{
		Guard: NewGuard(GuardOptions{AllowHTTP: true}),
		Resolver: resolver(t, func(string, int) []netip.Addr {
			asked.Add(1)
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
		}),
	})
	defer s.Close()
	for url, reason := range blockedEndpoints(t) {
		want := delivery.BlockedAddress
		if v := verdicts[reason]; v == Malformed || v == Scheme || v == Userinfo {
			want = delivery.BadRequest
		}
		if a := s.Send(t.Context(), newRequest(url)); a.Outcome != want || a.Status != 0 || a.Err == "" {
			t.Errorf("%s (%s): %+v, want %s", url, reason, a, want)
		}
	}
	if asked.Load() != 0 {
		t.Errorf("%d questions were asked about hosts that are no names", asked.Load())
	}
}

// TestBlockedAddressesAtTheDial goes past the check of the text: the addresses of
// the list, as a resolver would give them, are refused by Control.
func TestBlockedAddressesAtTheDial(t *testing.T) {
	t.Parallel()
	g := NewGuard(GuardOptions{AllowHTTP: true})
	for text, want := range map[string]Verdict{
		"127.0.0.1": Loopback, "127.255.255.254": Loopback, "::1": Loopback,
		"::ffff:127.0.0.1": Loopback, "0.0.0.0": Unspecified, "::": Unspecified, "0.1.2.3": Special,
		"10.1.2.3": Private, "172.16.0.1": Private, "172.31.255.255": Private, "192.168.1.1": Private,
		"169.254.169.254": LinkLocal, "fd00:ec2::254": Private, "fe80::1": LinkLocal, "fe80::1%lo": LinkLocal,
		"224.0.0.1": Multicast, "ff02::1": Multicast, "255.255.255.255": Special, "240.0.0.1": Special,
		"100.64.0.1": Special, "192.0.2.1": Special, "198.18.0.1": Special, "203.0.113.9": Special,
		"64:ff9b::7f00:1": Special, "2002:7f00:1::": Special, "2001:db8::1": Special, "2001::1": Special,
		"::127.0.0.1": Special, "fec0::1": Special, "3fff::1": Special, "5f00::1": Special,
	} {
		network := "tcp6"
		if !strings.Contains(text, ":") {
			network = "tcp4"
		}
		err := g.Control(network, net.JoinHostPort(text, "443"), nil)
		var blocked *BlockedError
		if !errors.As(err, &blocked) || blocked.Verdict != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for _, text := range []string{"1.1.1.1", "93.184.216.34", "172.32.0.1", "2606:4700::1111", "::ffff:1.1.1.1"} {
		if err := g.Control("tcp4", net.JoinHostPort(text, "443"), nil); err != nil {
			t.Errorf("%s is public: %v", text, err)
		}
	}
	for address, network := range map[string]string{
		"1.1.1.1:22": "tcp4", "1.1.1.1:0": "tcp4", "1.1.1.1:443": "udp4", "/run/docker.sock": "unix", "example.com:443": "tcp4",
	} {
		if g.Control(network, address, nil) == nil {
			t.Errorf("%s %s is let through", network, address)
		}
	}
}

// TestRebinding: a name that passes at registration and at the first dial points
// elsewhere at the second. No connection is made.
func TestRebinding(t *testing.T) {
	t.Parallel()
	face, l := samePort(t) // allowed, and refused by the guard
	var secret atomic.Int64
	inner := http.Server{Handler: status(200, "the crown jewels"), ConnState: func(net.Conn, http.ConnState) { secret.Add(1) }}
	go func() { _ = inner.Serve(l) }()
	t.Cleanup(func() { _ = inner.Close() })
	_, port, _ := net.SplitHostPort(l.Addr().String())
	outer := http.Server{Handler: status(200, "")}
	outer.SetKeepAlivesEnabled(false) // so that the second attempt dials
	go func() { _ = outer.Serve(face) }()
	t.Cleanup(func() { _ = outer.Close() })

	s := newSender(t, func(o *Options) {
		o.Resolver = resolver(t, func(_ string, n int) []netip.Addr {
			if n == 1 {
				return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.2")}
		})
	})
	url := "http://rebind.example:" + port + "/?token=abcdef"
	if err := s.guard.CheckURL(url); err != nil {
		t.Fatal(err)
	}
	if a := s.Send(t.Context(), newRequest(url)); a.Outcome != delivery.OK {
		t.Fatalf("before: %+v", a)
	}
	a := s.Send(t.Context(), newRequest(url))
	if a.Outcome != delivery.BlockedAddress || !strings.Contains(a.Err, "127.0.0.2 is a loopback address") {
		t.Errorf("after: %+v", a)
	}
	if secret.Load() != 0 {
		t.Error("a connection reached the blocked address")
	}
}

// samePort listens on 127.0.0.1 and 127.0.0.2, on one port.
func samePort(t *testing.T) (face, inner net.Listener) {
	t.Helper()
	var err error
	for range 20 { // another process may have the port on one of them
		face = listen(t)
		_, port, _ := net.SplitHostPort(face.Addr().String())
		if inner, err = net.Listen("tcp4", net.JoinHostPort("127.0.0.2", port)); err == nil {
			return face, inner
		}
	}
	t.Fatal(err)
	return nil, nil
}

// TestLocalhostAtTheDial: a guard that lets the name pass, because one loopback
// address is allowed, still refuses the other.
func TestLocalhostAtTheDial(t *testing.T) {
	t.Parallel()
	o := here
	o.AllowCIDRs = []netip.Prefix{netip.MustParsePrefix("::1/128")}
	s := newSender(t, func(opt *Options) {
		opt.Guard = NewGuard(o)
		opt.Resolver = resolver(t, func(string, int) []netip.Addr { return []netip.Addr{netip.MustParseAddr("127.0.0.1")} })
	})
	url, conns := serve(t, status(200, ""))
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(url, "http://"))
	if err := s.guard.CheckURL("http://localhost:" + port); err != nil {
		t.Fatal(err)
	}
	if a := s.Send(t.Context(), newRequest("http://inside.example:"+port)); a.Outcome != delivery.BlockedAddress {
		t.Errorf("%+v", a)
	}
	if conns.Load() != 0 {
		t.Error("a connection was made")
	}
}

func TestCheckURL(t *testing.T) {
	t.Parallel()
	strict := NewGuard(GuardOptions{})
	for url, want := range map[string]Verdict{
		"https://example.com":                                "",
		"https://example.com/hook?token=a%23top":             "",
		"https://example.com/hook#":                          Malformed,
		"https://example.com/hook?token=a#top":               Malformed,
		"https://example.com/ho ok":                          Malformed,
		"https://example.com/hook ":                          Malformed,
		"https://example.com/ho\u00a0ok":                     Malformed,
		"https://example.com/?a=b c":                         Malformed,
		"https://EXAMPLE.com:443/":                           "",
		"https://example.com.":                               "",
		"https://bücher.example/":                            "",
		"https://my_host.example/":                           "",
		"https://1.1.1.1/":                                   "",
		"https://[2606:4700::1111]/":                         "",
		"https://0xfeed.example/":                            "",
		"http://example.com/":                                Scheme,
		"HTTPS://example.com/":                               "",
		"//example.com/":                                     Scheme,
		"example.com":                                        Scheme,
		"":                                                   Scheme,
		"https:example.com":                                  Malformed,
		"https://":                                           Malformed,
		"https:///path":                                      Malformed,
		"https://:443/":                                      Malformed,
		"https://a..b/":                                      Malformed,
		"https://-a.example/":                                Malformed,
		"https://exa$mple.com/":                              Malformed,
		"https://example.com\t/":                             Malformed,
		"https://[::1":                                       Malformed,
		"https://[fe80::1%25eth0]/":                          Malformed,
		"https://[127.0.0.1]/":                               Malformed,
		"https://user@example.com/":                          Userinfo,
		"https://@example.com/":                              Userinfo,
		"https://example.com:80/":                            Port,
		"https://example.com:0/":                             Port,
		"https://example.com:65536/":                         Port,
		"https://example.com:99999999999/":                   Port,
		"https://LOCALHOST/":                                 Loopback,
		"https://localhost./":                                Loopback,
		"https://a.localhost/":                               Loopback,
		"https://127.0.0.1./":                                Disguised,
		"https://0x7f.1/":                                    Disguised,
		"https://example.0x/":                                Disguised,
		"https://①②⑦.0.0.1/":                                 Disguised,
		"https://[64:ff9b::a00:1]/":                          Special,
		"https://[::ffff:169.254.169.254]/":                  LinkLocal,
		"https://" + strings.Repeat("a", 64) + ".com/":       Malformed,
		"https://example.com/" + strings.Repeat("a", maxURL): Malformed,
	} {
		err := strict.CheckURL(url)
		var blocked *BlockedError
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", url, err)
		case want != "" && (!errors.As(err, &blocked) || blocked.Verdict != want):
			t.Errorf("%q: %v, want %s", url, err, want)
		}
	}
}

func TestGuardOptions(t *testing.T) {
	t.Parallel()
	cidr := []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104"), netip.MustParsePrefix("fd00::/8")}
	g := NewGuard(GuardOptions{Ports: []uint16{8443}, AllowCIDRs: cidr})
	for url, ok := range map[string]bool{
		"https://example.com:8443/": true, "https://example.com/": false, "http://example.com:8443/": false,
		"https://10.1.2.3:8443/": true, "https://[::ffff:10.1.2.3]:8443/": true, "https://[fd00::1]:8443/": true,
		"https://11.0.0.1:8443/": true, "https://192.168.0.1:8443/": false, "https://localhost:8443/": false,
	} {
		if err := g.CheckURL(url); (err == nil) != ok {
			t.Errorf("%s: %v", url, err)
		}
	}
	if err := NewGuard(GuardOptions{AllowHTTP: true}).CheckURL("http://example.com/"); err != nil {
		t.Errorf("port 80 where http is allowed: %v", err)
	}
	if err := NewGuard(GuardOptions{AnyPort: true}).CheckURL("https://example.com:1/"); err != nil {
		t.Errorf("any port: %v", err)
	}
}

// TestRefusalsAreFitToShow: none quotes the query or the credentials.
func TestRefusalsAreFitToShow(t *testing.T) {
	t.Parallel()
	for url := range blockedEndpoints(t) {
		for _, g := range []*Guard{NewGuard(GuardOptions{}), NewGuard(GuardOptions{AllowHTTP: true})} {
			err := g.CheckURL(strings.Replace(url, "://", "://hunter2:hunter2@", 1) + "?token=hunter2")
			if err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: %v", url, err)
			}
		}
	}
}

// TestRefusalsAreSentences that tell a person what to do.
func TestRefusalsAreSentences(t *testing.T) {
	t.Parallel()
	g := NewGuard(GuardOptions{})
	for url, want := range map[string]string{
		"https://[::]/":           ":: is an unspecified address",
		"https://127.0.0.1/":      "127.0.0.1 is a loopback address",
		"https://169.254.1.1/":    "169.254.1.1 is a link-local address",
		"https://192.0.2.1/":      "192.0.2.1 is a special-purpose address, not a public one",
		"https://example.com/#x":  "has a fragment (#), which is never sent",
		"https://example.com/a b": "holds a blank: remove it, or write it as %20",
	} {
		if err := g.CheckURL(url); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
	for v := range words {
		if article := words[v][:3]; (article == "an ") != strings.ContainsRune("aeiou", rune(v[0])) {
			t.Errorf("%q has the wrong article", words[v])
		}
	}
}
