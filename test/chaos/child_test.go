//go:build chaos

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// group is a sync.WaitGroup under a shorter name.
type group = sync.WaitGroup

const (
	startWithin = 30 * time.Second
	// stopWithin is more than the dispatcher's own patience: its grace, then what
	// it settles beyond it.
	stopWithin = 40 * time.Second
)

// child is a process of the service. It is started, killed, frozen and started
// again; whatever it writes to its standard error goes into one file.
type child struct {
	name string
	bin  string
	args []string

	log *os.File

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{}
	state  childState
	addr   string // where it listens, as its log says
	first  int    // pid of its first life
	// changes counts what was done to it: a look that saw the same number before
	// and after was not disturbed.
	changes int
	faults  []string // what it must not have done
}

type childState int

const (
	down childState = iota
	up
	frozen
)

// Write takes in the log of the process and looks for the address in it.
func (c *child) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		var said struct{ Msg, Level, API, Metrics string }
		if json.Unmarshal(line, &said) == nil {
			switch said.Msg {
			case "serving":
				c.listens(strings.TrimPrefix(said.API, "http://"))
			case "dispatching":
				c.listens(said.Metrics)
			}
		}
	}
	return c.log.Write(p)
}

func (c *child) listens(addr string) {
	c.mu.Lock()
	c.addr = addr
	c.mu.Unlock()
}

// start runs it and returns when it listens.
func (c *child) start() error {
	c.mu.Lock()
	c.addr = ""
	cmd := exec.CommandContext(context.Background(), filepath.Join(flags.bin, c.bin), c.args...)
	cmd.Stderr, cmd.Stdout = c, c
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		c.mu.Unlock()
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	exited := make(chan struct{})
	c.cmd, c.exited, c.state = cmd, exited, up
	c.changes++
	if c.first == 0 {
		c.first = cmd.Process.Pid
	}
	c.mu.Unlock()
	go func() {
		err := cmd.Wait()
		c.mu.Lock()
		if c.cmd == cmd && c.state != down {
			c.faults = append(c.faults, fmt.Sprintf("%s ended by itself: %v", c.name, err))
			c.state = down
		}
		c.mu.Unlock()
		close(exited)
	}()
	for deadline := time.Now().Add(startWithin); c.address() == ""; {
		select {
		case <-exited:
			return fmt.Errorf("%s exited while starting; see its log", c.name)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s does not listen after %s", c.name, startWithin)
		}
	}
	return nil
}

func (c *child) address() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.addr
}

// look is what it is doing, and the count of changes.
func (c *child) look() (childState, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state, c.changes
}

func (c *child) pid() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd == nil || c.state == down {
		return 0
	}
	return c.cmd.Process.Pid
}

// kill9 ends it as a crash would, frozen or not, and returns when it is gone.
func (c *child) kill9() {
	c.mu.Lock()
	was, cmd, exited := c.state, c.cmd, c.exited
	c.state = down
	c.changes++
	c.mu.Unlock()
	if was != down {
		_ = cmd.Process.Kill() // fails only if it is gone already
		<-exited
	}
}

// freeze stops it where it is; thaw lets it go on.
func (c *child) freeze() { c.signal(syscall.SIGSTOP, up, frozen) }
func (c *child) thaw()   { c.signal(syscall.SIGCONT, frozen, up) }

func (c *child) signal(s syscall.Signal, from, to childState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != from {
		return
	}
	if err := c.cmd.Process.Signal(s); err != nil {
		c.faults = append(c.faults, fmt.Sprintf("%s: %s: %v", c.name, s, err))
	}
	c.state = to
	c.changes++
}

// stop asks it to end and returns how it did.
func (c *child) stop() error {
	c.mu.Lock()
	was, cmd, exited := c.state, c.cmd, c.exited
	c.state = down
	c.changes++
	c.mu.Unlock()
	if was == down {
		return nil
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s: SIGTERM: %w", c.name, err)
	}
	select {
	case <-exited:
	case <-time.After(stopWithin):
		_ = cmd.Process.Kill()
		<-exited
		return fmt.Errorf("%s did not stop within %s", c.name, stopWithin)
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("%s exited with %d when it was asked to stop", c.name, code)
	}
	return nil
}

// descriptors is how many files and sockets a process has open.
func descriptors(pid int) (int, error) {
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
	if err != nil {
		return 0, fmt.Errorf("count descriptors: %w", err)
	}
	return len(entries), nil
}

// dieWithParent has the kernel end the child when this process dies without its
// cleanups: a panic, a time-out of the test, kill -9.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
