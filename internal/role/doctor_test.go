package role

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/boot"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/test/redistest"
)

// Each thing that can be set up badly is found, with what to do about it.
func TestDoctor(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	rdb := server.Client()
	cfg := boot.Common{
		Classes: boot.Classes{"standard": time.Minute},
		Redis:   boot.Redis{Addr: []string{server.Addr()}, Partitions: 2, PoolSize: 2},
	}
	find := func(cfg boot.Common, e Endpoint, about string, level Level, says string) {
		t.Helper()
		checks := Doctor(t.Context(), cfg, e, nil)
		for _, c := range checks {
			if c.About == about && c.Level == level && strings.Contains(c.Says, says) && (level != Bad || c.Do != "") {
				return
			}
		}
		t.Errorf("no finding of %s, %s, %q in\n%+v", about, level, says, checks)
	}
	find(cfg, Endpoint{}, "data", Odd, "none yet")
	engine, err := schedule.Open(t.Context(), rdb, schedule.Options{Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	terms := schedule.Terms{Class: "gold", MaxInFlight: 1, LeaseTime: time.Second}
	if _, err := engine.PutConfig(t.Context(), "sub_1", 0, []byte("{}"), terms, schedule.Edited); err != nil {
		t.Fatal(err)
	}
	find(cfg, Endpoint{}, "data", Fine, "subscribers: 1")
	find(cfg, Endpoint{}, "classes", Bad, "gold")
	find(cfg, Endpoint{}, "dispatchers", Bad, "nothing is sent")
	find(cfg, Endpoint{}, "endpoints", Fine, "public")
	find(cfg, Endpoint{AllowHTTP: true, AllowCIDR: []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16")}}, "endpoints", Odd, "metadata")
	find(cfg, Endpoint{}, "secrets", Odd, "in the clear")
	find(cfg, Endpoint{}, "memory", Odd, "no maxmemory")
	if err := engine.Report(t.Context(), schedule.WorkerReport{Worker: "w", Version: "v1", Slice: "canary", Slots: 7}); err != nil {
		t.Fatal(err)
	}
	find(cfg, Endpoint{}, "dispatchers", Fine, "1 with 7 slots: 1 of v1 canary")
	other := cfg
	other.Redis.Partitions = 3
	find(other, Endpoint{}, "data", Bad, "2 partitions")
	set := func(name, value string) {
		t.Helper()
		if err := rdb.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("maxmemory-policy", "allkeys-lru")
	find(cfg, Endpoint{}, "durability", Bad, "allkeys-lru")
	cfg.Redis.AllowUnsafe = true
	find(cfg, Endpoint{}, "durability", Odd, "allkeys-lru")
	set("maxmemory-policy", "noeviction")
	set("maxmemory", "1500kb")
	find(cfg, Endpoint{}, "memory", Bad, "of 1 MiB")
	cfg.Redis.Addr = []string{"127.0.0.1:1"}
	find(cfg, Endpoint{}, "redis", Bad, "unavailable")
}

// The API is held against the settings: its classes may be others, and it may be unwell.
func TestDoctorAsksTheAPI(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/readyz" {
			_, _ = w.Write([]byte(`{"status":"ok"}`))
			return
		}
		_, _ = w.Write([]byte(`{"triage":{"diagnosis":"saturated_workers","page":true,"runbook":"saturated-workers"},` +
			`"classes":[{"class":"standard","configured":true,"slo_seconds":30},{"class":"other","configured":false,"slo_seconds":30}]}`))
	}))
	defer srv.Close()
	api, err := client.New(srv.URL, "", client.WithRetries(0))
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	cfg := boot.Common{Classes: boot.Classes{"standard": time.Minute, "bulk": time.Hour}, Redis: boot.Redis{Addr: []string{"127.0.0.1:1"}, Partitions: 1, PoolSize: 1}}
	said := ""
	for _, c := range Doctor(t.Context(), cfg, Endpoint{}, api) {
		said += string(c.Level) + " " + c.About + ": " + c.Says + " " + c.Do + "\n"
	}
	for _, want := range []string{
		"ok api: ready", "BAD classes: class standard has an SLO of 30s in the API, and 1m0s", "BAD classes: the API was not told of class bulk",
		"BAD triage: saturated_workers", "docs/runbook.md#saturated-workers", "BAD redis:",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
}
