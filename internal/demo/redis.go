package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2" //nolint:depguard // `fanout dev` runs on it where no Redis is installed
)

const (
	// loadTimeout is for a start, reading the append-only file included.
	loadTimeout = time.Minute
	// askTimeout bounds one question to a server on the same machine.
	askTimeout = time.Second
	// askEvery is the pause between two looks at a starting server, which has no
	// other way to say that it is ready.
	askEvery = 20 * time.Millisecond
	// portTries is how often a port that somebody else took first is replaced.
	portTries = 3
	// stopFor is how long a server may take to write out its file.
	stopFor = 5 * time.Second
	// lockFor outlasts the server of a process that was killed a moment ago.
	lockFor = 2 * time.Second
)

// ErrInUse says that another process keeps its state in the folder.
var ErrInUse = errors.New("the data folder is in use")

// errExited says that the server ended before it answered.
var errExited = errors.New("it ended while starting")

// RedisOptions of StartRedis.
type RedisOptions struct {
	// Dir holds the append-only file, the lock and the server's log; it is made if
	// need be. Default "./data".
	Dir    string
	Logger *slog.Logger // default slog.Default()
}

// StartRedis starts a redis-server (or valkey-server) of this process's own, on a
// free loopback port, with an append-only file in Dir: durable to within a second.
// Where neither is on PATH it starts an in-memory stand-in and warns that nothing
// is durable. It returns when the server has loaded its file and answers.
//
// The server outlives ctx and Ctrl-C, since the service settles its last
// deliveries after both; stop ends it, and may be called once. An error is
// ErrInUse, or says what the server complained of.
func StartRedis(ctx context.Context, o RedisOptions) (addr string, durable bool, stop func(context.Context) error, err error) {
	if o.Dir == "" {
		o.Dir = "./data"
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	bin := ""
	for _, name := range []string{"redis-server", "valkey-server"} {
		if p, err := exec.LookPath(name); err == nil {
			bin = p
			break
		}
	}
	if bin == "" {
		addr, stop, err = startStandIn(ctx, o.Logger)
		return addr, false, stop, err
	}
	s, err := startServer(ctx, bin, o)
	if err != nil {
		return "", false, nil, fmt.Errorf("start %s in %s: %w", filepath.Base(bin), o.Dir, err)
	}
	return s.addr, true, s.stop, nil
}

// startStandIn runs Redis's stand-in inside this process.
func startStandIn(ctx context.Context, log *slog.Logger) (string, func(context.Context) error, error) {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true) // otherwise nothing would ever expire
	if err := m.StartAddr("127.0.0.1:0"); err != nil {
		return "", nil, fmt.Errorf("start the in-memory Redis: %w", err)
	}
	log.WarnContext(ctx, "NOTHING IS DURABLE: there is no redis-server on PATH, so all state is in memory and ends with this process",
		"to_install", "apt-get install redis-server, or: brew install redis")
	return m.Addr(), func(context.Context) error { m.Close(); return nil }, nil
}

// server is a child process.
type server struct {
	cmd      *exec.Cmd
	addr     string
	dir      string
	lock     *os.File
	log      *slog.Logger
	stopping atomic.Bool
	exited   chan struct{} // closed when it has ended and was reaped
}

func startServer(ctx context.Context, bin string, o RedisOptions) (*server, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data folder: %w", err)
	}
	lock, err := lockDir(ctx, o.Dir)
	if err != nil {
		return nil, err
	}
	// A port is free when it is asked for and may be taken a moment later.
	for try := 1; ; try++ {
		var s *server
		if s, err = launch(ctx, bin, o, lock); err == nil {
			return s, nil
		}
		if try == portTries || !errors.Is(err, errExited) {
			return nil, errors.Join(err, lock.Close())
		}
	}
}

