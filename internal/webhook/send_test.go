package webhook

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/fanout/fanout/internal/delivery"
)

// TestWhatLeaves: every header, the exact bytes, and nothing that was not asked
// for.
func TestWhatLeaves(t *testing.T) {
	t.Parallel()
	var header http.Header
	var method, host, path string
	var body []byte
	url, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		header, method, host, path = r.Header, r.Method, r.Host, r.URL.RequestURI()
		body, _ = io.ReadAll(r.Body)
		if r.ContentLength != int64(len(body)) {
			t.Errorf("content-length %d for %d bytes", r.ContentLength, len(body))
		}
	})
	r := newRequest(url + "/a%20b/hook?token=x&empty=#part")
	r.Body = []byte("{\"z\":1, \"a\":18446744073709551616,\"a\":1.0,\"s\":\"\\u00e9\\/<>&\",\n\t\"n\":" + strings.Repeat("9", 309) + "}")
	r.Attempt, r.DeliveryCount, r.Generation = 7, 1<<40, 2
	r.Timestamp = time.Unix(1_800_000_000, 999e6)
	r.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	a := newSender(t).Send(t.Context(), r)
	if a.Outcome != delivery.OK || a.Status != 200 || a.Err != "" || a.Excerpt != "" || a.Duration <= 0 {
		t.Fatalf("answer: %+v", a)
	}
	signature, err := Sign(r.Secrets, r.DeliveryID, r.Timestamp, r.Body)
	if err != nil {
		t.Fatal(err)
	}
	want := http.Header{
		"Webhook-Id": {"dlv_0001"}, "Webhook-Timestamp": {"1800000000"}, "Webhook-Signature": {signature},
		"Content-Type": {"application/json"}, "User-Agent": {"fanout/test"}, "Content-Length": {fmt.Sprint(len(r.Body))},
		"Fanout-Attempt": {"7"}, "Fanout-Delivery-Count": {"1099511627776"}, "Fanout-Redrive-Generation": {"2"},
		"Traceparent": {r.Traceparent},
	}
	if diff := cmp.Diff(want, header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if !bytes.Equal(body, r.Body) {
		t.Errorf("body arrived as %q", body)
	}
	if method != "POST" || "http://"+host != url || path != "/a%20b/hook?token=x&empty=" {
		t.Errorf("%s %s at %s", method, path, host)
	}
}

func TestOptionalHeaders(t *testing.T) {
	t.Parallel()
	var header http.Header
	url, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) { header = r.Header })
	s := newSender(t, func(o *Options) { o.UserAgent = "shop/1" })
	for _, bad := range []string{"", "x", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nX-Evil: 1", strings.Repeat("-", 55), strings.Repeat("A", 55)} {
		r := newRequest(url)
		r.Traceparent = bad
		if a := s.Send(t.Context(), r); a.Outcome != delivery.OK {
			t.Fatalf("%q: %+v", bad, a)
		}
		if got, there := header["Traceparent"]; there || header.Get("User-Agent") != "shop/1" {
			t.Errorf("traceparent %q, user agent %q", got, header.Get("User-Agent"))
		}
	}
}

// TestThirdAttempt: the same id, a fresh timestamp, and a signature that the
// specification's own library takes, in its time as in ours.
func TestThirdAttempt(t *testing.T) {
	t.Parallel()
	wh, err := standardwebhooks.NewWebhook(vectorSecret)
	if err != nil {
		t.Fatal(err)
	}
	var n int
	var ids, stamps []string
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n++
		body, _ := io.ReadAll(r.Body)
		if err := wh.Verify(body, r.Header); err != nil {
			t.Errorf("attempt %d: %v", n, err)
		}
		if err := Verify(vectorSecret, r.Header, body, time.Now()); err != nil {
			t.Errorf("attempt %d: %v", n, err)
		}
		if wh.Verify(append(body, '\n'), r.Header) == nil {
			t.Error("a tampered body verifies")
		}
		ids, stamps = append(ids, r.Header.Get(HeaderID)), append(stamps, r.Header.Get(HeaderTimestamp))
		if n < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	s := newSender(t)
	r := newRequest(url)
	start := time.Now().Add(-4 * time.Minute)
	var last Answer
	for r.Attempt = 1; r.Attempt <= 3; r.Attempt++ {
		r.Timestamp = start.Add(time.Duration(r.Attempt) * time.Minute)
		last = s.Send(t.Context(), r)
	}
	if last.Outcome != delivery.OK || n != 3 {
		t.Errorf("after %d requests: %+v", n, last)
	}
	if ids[0] != ids[2] || stamps[0] == stamps[2] {
		t.Errorf("ids %q, timestamps %q", ids, stamps)
	}
}

