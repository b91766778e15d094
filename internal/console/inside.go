package console

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/fanout/fanout/client"
)

// maxAnswer bounds one answer of the API, in bytes: an event of 10,000 deliveries is
// 2 MB.
const maxAnswer = 8 << 20

var errTooLong = errors.New("the answer is too long for a page")

// inside carries requests to the API of the same process.
type inside struct{ api http.Handler }

type requestIDKey struct{}

// requestIDHeader ties what a page asks for to the page in log and audit.
const requestIDHeader = "X-Request-ID"

// RoundTrip has the handler answer. It reads nobody's key: who asks is in the context.
func (t inside) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context()) // a RoundTripper must leave the request as it is
	if id, ok := r.Context().Value(requestIDKey{}).(string); ok {
		r.Header.Set(requestIDHeader, id)
	}
	r.RequestURI, r.RemoteAddr = r.URL.RequestURI(), "inside"
	if r.Body == nil {
		r.Body = http.NoBody
	}
	a := &answer{header: http.Header{}, status: http.StatusOK}
	t.api.ServeHTTP(a, r)
	if a.err != nil {
		return nil, a.err
	}
	return &http.Response{
		Status: http.StatusText(a.status), StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.header, Body: io.NopCloser(&a.body), ContentLength: int64(a.body.Len()), Request: r,
	}, nil
}

// answer keeps what a handler writes.
type answer struct {
	header http.Header
	status int
	wrote  bool
	body   bytes.Buffer
	err    error
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if !a.wrote {
		a.status, a.wrote = status, true
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.wrote = true
	if a.body.Len()+len(b) > maxAnswer {
		a.err = errTooLong
		return 0, errTooLong
	}
	return a.body.Write(b)
}

// callTimeout bounds one call; the page's own limit is shorter.
const callTimeout = 20 * time.Second

// clientOf is the Go client over the API of this process. It tries once: somebody is
// waiting, and can press again.
func clientOf(api http.Handler) *client.Client {
	c, err := client.New("https://inside", "", client.WithTransport(inside{api}), client.WithRetries(0),
		client.WithAttemptTimeout(callTimeout), client.WithUserAgent("fanout-console"))
	if err != nil {
		panic("console: " + err.Error()) // of constants
	}
	return c
}

// within names the page's request in those that it makes.
func within(ctx context.Context, requestID string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, requestID)
}