// launch runs the child and waits until it is ready.
func launch(ctx context.Context, bin string, o RedisOptions, lock *os.File) (*server, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	logFile := filepath.Join(o.Dir, "redis.log")
	abs, err := filepath.Abs(logFile) // the server changes its folder before it opens the log
	if err != nil {
		return nil, fmt.Errorf("find the data folder: %w", err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), bin, //nolint:gosec // redis-server from PATH, with arguments of our own
		"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", o.Dir, "--logfile", abs,
		"--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
		"--maxmemory-policy", "noeviction")
	cmd.Env = append(os.Environ(), "LC_ALL=C") // it refuses to start under a locale that is not installed
	s := &server{
		cmd: cmd, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), dir: o.Dir,
		lock: lock, log: o.Logger, exited: make(chan struct{}),
	}
	if err := s.run(ctx); err != nil {
		return nil, fmt.Errorf("run it: %w", err)
	}
	if err := s.ready(ctx); err != nil {
		s.kill()
		return nil, fmt.Errorf("%w; its log %s ends: %s", err, logFile, lastLine(logFile))
	}
	return s, nil
}

// run starts the child and notes its end.
func (s *server) run(ctx context.Context) error {
	ended, err := StartChild(s.cmd, s.lock)
	if err != nil {
		return err
	}
	go func() {
		err := <-ended
		if !s.stopping.Swap(true) {
			s.log.ErrorContext(ctx, "the Redis of this process ended by itself; stop and start again",
				"error", err, "log", filepath.Join(s.dir, "redis.log"))
		}
		close(s.exited)
	}()
	return nil
}

// ready returns when the server answers and is this one: on a port that was
// stolen another answers just as well, but from another folder.
func (s *server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		dir, err := ask(ctx, s.addr, "CONFIG GET dir", 5)
		if err == nil && samePath(dir, s.dir) {
			// While it loads its file a server answers CONFIG and refuses PING.
			if _, err = ask(ctx, s.addr, "PING", 1); err == nil {
				return nil
			}
		}
		select {
		case <-s.exited:
			return errExited
		case <-ctx.Done():
			return fmt.Errorf("no answer yet: %w", errors.Join(ctx.Err(), err))
		case <-tick.C:
		}
	}
}

// stop ends the server, which writes out its file first, and frees the folder.
func (s *server) stop(ctx context.Context) error {
	defer func() { _ = s.lock.Close() }() // nothing was written through it
	if s.stopping.Swap(true) {
		<-s.exited
		return fmt.Errorf("redis-server had ended already; its log is %s", filepath.Join(s.dir, "redis.log"))
	}
	ctx, cancel := context.WithTimeout(ctx, stopFor)
	defer cancel()
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // SHUTDOWN, to Redis; fails only if it is gone
	select {
	case <-s.exited:
		return nil
	case <-ctx.Done():
		s.kill()
		return errors.New("redis-server did not stop in time and was killed: the last second of writes may be lost")
	}
}

func (s *server) kill() {
	s.stopping.Store(true)
	_ = s.cmd.Process.Kill() // fails only if it is gone
	<-s.exited
}

// ask sends one inline command and returns the given line of the answer, counted
// from 1. Two questions need no client library.
func ask(ctx context.Context, addr, command string, line int) (string, error) {
	conn, err := (&net.Dialer{Timeout: askTimeout}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(askTimeout)); err != nil {
		return "", fmt.Errorf("set a deadline: %w", err)
	}
	if _, err := conn.Write([]byte(command + "\r\n")); err != nil {
		return "", fmt.Errorf("ask %s: %w", command, err)
	}
	r, text := bufio.NewReader(conn), ""
	for range line {
		if text, err = r.ReadString('\n'); err != nil {
			return "", fmt.Errorf("read the answer to %s: %w", command, err)
		}
		text = strings.TrimRight(text, "\r\n")
		if strings.HasPrefix(text, "-") {
			return "", fmt.Errorf("%s: %s", command, text[1:])
		}
	}
	return text, nil
}

func freePort(ctx context.Context) (int, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = ln.Close() }()
	addr, ok := ln.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("listened on %v, which has no port", ln.Addr())
	}
	return addr.Port, nil
}

func samePath(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// lastLine is the end of a file, for an error.
func lastLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}
