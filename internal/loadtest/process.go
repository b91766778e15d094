package loadtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fanout/fanout/internal/demo"
)

const (
	// startFor bounds the start of a process, its readiness included; a machine that
	// runs other tests is slow.
	startFor = time.Minute
	// lookEvery is the pause between two looks at one that starts.
	lookEvery = 20 * time.Millisecond
)

// child is one process of the service, its log in a file.
type child struct {
	name  string
	addr  string // host:port of the API, or of a dispatcher's metrics
	log   string
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended and was reaped
	why   error         // once ended
}

// launch starts a binary and waits until it is ready. Its port is its own
// choice, and read from the log: any port chosen here could be taken by then.
func launch(ctx context.Context, name, bin, dir string, args ...string) (*child, error) {
	c := &child{name: name, log: filepath.Join(dir, name+".log")}
	file, err := os.Create(c.log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer func() { _ = file.Close() }()                                   // the child has its own
	c.cmd = exec.CommandContext(context.WithoutCancel(ctx), bin, args...) //nolint:gosec // our own binaries, from the folder that the operator named
	c.cmd.Stdout, c.cmd.Stderr, c.cmd.Env = file, file, plainEnv()
	if err := c.start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startFor)
	defer cancel()
	for {
		if err = c.ready(ctx); err == nil {
			return c, nil
		}
		select {
		case <-c.ended:
			return nil, c.alive()
		case <-ctx.Done():
			c.kill()
			return nil, fmt.Errorf("%s was not ready within %s: %w; its log ends: %s", name, startFor, err, c.lastWords())
		case <-time.After(lookEvery):
		}
	}
}

// start runs the child and notes its end.
func (c *child) start() error {
	ended, err := demo.StartChild(c.cmd)
	if err != nil {
		return err
	}
	c.ended = make(chan struct{})
	go func() {
		c.why = <-ended
		close(c.ended)
	}()
	return nil
}

// plainEnv is the environment without what would change a setting: a run is to
// be of the defaults and of what is on the command line.
func plainEnv() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "FANOUT_") && !strings.HasPrefix(v, "OTEL_") {
			env = append(env, v)
		}
	}
	return env
}

var errNoAddress = errors.New("its log names no address yet")

// ready asks /readyz, once the log has said where.
func (c *child) ready(ctx context.Context) error {
	if c.addr == "" {
		b, err := os.ReadFile(c.log)
		if err != nil {
			return err
		}
		if c.addr = address(b); c.addr == "" {
			return errNoAddress
		}
	}
	resp, err := get(ctx, "http://"+c.addr+"/readyz")
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz answers %d", resp.StatusCode)
	}
	return nil
}

// address is what the line of a start says.
func address(log []byte) string {
	for line := range bytes.Lines(log) {
		var words struct {
			API     string `json:"api"`
			Metrics string `json:"metrics"`
		}
		if json.Unmarshal(line, &words) != nil {
			continue // half a line, or no JSON
		}
		if addr := words.API + words.Metrics; addr != "" {
			return strings.TrimPrefix(addr, "http://")
		}
	}
	return ""
}

func (c *child) lastWords() string {
	b, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	b = bytes.TrimSpace(b)
	return string(b[bytes.LastIndexByte(b, '\n')+1:])
}

// alive returns an error if the process has ended.
func (c *child) alive() error {
	select {
	case <-c.ended:
		return fmt.Errorf("%s ended by itself: %w; its log ends: %s", c.name, c.why, c.lastWords())
	default:
		return nil
	}
}

// kill ends the process. Nothing of it is needed any more: its state goes too.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // fails only if it is gone
	<-c.ended
}

// service is one fanout: Redis, API, dispatchers.
type service struct {
	dir         string
	redis       string // host:port
	stopRedis   func(context.Context) error
	api         *child
	dispatchers []*child
}

func startService(ctx context.Context, o Options) (_ *service, err error) {
	s := &service{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop(ctx))
		}
	}()
	if s.dir, err = os.MkdirTemp("", "fanout-loadtest-"); err != nil {
		return nil, err
	}
	addr, durable, stopRedis, err := demo.StartRedis(ctx, demo.RedisOptions{
		Dir: filepath.Join(s.dir, "redis"), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	s.stopRedis, s.redis = stopRedis, addr
	if !durable {
		return nil, errors.New("there is no redis-server on PATH, and only a real one is worth measuring")
	}
	args := []string{
		"--redis-addr=" + addr, "--listen=127.0.0.1:0",
		"--allow-http", "--allow-any-port", "--allow-cidr=127.0.0.0/8",
	}
	if s.api, err = launch(ctx, "fanout", filepath.Join(o.Bin, "fanout"), s.dir, append([]string{"serve"}, args...)...); err != nil {
		return nil, err
	}
	args = append(args, "--slots="+strconv.Itoa(o.Slots))
	for i := range o.Dispatchers {
		d, err := launch(ctx, "dispatcher-"+strconv.Itoa(i+1), filepath.Join(o.Bin, "dispatcher"), s.dir, args...)
		if err != nil {
			return nil, err
		}
		s.dispatchers = append(s.dispatchers, d)
	}
	return s, nil
}

// alive returns an error if any process has ended.
func (s *service) alive() error {
	var errs []error
	for _, c := range append([]*child{s.api}, s.dispatchers...) {
		errs = append(errs, c.alive())
	}
	return errors.Join(errs...)
}

// keepFile has Redis leave its append-only file as it grows. A play at full load doubles
// it in seconds, over and over, which takes a day's work hours; each rewrite costs a core for
// seconds, and would be taken for what the play is about.
func (s *service) keepFile(ctx context.Context) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.redis)
	if err != nil {
		return fmt.Errorf("tell redis to keep its file: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return fmt.Errorf("tell redis to keep its file: %w", err)
	}
	if _, err := io.WriteString(conn, "CONFIG SET auto-aof-rewrite-percentage 0\r\n"); err != nil {
		return fmt.Errorf("tell redis to keep its file: %w", err)
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && answer != "+OK\r\n" {
		err = errors.New(strings.TrimSpace(answer))
	}
	if err != nil {
		return fmt.Errorf("tell redis to keep its file: %w", err)
	}
	return nil
}

// stop ends all, and removes their state.
func (s *service) stop(ctx context.Context) error {
	for _, c := range append([]*child{s.api}, s.dispatchers...) {
		if c != nil {
			c.kill()
		}
	}
	var err error
	if s.stopRedis != nil {
		err = s.stopRedis(context.WithoutCancel(ctx))
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}
