package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/fanout/fanout/internal/delivery"
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

// timestamp is the signed one, in seconds.
func (r received) timestamp() int64 {
	n, _ := strconv.ParseInt(r.header.Get(webhook.HeaderTimestamp), 10, 64)
	return n
}

// verify checks the signature by the official library.
func (r received) verify(secret string) error {
	wh, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return fmt.Errorf("secret: %w", err)
	}
	return wh.Verify(r.body, r.header)
}

// endpoint is a receiver with a log of what came.
type endpoint struct {
	*httptest.Server

	mu   sync.Mutex
	log  []received
	came chan struct{} // one token per request
}

// answer answers the nth request (from 1) of an endpoint.
type answer func(n int, w http.ResponseWriter, r *http.Request)

// endpoint starts a receiver.
func (s *service) endpoint(a answer) *endpoint {
	s.Helper()
	e := s.unstarted(a)
	e.Start()
	return e
}

// unstarted is an endpoint to be changed and started.
func (s *service) unstarted(a answer) *endpoint {
	s.Helper()
	e := &endpoint{came: make(chan struct{}, 100_000)}
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the sender went away
		}
		e.mu.Lock()
		e.log = append(e.log, received{time.Now(), r.Header.Clone(), body, r.URL.Path})
		n := len(e.log)
		e.mu.Unlock()
		e.came <- struct{}{}
		a(n, w, r)
	}))
	s.mu.Lock()
	s.endpoints = append(s.endpoints, e)
	s.mu.Unlock()
	s.Cleanup(func() {
		e.CloseClientConnections()
		e.Close()
	})
	return e
}

// requests is a copy of the log.
func (e *endpoint) requests() []received {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]received(nil), e.log...)
}

// await waits for n more requests.
func (s *service) await(e *endpoint, n int) {
	s.Helper()
	deadline := time.After(patience)
	for i := range n {
		select {
		case <-e.came:
		case <-deadline:
			s.Fatalf("only %d of %d requests came", i, n)
		}
	}
}

// saw checks how many requests came in all.
func (s *service) saw(e *endpoint, want int) []received {
	s.Helper()
	log := e.requests()
	if len(log) != want {
		s.Errorf("%d requests came, want %d", len(log), want)
	}
	return log
}

// always answers every request with one status.
func always(status int) answer {
	return func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// first answers the first request in one way and the others with 200.
func first(a answer) answer {
	return func(n int, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			a(n, w, r)
		}
	}
}

// hang never answers.
func hang(_ int, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// cut closes the connection without an answer; reset does so by a RST.
func cut(_ int, w http.ResponseWriter, _ *http.Request) { hangUp(w, false) }

func reset(_ int, w http.ResponseWriter, _ *http.Request) { hangUp(w, true) }

func hangUp(w http.ResponseWriter, rst bool) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	if tcp, ok := c.(*net.TCPConn); ok && rst {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// gate holds requests until it is opened.
type gate chan struct{}

func (g gate) wait(r *http.Request) {
	select {
	case <-g:
	case <-r.Context().Done():
	}
}

// held answers by a once the gate is open.
func held(g gate, a answer) answer {
	return func(n int, w http.ResponseWriter, r *http.Request) {
		g.wait(r)
		a(n, w, r)
	}
}

// audit holds what every endpoint saw against what Redis says, whatever the test
// was about. No dispatcher runs any more.
//
//   - the ledger balances;
//   - requests on the wire <= delivery_count - releases, for each delivery;
//   - each request has a lease of its own: no delivery_count was sent twice;
//   - a delivery's requests all have the same bytes, and each its valid signature.
func (s *service) audit() {
	ctx := context.WithoutCancel(s.Context())
	if l := s.sample().Ledger; !l.Balanced() {
		s.Errorf("ledger does not balance: %+v", l)
	}
	byID := map[string][]received{}
	s.mu.Lock()
	for _, e := range s.endpoints {
		for _, r := range e.requests() {
			byID[r.id()] = append(byID[r.id()], r)
		}
	}
	s.mu.Unlock()
	for id, log := range byID {
		if id == s.discarded {
			continue
		}
		d, err := s.engine.Delivery(ctx, id)
		if err != nil {
			s.Errorf("audit: %v", err)
			continue
		}
		s.auditDelivery(d.Delivery, log)
	}
}

func (s *service) auditDelivery(d delivery.Delivery, log []received) {
	if int64(len(log)) > d.DeliveryCount-int64(d.Releases) {
		s.Errorf("%s: %d requests on the wire, delivery_count %d, releases %d", d.ID, len(log), d.DeliveryCount, d.Releases)
	}
	fences := map[string]bool{}
	for _, r := range log {
		fence := r.header.Get("Fanout-Delivery-Count")
		if fences[fence] {
			s.Errorf("%s: two requests at delivery_count %s", d.ID, fence)
		}
		fences[fence] = true
		if string(r.body) != string(log[0].body) {
			s.Errorf("%s: requests with different bodies:\n%s\n%s", d.ID, log[0].body, r.body)
		}
		if err := r.verify(s.secrets[d.SubscriberID]); err != nil {
			s.Errorf("%s: signature: %v", d.ID, err)
		}
	}
}
