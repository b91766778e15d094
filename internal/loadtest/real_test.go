package loadtest

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

// build makes the binaries, as this test was made, so that what they share is in
// the cache.
func build(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	args := []string{"build", "-o", bin + "/"}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(t.Context(), "go", append(args, "./cmd/...")...)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

// tiny has a group that is well, and one of which every delivery fails at first.
func tiny(ctx context.Context, r *run) error {
	well, err := r.enter(ctx, cast{name: "healthy", endpoints: 3})
	if err != nil {
		return err
	}
	bad, err := r.enter(ctx, cast{name: "failing", endpoints: 2, bad: true, manner: failing, policy: outagePolicy(true, 1000)})
	if err != nil {
		return err
	}
	r.measure()
	stop := r.steady(ctx, everyone, 20)
	if err := pause(ctx, time.Second); err != nil {
		return err
	}
	r.mark("recovery")
	bad.turn(prompt)
	if err := pause(ctx, time.Second); err != nil {
		return err
	}
	stop()
	// A second is not enough on a machine that runs other tests.
	for {
		events, err := r.accepted()
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(ages(events, well, 0, r.now(), r.now()), func(a age) bool { return !a.arrived }) {
			return r.end(ctx)
		}
		if err := pause(ctx, lookEvery); err != nil {
			return err
		}
	}
}

// The whole of it, over real processes: what is posted arrives and is counted,
// what fails is told apart, plots and results are written, and nothing is left.
func TestTinyScenarioForReal(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	o := Options{Slots: 20, Dispatchers: 1, Bin: build(t), Log: &log}
	res, err := play(t.Context(), o, scenario{"tiny", tiny})
	if err != nil {
		t.Fatal(err)
	}
	h, healthy, bad := res.Healthy, res.Groups[0], res.Groups[1]
	if res.Events < 20 || h.Deliveries != 3*res.Events || h.Arrived != h.Deliveries || healthy.Requests != int64(h.Deliveries) {
		t.Errorf("of %d events the healthy got %d of %d, by %d requests", res.Events, h.Arrived, h.Deliveries, healthy.Requests)
	}
	if h.P50 <= 0 || h.P50 > h.P99 || h.P99 > h.Max || healthy.MostInFlight < 1 {
		t.Errorf("no sensible ages: %+v", healthy)
	}
	if bad.Ages.Deliveries != 2*res.Events || bad.Ages.Max < 100 || res.Retries < 2 {
		t.Errorf("the failing: %+v, %d retries", bad, res.Retries)
	}
	dir := filepath.Join(t.TempDir(), "out")
	if err := (&Report{Scenarios: []Result{res}}).Save(dir); err != nil {
		t.Fatal(err)
	}
	checkSaved(t, dir)
}

func checkSaved(t *testing.T, dir string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 7 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if f.Name() == "results.json" {
			var rep Report
			if err := json.Unmarshal(b, &rep); err != nil || rep.Scenarios[0].Healthy.Deliveries == 0 {
				t.Errorf("%v\n%s", err, b)
			}
			continue
		}
		dec := xml.NewDecoder(bytes.NewReader(b))
		for err = nil; err == nil; _, err = dec.Token() {
		}
		if !errors.Is(err, io.EOF) || !strings.Contains(string(b), "recovery") {
			t.Errorf("%s: %v", f.Name(), err)
		}
	}
	if age, err := os.ReadFile(filepath.Join(dir, "tiny-age.svg")); err != nil || bytes.Count(age, []byte(`<path class="s s`)) != 4 {
		t.Errorf("tiny-age.svg has not two lines and their legend: %v\n%s", err, age)
	}
}

// A binary that is not there, or ends at once, is named with what it said.
func TestBrokenBinaryIsNamed(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	script := "#!/bin/sh\necho the cat sat on the keyboard >&2\nexit 3\n"
	if err := os.WriteFile(filepath.Join(bin, "fanout"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := Run(t.Context(), Options{Scenarios: []string{calm}, Bin: bin})
	if err == nil || !strings.Contains(err.Error(), "the cat sat on the keyboard") || !strings.Contains(err.Error(), "fanout ended") {
		t.Errorf("got %v", err)
	}
	if _, err := Run(t.Context(), Options{Scenarios: []string{"storm"}}); err == nil {
		t.Error("an unknown scenario was played")
	}
}
