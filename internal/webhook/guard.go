package webhook

import (
	"fmt"
	"net/netip"
	"syscall"

	"code.dny.dev/ssrf"
)

// Verdict names why an endpoint is refused. It is a bounded set.
type Verdict string

// The verdicts about an endpoint's text, then those about its address.
const (
	Malformed Verdict = "malformed" // not a URL, or its host is not a host name
	Scheme    Verdict = "scheme"    // not https, nor an http that is allowed
	Userinfo  Verdict = "userinfo"  // credentials in the URL
	Disguised Verdict = "disguised" // a host that some resolvers read as an address
	Port      Verdict = "port"      // outside the allowed ports

	Loopback    Verdict = "loopback"
	Private     Verdict = "private" // RFC 1918, and unique local addresses
	LinkLocal   Verdict = "link_local"
	Multicast   Verdict = "multicast"
	Unspecified Verdict = "unspecified"
	Special     Verdict = "special" // any other range of the IANA special-purpose registries
)

// BlockedError is what a Guard refuses with. Detail is fit to be shown: it holds
// no path, no query and no userinfo.
type BlockedError struct {
	Verdict Verdict
	Detail  string
}

func (e *BlockedError) Error() string {
	return fmt.Sprintf("endpoint refused (%s): %s", e.Verdict, e.Detail)
}

// GuardOptions say what may be called. The zero value allows https to port 443
// of public addresses.
type GuardOptions struct {
	// AllowHTTP allows plain http, for private networks and tests.
	AllowHTTP bool
	// Ports that may be dialled. Default: 443, and 80 if http is allowed.
	Ports []uint16
	// AnyPort allows every port but 0.
	AnyPort bool
	// AllowCIDRs are ranges that may be called although they are not public.
	AllowCIDRs []netip.Prefix
}

// Guard decides which endpoints may be called. It is asked twice: about the text
// when an endpoint is registered (CheckURL), to tell the person at once, and
// about the address at every dial (Control), which is the check that counts: a
// name may resolve to anything, and to something else a moment later.
type Guard struct {
	allowHTTP bool
	anyPort   bool
	ports     map[uint16]bool
	allowed   []netip.Prefix
	special   *ssrf.Guardian
}

// NewGuard makes a Guard, which is safe for concurrent use.
func NewGuard(o GuardOptions) *Guard {
	g := &Guard{
		allowHTTP: o.AllowHTTP,
		anyPort:   o.AnyPort,
		ports:     map[uint16]bool{},
		special:   ssrf.New(ssrf.WithAnyPort()), // ports are ours to name
	}
	ports := o.Ports
	if len(ports) == 0 {
		ports = []uint16{443}
		if o.AllowHTTP {
			ports = append(ports, 80)
		}
	}
	for _, p := range ports {
		g.ports[p] = true
	}
	for _, p := range o.AllowCIDRs {
		g.allowed = append(g.allowed, unmapPrefix(p))
	}
	return g
}

// unmapPrefix turns ::ffff:10.0.0.0/104 into 10.0.0.0/8, as addresses are
// compared unmapped.
func unmapPrefix(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96).Masked()
	}
	return p.Masked()
}

// Control refuses a dial before it is made: no packet leaves. It is meant for
// net.Dialer.Control, which calls it with the resolved address, every time. The
// error is a *BlockedError.
func (g *Guard) Control(network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return &BlockedError{Scheme, fmt.Sprintf("network %q is not TCP", network)}
	}
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return &BlockedError{Malformed, "the address to dial is not an address and a port"}
	}
	if err := g.checkPort(ap.Port()); err != nil {
		return err
	}
	return g.CheckAddr(ap.Addr())
}

// CheckAddr says whether an address may be called: nil, or a *BlockedError. An
// IPv4 address mapped into IPv6 is judged as the IPv4 address that it is.
func (g *Guard) CheckAddr(a netip.Addr) error {
	a = a.Unmap()
	for _, p := range g.allowed {
		if p.Contains(a) {
			return nil
		}
	}
	// The library holds the IANA registries; it decides, the name is for people.
	if g.special.SafeAddr(a) == nil {
		return nil
	}
	v := name(a)
	return &BlockedError{v, fmt.Sprintf("%s is %s", a, words[v])}
}

func (g *Guard) checkPort(port uint16) error {
	if g.ports[port] || g.anyPort && port != 0 {
		return nil
	}
	return &BlockedError{Port, fmt.Sprintf("port %d is not allowed", port)}
}

// words put an address's verdict into a sentence.
var words = map[Verdict]string{
	Loopback: "a loopback address", Unspecified: "an unspecified address", Private: "a private address",
	LinkLocal: "a link-local address", Multicast: "a multicast address",
	Special: "a special-purpose address, not a public one",
}

// name says which kind of special address one is.
func name(a netip.Addr) Verdict {
	switch {
	case a.IsLoopback():
		return Loopback
	case a.IsUnspecified():
		return Unspecified
	case a.IsPrivate():
		return Private
	case a.IsLinkLocalUnicast():
		return LinkLocal
	case a.IsMulticast():
		return Multicast
	}
	return Special
}