// TestEveryStatus: each final status that can be sent, one request, the outcome
// of the table, an excerpt of failures alone.
func TestEveryStatus(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	url, conns := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		var code int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &code)
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(code)
		if code != 204 && code != 304 {
			_, _ = w.Write([]byte("why"))
		}
	})
	s := newSender(t)
	for code := 200; code <= 599; code++ {
		a := s.Send(t.Context(), newRequest(fmt.Sprintf("%s/%d", url, code)))
		if a.Outcome != delivery.Classify(code) || a.Status != code {
			t.Errorf("%d: %+v", code, a)
		}
		if ok := code < 300; ok != (a.Err == "") || ok && a.Excerpt != "" || !ok && code != 304 && a.Excerpt != "why" {
			t.Errorf("%d: err %q, excerpt %q", code, a.Err, a.Excerpt)
		}
		want := time.Duration(0)
		if code == 429 || code == 503 {
			want = 2 * time.Minute
		}
		if a.RetryAfter != want {
			t.Errorf("%d: retry after %s", code, a.RetryAfter)
		}
	}
	if requests.Load() != 400 || conns.Load() != 1 {
		t.Errorf("%d requests over %d connections for 400 attempts", requests.Load(), conns.Load())
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", r.URL.Query().Get("v"))
		w.WriteHeader(http.StatusTooManyRequests)
	})
	s := newSender(t)
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) // far from this machine's clock
	for v, want := range map[string]time.Duration{
		"7": 7 * time.Second, "9999": time.Hour, "soon": 0, "-1": 0, "Mon,%2030%20Nov%202026%2012:05:00%20GMT": 5 * time.Minute,
	} {
		r := newRequest(url + "/?v=" + v)
		r.Timestamp = at
		// A date is read against Redis time, which goes on while the request does.
		if a := s.Send(t.Context(), r); a.RetryAfter > want || a.RetryAfter < want-want/50 {
			t.Errorf("%s: %s, want %s", v, a.RetryAfter, want)
		}
	}
}

// TestRetryAfterInVain: who does not get what it asked for finds that in the evidence,
// and who does finds nothing.
func TestRetryAfterInVain(t *testing.T) {
	t.Parallel()
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var code int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &code)
		if v := r.URL.Query().Get("v"); v != "" {
			w.Header().Set("Retry-After", v)
		}
		w.WriteHeader(code)
	})
	s := newSender(t)
	for path, want := range map[string]string{
		"/503":                    "answered 503 Service Unavailable",
		"/503?v=7":                "answered 503 Service Unavailable",
		"/429?v=3600":             "answered 429 Too Many Requests",
		"/429?v=0":                "answered 429 Too Many Requests",
		"/429?v=7200":             "answered 429 Too Many Requests; its Retry-After asked for 2h0m0s and gets 1h0m0s (retry_after_cap)",
		"/503?v=soon":             "answered 503 Service Unavailable; its Retry-After is ignored: it is neither whole seconds nor an HTTP date",
		"/429?v=1.5":              "answered 429 Too Many Requests; its Retry-After is ignored: it is neither whole seconds nor an HTTP date",
		"/500?v=7":                "answered 500 Internal Server Error; its Retry-After is ignored: it counts with 429 and 503 alone",
		"/301?v=7":                "answered 301 Moved Permanently; its Retry-After is ignored: it counts with 429 and 503 alone",
		"/429?v=9999999999999999": "answered 429 Too Many Requests; its Retry-After asked for 876000h0m0s and gets 1h0m0s (retry_after_cap)",
	} {
		if a := s.Send(t.Context(), newRequest(url+path)); a.Err != want {
			t.Errorf("%s: %q, want %q", path, a.Err, want)
		}
	}
}

// TestRedirects are not followed, wherever they point.
func TestRedirects(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int64
	other, _ := serve(t, func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) })
	s := newSender(t)
	for _, location := range []string{other, "/here", "http://%zz/?token=swordfish", "", "://"} {
		for _, code := range []int{301, 302, 303, 307, 308} {
			var requests atomic.Int64
			url, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				if location != "" {
					w.Header().Set("Location", location)
				}
				w.WriteHeader(code)
			})
			a := s.Send(t.Context(), newRequest(url))
			if a.Outcome != delivery.HTTP3xx || a.Status != code || requests.Load() != 1 {
				t.Errorf("%d to %q: %+v after %d requests", code, location, a, requests.Load())
			}
		}
	}
	if elsewhere.Load() != 0 {
		t.Errorf("the other address saw %d requests", elsewhere.Load())
	}
}

