package webhook

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fanout/fanout/internal/subscriber"
)

// leaks fails if an answer shows, in any form of printing it, the path or the
// query of the request's URL, its userinfo, or a secret.
func leaks(t *testing.T, r Request, a Answer) {
	t.Helper()
	printed := fmt.Sprintf("%v %+v %#v %s", a, a, a, a.Err+a.Excerpt)
	words := []string{"sw0rdfish", "sw0rd%66ish", "correct horse", "T1", "B2", "Xo9kQ2vR7mZp4w"}
	for _, s := range r.Secrets {
		_, key, _ := strings.Cut(s.Value, "_")
		words = append(words, s.Value, key)
	}
	for _, w := range words {
		if strings.Contains(printed, w) {
			t.Errorf("%s: %q shows in %s", a.Outcome, w, printed)
		}
	}
}

// TestNothingLeaks goes through every way to fail, with a token in the query and
// endpoints that echo all that they know.
func TestNothingLeaks(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	const query = "/services/T1/B2/Xo9kQ2vR7mZp4w?token=sw0rdfish&t2=sw0rd%66ish&pass=correct+horse"
	echo, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "http://%zz/"+query)
		var code int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &code)
		w.WriteHeader(code)
		fmt.Fprintf(w, "cannot POST %s %v %v, key %s", r.URL, r.URL.Query(), r.URL.RawQuery, vectorSecret)
		fmt.Fprintf(w, " path %q, last %s", r.URL.Path, path.Base(r.URL.Path))
	})
	wrong, _ := serveTLS(t, ca.issue(t, nil), false, status(200, ""))
	hangsUp, _ := raw(t, func(_ int, _ net.Conn, r *bufio.Reader) { swallow(t, r) })
	garbage, _ := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
		if req, err := http.ReadRequest(r); err == nil {
			_, _ = io.WriteString(c, "whoever says "+req.URL.RawQuery+" to me\r\n\r\n")
		}
	})
	hangs, _ := raw(t, func(_ int, _ net.Conn, r *bufio.Reader) { _, _ = io.Copy(io.Discard, r) })
	s := newSender(t, func(o *Options) {
		o.Resolver = resolver(t, func(string, int) []netip.Addr { return nil })
	})

	secrets := []subscriber.Secret{{Value: vectorSecret}, {Value: vectors(t)[1].Secret}}
	for _, url := range []string{
		echo + "/301", echo + "/400", echo + "/404", echo + "/410", echo + "/429", echo + "/500", echo + "/503",
		wrong, hangsUp, garbage, hangs, refusing(t),
		strings.Replace(echo, "http:", "https:", 1), // not TLS
		"http://no.such.host.example/", "http://10.0.0.1/", "http://127.1/", "ftp://example.com/",
		"http://me:sw0rdfish@127.0.0.1/", "http://exa mple.com/", "http://[::1", "://", "http://example.com:99999/",
	} {
		r := newRequest(url + query)
		r.Secrets, r.Timeout = secrets, 2*short
		a := s.Send(t.Context(), r)
		if a.Err == "" {
			t.Errorf("%s: no words in %+v", url, a)
		}
		leaks(t, r, a)
		broken := r
		broken.Secrets = []subscriber.Secret{secrets[0], {Value: "whsec_sw0rdfish"}}
		leaks(t, r, s.Send(t.Context(), broken))
	}
}

// TestErrIsOneBoundedLine, whatever an endpoint writes.
func TestErrIsOneBoundedLine(t *testing.T) {
	t.Parallel()
	url, _ := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
		swallow(t, r)
		_, _ = io.WriteString(c, strings.Repeat("\x1b[31m\xff", 500)+"\r\n\r\n")
	})
	a := newSender(t).Send(t.Context(), newRequest(url))
	if len(a.Err) > maxErr || strings.ContainsAny(a.Err, "\x1b\r\n") || !utf8.ValidString(a.Err) || a.Err == "" {
		t.Errorf("%d bytes: %q", len(a.Err), a.Err)
	}
}

