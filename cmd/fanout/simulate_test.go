package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// asCommand has the test's own binary be the command.
const asCommand = "RUN_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		os.Exit(0)
	}
	m.Run()
}

// run runs the command, and returns its exit code.
func run(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

func TestSimulateExitCodes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good.yaml", "rate: 5\nduration: 10s\ngroups: [{name: g, endpoints: 2}]\n")
	bad := write("bad.yaml", "rate: 5\ngroup: []\n")
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"a name":             {[]string{"calm", "--duration=10s"}, 0, "healthy"},
		"a file":             {[]string{"--file=" + good}, 0, "default: "},
		"flags alone":        {[]string{"--group=g:endpoints=3", "--outage=g:from=1s,for=5s,does=500", "--rate=5", "--duration=20s", "--policy=quick:backoff_base=1s,classify.404=dead"}, 0, "quick"},
		"charts":             {[]string{"calm", "--duration=10s", "--svg=" + filepath.Join(dir, "charts")}, 0, "age-healthy.svg"},
		"nothing":            {nil, 2, "name one (calm, outage, hang)"},
		"no such scenario":   {[]string{"storm"}, 2, `there is no "storm"`},
		"name and file":      {[]string{"calm", "--file=" + good}, 2, "not both"},
		"no such file":       {[]string{"--file=" + filepath.Join(dir, "none.yaml")}, 2, "none.yaml"},
		"a file that errs":   {[]string{"--file=" + bad}, 2, "field group not found"},
		"no such flag":       {[]string{"calm", "--speed=3"}, 2, "unknown flag"},
		"policy that errs":   {[]string{"calm", "--policy=p:max_attempts=0"}, 2, "max_attempts: must be from 1 to 100"},
		"no such field":      {[]string{"calm", "--policy=p:attempts=1"}, 2, `no field "attempts"`},
		"outage of nobody":   {[]string{"calm", "--outage=g:for=1s,does=500"}, 2, `no group "g"`},
		"output of no kind":  {[]string{"calm", "-o", "xml"}, 2, "must be one of"},
		"no slots":           {[]string{"calm", "--slots=0"}, 2, "--slots: must be from 1 to 100000, is 0"},
		"no dispatchers":     {[]string{"calm", "--dispatchers=0"}, 2, "--dispatchers: must be from 1 to 1000, is 0"},
		"no events":          {[]string{"calm", "--rate=0"}, 2, "--rate: must be above 0, and at most 100000 events a second, is 0"},
		"less than none":     {[]string{"calm", "--rate=-1"}, 2, "--rate: must be above 0, and at most 100000 events a second, is -1"},
		"no number":          {[]string{"calm", "--rate=NaN"}, 2, "--rate: must be above 0, and at most 100000 events a second, is NaN"},
		"no time":            {[]string{"calm", "--duration=0s"}, 2, "--duration: must be from 1ms to 720h, is 0s"},
		"no time after":      {[]string{"calm", "--run-on=0s"}, 2, "--run-on: must be from 1ms to 720h, is 0s"},
		"no seed":            {[]string{"calm", "--seed=0"}, 2, "--seed: must be 1 or more, is 0"},
		"all of them":        {[]string{"calm", "--rate=0", "--slots=0"}, 2, "--slots: must be"},
		"slower than p99":    {[]string{"--group=g:p50=2s,p99=1s"}, 2, "group g: latency: p50, 2s, must not be above p99, 1s"},
		"instantly":          {[]string{"--group=g:p50=0s"}, 2, "group g: 0s: must be above 0s"},
		"a share of none":    {[]string{"calm", "--outage=healthy:for=1s,does=500,share=0"}, 2, "share: must be above 0, to 1, is 0"},
		"charts into a file": {[]string{"calm", "--duration=1s", "--svg=" + good}, 1, "save the charts"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out, errs := run(t, append([]string{"simulate"}, c.args...)...)
			if code != c.code || !strings.Contains(out+errs, c.says) {
				t.Errorf("exit code %d, want %d, and %q in\n%s%s", code, c.code, c.says, out, errs)
			}
		})
	}
}

// One document on stdout, and nothing else there.
func TestSimulateJSON(t *testing.T) {
	t.Parallel()
	code, out, errs := run(t, "simulate", "calm", "--duration=5s", "--seed=9", "-o", "json")
	var doc struct {
		Scenario struct{ Seed int }
		Results  []struct {
			Policy string
			Groups []struct{ Posted, Delivered int64 }
		}
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil || code != 0 || errs != "" {
		t.Fatalf("%v, exit code %d\n%s%s", err, code, out, errs)
	}
	if doc.Scenario.Seed != 9 || len(doc.Results) != 1 || doc.Results[0].Groups[0].Posted == 0 {
		t.Errorf("%+v", doc)
	}
	if _, again, _ := run(t, "simulate", "calm", "--duration=5s", "--seed=9", "-o", "json"); again != out {
		t.Error("the same seed gave another document")
	}
}

// What cannot be meant is told in a sentence, with the help to read, as code 2.
func TestCommandLinesThatAreNotUnderstood(t *testing.T) {
	t.Parallel()
	for line, says := range map[string]string{
		"":                                 "say what to do: serve, dev, ",
		"subscriber ls":                    `there is no command "subscriber" (did you mean "subscribers"?)`,
		"serve --grace=5s":                 `Run "fanout serve --help"`,
		"simulate calm --duration=1d":      `"1d" is no duration: the units are ms, s, m and h, so give 24h`,
		"serve --admin-key=topsecret":      "set FANOUT_ADMIN_KEY, or put it into a file and give --admin-key-file",
		"reseal --secrets-key=k:topsecret": "--secrets-key-file",
	} {
		code, out, errs := run(t, strings.Fields(line)...)
		if code != 2 || out != "" || !strings.Contains(errs, says) || strings.Contains(errs, "topsecret") {
			t.Errorf("%q: exit code %d\n%s%s", line, code, out, errs)
		}
	}
}
