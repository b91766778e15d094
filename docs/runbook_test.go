package docs_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/fanout/fanout/internal/oncall"
)

// anchors are those of a document's headings, as GitHub and the servers make them.
func anchors(doc string) []string {
	var all []string
	for _, h := range find(doc, `(?m)^#{1,4} (.+)$`) {
		all = append(all, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, h))
	}
	return all
}

// section is the text under a heading of the third level.
func section(doc, heading string) string {
	_, text, _ := strings.Cut(doc, "\n### "+heading+"\n")
	return regexp.MustCompile(`\n##`).Split(text, 2)[0]
}

// alert is a rule that alerts.
type alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func alerts(t *testing.T) (all []alert) {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []alert `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "../deploy/prometheus/rules.yml")), &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Alert != "" {
				all = append(all, r)
			}
		}
	}
	if len(all) == 0 {
		t.Fatal("no alerts to be found")
	}
	return all
}

// Every diagnosis of triage leads to a section that says what to look at, what to do and
// where its threshold comes from.
func TestEveryDiagnosisIsInTheRunbook(t *testing.T) {
	t.Parallel()
	doc := read(t, "runbook.md")
	for _, d := range oncall.Diagnoses {
		words := strings.ReplaceAll(string(d), "_", " ")
		text := section(doc, strings.ToUpper(words[:1])+words[1:])
		if text == "" {
			t.Errorf("runbook.md has no section for the diagnosis %s", d)
			continue
		}
		if d == oncall.NotSampled || d == oncall.Healthy {
			continue // there is nothing to do
		}
		for _, part := range []string{"**Look:**", "**Do:**", "**Threshold:**"} {
			if !strings.Contains(text, part) {
				t.Errorf("runbook.md: the section of %s has no %s", d, part)
			}
		}
	}
}

// Every alert says how grave it is and leads to its section, and every section of an
// alert is of one that there is, under the right heading.
func TestEveryAlertIsInTheRunbook(t *testing.T) {
	t.Parallel()
	doc := read(t, "runbook.md")
	_, after, _ := strings.Cut(doc, "\n## Alerts that page\n")
	page, warn, _ := strings.Cut(after, "\n## Alerts that warn\n")
	under := map[string]string{"page": page, "warning": warn}
	var names []string
	for _, a := range alerts(t) {
		names = append(names, a.Alert)
		if !strings.Contains(under[a.Labels["severity"]], "### "+a.Alert+"\n") {
			t.Errorf("%s, of severity %q, has no section in that part of runbook.md", a.Alert, a.Labels["severity"])
		}
		if want := "{{ $externalLabels.fanout_url }}/oncall/runbook#" + strings.ToLower(a.Alert); a.Annotations["runbook_url"] != want {
			t.Errorf("%s leads to %q, want %q", a.Alert, a.Annotations["runbook_url"], want)
		}
		if a.Annotations["summary"] == "" || a.Annotations["description"] == "" {
			t.Errorf("%s has no summary or no description", a.Alert)
		}
	}
	for _, name := range find(doc, `(Fanout[A-Z]\w+)`) {
		if !slices.Contains(names, name) {
			t.Errorf("runbook.md names %s, which is no alert", name)
		}
	}
}

// The runbook says that triage and the alerts have the same thresholds.
func TestAlertsJudgeAsTriageDoes(t *testing.T) {
	t.Parallel()
	expr := map[string]string{}
	for _, a := range alerts(t) {
		expr[a.Alert] = a.Expr
	}
	const diagnose, options, metrics = "oncall/diagnose.go", "dispatch/options.go", "dispatch/metrics.go"
	for _, c := range []struct{ file, code, alert, rule string }{
		{diagnose, "failShare = 0.1\n", "FanoutLateAndFailing", "rate5m >= 0.1"},
		{diagnose, "failShare = 0.1\n", "FanoutFailing", "rate5m >= 0.1"},
		{diagnose, "fewFailures = 10\n", "FanoutFailing", "[5m])) >= 50"}, // ten a minute
		{diagnose, "wideShare = 0.5\n", "FanoutWidespreadFailures", ">= 0.5"},
		{diagnose, "wideFew   = 5\n", "FanoutWidespreadFailures", "max(fanout_subscribers_failing) >= 5"},
		{diagnose, "unmanned = 30 * time.Second\n", "FanoutNoDispatcher", "> 30"},
		{diagnose, "fullShare = 0.9\n", "FanoutSlotsSaturated", ">= 0.9"},
		{diagnose, "slowRedis = 100 * time.Millisecond\n", "FanoutRedisSlow", ">= 0.1"},
		{options, "o.RetryShare = 0.75\n", "FanoutRetryPressure", "0.75 *"},
		{metrics, "manyFailures = 5\n", "FanoutRepeatedFailures", "fanout_repeated_failures_total"}, // the fifth, says the runbook
	} {
		if !strings.Contains(read(t, "../internal/"+c.file), c.code) {
			t.Errorf("internal/%s has no %q: bring %s and its section of the runbook in step", c.file, c.code, c.alert)
		}
		if !strings.Contains(expr[c.alert], c.rule) {
			t.Errorf("%s does not ask for %s, which is what internal/%s says: %q", c.alert, c.rule, c.file, c.code)
		}
	}
}

// Every alert is seen to fire, and seen not to.
func TestEveryAlertIsTestedBothWays(t *testing.T) {
	t.Parallel()
	var file struct {
		Tests []struct {
			Rules []struct {
				Alert string `yaml:"alertname"`
				Want  []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		} `yaml:"tests"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "../deploy/prometheus/rules_test.yml")), &file); err != nil {
		t.Fatal(err)
	}
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, r := range test.Rules {
			fires[r.Alert] = fires[r.Alert] || len(r.Want) > 0
			quiet[r.Alert] = quiet[r.Alert] || len(r.Want) == 0
		}
	}
	for _, a := range alerts(t) {
		if !fires[a.Alert] || !quiet[a.Alert] {
			t.Errorf("%s: a test where it fires: %t, one where it does not: %t", a.Alert, fires[a.Alert], quiet[a.Alert])
		}
	}
}

func TestLinksWithinTheRunbookResolve(t *testing.T) {
	t.Parallel()
	doc := read(t, "runbook.md")
	there := anchors(doc)
	for _, to := range find(doc, `\]\(#([^)]+)\)`) {
		if !slices.Contains(there, to) {
			t.Errorf("runbook.md links to #%s, where nothing is", to)
		}
	}
}
