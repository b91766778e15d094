package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// With -profile the product is built with one more file in each main package, by the
// compiler's -overlay: what is shipped serves no profiles. SIGUSR1 begins a CPU
// profile and SIGUSR2 ends it. Redis is looked at by perf, where there is one.

// profileFile is the variable that tells a child where to write.
const profileFile = "BENCH_PROFILE"

//go:embed watch.go.txt
var watchSource []byte

// overlay writes the file, and the list that the compiler wants, and returns the
// flag for it.
func (b *bench) overlay() (string, error) {
	source := filepath.Join(b.dir, "watch.go")
	root, err := filepath.Abs(b.o.root)
	if err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {
		filepath.Join(root, "cmd/fanout/bench_watch.go"):     source,
		filepath.Join(root, "cmd/dispatcher/bench_watch.go"): source,
	}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(b.dir, "overlay.json")
	return "-overlay=" + path, errors.Join(os.WriteFile(source, watchSource, 0o600), os.WriteFile(path, list, 0o600))
}

// profile begins the profiles of a measured part; what it returns ends them. The
// folder then holds <mode>-<process>.pprof and .txt, of the last round.
func (s *stack) profile(ctx context.Context) (end func() error) {
	if s.b.o.profile == "" {
		return func() error { return nil }
	}
	for _, c := range []*child{s.api, s.dispatcher} {
		_ = os.Remove(s.profilePath(c.name))
		c.signal(syscall.SIGUSR1)
	}
	data := filepath.Join(s.b.o.profile, s.fsync+"-redis.perf")
	perf := exec.Command("perf", "record", "-q", "-F", "499", "-e", "cpu-clock", "-g", "-o", data, //nolint:gosec // our own arguments
		"-p", strconv.Itoa(s.redis.cmd.Process.Pid))
	perf.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	perfErr := perf.Start() // without perf the rest is still of use
	return func() error {
		if perfErr == nil {
			_ = perf.Process.Signal(syscall.SIGINT)
			_ = perf.Wait() // it ends by the signal
			s.top("redis", "perf", "report", "--stdio", "--no-children", "-g", "none", "--percent-limit", "0.5", "-i", data)
		}
		var errs []error
		for _, c := range []*child{s.api, s.dispatcher} {
			path, bin := s.profilePath(c.name), filepath.Join(s.b.bin, c.name)
			c.signal(syscall.SIGUSR2)
			errs = append(errs, poll(ctx, c, 10*time.Second, func() error { _, err := os.Stat(path); return err }))
			s.top(c.name, "go", "tool", "pprof", "-top", "-cum", "-nodecount=120", bin, path)
			s.top(c.name+"-flat", "go", "tool", "pprof", "-top", "-nodecount=60", bin, path)
		}
		return errors.Join(errs...)
	}
}

func (s *stack) profilePath(process string) string {
	return filepath.Join(s.b.o.profile, s.fsync+"-"+process+".pprof")
}

// top writes what a tool says of a profile beside it; a tool that is missing is no
// failure of the run.
func (s *stack) top(process, tool string, args ...string) {
	out, err := exec.Command(tool, args...).CombinedOutput() //nolint:gosec // our own arguments
	if err != nil {
		s.b.say("%s: %v", tool, err)
	}
	_ = os.WriteFile(filepath.Join(s.b.o.profile, s.fsync+"-"+process+".txt"), out, 0o600)
}