// TestEchoes: an endpoint says back what it was called with, in the forms in which
// servers do.
func TestEchoes(t *testing.T) {
	t.Parallel()
	const target = "/services/T000/B000/s3gm%C3%A4nt%2B9?tok=a%2Bb&sig=s%2Fq%2Fv&x=12"
	for body, want := range map[string]string{
		"no POST " + target:                                         "no POST [redacted]",
		"no /services/T000/B000/s3gm%C3%A4nt%2B9":                   "no [redacted]",
		"no /services/T000/B000/s3gmänt+9 here":                     "no [redacted] here",
		"mounted: /T000/B000/s3gm%C3%A4nt%2B9":                      "mounted: [redacted]",
		"mounted: /T000/B000/s3gmänt+9":                             "mounted: [redacted]",
		"alone: s3gmänt+9, s3gm%C3%A4nt%2B9":                        "alone: [redacted], [redacted]",
		`{"path":"\/services\/T000\/B000\/s3gmänt+9"}`:              `{"path":"[redacted]"}`,
		"<a>/services/T000/B000/s3gm%C3%A4nt%2B9?tok=a%2Bb&amp;sig": "<a>[redacted]?tok=[redacted]&amp;sig",
		"sig s/q/v or s%2Fq%2Fv":                                    "sig [redacted] or [redacted]",
		"key " + vectorSecret:                                       "key [redacted]",
		"key " + strings.TrimPrefix(vectorSecret, "whsec_"):         "key [redacted]",
		"T000 is no team, 12 is no number, B000":                    "T000 is no team, 12 is no number, B000",
	} {
		base, _ := serve(t, status(500, body))
		if a := newSender(t).Send(t.Context(), newRequest(base+target)); a.Excerpt != want {
			t.Errorf("%q is kept as\n%q, want\n%q", body, a.Excerpt, want)
		}
	}
	// In JSON, HTML and URLs, of which encoders differ in what they escape.
	const tricky = `q"<&>'/+é`
	for _, shown := range []string{
		tricky, `q\"\u003c\u0026\u003e'/+é`, `q\"<&>'/+é`, `q\"<&>'\/+\u00e9`, `q\"\u003c\u0026\u003e'\/+\u00e9`,
		"q&#34;&lt;&amp;&gt;&#39;/+é", "q&quot;&lt;&amp;&gt;&#39;/+é", "q%22%3C%26%3E%27%2F%2B%C3%A9", url.PathEscape(tricky),
	} {
		base, _ := serve(t, status(500, "it is "+shown+"."))
		if a := newSender(t).Send(t.Context(), newRequest(base+"/x?t="+url.QueryEscape(tricky))); a.Excerpt != "it is [redacted]." {
			t.Errorf("%q is kept as %q", shown, a.Excerpt)
		}
	}
	// Userinfo is refused long before; the scrubbing does not rely on it.
	u := &url.URL{Scheme: "https", User: url.UserPassword("someone", "sw0rdfish"), Host: "a.example"}
	a := Answer{Excerpt: "not you, someone:sw0rdfish; someone, sw0rdfish"}
	a.scrub(&http.Request{URL: u}, nil, nil)
	if a.Excerpt != "not you, [redacted]; [redacted], [redacted]" {
		t.Errorf("got %q", a.Excerpt)
	}
}

// TestCutEcho: what is read of a body may end within an echo, and all before it
// shrink to less than an excerpt.
func TestCutEcho(t *testing.T) {
	t.Parallel()
	target := "/hooks/" + strings.Repeat("s3gment", 200)
	echoes := strings.Repeat(target+" ", maxBody/len(target)+1)
	url, _ := serve(t, status(500, echoes))
	a := newSender(t).Send(t.Context(), newRequest(url+target))
	if strings.Contains(a.Excerpt, "s3g") || !strings.HasPrefix(a.Excerpt, "[redacted] [redacted] ") {
		t.Errorf("got %q", a.Excerpt)
	}
}
