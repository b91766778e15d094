//go:build drill

package drill

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/test/redistest"
)

// within is how soon triage must say what is the matter.
const within = 30 * time.Second

// One large subscriber answers 503 to everything.
func TestConcentratedOutage(t *testing.T) {
	s := stage(t)
	s.crowd(10, nil)
	down := s.endpoint(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	s.subscribe("shop-down", down, nil)
	s.post(40)
	o := s.wait("concentrated_outage")
	if o.Triage.Page {
		t.Errorf("its breaker holds it, and nothing else is late: %s", o.Triage.Sentence)
	}
}

// More arrives than the slots carry, and everything that is sent succeeds.
func TestSaturatedWorkers(t *testing.T) {
	s := stage(t)
	s.crowd(10, func() { time.Sleep(400 * time.Millisecond) })
	s.post(30) // 300 deliveries a second; 20 slots carry 50
	s.wait("saturated_workers")
	s.page("saturated_workers") // and once it is late for ten seconds, somebody is woken
}

// Every endpoint refused each delivery once; now they are back, slower, and the retries
// fall due together.
func TestRetryWave(t *testing.T) {
	s := stage(t)
	var back atomic.Bool
	policy := &client.PolicyInput{BackoffBase: ptr(client.Duration(20 * time.Second)), BreakerFailures: ptr(14)}
	e := s.endpoint(func(w http.ResponseWriter, _ *http.Request) {
		if !back.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		time.Sleep(400 * time.Millisecond)
	})
	for i := range 300 {
		s.subscribe(fmt.Sprint("shop-", i), e, policy)
	}
	for range 10 { // below what opens a breaker, of each
		s.event()
	}
	s.until("all were refused once", func(o client.OnCall) bool { return o.Fleet.Failures >= 2900 })
	back.Store(true)
	s.wait("retry_pressure")
}

// Ten thousand deliveries at once are what the service is there for.
func TestHealthyBurst(t *testing.T) {
	s := stage(t)
	s.crowd(100, nil)
	for range 100 {
		s.event()
	}
	s.until("all are delivered", func(o client.OnCall) bool {
		if o.Triage.Page || o.Triage.Diagnosis != "healthy" {
			t.Fatalf("a burst is told as %s (page: %v): %s", o.Triage.Diagnosis, o.Triage.Page, o.Triage.Sentence)
		}
		return o.Ledger.Delivered == 10_000
	})
}

// theatre is the shipped binaries over a Redis, for one situation.
type theatre struct {
	*testing.T
	api    *client.Client
	events atomic.Int64
}

// stage starts them: 20 slots, and an SLO of 5 s.
func stage(t *testing.T) *theatre {
	t.Helper()
	redis := redistest.Server(t).Addr()
	api, probes := freePort(t), freePort(t)
	common := []string{"--redis-addr=" + redis, "--class=standard=5s", "--allow-http", "--allow-any-port", "--allow-cidr=127.0.0.1/32", "--log-level=error"}
	process(t, "fanout", append([]string{"serve", "--listen=" + api}, common...)...)
	process(t, "dispatcher", append([]string{"--listen=" + probes, "--slots=20", "--grace=1s", "--initial-cap=4"}, common...)...)
	c, err := client.New("http://"+api, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	s := &theatre{T: t, api: c}
	s.until("a dispatcher reports", func(o client.OnCall) bool { return o.Fleet.Dispatchers == 1 })
	return s
}

// process starts one of the binaries that `make build` left, until the test ends.
func process(t *testing.T, name string, args ...string) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../bin", name))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), path, args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v (make build)", name, err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
}

// crowd is so many healthy subscribers.
func (s *theatre) crowd(n int, work func()) {
	s.Helper()
	e := s.endpoint(func(http.ResponseWriter, *http.Request) {
		if work != nil {
			work()
		}
	})
	for i := range n {
		s.subscribe(fmt.Sprint("shop-", i), e, nil)
	}
}

func (s *theatre) subscribe(name, url string, policy *client.PolicyInput) {
	s.Helper()
	_, err := s.api.CreateSubscriber(s.Context(), client.SubscriberInput{
		Name: ptr(name), URL: ptr(url), Filter: &client.Filter{Types: []string{"*"}}, Policy: policy,
	})
	if err != nil {
		s.Fatal(err)
	}
}

func (s *theatre) event() {
	s.Helper()
	id := fmt.Sprint("evt_", s.events.Add(1))
	_, err := s.api.Post(s.Context(), client.Event{ID: id, Type: "shipment.delivered", ShipmentID: "shp_1", OccurredAt: time.Now()})
	if err != nil && s.Context().Err() == nil {
		s.Error(err)
	}
}

// post posts so many events a second until the test ends.
func (s *theatre) post(rate int) {
	ctx, cancel := context.WithCancel(s.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				s.event()
			}
		}
	}()
	s.Cleanup(func() { cancel(); <-done })
}

// wait waits until triage says so, and no longer than it may take.
func (s *theatre) wait(diagnosis string) client.OnCall {
	s.Helper()
	began := time.Now()
	var seen []string
	o := s.until("triage says "+diagnosis, func(o client.OnCall) bool {
		if !slices.Contains(seen, o.Triage.Diagnosis) {
			seen = append(seen, o.Triage.Diagnosis)
		}
		return o.Triage.Diagnosis == diagnosis
	})
	s.Logf("%s after %.1f s (said before: %s): %s", diagnosis, time.Since(began).Seconds(), strings.Join(seen, ", "), o.Triage.Sentence)
	return o
}

// page waits until somebody would be woken, and sees that it is for that, then and later.
func (s *theatre) page(diagnosis string) {
	s.Helper()
	woken := 0
	s.until("somebody is woken", func(o client.OnCall) bool {
		if !o.Triage.Page {
			return false
		}
		if woken++; woken == 1 || o.Triage.Diagnosis != diagnosis {
			s.Logf("paged for %s, %d of %d slots in use: %s", o.Triage.Diagnosis, o.Fleet.Used, o.Fleet.Slots, o.Triage.Sentence)
		}
		if o.Triage.Diagnosis != diagnosis {
			s.Errorf("woken for %s, want %s", o.Triage.Diagnosis, diagnosis)
		}
		return woken >= 50 || s.Failed()
	})
}

func (s *theatre) until(what string, is func(client.OnCall) bool) (o client.OnCall) {
	s.Helper()
	deadline := time.After(within)
	for {
		look, err := s.api.OnCall(s.Context())
		if err == nil {
			o = look
			if is(o) {
				return o
			}
		}
		select {
		case <-deadline:
			s.Fatalf("after %s, not: %s. Triage: %+v", within, what, o.Triage)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// endpoint is a receiver for the test's time.
func (s *theatre) endpoint(h http.HandlerFunc) string {
	srv := httptest.NewServer(h)
	s.Cleanup(srv.Close)
	return srv.URL
}

// freePort is an address that nobody listens on now.
func freePort(t *testing.T) string {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	return ln.Addr().String()
}

func ptr[T any](v T) *T { return &v }
