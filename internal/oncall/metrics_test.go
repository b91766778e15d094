package oncall

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fanout/fanout/internal/schedule"
)

func exposition(t *testing.T, reg *prometheus.Registry) string {
	t.Helper()
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	return rec.Body.String()
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	source := &fakeSource{sample: late()}
	source.sample.Ledger.Dead++
	source.sample.ExpiredLeases, source.sample.OnHold, source.sample.Held = 7, 5, 1245
	source.sample.OldestDead, source.sample.Limited = ago(2*time.Hour), 6
	source.sample.Due = [schedule.DueMinutes]int64{3, 1, 1, 1, 1, 9}
	source.workers = []schedule.WorkerReport{{
		Worker: "w", Slots: 100, InUse: map[string]int{"fast/fresh": 40}, PerSecond: 400, SlotSeconds: 0.1, FailingTotal: 2,
	}}
	o := newOnCall(t, source, Options{
		Registerer: reg,
		Redrives: func(context.Context) ([]LiveRedrive, error) {
			return []LiveRedrive{{ID: "rdv_1", State: "running"}}, nil
		},
		Memory: func(context.Context) (int64, int64, error) { return 1_000_000, 2_000_000, nil },
	})

	before := exposition(t, reg)
	o.sample(t.Context())
	after := exposition(t, reg)
	if a, b := names(before), names(after); a != b {
		t.Errorf("the series before the first sample are\n%s\nand after it\n%s", a, b)
	}
	for _, want := range []string{
		`fanout_oldest_eligible_age_seconds{class="standard",lane="retry"} 48`,
		`fanout_oldest_eligible_age_seconds{class="express",lane="fresh"} 0.012`,
		`fanout_oldest_eligible_age_seconds{class="express",lane="redrive"} 0`,
		`fanout_oldest_limited_age_seconds{class="standard",lane="retry"} 3`,
		`fanout_oldest_held_age_seconds{class="standard",lane="retry"} 7200`,
		`fanout_age_slo_seconds{class="express"} 5`,
		`fanout_ledger{state="accepted"} 18204`,
		`fanout_ledger{state="pending"} 231`,
		`fanout_ledger{state="delivered"} 17966`,
		`fanout_ledger{state="dead"} 5`,
		`fanout_ledger{state="cancelled"} 3`,
		`fanout_ledger_imbalance -1`,
		`fanout_oldest_eligible_age_seconds{class="other",lane="fresh"} 0`,
		`fanout_age_slo_seconds{class="other"} 5`,
		`fanout_leases_expired 7`,
		`fanout_ready 1`,
		`fanout_leases 64`,
		`fanout_subscribers_ready 12`,
		`fanout_subscribers_scheduled 9`,
		`fanout_subscribers_on_hold 5`,
		`fanout_deliveries_held 1245`,
		`fanout_open_events 1`,
		`fanout_late_events 2`,
		`fanout_dead_letters 4`,
		`fanout_in_flight 57`,
		`fanout_dead_letter_oldest_age_seconds 7200`,
		`fanout_subscribers_limited 6`,
		`fanout_due_soon{within="1m"} 3`,
		`fanout_due_soon{within="5m"} 7`,
		`fanout_due_soon{within="15m"} 16`,
		`fanout_workers 1`,
		`fanout_fleet_slots{state="used"} 40`,
		`fanout_fleet_slots{state="free"} 60`,
		`fanout_fleet_capacity_per_second 1000`,
		`fanout_subscribers_failing 2`,
		`fanout_redrives{state="running"} 1`,
		`fanout_redrives{state="paused"} 0`,
		`fanout_redis_memory_bytes 1e+06`,
		`fanout_redis_memory_limit_bytes 2e+06`,
		`fanout_page_due 1`,
		`fanout_sampler_duration_seconds_count 1`,
		`fanout_sampler_errors_total 0`,
	} {
		if !strings.Contains(after, "\n"+want+"\n") {
			t.Errorf("missing: %s", want)
		}
	}
	if !strings.Contains(before, "\nfanout_sampler_last_run_timestamp_seconds 0\n") ||
		strings.Contains(after, "\nfanout_sampler_last_run_timestamp_seconds 0\n") {
		t.Error("the time of the last run must be 0 before the first sample, and not after")
	}
	source.set(func(f *fakeSource) { f.err = errDown })
	o.sample(t.Context())
	if got := exposition(t, reg); !strings.Contains(got, "\nfanout_sampler_errors_total 1\n") {
		t.Error("a failed sample was not counted")
	}
}

func TestMetricsPassPromtool(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatal("this test needs promtool on PATH (on Debian: apt-get install prometheus)")
	}
	reg := prometheus.NewPedanticRegistry()
	newOnCall(t, &fakeSource{}, Options{Registerer: reg})
	cmd := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(exposition(t, reg))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil || out.Len() > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, &out)
	}
}

func TestMetricsTwice(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	newOnCall(t, &fakeSource{}, Options{Registerer: reg})
	if _, err := New(&fakeSource{}, Options{Classes: twoClasses, Registerer: reg}); err == nil {
		t.Error("two samplers share one registry without an error")
	}
}

// names are the series of an exposition without their values.
func names(exposition string) string {
	var b strings.Builder
	for line := range strings.Lines(exposition) {
		if !strings.HasPrefix(line, "#") {
			b.WriteString(line[:strings.LastIndex(line, " ")] + "\n")
		}
	}
	return b.String()
}
