package oncall

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
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
	o := newOnCall(t, source, Options{Registerer: reg})

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