func TestExcerpt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ body, want string }{
		"short":             {"no such hook", "no such hook"},
		"none":              {"", ""},
		"long":              {strings.Repeat("a", 5000), strings.Repeat("a", 1024)},
		"beyond the read":   {strings.Repeat("b", 1<<20), strings.Repeat("b", 1024)},
		"rune on the bound": {strings.Repeat("c", 1023) + "é", strings.Repeat("c", 1023)},
		"not UTF-8":         {"a\xff\xfe\xfdb", "a\uFFFDb"},
		"grows when mended": {strings.Repeat("\xff ", 1000), strings.Repeat("\uFFFD ", 256)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, _ := serve(t, status(500, c.body))
			a := newSender(t).Send(t.Context(), newRequest(url))
			if a.Excerpt != c.want || !utf8.ValidString(a.Excerpt) || len(a.Excerpt) > 1024 {
				t.Errorf("excerpt of %d bytes: %.40q, want %d", len(a.Excerpt), a.Excerpt, len(c.want))
			}
		})
	}
}

// TestNoDecompression: a small answer must not grow.
func TestNoDecompression(t *testing.T) {
	t.Parallel()
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if enc := r.Header.Get("Accept-Encoding"); enc != "" {
			t.Errorf("asked for %q", enc)
		}
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write([]byte("not really gzip"))
	})
	if a := newSender(t).Send(t.Context(), newRequest(url)); a.Excerpt != "not really gzip" {
		t.Errorf("%+v", a)
	}
}

// TestCannotBeSent: nothing leaves, and it is ours.
func TestCannotBeSent(t *testing.T) {
	t.Parallel()
	url, conns := serve(t, status(200, ""))
	s := newSender(t)
	for name, change := range map[string]func(*Request){
		"no secrets":    func(r *Request) { r.Secrets = nil },
		"expired":       func(r *Request) { r.Secrets[0].ExpiresAt = r.Timestamp },
		"broken secret": func(r *Request) { r.Secrets[0].Value = "whsec_swordfish" },
		"no id":         func(r *Request) { r.DeliveryID = "" },
		"bad id":        func(r *Request) { r.DeliveryID = "a\r\nb" },
		"no body":       func(r *Request) { r.Body = nil },
		"no timeout":    func(r *Request) { r.Timeout = 0 },
		"no URL":        func(r *Request) { r.URL = "" },
		"scheme":        func(r *Request) { r.URL = "gopher://example.com/?token=swordfish" },
		"userinfo":      func(r *Request) { r.URL = strings.Replace(url, "://", "://me:swordfish@", 1) },
	} {
		r := newRequest(url)
		change(&r)
		a := s.Send(t.Context(), r)
		if a.Outcome != delivery.BadRequest || a.Status != 0 || a.Err == "" {
			t.Errorf("%s: %+v", name, a)
		}
		if strings.Contains(a.Err, "swordfish") {
			t.Errorf("%s: %s", name, a.Err)
		}
	}
	if conns.Load() != 0 {
		t.Errorf("%d connections were made", conns.Load())
	}
}

// TestProxyFromTheEnvironment would be dialled past the guard.
func TestProxyFromTheEnvironment(t *testing.T) {
	t.Parallel()
	if s := newSender(t); s.transport.Proxy != nil {
		t.Error("a proxy may be used")
	}
}

// TestStopped: our own stopping is not the endpoint's fault.
func TestStopped(t *testing.T) {
	t.Parallel()
	there := make(chan struct{})
	url, _ := raw(t, func(_ int, _ net.Conn, r *bufio.Reader) {
		if swallow(t, r) {
			close(there)
			block(r)
		}
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	s := newSender(t)
	done := make(chan Answer)
	go func() { done <- s.Send(ctx, newRequest(url)) }()
	<-there
	cancel(errors.New("going down"))
	a := <-done
	if a.Outcome != delivery.LeaseLost || a.Err != "stopped by the sender while waiting for an answer: going down" {
		t.Errorf("%+v", a)
	}
}

func TestStoppedBeforeTheStart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	url, conns := serve(t, status(200, ""))
	if a := newSender(t).Send(ctx, newRequest(url)); a.Outcome != delivery.LeaseLost || conns.Load() != 0 {
		t.Errorf("%+v", a)
	}
}

// lateStop is a round tripper whose answer's body stops the sender when it is
// read: the status line is there, and then we go down.
type lateStop struct {
	stop   context.CancelFunc
	status int
}

func (l lateStop) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: l.status, Header: http.Header{}, Request: r, Body: io.NopCloser(l.body(r.Context()))}, nil
}

func (l lateStop) body(ctx context.Context) io.Reader {
	return readerFunc(func([]byte) (int, error) {
		l.stop()
		<-ctx.Done()
		return 0, ctx.Err()
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestStoppedWithinTheBody: a status line that was read still counts.
func TestStoppedWithinTheBody(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]delivery.Outcome{200: delivery.OK, 500: delivery.HTTP5xx, 410: delivery.Gone} {
		ctx, cancel := context.WithCancel(t.Context())
		s := newSender(t)
		s.client.HTTPClient.Transport = lateStop{cancel, code}
		if a := s.Send(ctx, newRequest("http://127.0.0.1/")); a.Outcome != want || a.Status != code {
			t.Errorf("%d: %+v", code, a)
		}
	}
}
