// Package deploy answers: would what we ship start? Nothing here runs a
// container; it checks that the files agree with each other and with the code.
package deploy

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"github.com/fanout/fanout/internal/boot"
)

const root = "../.."

// compose is the part of the Compose specification that the file uses. A key
// that is not here fails the test: a misspelt one would be ignored in silence.
type compose struct {
	Common   service            `yaml:"x-fanout"`
	Services map[string]service `yaml:"services"`
	Volumes  map[string]any     `yaml:"volumes"`
}

type service struct {
	Profiles    []string          `yaml:"profiles"`
	Build       string            `yaml:"build"`
	Image       string            `yaml:"image"`
	NetworkMode string            `yaml:"network_mode"`
	Restart     string            `yaml:"restart"`
	ReadOnly    bool              `yaml:"read_only"`
	CapDrop     []string          `yaml:"cap_drop"`
	SecurityOpt []string          `yaml:"security_opt"`
	Entrypoint  []string          `yaml:"entrypoint"`
	Command     any               `yaml:"command"`
	Environment map[string]string `yaml:"environment"`
	Volumes     []string          `yaml:"volumes"`
	StopGrace   string            `yaml:"stop_grace_period"`
	DependsOn   map[string]struct {
		Condition string `yaml:"condition"`
	} `yaml:"depends_on"`
	Healthcheck struct {
		Test     []string `yaml:"test"`
		Interval string   `yaml:"interval"`
		Timeout  string   `yaml:"timeout"`
		Retries  int      `yaml:"retries"`
	} `yaml:"healthcheck"`
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// defaults are what ${NAME:-default} is where nobody has set NAME.
var defaults = regexp.MustCompile(`\$\{[A-Z_]+:-([^}]*)\}`)

func load(t *testing.T) compose {
	t.Helper()
	var c compose
	text := defaults.ReplaceAll(read(t, "docker-compose.yml"), []byte("$1"))
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil {
		t.Fatalf("docker-compose.yml: %v", err)
	}
	return c
}

func TestComposeHoldsTogether(t *testing.T) {
	t.Parallel()
	c := load(t)
	for _, name := range []string{"redis", "fanout", "dispatcher", "prometheus", "grafana"} {
		if _, ok := c.Services[name]; !ok {
			t.Errorf("no service %s", name)
		}
	}
	for name, s := range c.Services {
		for dep, how := range s.DependsOn {
			if other, ok := c.Services[dep]; !ok || (how.Condition == "service_healthy" && len(other.Healthcheck.Test) == 0) {
				t.Errorf("%s waits for %s, which is not there or has no health check", name, dep)
			}
		}
		for _, v := range s.Volumes {
			source, _, _ := strings.Cut(v, ":")
			if strings.HasPrefix(source, ".") {
				if _, err := os.Stat(filepath.Join(root, source)); err != nil {
					t.Errorf("%s mounts what is not there: %v", name, err)
				}
			} else if _, ok := c.Volumes[source]; !ok {
				t.Errorf("%s mounts the volume %s, which is not declared", name, source)
			}
		}
	}
}

func TestRedisKeepsWhatItPromised(t *testing.T) {
	t.Parallel()
	s := load(t).Services["redis"]
	command, _ := s.Command.(string)
	for _, want := range []string{"--appendonly yes", "--maxmemory-policy noeviction", "--bind 127.0.0.1"} {
		if !strings.Contains(command, want) {
			t.Errorf("redis runs %q, without %s", command, want)
		}
	}
	if !slices.Contains(s.Volumes, "redis-data:/data") {
		t.Errorf("redis keeps its file in %v, not in a volume", s.Volumes)
	}
}

// Every variable of our processes in the file is one that they read, with a value that
// they accept.
func TestEnvironmentIsUnderstood(t *testing.T) {
	for name, s := range load(t).Services {
		if s.Image != "fanout" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			var cli struct {
				boot.Common
				boot.Access
			}
			k, err := kong.New(&cli, boot.Options("", "127.0.0.1:1")...)
			if err != nil {
				t.Fatal(err)
			}
			known := map[string]bool{}
			for _, f := range k.Model.Flags {
				for _, env := range f.Envs {
					known[env] = true
				}
			}
			for key, value := range s.Environment {
				if !known[key] {
					t.Errorf("%s is no variable of ours", key)
				}
				t.Setenv(key, value)
			}
			if _, err := k.Parse(nil); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPrometheusScrapesWhereTheyListen(t *testing.T) {
	t.Parallel()
	var p struct {
		Scrapes []struct {
			Job    string `yaml:"job_name"`
			Static []struct {
				Targets []string `yaml:"targets"`
			} `yaml:"static_configs"`
			Authorization struct {
				Type string `yaml:"type"`
				File string `yaml:"credentials_file"`
			} `yaml:"authorization"`
		} `yaml:"scrape_configs"`
		Rules []string `yaml:"rule_files"`
	}
	if err := yaml.Unmarshal(read(t, "deploy/prometheus/prometheus.yml"), &p); err != nil {
		t.Fatal(err)
	}
	services := load(t).Services
	if len(p.Scrapes) != 2 {
		t.Fatalf("%d scrapes, want the server and the dispatcher", len(p.Scrapes))
	}
	for _, s := range p.Scrapes {
		target := s.Static[0].Targets[0]
		if listen := services[s.Job].Environment["FANOUT_LISTEN"]; listen != target {
			t.Errorf("%s listens on %q and is scraped at %q", s.Job, listen, target)
		}
		if _, _, err := net.SplitHostPort(target); err != nil {
			t.Error(err)
		}
		// The API asks for a key once there are any, the dispatcher for none.
		mounts := func(v string) bool { return strings.HasSuffix(v, ":"+s.Authorization.File+":ro") }
		if s.Job == "fanout" && (s.Authorization.Type != "Bearer" || !slices.ContainsFunc(services["prometheus"].Volumes, mounts)) {
			t.Errorf("it is scraped with %+v, of what is mounted at %v", s.Authorization, services["prometheus"].Volumes)
		}
	}
	for _, r := range p.Rules {
		read(t, filepath.Join("deploy/prometheus", r))
	}
}

// Grafana is told of the Prometheus that there is and of where the dashboard is mounted, and
// is started for those alone who ask for it.
func TestGrafanaFindsItsDashboard(t *testing.T) {
	t.Parallel()
	c := load(t)
	var sources struct {
		Datasources []struct {
			Type, URL string
		} `yaml:"datasources"`
	}
	var boards struct {
		Providers []struct {
			Options struct {
				Path string `yaml:"path"`
			} `yaml:"options"`
		} `yaml:"providers"`
	}
	const dir = "deploy/grafana/provisioning"
	for name, into := range map[string]any{"datasources/prometheus.yml": &sources, "dashboards/fanout.yml": &boards} {
		if err := yaml.Unmarshal(read(t, filepath.Join(dir, name)), into); err != nil {
			t.Fatal(err)
		}
	}
	listen := "--web.listen-address=" + strings.TrimPrefix(sources.Datasources[0].URL, "http://")
	if command, _ := c.Services["prometheus"].Command.([]any); !slices.Contains(command, any(listen)) {
		t.Errorf("Prometheus is started with %v, and Grafana asks %s", command, sources.Datasources[0].URL)
	}
	g := c.Services["grafana"]
	board := "./deploy/grafana/fanout.json:" + boards.Providers[0].Options.Path + "/fanout.json:ro"
	if !slices.Contains(g.Volumes, board) || !slices.Contains(g.Volumes, "./"+dir+":/etc/grafana/provisioning:ro") {
		t.Errorf("Grafana mounts %v", g.Volumes)
	}
	if !slices.Equal(g.Profiles, []string{"grafana"}) || g.Environment["GF_SERVER_HTTP_ADDR"] != "127.0.0.1" {
		t.Errorf("Grafana: profiles %v, listens on %q", g.Profiles, g.Environment["GF_SERVER_HTTP_ADDR"])
	}
	// Where alerts and dashboard lead a person is where the API listens.
	api := "http://" + c.Services["fanout"].Environment["FANOUT_LISTEN"]
	if !strings.Contains(string(read(t, "deploy/prometheus/prometheus.yml")), "fanout_url: "+api+"\n") ||
		!strings.Contains(string(read(t, "deploy/grafana/fanout.json")), `"value": "`+api+`"`) {
		t.Errorf("the alerts or the dashboard lead elsewhere than to %s", api)
	}
}

func TestImageHoldsNothingButTheBinaries(t *testing.T) {
	t.Parallel()
	stages := regexp.MustCompile(`(?m)^FROM `).Split(string(read(t, "Dockerfile")), -1)
	last := stages[len(stages)-1]
	for _, want := range []string{"scratch\n", "ca-certificates.crt", "/out/fanout", "/out/dispatcher", `ENTRYPOINT ["/fanout"]`} {
		if !strings.Contains(last, want) {
			t.Errorf("the last stage has no %s", want)
		}
	}
	if !regexp.MustCompile(`(?m)^USER [1-9]\d*:[1-9]\d*$`).MatchString(last) {
		t.Error("the last stage does not drop root by number")
	}
	if strings.Contains(last, "RUN") {
		t.Error("the last stage runs something, where there is no shell")
	}
	if build := stages[1]; !strings.Contains(build, "CGO_ENABLED=0") || !strings.Contains(build, "-trimpath") {
		t.Error("the binaries are not built static and trimmed")
	}
}

// The build stage sees only what .dockerignore lets through: every package that
// the binaries are made of must be among it.
func TestImageBuildSeesEveryPackage(t *testing.T) {
	t.Parallel()
	let := map[string]bool{}
	for line := range strings.Lines(string(read(t, ".dockerignore"))) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "!"); ok {
			let[name] = true
		}
	}
	cmd := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./cmd/...")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	const module = "github.com/fanout/fanout/"
	for line := range strings.Lines(string(out)) {
		path, ours := strings.CutPrefix(strings.TrimSpace(line), module)
		if top, _, _ := strings.Cut(path, "/"); ours && !let[top] {
			t.Errorf("%s is compiled in, and .dockerignore keeps it out", path)
		}
	}
}
