// Package e2e drives the whole service from outside: events go in by HTTP, a real
// redis-server holds the state, and webhooks come out on real sockets. Only the
// roles run in the test's own process, so that the race detector sees them.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fanout/fanout/internal/boot"
	"github.com/fanout/fanout/internal/role"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/test/redistest"
)

// patience bounds every wait for something that must happen; a loaded machine
// under the race detector is slow, and a wait ends as soon as the thing is there.
const patience = 30 * time.Second

// service is a running fanout.
type service struct {
	testing.TB
	redis  *redistest.Redis
	url    string // of the API
	engine *schedule.Engine
	logs   *logBuffer
}

// logBuffer is what all roles log, for tests that look for secrets in it.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs an API server and a dispatcher over a redis-server of their own. They
// stop, in order and cleanly, when the test ends.
func start(t testing.TB) *service {
	t.Helper()
	s := &service{TB: t, redis: redistest.Server(t), logs: &logBuffer{}}
	api := s.parts(s.redis.Addr())
	s.engine = api.Parts.Engine
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	s.ok(err)
	s.url = "http://" + ln.Addr().String()
	stages, err := role.API(api.Parts, ln)
	s.ok(err)
	s.run(append(stages, api.last)...)
	s.dispatcher(s.redis.Addr())
	return s
}

// dispatcher adds a worker that talks to Redis at addr.
func (s *service) dispatcher(addr string) {
	s.Helper()
	d := s.parts(addr)
	s.run(append(role.Dispatcher(d.Parts, role.Work{Slots: 50, Grace: 5 * time.Second}, nil), d.last)...)
}

type assembled struct {
	Parts role.Parts
	last  boot.Stage
}

func (s *service) parts(addr string) assembled {
	s.Helper()
	cfg := boot.Common{
		Redis:   boot.Redis{Addr: []string{addr}, Partitions: 4, PoolSize: 16},
		Classes: boot.Classes{"standard": time.Minute},
		Log:     boot.Log{Level: slog.LevelDebug, Format: "json"},
	}
	loopback := role.Endpoint{
		AllowHTTP: true, AllowAnyPort: true, AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	}
	p, last, err := role.Assemble(s.Context(), "e2e", cfg, loopback, s.logs)
	s.ok(err)
	p.Registry = prometheus.NewRegistry()
	return assembled{p, last}
}

// run runs stages until the test ends, and fails it if they did not end well.
func (s *service) run(stages ...boot.Stage) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	done := make(chan error, 1)
	go func() { done <- boot.Run(ctx, slog.New(slog.DiscardHandler), stages...) }()
	s.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.Errorf("stop: %v", err)
		}
	})
}

func (s *service) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// call makes an API request and decodes the answer, which must have the status.
func (s *service) call(method, path, body string, want int, into any) {
	s.Helper()
	status, _, b := s.do(method, path, body)
	if status != want {
		s.Fatalf("%s %s: %d, want %d: %s", method, path, status, want, b)
	}
	if into != nil {
		s.ok(json.Unmarshal(b, into))
	}
}

func (s *service) do(method, path, body string) (int, http.Header, []byte) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	s.ok(err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	s.ok(err)
	defer res.Body.Close() //nolint:errcheck // read to its end
	b, err := io.ReadAll(res.Body)
	s.ok(err)
	return res.StatusCode, res.Header, b
}

// registered is what a test needs of a subscriber it made.
type registered struct {
	ID, Secret string
}

// subscribe registers an endpoint for one event type. policy is JSON, or "".
func (s *service) subscribe(url, eventType, policy string) registered {
	s.Helper()
	if policy == "" {
		policy = quick
	}
	var r registered
	s.call("POST", "/v1/subscribers", fmt.Sprintf(
		`{"account":"acme","name":"test","url":%q,"filter":{"types":[%q]},"policy":%s}`, url, eventType, policy),
		http.StatusCreated, &r)
	return r
}

// quick is a policy with which a failure is over within a test's patience.
const quick = `{"attempt_timeout":"1s","max_attempts":3,"backoff_base":"20ms","backoff_cap":"40ms"}`

// post posts an event with the given data.
func (s *service) post(id, eventType, data string) {
	s.Helper()
	s.call("POST", "/v1/events", fmt.Sprintf(
		`{"id":%q,"type":%q,"shipment_id":"shp_1","occurred_at":"2026-11-30T12:00:00+01:00","data":%s}`, id, eventType, data),
		http.StatusAccepted, nil)
}

// view is a delivery as the API shows it.
type view struct {
	ID            string `json:"id"`
	State         string `json:"state"`
	Attempts      int    `json:"attempts"`
	DeliveryCount int    `json:"delivery_count"`
	Releases      int    `json:"releases"`
	Reason        string `json:"reason"`
	LastOutcome   string `json:"last_outcome"`
	Evidence      []struct {
		Attempt int    `json:"attempt"`
		Outcome string `json:"outcome"`
		Status  int    `json:"status"`
		Error   string `json:"error"`
		Excerpt string `json:"excerpt"`
	} `json:"evidence"`
}

// delivery waits until the only delivery of an event is in the state.
func (s *service) delivery(event, state string) view {
	s.Helper()
	var v view
	s.until(fmt.Sprintf("the delivery of %s is %s", event, state), func() bool {
		var e struct{ Deliveries []struct{ ID string } }
		s.call("GET", "/v1/events/"+event, "", http.StatusOK, &e)
		if len(e.Deliveries) != 1 {
			return false
		}
		s.call("GET", "/v1/deliveries/"+e.Deliveries[0].ID, "", http.StatusOK, &v)
		return v.State == state
	})
	return v
}

// until polls for something that must become true.
func (s *service) until(what string, is func() bool) {
	s.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-deadline:
			s.Fatalf("gave up waiting until %s", what)
		case <-tick.C:
		}
	}
}

// balanced checks the ledger once nothing is pending any more.
func (s *service) balanced() schedule.Ledger {
	s.Helper()
	var l schedule.Ledger
	s.until("nothing is pending", func() bool {
		sample, err := s.engine.Sample(s.Context(), nil)
		s.ok(err)
		l = sample.Ledger
		return l.Pending == 0
	})
	if !l.Balanced() {
		s.Fatalf("ledger does not balance: %+v", l)
	}
	return l
}
