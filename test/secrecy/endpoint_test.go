//go:build secrecy

package secrecy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"
)

// endpoint answers as the first part of the path says, and throws back whatever it
// was sent in every form that a server of some kind would.
func (w *world) endpoint(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	behaviour, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	w.mu.Lock()
	w.seen[behaviour]++
	w.mu.Unlock()
	switch behaviour {
	case "hangs":
		<-r.Context().Done()
		return
	case "resets":
		if c, _, err := http.NewResponseController(rw).Hijack(); err == nil {
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}
		return
	case "garbage":
		if c, _, err := http.NewResponseController(rw).Hijack(); err == nil {
			_, _ = fmt.Fprintf(c, "HTTP/1.1 what %s %s\r\n\r\n", r.URL.RequestURI(), r.Header.Get("X-Api-Key"))
			_ = c.Close()
		}
		return
	}
	var status int
	_, _ = fmt.Sscanf(behaviour, "%d", &status)
	h := rw.Header()
	h.Set("Location", "http://"+r.Host+r.URL.RequestURI()+"&next="+url.QueryEscape(r.Header.Get("X-Api-Key")))
	h.Set("X-Echo", r.Header.Get("Authorization"))
	h.Set("Retry-After", "1")
	rw.WriteHeader(status)
	if strings.HasSuffix(r.URL.Path, "/html") {
		fmt.Fprintf(rw, "<p>Cannot %s %s</p><pre>%s</pre>", r.Method, html.EscapeString(r.URL.String()), html.EscapeString(fmt.Sprint(r.Header)))
		return
	}
	// An error page has room for a part of this only: the parts take turns at its head.
	parts := []any{
		map[string]any{"path": r.URL.Path, "query": r.URL.Query(), "url": r.URL.RequestURI()},
		map[string]any{"headers": r.Header},
		map[string]any{"key": w.secretsOf(r), "body": string(body)},
	}
	w.mu.Lock()
	turn := w.seen[behaviour] % len(parts)
	w.mu.Unlock()
	for i := range parts {
		enc := json.NewEncoder(rw)
		enc.SetEscapeHTML(turn != 0)
		if err := enc.Encode(parts[(i+turn)%len(parts)]); err != nil {
			return // the sender went away
		}
	}
}

// secretsOf are the signing secrets that the owner of the path gave: an endpoint
// knows them.
func (w *world) secretsOf(r *http.Request) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.signing[strings.TrimSuffix(r.URL.Path, "/html")]
}

// endpoints starts what is called: by http, by https with a certificate that nobody
// trusts, and an address where nobody listens.
func (w *world) endpoints() (plain, selfSigned, nobody string) {
	w.Helper()
	quiet := slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug) // the handshakes that fail
	s := httptest.NewServer(http.HandlerFunc(w.endpoint))
	w.Cleanup(func() { s.CloseClientConnections(); s.Close() })

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	w.ok(err)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"elsewhere.example"},
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	w.ok(err)
	secure := httptest.NewUnstartedServer(http.HandlerFunc(w.endpoint))
	secure.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}
	secure.Config.ErrorLog = quiet
	secure.StartTLS()
	w.Cleanup(func() { secure.CloseClientConnections(); secure.Close() })

	ln, err := new(net.ListenConfig).Listen(w.Context(), "tcp", "127.0.0.1:0")
	w.ok(err)
	nobody = "http://" + ln.Addr().String()
	w.ok(ln.Close())
	return s.URL, secure.URL, nobody
}
