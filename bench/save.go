package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// save writes results.json: every round, and what it was run on.
func (b *bench) save() error {
	if err := os.MkdirAll(b.o.out, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(map[string]any{
		"line": strings.Join(b.lastLine(), " "), "machine": b.machine(), "took_at": time.Now().UTC().Format(time.RFC3339),
		"slots": b.o.slots, "endpoints": endpoints, "events": b.o.events, "body_bytes": bodySize, "outstanding": b.o.outstanding(),
		"rounds": b.took.rounds,
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.o.out, "results.json"), append(text, '\n'), 0o644)
}

// machine says what the figures are true of. What cannot be found out is left empty.
func (b *bench) machine() map[string]any {
	say := func(name string, args ...string) string {
		cmd := exec.Command(name, args...) //nolint:gosec // our own arguments
		cmd.Dir = b.o.root
		out, _ := cmd.Output()
		return strings.TrimSpace(string(out))
	}
	model := ""
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	return map[string]any{
		"cpu": model, "cores": runtime.NumCPU(), "kernel": say("uname", "-sr"), "go": runtime.Version(),
		"redis": say("redis-server", "--version"), "product": say("git", "describe", "--tags", "--always", "--dirty"),
		"disk_is_memory": inMemory(b.dir),
	}
}

// inMemory says whether a folder is on a tmpfs: an append-only file that is written
// there is not durable, and costs next to nothing.
func inMemory(dir string) bool {
	const tmpfs = 0x01021994
	var fs syscall.Statfs_t
	return syscall.Statfs(dir, &fs) == nil && fs.Type == tmpfs
}

// saveAs writes <name>.json and <name>.md.
func (b *bench) saveAs(name, md string, result any) error {
	if err := os.MkdirAll(b.o.out, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(b.o.out, name+".json"), append(text, '\n'), 0o644),
		os.WriteFile(filepath.Join(b.o.out, name+".md"), []byte(md), 0o644))
}
