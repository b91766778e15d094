package console_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/boot"
	"github.com/fanout/fanout/internal/role"
	"github.com/fanout/fanout/test/redistest"
)

const adminKey = "correct-horse-battery-staple-0123456789"

// stack is a whole service: API, dispatcher, a Redis, and endpoints whose answers a test
// sets.
type stack struct {
	*testing.T
	url   string
	admin *client.Client
	hooks *endpoints

	mu   sync.Mutex
	logs bytes.Buffer
}

func (s *stack) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logs.Write(b)
}

func (s *stack) logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logs.String()
}

func (s *stack) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// endpoints answer by path: 200, or what a test has set.
type endpoints struct {
	*httptest.Server
	status sync.Map // path -> int
	slow   sync.Map // path -> time.Duration
	posts  atomic.Int64
}

func (e *endpoints) answer(path string, status int) { e.status.Store(path, status) }

func (e *endpoints) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	e.posts.Add(1)
	if d, ok := e.slow.Load(r.URL.Path); ok {
		select {
		case <-time.After(d.(time.Duration)):
		case <-r.Context().Done():
			return
		}
	}
	status, ok := e.status.Load(r.URL.Path)
	if !ok {
		return
	}
	w.WriteHeader(status.(int))
	_, _ = io.WriteString(w, said[status.(int)])
}

// said is what an endpoint answers beside a status, the first by somebody hostile.
var said = map[int]string{
	http.StatusUnprocessableEntity: `<script>alert(1)</script><img src="https://evil.example/x.png" onerror="alert(2)">` + "\u202Eno label was ordered",
	http.StatusInternalServerError: "the database is away",
	http.StatusServiceUnavailable:  "down for maintenance until 04:00",
}

func newStack(t *testing.T, redisAddr string) *stack {
	t.Helper()
	s := &stack{T: t, hooks: &endpoints{}}
	s.hooks.Server = httptest.NewServer(s.hooks)
	t.Cleanup(s.hooks.Close)
	parts, last, err := role.Assemble(t.Context(), "test", boot.Common{
		Redis:   boot.Redis{Addr: []string{redisAddr}, Partitions: 4, PoolSize: 16, AllowUnsafe: true},
		Secrets: boot.Secrets{InTheClear: true}, Classes: boot.Classes{"express": 10 * time.Second, "standard": time.Minute},
	}, role.Endpoint{AllowHTTP: true, AllowAnyPort: true, AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, InitialCap: 4},
		slog.New(slog.NewJSONHandler(s, &slog.HandlerOptions{Level: slog.LevelDebug})))
	s.ok(err)
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	s.ok(err)
	s.url = "http://" + ln.Addr().String()
	stages, err := role.API(t.Context(), parts, ln, boot.Access{AdminKey: adminKey})
	s.ok(err)
	stages = append(append(role.Dispatcher(parts, role.Work{Slots: 24, Grace: time.Second}, nil), stages...), last)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- boot.Run(ctx, parts.Logger, stages...) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	s.admin, err = client.New(s.url, adminKey)
	s.ok(err)
	t.Cleanup(s.admin.Close)
	return s
}

// small is a stack over the stand-in, for tests that need no speed.
func small(t *testing.T) *stack { return newStack(t, redistest.Mini(t).Addr()) }

// key makes a key and returns its token and id.
func (s *stack) key(name string, as client.Role) (token, id string) {
	s.Helper()
	in := client.NewKey{Name: name, Role: as}
	if as == "subscriber" {
		in.Account = "acc_1"
	}
	made, err := s.admin.CreateKey(s.Context(), in)
	s.ok(err)
	return made.Token, made.ID
}

// register makes a subscriber of an endpoint's path, with a policy that fails soon.
func (s *stack) register(name, class string, types ...string) client.CreatedSubscriber {
	s.Helper()
	sub, err := s.admin.CreateSubscriber(s.Context(), client.SubscriberInput{
		Name: new(name), URL: new(s.hooks.URL + "/" + name), Class: new(class), Filter: &client.Filter{Types: types},
		Policy: &client.PolicyInput{
			MaxAttempts: new(5), BackoffBase: new(client.Duration(2 * time.Second)), BackoffCap: new(client.Duration(30 * time.Second)),
			AttemptTimeout: new(client.Duration(2 * time.Second)), BreakerFailures: new(4),
		},
	})
	s.ok(err)
	return sub
}

// post posts n events of a type.
func (s *stack) post(n int, eventType string) (ids []string) {
	s.Helper()
	events := make([]client.Event, n)
	for i := range events {
		events[i] = client.Event{
			ID: client.NewID(), Type: eventType, ShipmentID: fmt.Sprintf("shp_%d", 8842000+i), OccurredAt: time.Now(),
			Attributes: map[string]string{"carrier": "postnl", "country": "NL"}, Data: map[string]any{"parcel": i, "weight_g": 1200},
		}
		ids = append(ids, events[i].ID)
	}
	_, err := s.admin.PostBatch(s.Context(), events)
	s.ok(err)
	return ids
}

// dead waits for so many dead letters of a subscriber.
func (s *stack) dead(subscriberID string, n int) []client.DeadLetter {
	s.Helper()
	var found []client.DeadLetter
	s.until(fmt.Sprintf("%d dead letters", n), func() bool {
		l, err := s.admin.ListDeadLetters(s.Context(), client.DeadLetterFilter{SubscriberID: subscriberID}, client.Page{Limit: 100})
		s.ok(err)
		found = l.Data
		return len(found) >= n
	})
	return found
}

func (s *stack) until(what string, there func() bool) {
	s.Helper()
	tick := time.NewTicker(30 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(30 * time.Second); !there(); {
		select {
		case <-tick.C:
		case <-end:
			logs := s.logged()
			s.Fatalf("waited in vain for %s\n%s", what, logs[max(0, len(logs)-2000):])
		}
	}
}

// visitor is a browser's other half: cookies, forms, no script.
type visitor struct {
	*stack
	http   *http.Client
	header http.Header // sent with all
}

type response struct {
	status int
	header http.Header
	body   string
}

func (v *visitor) do(method, path string, form string) response {
	v.Helper()
	req, err := http.NewRequestWithContext(v.Context(), method, v.url+path, strings.NewReader(form))
	v.ok(err)
	req.Header = v.header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", "text/html")
	}
	if form != "" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := v.http.Do(req)
	v.ok(err)
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	v.ok(err)
	return response{resp.StatusCode, resp.Header, string(b)}
}
