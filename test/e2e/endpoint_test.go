package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/webhook"
)

// received is one request as an endpoint saw it.
type received struct {
	at     time.Time
	header http.Header
	body   []byte
	path   string
}

func (r received) id() string { return r.header.Get(webhook.HeaderID) }

// endpoint is a receiver with a log of what came.
type endpoint struct {
	*httptest.Server

	mu   sync.Mutex
	log  []received
	came chan struct{} // one token per request
}

// newEndpoint answers each request as the nth (from 1) is told to.
func newEndpoint(t testing.TB, answer func(n int, w http.ResponseWriter, r *http.Request)) *endpoint {
	t.Helper()
	e := &endpoint{came: make(chan struct{}, 1_000_000)}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the sender went away
		}
		e.mu.Lock()
		e.log = append(e.log, received{time.Now(), r.Header.Clone(), body, r.URL.Path})
		n := len(e.log)
		e.mu.Unlock()
		e.came <- struct{}{}
		answer(n, w, r)
	}))
	t.Cleanup(func() {
		e.CloseClientConnections()
		e.Close()
	})
	return e
}

// always answers every request with one status.
func always(status int) func(int, http.ResponseWriter, *http.Request) {
	return func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// requests is a copy of the log.
func (e *endpoint) requests() []received {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]received(nil), e.log...)
}
