package role

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/boot"
	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/subscriber/subtest"
	"github.com/fanout/fanout/test/redistest"
)

// rig is processes over one Redis, whose logs are one.
type rig struct {
	*testing.T
	redis boot.Redis

	mu   sync.Mutex
	logs bytes.Buffer
}

func (r *rig) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.logs.Write(b)
}

func (r *rig) logged() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.logs.String()
}

func (r *rig) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// parts are those of a process with these keys, if any.
func (r *rig) parts(keys string) (Parts, boot.Stage) {
	r.Helper()
	p, last, err := Assemble(r.Context(), "test", boot.Common{
		Redis: r.redis, Secrets: boot.Secrets{Key: keys}, Classes: boot.Classes{"standard": time.Minute},
	}, Endpoint{AllowHTTP: true, AllowAnyPort: true, AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, InitialCap: 1},
		slog.New(slog.NewJSONHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug})))
	r.ok(err)
	return p, last
}

// run runs stages until stop is called, or the test ends.
func (r *rig) run(stages ...boot.Stage) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	done := make(chan error, 1)
	go func() { done <- boot.Run(ctx, slog.New(slog.DiscardHandler), stages...) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				r.Errorf("stop: %v", err)
			}
		})
	}
	r.Cleanup(stop)
	return stop
}

func (r *rig) listen() net.Listener {
	r.Helper()
	ln, err := new(net.ListenConfig).Listen(r.Context(), "tcp", "127.0.0.1:0")
	r.ok(err)
	return ln
}

func (r *rig) do(method, url, body string) (status int, text string) {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), method, url, strings.NewReader(body))
	r.ok(err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := new(http.Client).Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	r.ok(err)
	return resp.StatusCode, string(b)
}

// until waits for something, and says for what in vain.
func (r *rig) until(what string, there func() bool) {
	r.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(30 * time.Second); !there(); {
		select {
		case <-tick.C:
		case <-end:
			logs := r.logged()
			r.Fatalf("waited in vain for %s\n%s", what, logs[max(0, len(logs)-2000):])
		}
	}
}

// TestProcessWithoutItsKey: a subscriber was sealed, and neither process got the
// key. Both say so by /readyz, its events are accepted, its deliveries wait and
// are charged nothing, and all is well once the key is there. Nothing that is
// sealed shows in any log.
func TestProcessWithoutItsKey(t *testing.T) {
	t.Parallel()
	r := &rig{T: t, redis: boot.Redis{Addr: []string{redistest.Server(t).Addr()}, Partitions: 4, PoolSize: 8, AllowUnsafe: true}}
	got := make(chan http.Header, 10)
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { got <- req.Header }))
	t.Cleanup(endpoint.Close)
	keys := subtest.Key("k1")

	keyed, last := r.parts(keys)
	t.Cleanup(r.run(last))
	store := subscriber.New(keyed.Engine, keyed.Endpoint.guard(), nil, keyed.Engine.Now, keyed.sealing())
	sub, err := store.Create(t.Context(), subscriber.Draft{
		URL: new(endpoint.URL + "/?token=hunter2"), Headers: map[string]*string{"X-Token": new("sw0rdfish")},
	})
	r.ok(err)
	if strings.Contains(r.logged(), "in the clear") {
		t.Error("a warning beside a keyring")
	}

	// Without the key.
	bare, last := r.parts("")
	if !strings.Contains(r.logged(), "stored in the clear") {
		t.Error("no warning of a missing keyring")
	}
	api := r.listen()
	apiStages, err := API(t.Context(), bare, api, boot.Access{})
	r.ok(err)
	r.run(append(apiStages, last)...)
	bare2, last := r.parts("")
	probes := r.listen()
	stop := r.run(append(Dispatcher(bare2, Work{Slots: 5, Grace: time.Second}, probes), last)...)
	names := func(text string) bool {
		return strings.Contains(text, "k1") && strings.Contains(text, "FANOUT_SECRETS_KEY") && strings.Contains(text, sub.ID)
	}
	r.until("the API to be unready, and say why in its log", func() bool { // to strangers it says no more
		status, _ := r.do("GET", "http://"+api.Addr().String()+"/readyz", "")
		return status == http.StatusServiceUnavailable && names(r.logged())
	})
	r.until("a dispatcher whose /readyz names the key", func() bool {
		status, text := r.do("GET", "http://"+probes.Addr().String()+"/readyz", "")
		return status == http.StatusServiceUnavailable && names(text)
	})
	status, text := r.do("POST", "http://"+api.Addr().String()+"/v1/events",
		`{"id":"evt_1","type":"shipment.delivered","shipment_id":"s","occurred_at":"2026-03-01T09:30:00Z","data":{}}`)
	if status != http.StatusAccepted || !strings.Contains(text, `"deliveries":1`) {
		t.Fatalf("post: %d %s", status, text)
	}
	look := func() delivery.Delivery {
		list, err := keyed.Engine.Deliveries(t.Context(), []string{delivery.NewID("evt_1", sub.ID)})
		r.ok(err)
		if len(list) == 0 {
			return delivery.Delivery{}
		}
		return list[0]
	}
	r.until("a release", func() bool { return look().Releases > 0 })
	if d := look(); d.State == delivery.Dead || d.Attempts != 0 {
		t.Errorf("without its key: %s after %d attempts", d.State, d.Attempts)
	}
	stop()

	// With it, listed second: it opens, though another one seals.
	keyed2, last := r.parts(subtest.Key("k2") + "," + keys)
	probes = r.listen()
	r.run(append(Dispatcher(keyed2, Work{Slots: 5, Grace: time.Second}, probes), last)...)
	r.until("readiness", func() bool {
		status, _ := r.do("GET", "http://"+probes.Addr().String()+"/readyz", "")
		return status == http.StatusOK
	})
	select {
	case h := <-got:
		if h.Get("X-Token") != "sw0rdfish" || h.Get("Fanout-Attempt") != "1" {
			t.Errorf("arrived with %q", h)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("nothing arrived")
	}

	done, err := Reseal(t.Context(), r.redis, boot.Secrets{Key: subtest.Key("k2") + "," + keys}, bare.Logger, nil)
	if err != nil || done.Sealed != 1 {
		t.Errorf("resealed %+v, %v", done, err)
	}
	if _, err := Reseal(t.Context(), r.redis, boot.Secrets{}, bare.Logger, nil); !errors.Is(err, subscriber.ErrNoKeyring) {
		t.Errorf("reseal without keys: %v", err)
	}
	_, key, _ := strings.Cut(keys, ":")
	for _, secret := range []string{"hunter2", "sw0rdfish", sub.Secrets[0].Value, key} {
		if strings.Contains(r.logged(), secret) {
			t.Errorf("the log shows %s", secret)
		}
	}
}

