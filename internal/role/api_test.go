package role

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/boot"
	"github.com/fanout/fanout/test/redistest"
)

const adminKey = "correct-horse-battery-staple-0123456789"

// assembled are the parts over a Redis at that address.
func assembled(t *testing.T, addr string) Parts {
	t.Helper()
	cfg := boot.Common{
		Redis:   boot.Redis{Addr: []string{addr}, Partitions: 1, PoolSize: 4, AllowUnsafe: true},
		Secrets: boot.Secrets{InTheClear: true}, Classes: boot.Classes{"standard": time.Minute},
	}
	parts, last, err := Assemble(t.Context(), "test", cfg, Endpoint{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		cancel()
		_ = last.Run(ctx)
	})
	return parts
}

func listener(t *testing.T, addr string) net.Listener {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// Other machines are served only if there is a key: the admin's of the settings, or
// one that is stored. A Redis that is away opens nothing and stops nothing.
func TestWhoIsServed(t *testing.T) {
	t.Parallel()
	away := listener(t, "127.0.0.1:0")
	_ = away.Close()
	for name, c := range map[string]struct {
		listen string
		access boot.Access
		redis  func(t *testing.T) string
		says   string // of the error
		status int    // of a request without a key
	}{
		"loopback, no key":          {"127.0.0.1:0", boot.Access{}, fresh, "", http.StatusOK},
		"loopback, a key":           {"127.0.0.1:0", boot.Access{AdminKey: adminKey}, fresh, "", http.StatusUnauthorized},
		"loopback, a demo":          {"127.0.0.1:0", boot.Access{AdminKey: adminKey, Keyless: true}, fresh, "", http.StatusOK},
		"everywhere, no key":        {"0.0.0.0:0", boot.Access{}, fresh, "FANOUT_ADMIN_KEY", 0},
		"everywhere, a demo":        {"0.0.0.0:0", boot.Access{AdminKey: adminKey, Keyless: true}, fresh, "", http.StatusUnauthorized},
		"everywhere, a key":         {"0.0.0.0:0", boot.Access{AdminKey: adminKey}, fresh, "", http.StatusUnauthorized},
		"everywhere, a stored key":  {"0.0.0.0:0", boot.Access{}, withKey, "", http.StatusUnauthorized},
		"everywhere, Redis is away": {"0.0.0.0:0", boot.Access{}, func(*testing.T) string { return away.Addr().String() }, "", http.StatusUnauthorized},
		"a short key":               {"127.0.0.1:0", boot.Access{AdminKey: "s3cret"}, fresh, "at least 32", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ln := listener(t, c.listen)
			stages, err := API(t.Context(), assembled(t, c.redis(t)), ln, c.access)
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "s3cret") {
					t.Fatalf("got %v, want an error that says %q", err, c.says)
				}
				if c.status == 0 && c.listen == "0.0.0.0:0" && !errors.Is(err, boot.ErrNoKey) {
					t.Errorf("%v is not ErrNoKey", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := statusOf(t, stages, ln); got != c.status {
				t.Errorf("a request without a key: %d, want %d", got, c.status)
			}
		})
	}
}

func fresh(t *testing.T) string { return redistest.Mini(t).Addr() }

func withKey(t *testing.T) string {
	mini := redistest.Mini(t)
	mini.HSet("{fo:access}:keys", "key_1", `{"sha256":"00","role":"admin"}`)
	mini.Set("{fo:access}:gen", "1")
	return mini.Addr()
}

// statusOf runs the API alone and asks it something.
func statusOf(t *testing.T, stages []boot.Stage, ln net.Listener) int {
	t.Helper()
	for _, stage := range stages {
		if stage.Name != "api" {
			continue
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- stage.Run(ctx) }()
		t.Cleanup(func() {
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:"+port+"/v1/keys/self", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
