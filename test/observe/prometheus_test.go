package observe

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// prometheus runs a Prometheus of the test's own over the service, with the rules that we
// ship, and gives its address. It scrapes and evaluates once a second: what is proved is
// that they work together, and the waits of the rules are proved by promtool.
func (w *world) prometheus() string {
	w.Helper()
	dir := w.TempDir()
	rules, err := filepath.Abs("../../deploy/prometheus/rules.yml")
	w.ok(err)
	target := func(address string) string { return strings.TrimPrefix(address, "http://") }
	config := filepath.Join(dir, "prometheus.yml")
	w.ok(os.WriteFile(config, []byte(`
global: {scrape_interval: 1s, evaluation_interval: 1s, external_labels: {fanout_url: "`+w.api+`"}}
rule_files: ["`+rules+`"]
scrape_configs:
  - {job_name: fanout, static_configs: [{targets: ["`+target(w.api)+`"]}]}
  - {job_name: dispatcher, static_configs: [{targets: ["`+target(w.dispatcher)+`"]}]}
`), 0o600))
	ln := w.listen()
	listen := ln.Addr().String()
	w.ok(ln.Close())
	var log bytes.Buffer
	cmd := exec.CommandContext(w.Context(), "prometheus", "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+listen, "--enable-feature=exemplar-storage", "--log.level=warn")
	cmd.Stdout, cmd.Stderr = &log, &log
	w.ok(cmd.Start())
	w.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if w.Failed() {
			w.Logf("prometheus: %s", log.String())
		}
	})
	address := "http://" + listen
	w.until("prometheus is ready", func() bool {
		resp, err := http.Get(address + "/-/ready")
		if err != nil {
			return false
		}
		defer func() { _ = resp.Body.Close() }()
		return resp.StatusCode == http.StatusOK
	})
	return address
}

// get reads from Prometheus' API into data, and says what it refused.
func (w *world) get(address string, data any) string {
	w.Helper()
	resp, err := http.Get(address)
	w.ok(err)
	defer func() { _ = resp.Body.Close() }()
	answer := struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   any    `json:"data"`
	}{Data: data}
	w.ok(json.NewDecoder(resp.Body).Decode(&answer))
	return answer.Error
}

// firing are the alerts that fire, with their annotations.
func (w *world) firing(address string) map[string]map[string]string {
	w.Helper()
	var data struct {
		Alerts []struct {
			Labels, Annotations map[string]string
			State               string
		} `json:"alerts"`
	}
	w.get(address+"/api/v1/alerts", &data)
	all := map[string]map[string]string{}
	for _, a := range data.Alerts {
		if a.State == "firing" {
			all[a.Labels["alertname"]] = a.Annotations
		}
	}
	return all
}

// A dead letter of the running service fires the alert that it should in a real
// Prometheus, and no other; every rule and every panel is evaluated without an error, and
// the trace of an attempt is found from the histogram.
func TestWithARealPrometheus(t *testing.T) {
	collector := newOTLP(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	w := start(t)
	w.subscribe(newReceiver(t, http.StatusNotFound).URL)
	prometheus := w.prometheus()
	// An increase is one of a counter that was seen before.
	w.until("both are scraped", func() bool {
		var seen struct {
			Result []any `json:"result"`
		}
		w.get(prometheus+"/api/v1/query?query="+url.QueryEscape(`count(count_over_time(up[1m]) > 1) == 2`), &seen)
		return len(seen.Result) > 0
	})
	if all := w.firing(prometheus); len(all) > 0 {
		t.Errorf("before anything happened these fire: %v", all)
	}
	w.post("evt_dies")
	w.until("the dead letter shows", func() bool { return w.firing(prometheus)["FanoutDeadLetters"] != nil })
	all := w.firing(prometheus)
	if got, want := all["FanoutDeadLetters"]["runbook_url"], w.api+"/oncall/runbook#fanoutdeadletters"; got != want || len(all) != 1 {
		t.Errorf("it leads to %q, want %q; and all that fires: %v", got, want, all)
	}
	w.runbookHas("fanoutdeadletters")

	var loaded struct {
		Groups []struct {
			Rules []struct {
				Name, Health, LastError string
			} `json:"rules"`
		} `json:"groups"`
	}
	w.get(prometheus+"/api/v1/rules", &loaded)
	for _, g := range loaded.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" {
				t.Errorf("the rule %s is %s: %s", r.Name, r.Health, r.LastError)
			}
		}
	}
	for _, p := range panels(t) {
		expr := strings.ReplaceAll(p.expr, "$class", ".*")
		if refused := w.get(prometheus+"/api/v1/query?query="+url.QueryEscape(expr), nil); refused != "" {
			t.Errorf("%s: %s", p.where, refused)
		}
	}
	w.until("an exemplar is kept", func() bool {
		var found []any
		w.get(prometheus+"/api/v1/query_exemplars?start=0&end=99999999999&query=fanout_attempt_duration_seconds_bucket", &found)
		return len(found) > 0
	})
}

// runbookHas says that the server shows a section there.
func (w *world) runbookHas(anchor string) {
	w.Helper()
	resp, err := http.Get(w.api + "/oncall/runbook")
	w.ok(err)
	defer func() { _ = resp.Body.Close() }()
	var page bytes.Buffer
	_, err = page.ReadFrom(resp.Body)
	w.ok(err)
	if !strings.Contains(page.String(), `id="`+anchor+`"`) {
		w.Errorf("%s/oncall/runbook has no #%s", w.api, anchor)
	}
}