func TestKeyring(t *testing.T) {
	t.Parallel()
	if r, err := keyring(boot.Secrets{}); r != nil || err != nil {
		t.Errorf("nothing set: %v, %v", r, err)
	}
	_, key, _ := strings.Cut(subtest.Key("k1"), ":")
	for _, bad := range []boot.Secrets{
		{Key: key}, {Key: "k1:" + key[:20]}, {Key: subtest.Key("k1"), KeyFile: "x"}, {KeyFile: t.TempDir() + "/none"}, {Key: ","},
	} {
		r, err := keyring(bad)
		if r != nil || err == nil || strings.Contains(err.Error(), key[:20]) {
			t.Errorf("%v, %v", r, err)
		}
	}
}

// TestHealthyStart: neither process of a service that is well, keyring and all, says
// that anything is wrong, from its first moment on.
func TestHealthyStart(t *testing.T) {
	t.Parallel()
	r := &rig{T: t, redis: boot.Redis{Addr: []string{redistest.Server(t).Addr()}, Partitions: 4, PoolSize: 8, AllowUnsafe: true}}
	first, last := r.parts(subtest.Key("k1"))
	store := subscriber.New(first.Engine, first.Endpoint.guard(), nil, first.Engine.Now, first.sealing())
	for range 20 {
		_, err := store.Create(t.Context(), subscriber.Draft{URL: new("http://127.0.0.1:1/")})
		r.ok(err)
	}
	api, probes := r.listen(), r.listen()
	stages, err := API(t.Context(), first, api, boot.Access{})
	r.ok(err)
	r.run(append(stages, last)...)
	second, last := r.parts(subtest.Key("k1"))
	r.run(append(Dispatcher(second, Work{Slots: 5, Grace: time.Second}, probes), last)...)
	for _, ln := range []net.Listener{api, probes} {
		r.until("a process that is ready", func() bool {
			status, text := r.do("GET", "http://"+ln.Addr().String()+"/readyz", "")
			if status == http.StatusServiceUnavailable {
				t.Errorf("not ready at its start: %s", text)
			}
			return status == http.StatusOK
		})
	}
	r.until("the page's own look", func() bool {
		status, _ := r.do("GET", "http://"+api.Addr().String()+"/v1/oncall", "")
		return status == http.StatusOK
	})
	if logs := r.logged(); strings.Contains(logs, "not ready") {
		t.Error(logs)
	}
}
