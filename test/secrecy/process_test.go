//go:build secrecy

package secrecy

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	patience   = 60 * time.Second
	stopWithin = 60 * time.Second
)

// build makes the binaries, as they are shipped but for the race detector's absence.
func build(t testing.TB) string {
	t.Helper()
	bin := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", bin+"/", "./cmd/...")
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

// process is a binary that runs.
type process struct {
	name   string
	cmd    *exec.Cmd
	exited chan struct{}

	mu  sync.Mutex
	log bytes.Buffer // all that it wrote
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *process) said() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Clone(p.log.Bytes())
}

// run starts a binary with nothing in its environment but what is given, and PATH.
func (w *world) run(name string, env []string, args ...string) *process {
	w.Helper()
	p := &process{name: name, exited: make(chan struct{})}
	p.cmd = exec.CommandContext(context.WithoutCancel(w.Context()), filepath.Join(w.bin, name), args...)
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.TempDir()}, env...)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := p.cmd.Start(); err != nil {
		w.Fatal(err)
	}
	go func() { _ = p.cmd.Wait(); close(p.exited) }()
	w.Cleanup(func() { _ = p.cmd.Process.Kill(); <-p.exited })
	return p
}

var listens = regexp.MustCompile(`(?:api|metrics)"?[=:]"?(?:http://)?(127\.0\.0\.1:\d+)`)

// listening waits until it says where it listens.
func (w *world) listening(p *process) string {
	w.Helper()
	var at [][]byte
	w.until(p.name+" listens", func() bool {
		at = listens.FindSubmatch(p.said())
		select {
		case <-p.exited:
			w.Fatalf("%s ended: %s", p.name, p.said())
		default:
		}
		return at != nil
	})
	return string(at[1])
}

// stop ends it as an operator would: what it logs and exports at its end counts too.
func (w *world) stop(p *process) {
	w.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		w.Fatal(err)
	}
	select {
	case <-p.exited:
	case <-time.After(stopWithin):
		w.Fatalf("%s does not stop: %s", p.name, p.said())
	}
}

// fails runs a binary that is to end by itself with an error, and looks at what it
// says.
func (w *world) fails(what, name string, env []string, args ...string) {
	w.Helper()
	p := w.run(name, env, args...)
	select {
	case <-p.exited:
	case <-time.After(patience):
		w.Fatalf("%s: it goes on: %s", what, p.said())
	}
	if p.cmd.ProcessState.ExitCode() == 0 || len(p.said()) == 0 {
		w.Errorf("%s: exit code %d and %q", what, p.cmd.ProcessState.ExitCode(), p.said())
	}
	w.look("what is said of "+what, p.said())
}

// collector takes in spans as an OpenTelemetry collector does, and keeps the bytes:
// a protobuf holds its texts as they are.
type collector struct {
	*httptest.Server

	mu    sync.Mutex
	spans bytes.Buffer
	auth  string // the last Authorization
}

func newCollector(t testing.TB) *collector {
	t.Helper()
	c := &collector{}
	first := true
	c.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Error(err)
				return
			}
			body = z
		}
		b, err := io.ReadAll(body)
		if err != nil {
			return // the sender went away
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.spans.Write(b)
		c.auth = r.Header.Get("Authorization")
		if first { // the failure of an export is logged
			first = false
			http.Error(rw, "not today", http.StatusBadRequest)
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) got() (spans []byte, auth string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.spans.Bytes()), c.auth
}

// files is all that a directory holds.
func files(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read what Redis wrote: %w", err)
		}
		all[path[len(dir):]] = b
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
