package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/schedule"
)

// startFor bounds the start of any child.
const startFor = 20 * time.Second

// freePort may be taken by another before it is used; on a machine that runs a
// benchmark that is rare, and the run then says so.
func freePort() (string, error) {
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close() //nolint:errcheck // nothing was said on it
	_, port, err := net.SplitHostPort(ln.Addr().String())
	return port, err
}

// poll asks until there is no error, ctx ends or the child does.
func poll(ctx context.Context, c *child, limit time.Duration, ask func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.exited:
			return fmt.Errorf("%s ended: %s", c.name, c.lastWords())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: %w after %s: %s", c.name, err, limit, c.lastWords())
		}
	}
}

// store is a redis-server of one measurement's own.
type store struct {
	*child
	addr string
	rdb  *redis.Client
}

// startRedis starts one with appendfsync as named, or with no file for "none".
func startRedis(ctx context.Context, dir, fsync string, more ...string) (*store, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	args := []string{"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--maxmemory-policy", "noeviction"}
	if fsync == "none" {
		args = append(args, "--appendonly", "no")
	} else {
		args = append(args, "--appendonly", "yes", "--appendfsync", fsync)
	}
	args = append(args, more...)
	s := &store{addr: "127.0.0.1:" + port}
	if s.child, err = spawn(dir, "redis", "redis-server", args...); err != nil {
		return nil, err
	}
	go func() { _, _ = io.Copy(io.Discard, s.lines) }()                                  // it logs to stdout
	s.rdb = redis.NewClient(&redis.Options{Addr: s.addr, ReadTimeout: 30 * time.Second}) // the machine may be busy
	return s, poll(ctx, s.child, startFor, func() error { return s.rdb.Ping(ctx).Err() })
}

func (s *store) stop() {
	if s == nil {
		return
	}
	if s.rdb != nil {
		_ = s.rdb.Close()
	}
	s.child.signal(9) // its file is of no use to anybody
	s.child.stop()
}

// stack is fanout as it is shipped: one Redis, one API process, one dispatcher.
type stack struct {
	b          *bench
	dir        string
	fsync      string
	layout     layout
	redis      *store   // the first of nodes
	nodes      []*store // all primaries
	kinds      []string // event types that post takes in turn, each with ten subscribers
	engine     *schedule.Engine
	api        *child
	dispatcher *child
	base       string // of the API
	// apiPort and dispatcherPort are where metrics are told; set for the soak.
	apiPort, dispatcherPort string
	http                    *http.Client
}

// startStack starts Redis and the API, without a dispatcher.
func (b *bench) startStack(ctx context.Context, fsync string) (*stack, error) {
	return b.startStackOn(ctx, fsync, layout{})
}

func (b *bench) startStackOn(ctx context.Context, fsync string, l layout) (s *stack, err error) {
	b.made++
	s = &stack{b: b, fsync: fsync, layout: l, kinds: []string{"bench.ten"}, dir: filepath.Join(b.dir, fmt.Sprintf("fanout-%d", b.made))}
	s.http = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if err := s.startNodes(ctx); err != nil {
		return nil, err
	}
	if s.engine, err = schedule.Open(ctx, s.client(), schedule.Options{Partitions: l.partitions}); err != nil {
		return nil, err
	}
	var port string
	if s.api, port, err = s.product(ctx, "fanout", "serve"); err != nil {
		return nil, err
	}
	s.base = "http://127.0.0.1:" + port
	return s, nil
}

func (s *stack) startDispatcher(ctx context.Context) (err error) {
	s.dispatcher, _, err = s.product(ctx, "dispatcher", "--slots="+strconv.Itoa(s.b.o.slots))
	return err
}

// product starts one of the product's binaries and waits until it is ready.
func (s *stack) product(ctx context.Context, name string, args ...string) (*child, string, error) {
	port, err := freePort()
	if err != nil {
		return nil, "", err
	}
	args = append(args, "--listen=127.0.0.1:"+port, "--log-level="+s.b.o.logs,
		"--allow-http", "--allow-any-port", "--allow-cidr=127.0.0.0/8")
	args = append(args, s.redisFlags()...)
	if s.fsync == "none" {
		args = append(args, "--redis-allow-unsafe")
	}
	var env []string
	if s.b.o.profile != "" {
		env = []string{profileFile + "=" + s.profilePath(name)}
	}
	c, err := spawnWith(s.dir, name, env, filepath.Join(s.b.bin, name), args...)
	if err != nil {
		return nil, "", err
	}
	err = poll(ctx, c, startFor, func() error {
		res, err := s.http.Get("http://127.0.0.1:" + port + "/readyz")
		if err != nil {
			return err
		}
		defer res.Body.Close() //nolint:errcheck // read below
		text, _ := io.ReadAll(res.Body)
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("not ready: %s", bytes.TrimSpace(text))
		}
		return nil
	})
	if err != nil {
		c.stop()
		return nil, "", err
	}
	return c, port, nil
}

func (s *stack) stop() {
	if s == nil {
		return
	}
	s.dispatcher.stop()
	s.api.stop()
	for _, n := range s.nodes {
		n.stop()
	}
	if s.http != nil {
		s.http.CloseIdleConnections()
	}
	_ = os.RemoveAll(s.dir)
}

// call posts JSON to the API and wants the status.
func (s *stack) call(ctx context.Context, path string, in []byte, want int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base+path, bytes.NewReader(in))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := s.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // read below
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != want {
		err = fmt.Errorf("%s: status %d: %s", path, res.StatusCode, text)
	}
	return err
}

// register makes n subscribers of the type, over the sink's endpoints in turn. Their
// own cap is above the slots, so that it is not what is measured.
func (s *stack) register(ctx context.Context, n int, types ...string) error {
	urls := strings.Split(s.b.urls, ",")
	for i := range n {
		in, err := json.Marshal(map[string]any{
			"url": urls[i%len(urls)], "filter": map[string]any{"types": types},
			"policy": map[string]any{"max_in_flight": min(1000, 2*s.b.o.slots)},
		})
		if err != nil {
			return err
		}
		if err := s.call(ctx, "/v1/subscribers", in, http.StatusCreated); err != nil {
			return err
		}
	}
	return nil
}

// pending is what the ledger says.
func (s *stack) pending(ctx context.Context) (int64, error) {
	sample, err := s.engine.Sample(ctx, nil)
	return sample.Ledger.Pending, err
}

// settled waits until nothing is pending: the receiver knows before Redis does.
func (s *stack) settled(ctx context.Context) error {
	return poll(ctx, s.api, time.Minute, func() error {
		n, err := s.pending(ctx)
		if err == nil && n > 0 {
			err = errors.New(strconv.FormatInt(n, 10) + " deliveries are pending")
		}
		return err
	})
}
