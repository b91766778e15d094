package webhook

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
)

// maxURL bounds an endpoint's text, in bytes: what servers commonly take.
const maxURL = 2048

// CheckURL judges an endpoint by its text: scheme, host, port and a literal
// address. It never resolves a name, so a name that passes may still be refused
// at every dial. What would be sent in another form than it was written in is
// refused too, though parse could make do with it. The error is a *BlockedError.
func (g *Guard) CheckURL(raw string) error {
	if _, err := g.parse(raw); err != nil {
		return err
	}
	switch {
	case strings.Contains(raw, "#"):
		return &BlockedError{Malformed, "the URL has a fragment (#), which is never sent: leave it out, or write # as %23"}
	case strings.ContainsFunc(raw, unicode.IsSpace):
		return &BlockedError{Malformed, "the URL holds a blank: remove it, or write it as %20"}
	}
	return nil
}

// parse is CheckURL, and gives the URL as it may be sent to: its host in ASCII,
// so that what was judged is what is dialled.
func (g *Guard) parse(raw string) (*url.URL, error) {
	if len(raw) > maxURL {
		return nil, &BlockedError{Malformed, fmt.Sprintf("the URL is longer than %d bytes", maxURL)}
	}
	u, err := url.Parse(raw)
	if err != nil { // its text quotes the URL, credentials included
		return nil, &BlockedError{Malformed, "the endpoint is not a URL"}
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !g.allowHTTP) {
		return nil, &BlockedError{Scheme, "the scheme must be " + g.schemes()}
	}
	if u.User != nil {
		return nil, &BlockedError{Userinfo, "the URL must not carry credentials"}
	}
	if u.Opaque != "" || u.Host == "" {
		return nil, &BlockedError{Malformed, "the URL has no host"}
	}
	if err := g.checkURLPort(u); err != nil {
		return nil, err
	}
	host, err := g.checkHost(u)
	if err != nil {
		return nil, err
	}
	if port := u.Port(); port != "" {
		u.Host = net.JoinHostPort(host, port)
	} else if strings.Contains(host, ":") {
		u.Host = "[" + host + "]"
	} else {
		u.Host = host
	}
	u.Fragment, u.RawFragment = "", "" // never leaves a client
	return u, nil
}

func (g *Guard) schemes() string {
	if g.allowHTTP {
		return "https or http"
	}
	return "https"
}

func (g *Guard) checkURLPort(u *url.URL) error {
	port := map[string]uint64{"http": 80, "https": 443}[u.Scheme]
	if p := u.Port(); p != "" {
		var err error
		if port, err = strconv.ParseUint(p, 10, 16); err != nil {
			return &BlockedError{Port, "the port is not a number from 1 to 65535"}
		}
	}
	return g.checkPort(uint16(port))
}

// checkHost judges the host and gives it in ASCII. Two kinds of host name are
// refused although no literal address stands there: "localhost", which RFC 6761
// (6.3) promises to be loopback, and whatever ends in a number, which inet_aton
// and the WHATWG URL standard ("ends in a number") read as an IPv4 address:
// 2130706433, 0x7f000001, 127.1.
func (g *Guard) checkHost(u *url.URL) (string, error) {
	host := u.Hostname()
	if strings.HasPrefix(u.Host, "[") {
		addr, err := netip.ParseAddr(host)
		if err != nil || addr.Zone() != "" {
			return "", &BlockedError{Malformed, "what stands in brackets is not an IPv6 address"}
		}
		return host, g.CheckAddr(addr)
	}
	host, err := toASCII(host)
	if err != nil {
		return "", &BlockedError{Malformed, "the host is not a host name"}
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if host != u.Hostname() {
			return "", &BlockedError{Disguised, "the host is an address written in unusual characters"}
		}
		return host, g.CheckAddr(addr)
	}
	bare := strings.ToLower(strings.TrimSuffix(host, "."))
	if !hostName(bare) {
		return "", &BlockedError{Malformed, "the host is not a host name"}
	}
	last := bare[strings.LastIndexByte(bare, '.')+1:]
	if numeric(last) {
		return "", &BlockedError{Disguised, "the host ends in a number: write an address as four decimal numbers"}
	}
	if last == "localhost" {
		for _, a := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
			if g.CheckAddr(a) == nil {
				return host, nil
			}
		}
		return "", &BlockedError{Loopback, "localhost is this machine"}
	}
	return host, nil
}

// toASCII is what net/http does on the way to the dial: full-width digits and
// ideographic full stops become the ASCII ones.
func toASCII(host string) (string, error) {
	if strings.IndexFunc(host, func(c rune) bool { return c > unicode.MaxASCII }) < 0 {
		return host, nil
	}
	host, err := idna.Lookup.ToASCII(host)
	if err != nil {
		return "", fmt.Errorf("host name: %w", err)
	}
	return host, nil
}

// hostName follows RFC 1123 (2.1), and takes the underscore that is found in use.
func hostName(s string) bool {
	if len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			c := label[i]
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}

// numeric says whether a lower-case label is a number: digits, or 0x and hex.
func numeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}
