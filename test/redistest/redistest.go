// Package redistest answers: which Redis does this test talk to?
//
// Server starts a real redis-server of the test's own, so that tests run in
// parallel though the service's keys have fixed names, and so that a test may
// kill, freeze and restart it. Mini starts an in-memory stand-in. Both runs one
// test against each: the real one is the contract, the stand-in is what
// `fanout dev` falls back on. Cluster starts a Redis Cluster; with the build tag
// `cluster`, Both runs its test on one instead.
//
// A machine without redis-server fails these tests. Skipping them would report
// a green run that has proved nothing about Redis.
package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// startTimeout bounds one start. A start takes about 20 ms on an idle
	// machine; a loaded one under the race detector needs far more.
	startTimeout = 20 * time.Second
	// dialEvery is the pause between two attempts to reach a starting server,
	// which has no other way to say that it is ready.
	dialEvery = 5 * time.Millisecond
	// portTries is how often a port that somebody else took first is replaced.
	portTries = 5
)

// errExited says that the child ended before it answered.
var errExited = errors.New("redis-server exited while starting")

// Option changes how Server starts its child.
type Option func(*Redis)

// AOFAlways makes every write durable before it is answered: what a test needs
// that kills Redis and then asks for everything it was promised. The default is
// an append-only file written once a second.
func AOFAlways() Option { return func(r *Redis) { r.fsync = "always" } }

// Args appends redis-server arguments, such as "--maxmemory", "4mb".
func Args(args ...string) Option { return func(r *Redis) { r.extra = append(r.extra, args...) } }

// Password makes the server ask for one, and its clients give it.
func Password(secret string) Option {
	return func(r *Redis) { r.password = secret; r.extra = append(r.extra, "--requirepass", secret) }
}

// Redis is a redis-server child that ends with its test. Its methods fail the
// test rather than return an error, and may be called from its goroutine only.
type Redis struct {
	t     testing.TB
	bin   string
	dir   string
	port  int
	fsync string
	extra []string

	clustered bool
	bus       int // port of the cluster bus

	password string

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has ended and was reaped
}

// quiet drops what go-redis prints to stderr of its own accord: its pool's dials to
// a server that a test has just killed. Calls report the same as errors.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// hush is run once, so that a logger which a test sets afterwards stays.
var hush = sync.OnceFunc(func() { redis.SetLogger(quiet{}) })

// Server starts a redis-server on a free loopback port, with an append-only
// file in a directory of the test's own, no snapshots, and noeviction.
func Server(t testing.TB, opts ...Option) *Redis {
	t.Helper()
	hush()
	bin, err := find()
	if err != nil {
		t.Fatalf("%v", err)
	}
	r := &Redis{t: t, bin: bin, dir: t.TempDir(), fsync: "everysec"}
	for _, o := range opts {
		o(r)
	}
	t.Cleanup(r.kill)
	// A port is free when it is asked for and may be taken a moment later: by
	// another package's tests, which run at the same time.
	for try := 1; ; try++ {
		r.port = freePort(t)
		if r.clustered {
			r.bus = freePort(t)
		}
		err := r.start()
		if err == nil {
			return r
		}
		if try == portTries || !errors.Is(err, errExited) {
			t.Fatalf("redistest: %v\n%s", err, r.log())
		}
	}
}

// find says where the server is. Valkey speaks the same protocol and runs the
// same scripts.
func find() (string, error) {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if p, err := exec.LookPath(name); err == nil {
			return p, nil
		}
	}
	return "", errors.New("redistest: no redis-server on PATH: " +
		"install it (Debian and Ubuntu: apt-get install redis-server; macOS: brew install redis) and run the tests again")
}

// Addr is host:port.
func (r *Redis) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)) }

// URL is the address as a redis:// URL.
func (r *Redis) URL() string { return "redis://" + r.Addr() }

// Dir is where the append-only file is.
func (r *Redis) Dir() string { return r.dir }

// Client returns a new client, closed when the test ends. It never retries and
// obeys deadlines, as the service's own does.
func (r *Redis) Client() *redis.Client {
	r.t.Helper()
	return client(r.t, r.options())
}

// Client returns a client for any address, with the settings of the service's
// own, closed when the test ends.
func Client(t testing.TB, addr string) *redis.Client {
	t.Helper()
	return client(t, clientOptions(addr))
}

