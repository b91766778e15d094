//go:build runbook

package runbook

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/demo"
	"github.com/fanout/fanout/test/redistest"
)

const (
	// patience bounds every wait for something that must happen.
	patience = 2 * time.Minute
	// The versions that the workers are built as.
	oldVersion, newVersion = "v1.4.0", "v1.5.0"
)

// world is a service of real processes, and an operator's shell.
type world struct {
	testing.TB
	*receiver
	ctx  context.Context
	dir  string
	env  []string // of the operator's shell
	fill map[string]string
	boss *client.Client // may all; what a person cannot do by the page
}

func newWorld(t *testing.T) *world {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	w := &world{TB: t, ctx: ctx, dir: t.TempDir(), fill: map[string]string{}, receiver: newReceiver(t)}
	w.build("old", oldVersion, "./cmd/...")
	w.build("new", newVersion, "./cmd/dispatcher")
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	admin := "fo_" + base64.RawURLEncoding.EncodeToString(key)
	settings := []string{
		"FANOUT_REDIS_ADDR=" + redistest.Server(t).Addr(), "FANOUT_LISTEN=127.0.0.1:0", "FANOUT_LOG_FORMAT=json",
		"FANOUT_ALLOW_HTTP=true", "FANOUT_ALLOW_ANY_PORT=true", "FANOUT_ALLOW_CIDR=127.0.0.0/8",
	}
	api := "http://" + w.start("api", append(settings, "FANOUT_ADMIN_KEY="+admin), "old/fanout", "serve")
	w.fill["OLD"] = w.start("old", append(settings, "FANOUT_SLOTS=90"), "old/dispatcher")
	var err error
	w.boss, err = client.New(api, admin)
	w.ok(err)
	operator, err := w.boss.CreateKey(ctx, client.NewKey{Name: "whoever was woken", Role: "operator"})
	w.ok(err)
	// In the operator's shell the dispatcher is the new one.
	w.env = append(settings, "PATH="+w.dir+"/new:"+w.dir+"/old:"+os.Getenv("PATH"), "HOME="+w.dir,
		"FANOUT_API="+api, "FANOUT_KEY="+operator.Token)
	return w
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// until waits for something that must become true.
func (w *world) until(what string, is func() bool) {
	w.Helper()
	deadline := time.After(patience)
	for !is() {
		select {
		case <-deadline:
			w.Fatalf("gave up waiting until %s", what)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// build makes binaries that say they are of a version, as the Makefile does.
func (w *world) build(folder, version string, what string) {
	w.Helper()
	cmd := exec.CommandContext(w.ctx, "go", "build", "-trimpath",
		"-ldflags=-s -w -X github.com/fanout/fanout/internal/boot.version="+version, "-o", filepath.Join(w.dir, folder)+"/", what)
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		w.Fatalf("go build: %v\n%s", err, out)
	}
}

// start starts a process of the service, and returns where it listens.
func (w *world) start(name string, env []string, bin string, args ...string) string {
	w.Helper()
	log := filepath.Join(w.dir, name+".log")
	file, err := os.Create(log)
	w.ok(err)
	defer file.Close()
	cmd := exec.CommandContext(context.WithoutCancel(w.ctx), filepath.Join(w.dir, bin), args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = file, file, append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.dir}, env...)
	ended, err := demo.StartChild(cmd)
	w.ok(err)
	w.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	return w.listening(log)
}

var listens = regexp.MustCompile(`"(?:api|metrics)":"(?:http://)?(127\.0\.0\.1:\d+)"`)

// listening waits until a log says where.
func (w *world) listening(log string) (at string) {
	w.Helper()
	w.until("its log says where it listens", func() bool {
		text, err := os.ReadFile(log)
		w.ok(err)
		if m := listens.FindSubmatch(text); m != nil {
			at = string(m[1])
		}
		return at != ""
	})
	w.until("it is ready", func() bool {
		res, err := http.Get("http://" + at + "/readyz")
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	return at
}

var toFill = regexp.MustCompile(`\b[A-Z]{3,}\b`)

// filled is a command with its capital words filled in, those within quotes apart.
func (w *world) filled(line string) string {
	w.Helper()
	parts := strings.Split(line, `"`)
	for i := 0; i < len(parts); i += 2 {
		parts[i] = toFill.ReplaceAllStringFunc(parts[i], func(word string) string {
			value, known := w.fill[word]
			if !known && word != "TERM" {
				w.Fatalf("%s: nobody has said what %s is", line, word)
			}
			if !known {
				return word
			}
			return value
		})
	}
	return strings.Join(parts, `"`)
}

// shell runs a line of the page, and returns what it printed. Those that may end with
// another code than 0 are named.
func (w *world) shell(line string, mayEnd ...int) string {
	w.Helper()
	line = w.filled(line)
	w.Logf("$ %s", line)
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Env, cmd.Dir = w.env, w.dir
	out, err := cmd.CombinedOutput()
	w.Logf("%s", out)
	if err != nil {
		code := cmd.ProcessState.ExitCode()
		if slices.Contains(mayEnd, code) {
			return string(out)
		}
		w.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// background runs a line that ends in &, and returns its process and its log.
func (w *world) background(line string) (pid int, log string) {
	w.Helper()
	line = w.filled(line)
	w.Logf("$ %s", line)
	log = filepath.Join(w.dir, "background.log")
	cmd := exec.CommandContext(w.ctx, "sh", "-c", line+"\necho $! >background.pid")
	cmd.Env, cmd.Dir = w.env, w.dir
	file, err := os.Create(log)
	w.ok(err)
	defer file.Close()
	cmd.Stdout, cmd.Stderr = file, file
	w.ok(cmd.Run())
	text, err := os.ReadFile(filepath.Join(w.dir, "background.pid"))
	w.ok(err)
	pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
	w.ok(err)
	w.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) }) // it may be gone
	return pid, log
}

// receiver is the subscriber's system: it applies what it takes, once for each webhook-id.
type receiver struct {
	*httptest.Server

	mu      sync.Mutex
	refuses map[string]int  // by event type: the status, or 0
	applied map[string]int  // by webhook-id: how often it was answered 2xx
	again   map[string]bool // webhook-ids that a redrive has sent
}

func newReceiver(t testing.TB) *receiver {
	t.Helper()
	r := &receiver{refuses: map[string]int{}, applied: map[string]int{}, again: map[string]bool{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

// ServeHTTP refuses what it is told to, by its path. What is shaky refuses some of all at
// first.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := req.Header.Get("Webhook-Id")
	if req.Header.Get("Fanout-Redrive-Generation") != "0" {
		r.again[id] = true
	}
	status := r.refuses[req.URL.Path]
	if strings.HasPrefix(req.URL.Path, "/shaky") && req.Header.Get("Fanout-Attempt") == "1" && crc32.ChecksumIEEE([]byte(id))%10 == 0 {
		status = http.StatusServiceUnavailable
	}
	if status != 0 {
		http.Error(w, "we were told to refuse", status)
		return
	}
	r.applied[id]++
	w.WriteHeader(http.StatusNoContent)
}

func (r *receiver) refuse(path string, status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuses[path] = status
}

// times is how often a delivery was applied, and whether a redrive sent it.
func (r *receiver) times(id string) (n int, again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.applied[id], r.again[id]
}

// subscriber registers an endpoint at a path, for events of a type.
func (w *world) subscriber(path, name string) string {
	w.Helper()
	url := w.URL + path
	timeout, base, widest := client.Duration(10*time.Second), client.Duration(20*time.Millisecond), client.Duration(50*time.Millisecond)
	tries, breaker := 6, 5
	s, err := w.boss.CreateSubscriber(w.ctx, client.SubscriberInput{
		Account: new("drill"), Name: &name, URL: &url, Filter: &client.Filter{Types: []string{name}},
		Policy: &client.PolicyInput{AttemptTimeout: &timeout, BackoffBase: &base, BackoffCap: &widest, MaxAttempts: &tries, BreakerFailures: &breaker},
	})
	w.ok(err)
	return s.ID
}

// post posts n events of a type, and returns their ids.
func (w *world) post(kind string, n int) []string {
	w.Helper()
	var events []client.Event
	var ids []string
	for range n {
		e := client.Event{ID: client.NewID(), Type: kind, ShipmentID: "shp_1", OccurredAt: time.Now(), Data: json.RawMessage(`{"order":4711}`)}
		events, ids = append(events, e), append(ids, e.ID)
	}
	result, err := w.boss.PostBatch(w.ctx, events)
	w.ok(err)
	if result.Accepted != n {
		w.Fatalf("%d of %d events were accepted", result.Accepted, n)
	}
	return ids
}

// ledger waits until nothing is pending.
func (w *world) ledger() client.Ledger {
	w.Helper()
	var l client.Ledger
	w.until("nothing is pending", func() bool {
		o, err := w.boss.OnCall(w.ctx)
		w.ok(err)
		l = o.Ledger
		return l.Pending == 0 && l.Balanced
	})
	return l
}

// dead waits for n dead letters of a subscriber, and returns their ids.
func (w *world) dead(sub string, n int) []string {
	w.Helper()
	var ids []string
	w.until(fmt.Sprintf("%d are dead", n), func() bool {
		ids = nil
		for d, err := range w.boss.DeadLetters(w.ctx, client.DeadLetterFilter{SubscriberID: sub}) {
			w.ok(err)
			ids = append(ids, d.Delivery.ID)
		}
		return len(ids) == n
	})
	return ids
}
