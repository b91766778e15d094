//go:build crash

package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	startWithin = 60 * time.Second
	stopWithin  = 60 * time.Second
)

// process is one life of an API server or a dispatcher.
type process struct {
	name   string
	cmd    *exec.Cmd
	exited chan struct{}

	mu      sync.Mutex
	log     bytes.Buffer
	addr    string // where it listens, as its log says
	crashed string // the point at which it died, as its last line says
}

// Write takes in what the process logs.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for line := range bytes.Lines(b) {
		var said struct{ Msg, API, Metrics, Name string }
		if json.Unmarshal(line, &said) != nil {
			continue
		}
		switch said.Msg {
		case "serving":
			p.addr = strings.TrimPrefix(said.API, "http://")
		case "dispatching":
			p.addr = said.Metrics
		case "crash point":
			p.crashed = said.Name
		}
	}
	return p.log.Write(b)
}

func (p *process) said() (addr, crashed string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.addr, p.crashed
}

// start runs a binary and returns when it listens, or has died at a point. It dies
// at `at` ("name#n"), or nowhere if that is empty.
func start(bin, at string, args ...string) (*process, error) {
	p := &process{name: bin, exited: make(chan struct{})}
	p.cmd = exec.CommandContext(context.Background(), filepath.Join(binaries, bin), args...)
	p.cmd.Env = append(os.Environ(), "FANOUT_CRASH_AT="+at)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", bin, err)
	}
	go func() { _ = p.cmd.Wait(); close(p.exited) }()
	for deadline := time.Now().Add(startWithin); ; {
		addr, crashed := p.said()
		if addr != "" || crashed != "" {
			return p, nil
		}
		select {
		case <-p.exited:
			if _, crashed := p.said(); crashed != "" {
				return p, nil
			}
			return nil, fmt.Errorf("%s exited while starting:\n%s", bin, p.tail())
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			p.kill()
			return nil, fmt.Errorf("%s does not listen after %s:\n%s", bin, startWithin, p.tail())
		}
	}
}

// gone says whether it has ended.
func (p *process) gone() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if it is gone already
	<-p.exited
}

// stop ends it as an operator would.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case <-p.exited:
	case <-time.After(stopWithin):
		p.kill()
		return fmt.Errorf("%s did not stop within %s", p.name, stopWithin)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("%s exited with %d when it was asked to stop:\n%s", p.name, code, p.tail())
	}
	return nil
}

// tail is the end of its log.
func (p *process) tail() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.log.Bytes()
	return string(b[max(0, len(b)-4000):])
}
