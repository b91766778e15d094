package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// child is a process of this run. It is in a group of its own, so that Ctrl-C
// reaches the bench alone, which then ends it; should the bench be killed, the
// kernel ends it.
type child struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  *bufio.Reader
	log    string
	exited chan struct{}
}

// spawner starts every child from one thread that is never given back: the kernel
// would end a child with the thread that made it, not with the process.
var spawner = func() chan func() {
	c := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range c {
			f()
		}
	}()
	return c
}()

// spawn starts a child. What it logs goes to <dir>/<name>.log.
func spawn(dir, name, bin string, args ...string) (*child, error) {
	return spawnWith(dir, name, nil, bin, args...)
}

// spawnWith adds variables to the environment.
func spawnWith(dir, name string, env []string, bin string, args ...string) (*child, error) {
	log := filepath.Join(dir, name+".log")
	f, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", name, err)
	}
	defer f.Close() //nolint:errcheck // the child has its own
	c := &child{name: name, log: log, exited: make(chan struct{})}
	c.cmd = exec.Command(bin, args...)
	c.cmd.Dir, c.cmd.Stderr = dir, f
	c.cmd.Env = append(append(os.Environ(), "LC_ALL=C"), env...) // redis-server refuses a locale that is not installed
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, w, err := os.Pipe() // not StdoutPipe, which Wait closes under the reader
	if err != nil {
		return nil, err
	}
	c.cmd.Stdout, c.lines = w, bufio.NewReader(out)
	started := make(chan error)
	spawner <- func() { started <- c.cmd.Start() }
	err = <-started
	_ = w.Close()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = c.cmd.Wait() // how it ended is of no use
		close(c.exited)
	}()
	return c, nil
}

// say writes one line to the child and waits for its answer.
func (c *child) say(ctx context.Context, line string) (string, error) {
	if line != "" {
		if _, err := io.WriteString(c.stdin, line+"\n"); err != nil {
			return "", fmt.Errorf("%s: %w: %s", c.name, err, c.lastWords())
		}
	}
	type answer struct {
		text string
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		text, err := c.lines.ReadString('\n')
		got <- answer{strings.TrimSpace(text), err}
	}()
	select {
	case a := <-got:
		if a.err != nil {
			return "", fmt.Errorf("%s ended: %s", c.name, c.lastWords())
		}
		if why, bad := strings.CutPrefix(a.text, "error "); bad {
			return "", fmt.Errorf("%s: %s", c.name, why)
		}
		return a.text, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (c *child) lastWords() string {
	b, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}

func (c *child) signal(s syscall.Signal) { _ = c.cmd.Process.Signal(s) } // fails only if it is gone

// stop asks, waits, and insists.
func (c *child) stop() {
	if c == nil {
		return
	}
	_ = c.stdin.Close()
	c.signal(syscall.SIGTERM)
	select {
	case <-c.exited:
		return
	case <-time.After(5 * time.Second):
	}
	c.signal(syscall.SIGKILL)
	<-c.exited
}

// ticks is the kernel's USER_HZ, which is 100 on every Linux that Go runs on.
const ticks = 100

// cpu is what the process has used so far, user and system, in ms; to 10 ms.
func (c *child) cpu() float64 { return cpuOf(strconv.Itoa(c.cmd.Process.Pid)) }

func cpuOf(pid string) float64 {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0
	}
	// The name, in parentheses, may hold blanks; utime and stime are words 14 and 15.
	_, rest, _ := strings.Cut(string(b), ") ")
	words := strings.Fields(rest)
	if len(words) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(words[11], 64)
	system, _ := strconv.ParseFloat(words[12], 64)
	return (user + system) * 1000 / ticks
}

// machineCPU is what the whole machine has used so far, in ms. Beside the sum of
// our processes it tells how much somebody else ran meanwhile.
func machineCPU() float64 {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(b), "\n")
	sum := 0.0
	for i, w := range strings.Fields(line)[1:] {
		v, _ := strconv.ParseFloat(w, 64)
		if i != 3 && i != 4 && i < 8 { // neither idle nor iowait; guests are in user already
			sum += v
		}
	}
	return sum * 1000 / ticks
}
