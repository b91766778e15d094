package observe

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

// exports are the label values of every metric, by name and label.
type exports map[string]map[string]map[string]bool

// add takes in what one process exports.
func (e exports) add(t *testing.T, text string) {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if m.GetHistogram() == nil {
				e.series(name, labels)
				continue
			}
			e.series(name+"_sum", labels)
			e.series(name+"_count", labels)
			labels["le"] = "+Inf"
			e.series(name+"_bucket", labels)
		}
	}
}

func (e exports) series(name string, labels map[string]string) {
	if e[name] == nil {
		e[name] = map[string]map[string]bool{}
	}
	for l, v := range labels {
		if e[name][l] == nil {
			e[name][l] = map[string]bool{}
		}
		e[name][l][v] = true
	}
}

// query is an expression of PromQL and the labels that its text or legend names.
type query struct{ where, expr, text string }

var (
	// ours are metrics of ours, recorded ones with colons, and their matchers if any.
	ours      = regexp.MustCompile(`((?:\w+:)?fanout[_:][\w:]+)(?:\{([^}]*)\})?`)
	matchers  = regexp.MustCompile(`(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	groupings = regexp.MustCompile(`\b(?:by|on|without|ignoring)\s*\(([^)]*)\)`)
	// named are labels in an annotation or a legend.
	named = regexp.MustCompile(`\{\{\s*(?:\$labels\.)?([a-z_]+)\s*\}\}`)
	// theirs are labels that Prometheus adds.
	theirs = []string{"instance", "job"}
)

// check says what q asks for that nobody exports.
func (e exports) check(t *testing.T, q query) {
	t.Helper()
	labels := slices.Clone(theirs)
	for _, m := range ours.FindAllStringSubmatch(q.expr, -1) {
		known, there := e[m[1]]
		if !there {
			t.Errorf("%s asks for %s, which nobody exports", q.where, m[1])
			continue
		}
		labels = slices.AppendSeq(labels, maps.Keys(known))
		for _, match := range matchers.FindAllStringSubmatch(m[2], -1) {
			for value := range strings.SplitSeq(match[3], "|") {
				switch {
				case known[match[1]] == nil:
					t.Errorf("%s: %s has no label %s", q.where, m[1], match[1])
				case !strings.HasPrefix(value, "$") && !known[match[1]][value]:
					t.Errorf("%s: %s has no %s=%q, only %v", q.where, m[1], match[1], value, slices.Sorted(maps.Keys(known[match[1]])))
				}
			}
		}
	}
	for _, g := range groupings.FindAllStringSubmatch(q.expr, -1) {
		for l := range strings.SplitSeq(g[1], ",") {
			if l = strings.TrimSpace(l); l != "" && !slices.Contains(labels, l) {
				t.Errorf("%s groups by %s, which none of its metrics has", q.where, l)
			}
		}
	}
	for _, l := range named.FindAllStringSubmatch(q.text, -1) {
		if !slices.Contains(labels, l[1]) {
			t.Errorf("%s shows the label %s, which none of its metrics has", q.where, l[1])
		}
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("../../deploy/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// rules are the alerts' queries, and the recorded ones by name.
func rules(t *testing.T) (asked []query, recorded map[string]query) {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert       string            `yaml:"alert"`
				Record      string            `yaml:"record"`
				Expr        string            `yaml:"expr"`
				Annotations map[string]string `yaml:"annotations"`
			} `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal(read(t, "prometheus/rules.yml"), &file); err != nil {
		t.Fatal(err)
	}
	recorded = map[string]query{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			q := query{where: r.Alert + r.Record, expr: r.Expr, text: r.Annotations["summary"] + r.Annotations["description"]}
			asked = append(asked, q)
			if r.Record != "" {
				recorded[r.Record] = q
			}
		}
	}
	return asked, recorded
}

// panels are the dashboard's queries.
func panels(t *testing.T) (asked []query) {
	t.Helper()
	var board struct {
		Panels []struct {
			Title   string `json:"title"`
			Type    string `json:"type"`
			Targets []struct {
				Expr   string `json:"expr"`
				Legend string `json:"legendFormat"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(read(t, "grafana/fanout.json"), &board); err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("the panel %q asks for nothing", p.Title)
		}
		for _, target := range p.Targets {
			asked = append(asked, query{where: "the panel " + p.Title, expr: target.Expr, text: target.Legend})
		}
	}
	return asked
}

// What rules and dashboard ask for is what both processes export; a rule about a metric
// that was renamed would be silent for ever.
func TestRulesAndDashboardAskForWhatThereIs(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.subscribe(newReceiver(t, http.StatusOK).URL)
	w.post("evt_1")
	w.until("a round of the reconciliation", func() bool {
		return strings.Contains(w.scrape(w.api, "text/plain"), `fanout_audit_gaps{kind=`)
	})
	there := exports{}
	for name, from := range map[string]string{"the API": w.api, "the dispatcher": w.dispatcher} {
		text := w.scrape(from, "text/plain")
		there.add(t, text)
		lint := exec.CommandContext(t.Context(), "promtool", "check", "metrics")
		lint.Stdin = strings.NewReader(text)
		if out, err := lint.CombinedOutput(); err != nil {
			t.Errorf("promtool check metrics, of %s: %v\n%s", name, err, out)
		}
	}
	asked, recorded := rules(t)
	for name, q := range recorded {
		by := groupings.FindStringSubmatch(q.expr)
		labels := map[string]string{}
		if by != nil {
			for l := range strings.SplitSeq(by[1], ",") {
				labels[strings.TrimSpace(l)] = "any"
			}
		}
		there.series(name, labels)
	}
	all := append(asked, panels(t)...)
	if len(all) < 50 {
		t.Fatalf("only %d queries could be read", len(all))
	}
	for _, q := range all {
		there.check(t, q)
	}
}

// The check above would see a metric, a label and a value that are not there.
func TestTheCheckSeesWhatIsMissing(t *testing.T) {
	t.Parallel()
	there := exports{}
	there.series("fanout_attempts_total", map[string]string{"class": "standard", "outcome": "delivered"})
	for _, c := range []struct {
		name string
		q    query
		bad  bool
	}{
		{"all is there", query{expr: `sum by (class) (rate(fanout_attempts_total{outcome="delivered"}[5m]))`, text: "{{class}}"}, false},
		{"a metric", query{expr: `fanout_attempt_total`}, true},
		{"a label", query{expr: `fanout_attempts_total{lane="fresh"}`}, true},
		{"a value", query{expr: `fanout_attempts_total{outcome=~"delivered|lost"}`}, true},
		{"what it groups by", query{expr: `sum by (lane) (fanout_attempts_total)`}, true},
		{"what it shows", query{expr: `fanout_attempts_total`, text: "{{ $labels.lane }}"}, true},
	} {
		probe := &testing.T{}
		there.check(probe, c.q)
		if probe.Failed() != c.bad {
			t.Errorf("%s: seen to be missing: %t, want %t", c.name, probe.Failed(), c.bad)
		}
	}
}