func client(t testing.TB, o *redis.Options) *redis.Client {
	t.Helper()
	hush()
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (r *Redis) options() *redis.Options {
	o := clientOptions(r.Addr())
	o.Password = r.password
	return o
}

func clientOptions(addr string) *redis.Options {
	return &redis.Options{
		Addr:                  addr,
		MaxRetries:            -1, // 0 means 3
		ContextTimeoutEnabled: true,
		DialerRetries:         1, // otherwise a dead server takes 1.7 s to say so
		DialTimeout:           2 * time.Second,
		ReadTimeout:           5 * time.Second,
		WriteTimeout:          5 * time.Second,
	}
}

// Kill9 ends the server as a power cut would, and returns when it is gone.
func (r *Redis) Kill9() {
	r.t.Helper()
	r.kill()
}

// Restart starts the server again on the same port and files, after Kill9 or
// instead of it, and returns when it has loaded them.
func (r *Redis) Restart() {
	r.t.Helper()
	r.kill()
	if err := r.start(); err != nil {
		r.t.Fatalf("redistest: restart: %v\n%s", err, r.log())
	}
}

// Replica starts a replica of the server and returns when it has all that the
// server has. By is the address that it replicates from, if it is not the server's
// own: a proxy's.
func (r *Redis) Replica(by string) *Redis {
	r.t.Helper()
	if by == "" {
		by = r.Addr()
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), startTimeout)
	defer cancel()
	primary := r.Client()
	// Otherwise the first synchronisation waits 5 s for more replicas.
	if err := primary.ConfigSet(ctx, "repl-diskless-sync-delay", "0").Err(); err != nil {
		r.t.Fatalf("redistest: replica: %v", err)
	}
	host, port, err := net.SplitHostPort(by)
	if err != nil {
		r.t.Fatalf("redistest: replica of %s: %v", by, err)
	}
	replica := Server(r.t, Args("--replicaof", host, port))
	for node := replica.Client(); ; {
		info, err := node.Info(ctx, "replication").Result()
		if err == nil && strings.Contains(info, "master_link_status:up") {
			return replica
		}
		select {
		case <-ctx.Done():
			r.t.Fatalf("redistest: the replica is not in sync after %s: %v\n%s", startTimeout, err, info)
		case <-time.After(dialEvery):
		}
	}
}

// Promote makes a replica a primary.
func (r *Redis) Promote() {
	r.t.Helper()
	if err := r.Client().Do(r.t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		r.t.Fatalf("redistest: promote: %v", err)
	}
}

// Stop freezes the server: connections stay open and nothing is answered.
func (r *Redis) Stop() { r.t.Helper(); r.signal(syscall.SIGSTOP) }

// Cont thaws it.
func (r *Redis) Cont() { r.t.Helper(); r.signal(syscall.SIGCONT) }

func (r *Redis) signal(s syscall.Signal) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil {
		r.t.Fatalf("redistest: %s: the server is not running", s)
	}
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatalf("redistest: %s: %v", s, err)
	}
}

// start runs the child and waits until it answers as itself.
func (r *Redis) start() error {
	args := append([]string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(r.port), "--dir", r.dir,
		"--appendonly", "yes", "--appendfsync", r.fsync, "--save", "",
		"--maxmemory-policy", "noeviction", "--logfile", r.logFile(),
	}, append(r.clusterArgs(), r.extra...)...)
	// The child is killed by the cleanup, after those of the test that still
	// talk to it; the test's own context would end it before them.
	ctx := context.WithoutCancel(r.t.Context())
	cmd := exec.CommandContext(ctx, r.bin, args...)
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", r.bin, err)
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	r.mu.Lock()
	r.cmd, r.exited = cmd, exited
	r.mu.Unlock()
	return r.ready(ctx, exited)
}

// ready returns when the server answers and is this one: on a stolen port
// another test's server answers just as well, but from another directory.
func (r *Redis) ready(ctx context.Context, exited <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	c := redis.NewClient(r.options())
	defer func() { _ = c.Close() }()
	tick := time.NewTicker(dialEvery)
	defer tick.Stop()
	for {
		got, err := c.ConfigGet(ctx, "dir").Result()
		if err == nil && samePath(got["dir"], r.dir) {
			// While it loads its files a server answers CONFIG and refuses PING.
			if err = c.Ping(ctx).Err(); err == nil {
				return nil
			}
		}
		select {
		case <-exited:
			return errExited
		case <-ctx.Done():
			return fmt.Errorf("no answer from %s within %s: %w", r.Addr(), startTimeout, err)
		case <-tick.C:
		}
	}
}

// kill ends the child, frozen or not, and reaps it.
func (r *Redis) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil {
		return
	}
	_ = r.cmd.Process.Kill() // fails only if it is gone already
	<-r.exited
	r.cmd = nil
}

func (r *Redis) logFile() string { return filepath.Join(r.dir, "redis.log") }

func (r *Redis) log() string {
	b, err := os.ReadFile(r.logFile())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func samePath(a, b string) bool {
	ra, errA := filepath.EvalSymlinks(a)
	rb, errB := filepath.EvalSymlinks(b)
	return errA == nil && errB == nil && ra == rb
}

func freePort(t testing.TB) int {
	t.Helper()
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("redistest: find a free port: %v", err)
	}
	defer func() { _ = ln.Close() }()
	addr, ok := ln.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("redistest: listened on %v, which has no port", ln.Addr())
	}
	return addr.Port
}
