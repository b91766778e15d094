package httpapi

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// sites keeps the pages of other sites from changing anything here. A page of any
// site may send a POST without asking, a bodyless one above all (pause, resume), and
// a browser that was given a key for this server sends it along. Such requests are
// told by Sec-Fetch-Site, or by Origin, and get a 403. What is not from a browser has
// neither header. It covers every path, unknown ones too.
func (s *server) sites(next http.Handler) http.Handler {
	rule := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := rule.Check(r); err != nil {
			f := fail(ProblemCodeCrossOriginRefused, "A page of another site may not change anything here. Send the request without a browser.")
			f.cause = err
			s.fail(w, r, f)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// localOnly refuses a host that is not this machine, while there are no keys. The
// server listens on loopback alone then, but a name of somebody's own that he points
// at 127.0.0.1 (DNS rebinding) makes his page and this server one origin to a browser
// on the same machine. The name gives it away: it stands in the Host header. Others
// get a 421 (RFC 9110, 15.5.20), as from any server that is asked for a host that is
// not its own.
func localOnly(r *http.Request) error {
	if loopbackHost(r.Host) {
		return nil
	}
	f := fail(ProblemCodeHostNotAllowed, "Until it has keys, this server answers for localhost and loopback addresses only. "+
		"Call it by one of those, such as http://127.0.0.1 and its port.")
	f.cause = fmt.Errorf("asked for the host %q", clip(r.Host, maxParameter))
	return f
}

// loopbackHost says whether a Host header, with or without a port, names this
// machine beyond doubt. Of names only localhost does (RFC 6761, 6.3).
func loopbackHost(host string) bool {
	if inner, ok := strings.CutPrefix(host, "["); ok {
		address, port, _ := strings.Cut(inner, "]")
		addr, err := netip.ParseAddr(address)
		return err == nil && addr.Unmap().IsLoopback() && (port == "" || port[0] == ':') && len(inner) > len(address)
	}
	host, _, _ = strings.Cut(host, ":")
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.IsLoopback()
	}
	return strings.EqualFold(host, "localhost")
}
