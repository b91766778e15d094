package webhook

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/subscriber/subtest"
)

// heads is an endpoint that hands out the head of each request as it came over
// the socket, line by line.
func heads(t testing.TB) (url string, next <-chan []string) {
	t.Helper()
	ch := make(chan []string, 1)
	url, _ = raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
		for {
			var lines []string
			length := 0
			for {
				line, err := r.ReadString('\n')
				if err != nil {
					return
				}
				line = strings.TrimSuffix(line, "\r\n")
				if line == "" {
					break
				}
				_, _ = fmt.Sscanf(line, "Content-Length: %d", &length)
				lines = append(lines, line)
			}
			if _, err := io.CopyN(io.Discard, r, int64(length)); err != nil {
				return
			}
			ch <- lines
			if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"); err != nil {
				return
			}
		}
	})
	return url, ch
}

// FuzzHeaders: whatever a store lets pass goes out over a real socket byte for
// byte, and changes no other header.
func FuzzHeaders(f *testing.F) {
	for _, s := range [][4]string{
		{"X-Token", "hunter2", "Authorization", "Bearer a.b.c"},
		{"Cookie", "a=1; b=2", "cookie2", "x"},
		{"x", "a\tb  c", "!", "~"},
		{"X-Token", "a\r\nX-Evil: 1", "X", "y"},
		{"X\r\nHost", "a", "host", "b"},
		{"connection", "close", "Content-Length", "0"},
		{"Transfer-Encoding", "chunked", "trailer", "X-A"},
		{"Webhook-Id", "dlv_9", "Idempotency-Key", "k"},
		{"Accept-Encoding", "gzip", "Range", "bytes=0-1"},
		{"X-A", " a", "X-a", "b"},
		{"Expect", "100-continue", "Date", "x"},
		{"pragma", "no-cache", "If-Match", "*"},
		{"Accept", "*/*", "From", "a@b"},
	} {
		f.Add(s[0], s[1], s[2], s[3])
	}
	url, next := heads(f)
	s := newSender(f)
	request := newRequest(url)
	request.Timestamp = time.Unix(1_800_000_000, 0)
	send := func(t testing.TB, h subscriber.Headers) []string {
		t.Helper()
		request.Headers = h
		if a := s.Send(t.Context(), request); a.Outcome != delivery.OK {
			t.Fatalf("%q: %+v", map[string]string(h), a)
		}
		return <-next
	}
	bare := send(f, nil)
	f.Fuzz(func(t *testing.T, n1, v1, n2, v2 string) {
		m := subtest.NewMemory(1)
		sub, err := subscriber.New(m, subtest.AnyURL{}, nil, m.Now).Create(t.Context(), subscriber.Draft{
			URL: &url, Headers: map[string]*string{n1: &v1, n2: &v2},
		})
		if err != nil {
			return
		}
		if sub, err = subscriber.New(m, subtest.AnyURL{}, nil, m.Now).Get(t.Context(), sub.ID); err != nil { // as a dispatcher reads it
			t.Fatal(err)
		}
		want := slices.Clone(bare)
		for name, value := range map[string]string{n1: v1, n2: v2} {
			want = append(want, name+": "+value)
		}
		if n1 == n2 { // one entry, the later
			want = append(slices.Clone(bare), n2+": "+v2)
		}
		got := send(t, sub.Headers)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("sent\n%q, want\n%q", got, want)
		}
	})
}

// TestHeadersOverHTTP2: the same, in lower case.
func TestHeadersOverHTTP2(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	var header http.Header
	url, _ := serveTLS(t, ca.self(), true, func(_ http.ResponseWriter, r *http.Request) { header = r.Header })
	s := newSender(t, func(o *Options) { o.RootCAs = ca.pool })
	r := newRequest(url)
	r.Headers = subscriber.Headers{"x-tOKEN": "a  b\tc", "Authorization": "Bearer x"}
	if a := s.Send(t.Context(), r); a.Outcome != delivery.OK {
		t.Fatalf("%+v", a)
	}
	if header.Get("X-Token") != "a  b\tc" || header.Get("Authorization") != "Bearer x" || header.Get(HeaderID) != r.DeliveryID {
		t.Errorf("arrived as %q", header)
	}
}

// TestHeaderValuesAreNotKept: an endpoint that says back what it was sent, whole or
// in the parts that a receiver makes of it.
func TestHeaderValuesAreNotKept(t *testing.T) {
	t.Parallel()
	basic := base64.StdEncoding.EncodeToString([]byte("someone:sw0rdfish"))
	headers := subscriber.Headers{
		"Authorization": "Bearer eyJhbGciOi.J9", "X-Basic": "Basic " + basic,
		"Cookie": `sid="c00kieMonster"; other=plainValue1`, "X-Key": "k3yk",
	}
	for said, want := range map[string]string{
		"no Bearer eyJhbGciOi.J9":         "no [redacted]",
		"bad token eyJhbGciOi.J9":         "bad token [redacted]",
		"basic " + basic:                  "basic [redacted]",
		"someone:sw0rdfish is nobody":     "[redacted] is nobody",
		"wrong password sw0rdfish":        "wrong password [redacted]",
		"session c00kieMonster is over":   "session [redacted] is over",
		"plainValue1 and k3yk":            "[redacted] and [redacted]",
		`{"k":"sid=\"c00kieMonster\""}`:   `{"k":"[redacted]"}`,
		"nothing of it: Bearer, sid, key": "nothing of it: Bearer, sid, key",
	} {
		url, _ := serve(t, status(500, said))
		r := newRequest(url)
		r.Headers = headers
		a := newSender(t).Send(t.Context(), r)
		if a.Excerpt != want {
			t.Errorf("%q is kept as\n%q, want\n%q", said, a.Excerpt, want)
		}
	}
}

// TestABrokenHeaderIsOurFault, and is not quoted: it came past the store's rules.
func TestABrokenHeaderIsOurFault(t *testing.T) {
	t.Parallel()
	url, conns := serve(t, status(200, ""))
	for _, h := range []subscriber.Headers{{"X-Token": "sw0rdfish\r\nX-Evil: 1"}, {"X Token": "sw0rdfish"}, {"": "sw0rdfish"}} {
		r := newRequest(url)
		r.Headers = h
		a := newSender(t).Send(t.Context(), r)
		if a.Outcome == delivery.OK || a.Err == "" || strings.Contains(fmt.Sprintf("%+v", a), "sw0rdfish") {
			t.Errorf("%s: %+v", h, a)
		}
		if a.Outcome.Blame() == delivery.Endpoint {
			t.Errorf("%s: %s blames the endpoint", h, a.Outcome)
		}
	}
	if conns.Load() != 0 {
		t.Error("something left")
	}
}
