//go:debug x509usefallbackroots=1

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// authority is a CA that this process trusts as one of the system's: the service
// is configured as in production, and only the machine is another.
var authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// trustTestAuthority makes the authority and puts it in place of the system's.
// The directive at the top of this file has crypto/x509 allow it.
func trustTestAuthority() {
	cert, key := issue(func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	}, nil, nil)
	authority.cert, authority.key = cert, key
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	x509.SetFallbackRoots(pool)
}

// issue makes a certificate for 127.0.0.1, changed by the caller; self-signed
// without a parent.
func issue(change func(*x509.Certificate), parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "e2e"},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if change != nil {
		change(cert)
	}
	if parent == nil {
		parent, signer = cert, key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, signer)
	if err != nil {
		panic(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		panic(err)
	}
	return cert, key
}

func trusted(change func(*x509.Certificate)) tls.Certificate {
	return pair(issue(change, authority.cert, authority.key))
}

func pair(cert *x509.Certificate, key *ecdsa.PrivateKey) tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

// shown is the certificate that an endpoint shows now.
type shown struct {
	mu   sync.Mutex
	cert tls.Certificate
}

func (c *shown) set(cert tls.Certificate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cert = cert
}

// config is asked for each connection. GetCertificate would not be: httptest adds
// a certificate of its own, which comes first.
func (c *shown) config(*tls.ClientHelloInfo) (*tls.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &tls.Config{
		Certificates: []tls.Certificate{c.cert}, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12,
	}, nil
}

// endpointTLS is an endpoint by https.
func (s *service) endpointTLS(cert tls.Certificate, a answer) (*endpoint, *shown) {
	s.Helper()
	e, c := s.unstarted(a), &shown{cert: cert}
	e.TLS = &tls.Config{GetConfigForClient: c.config, MinVersion: tls.VersionTLS12}
	e.EnableHTTP2 = true
	e.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	e.StartTLS()
	return e, c
}

// A certificate that does not hold is tls: transient, no request, and a person can
// read in the evidence what to mend. Once it is mended, the delivery arrives.
func TestCertificates(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, c := range []struct {
		name, words string
		cert        tls.Certificate
	}{
		{"expired", "expired", trusted(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) })},
		{"wrong-host", "127.0.0.1", trusted(func(c *x509.Certificate) {
			c.IPAddresses, c.DNSNames = nil, []string{"elsewhere.example"}
		})},
		{"self-signed", "unknown authority", pair(issue(nil, nil, nil))},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := s.in(t)
			e, _ := s.endpointTLS(c.cert, always(200))
			s.subscribe(e.URL, c.name, quick)
			s.post(c.name, c.name, `{}`)
			v := s.dead(c.name, "exhausted")
			s.expect(v, "tls", "tls", "tls")
			for _, a := range v.Evidence {
				if !strings.HasPrefix(a.Error, "tls: ") || !strings.Contains(a.Error, c.words) {
					t.Errorf("the evidence says %q, want it to name %q", a.Error, c.words)
				}
			}
			s.saw(e, 0)

			e, shown := s.endpointTLS(c.cert, always(200))
			s.subscribe(e.URL, c.name+".mended", persistent)
			s.post(c.name+".mended", c.name+".mended", `{}`)
			s.until("an attempt failed", func() bool { return s.look(c.name+".mended").LastOutcome == "tls" })
			shown.set(trusted(nil))
			s.delivery(c.name+".mended", "delivered")
			s.saw(e, 1)
		})
	}
}
