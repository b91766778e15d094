//go:build chaos

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/test/redistest"
)

// cast is what a world is made of.
type cast struct {
	apis, dispatchers int
	fsync             string // of Redis
	redis             []string
}

const (
	poolSize = 10 // connections to Redis of each process
	slots    = 20 // of each dispatcher
	grace    = "3s"
)

// world is a whole service under test: its processes, their Redis, a proxy between
// it and each of them, the receivers, and what is known to be true of it.
type world struct {
	testing.TB

	name  string
	ctx   context.Context
	dir   string // the logs
	lossy bool   // Redis may lose its last second

	redis *redistest.Redis
	rdb   *redis.Client // not through a proxy
	db    database

	children []*child // the APIs first
	proxies  []*proxy // of the child at the same place
	cast     cast

	receivers *receivers
	http      *http.Client
	truth     *truth
	began     time.Time
	usage     map[string]usage // of the children's first lives, before the faults

	mu     sync.Mutex
	wrongs []string
	notes  []string    // what was done and seen, with its time
	killed []time.Time // when Redis was
	froze  bool        // a dispatcher was frozen
	gone   sync.WaitGroup
	states map[delivery.State]int // of all deliveries, at the end
}

// newWorld starts everything and returns when all is ready.
func newWorld(t testing.TB, name string, c cast) *world {
	t.Helper()
	args := append([]string{
		"--enable-debug-command", "yes", "--busy-reply-threshold", "200", "--loading-process-events-interval-bytes", "1024",
	}, c.redis...)
	opts := []redistest.Option{redistest.Args(args...)}
	if c.fsync != "everysec" {
		opts = append(opts, redistest.AOFAlways())
	}
	w := &world{
		TB: t, name: strings.ReplaceAll(name, " ", "-"), cast: c, ctx: t.Context(), dir: t.TempDir(), lossy: c.fsync == "everysec",
		redis: redistest.Server(t, opts...), began: time.Now(), usage: map[string]usage{},
		http: &http.Client{
			Timeout:   25 * time.Second,
			Transport: &http.Transport{MaxIdleConnsPerHost: 16, ResponseHeaderTimeout: 20 * time.Second},
		},
	}
	w.truth = newTruth()
	w.rdb = w.redis.Client()
	w.receivers = startReceivers(w)
	for i := range c.apis {
		w.add(fmt.Sprint("api", i), "fanout", "serve")
	}
	for i := range c.dispatchers {
		w.add(fmt.Sprint("dispatcher", i), "dispatcher", fmt.Sprint("--slots=", slots), "--grace="+grace)
	}
	var starts sync.WaitGroup
	for _, c := range w.children {
		starts.Go(func() {
			if err := c.start(); err != nil {
				w.wrong("%v", err)
			}
		})
	}
	starts.Wait()
	w.mustGoOn()
	w.awaitReady(startWithin)
	return w
}

// add makes a child that talks to Redis through a proxy of its own.
func (w *world) add(name, bin string, args ...string) *child {
	w.Helper()
	p, err := startProxy(w.redis.Addr())
	w.ok(err)
	log, err := os.Create(filepath.Join(w.dir, name+".log"))
	w.ok(err)
	c := &child{name: name, bin: bin, log: log, args: append(args,
		"--redis-addr="+p.addr(), fmt.Sprint("--redis-pool-size=", poolSize), "--listen=127.0.0.1:0",
		"--allow-http", "--allow-any-port", "--allow-cidr=127.0.0.1/32", "--log-level=debug")}
	w.children, w.proxies = append(w.children, c), append(w.proxies, p)
	return c
}

func (w *world) apis() []*child        { return w.children[:w.cast.apis] }
func (w *world) dispatchers() []*child { return w.children[w.cast.apis:] }

// close ends what is left, whatever happened before.
func (w *world) close() {
	for _, c := range w.children {
		c.kill9()
	}
	w.receivers.CloseClientConnections()
	w.receivers.Close()
	w.http.CloseIdleConnections()
	for _, p := range w.proxies {
		p.close()
	}
	w.gone.Wait()
	for _, c := range w.children {
		_ = c.log.Close()
	}
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// wrong notes what must not be. It may be called from any goroutine.
func (w *world) wrong(format string, a ...any) {
	text := fmt.Sprintf(format, a...)
	w.notef("WRONG %s", text)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrongs = append(w.wrongs, text)
	if n := len(w.wrongs); n <= mostSaid {
		violation("%s: %s", w.name, text)
	} else {
		figures.violations.Add(1)
	}
}

// mostSaid is how many violations of a round are printed; its files have all.
const mostSaid = 20

func (w *world) notef(format string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes = append(w.notes, fmt.Sprintf("%8.3f ", time.Since(w.began).Seconds())+fmt.Sprintf(format, a...))
}

func (w *world) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.wrongs) > 0
}

// mustGoOn ends the test if nothing sensible can follow.
func (w *world) mustGoOn() {
	w.Helper()
	if w.failed() {
		w.Fatalf("%s: cannot go on; see %s", w.name, w.keep(nil))
	}
}

// until polls for what must become true, and says whether it did in time.
func until(within time.Duration, is func() bool) bool {
	deadline := time.Now().Add(within)
	for pause := 10 * time.Millisecond; !is(); pause = min(pause*3/2, 250*time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
		<-time.After(pause)
	}
	return true
}

// ready asks a child's /readyz: the status (0 if it did not answer) and what it
// says.
func (w *world) ready(c *child) (int, string) {
	ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.address()+"/readyz", http.NoBody)
	if err != nil {
		return 0, err.Error()
	}
	res, err := w.http.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	var problem struct{ Detail string }
	if json.Unmarshal(b, &problem) == nil && problem.Detail != "" {
		return res.StatusCode, problem.Detail
	}
	return res.StatusCode, strings.TrimSpace(string(b))
}

// awaitReady waits until every child that is up says that it is ready.
func (w *world) awaitReady(within time.Duration) {
	for _, c := range w.children {
		if state, _ := c.look(); state != up {
			continue
		}
		status, says := 0, ""
		if !until(within, func() bool { status, says = w.ready(c); return status == http.StatusOK }) {
			w.wrong("%s is not ready %s after all is well: %d %s", c.name, within, status, says)
		}
	}
}

// end stops everything in order: each process has to end well.
func (w *world) end() {
	w.http.CloseIdleConnections()
	var all sync.WaitGroup
	for _, c := range w.children {
		all.Go(func() {
			if err := c.stop(); err != nil {
				w.wrong("%v", err)
			}
		})
	}
	all.Wait()
	for _, c := range w.children {
		for _, f := range c.faults {
			w.wrong("%s", f)
		}
		w.readLog(c)
	}
}

// readLog looks for what no process may ever say.
func (w *world) readLog(c *child) {
	b, err := os.ReadFile(c.log.Name())
	w.ok(err)
	for _, bad := range []string{
		"panic", "fatal error", "DATA RACE", "record contradicts itself", "was not expanded in time",
		"attempt evidence lost", "goroutine 1 [",
	} {
		for line := range strings.Lines(string(b)) {
			if strings.Contains(line, bad) {
				w.wrong("%s says: %.300s", c.name, line)
				break
			}
		}
	}
}

// finish ends the world well, and fails the test if anything was wrong.
func (w *world) finish() {
	w.Helper()
	w.end()
	if w.failed() {
		w.Errorf("%s: wrong:\n%s\nsee %s", w.name, lines(w.wrongs), w.keep(nil))
	}
}
