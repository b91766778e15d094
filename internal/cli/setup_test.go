package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/test/inprocess"
)

// patience bounds every wait for something that must happen.
const patience = 20 * time.Second

var update = flag.Bool("update", false, "write the golden files anew")

// golden holds text against testdata/<name>.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is not as it was (-was +is; -update writes it):\n%s", file, diff)
	}
}

// shared is an output that is read while it is written.
type shared struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *shared) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *shared) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// result is what a command came to.
type result struct {
	code     int
	out, err string
}

// run runs one command to its end.
func run(t *testing.T, in string, args ...string) result {
	t.Helper()
	var out, errs shared
	code := Run(t.Context(), args, strings.NewReader(in), &out, &errs)
	return result{code, out.String(), errs.String()}
}

// started is a command that runs until it is stopped.
type started struct {
	out, err shared
	stop     context.CancelFunc
	code     chan int
}

// start runs a command that has no end; stop is its Ctrl-C.
func start(t *testing.T, args ...string) *started {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &started{stop: cancel, code: make(chan int, 1)}
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.code <- Run(ctx, args, strings.NewReader(""), &s.out, &s.err)
	}()
	t.Cleanup(func() { cancel(); <-over })
	return s
}

// end stops it, and gives its exit code.
func (s *started) end(t *testing.T) int {
	t.Helper()
	s.stop()
	select {
	case code := <-s.code:
		return code
	case <-time.After(patience):
		t.Fatalf("it does not end\n%s%s", s.out.String(), s.err.String())
		return -1
	}
}

// until polls for something that must become true.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for !is() {
		select {
		case <-deadline:
			t.Fatalf("gave up waiting until %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// service is a real server to run commands against.
type service struct {
	t   *testing.T
	api string
	*client.Client
	key string // file of the key, if one is needed
}

func newService(t *testing.T) *service {
	t.Helper()
	api := inprocess.Start(t)
	c, err := client.New(api, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &service{t: t, api: api, Client: c}
}

func (s *service) args(args ...string) []string {
	args = append(args, "--api="+s.api)
	if s.key != "" {
		args = append(args, "--key-file="+s.key)
	}
	return args
}

// ok runs a command that must do what it is told.
func (s *service) ok(args ...string) result {
	s.t.Helper()
	r := run(s.t, "", s.args(args...)...)
	if r.code != exitOK {
		s.t.Fatalf("%v: exit code %d\n%s%s", args, r.code, r.out, r.err)
	}
	return r
}

// read runs a command with -o json, and reads its one document.
func (s *service) read(into any, args ...string) {
	s.t.Helper()
	r := s.ok(append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(r.out), into); err != nil {
		s.t.Fatalf("%v: %v\n%s", args, err, r.out)
	}
}

// subscriber registers an endpoint that answers with the status.
func (s *service) subscriber(status int, flags ...string) client.CreatedSubscriber {
	s.t.Helper()
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte("no \x1b[31mroom"))
	}))
	s.t.Cleanup(e.Close)
	var made client.CreatedSubscriber
	s.read(&made, append([]string{"subscribers", "create", "--url=" + e.URL + "/hook?token=topsecret"}, flags...)...)
	return made
}

// answering is a server that gives one answer to everything.
func answering(t *testing.T, status int, kind, body string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// file writes a file of the test's own.
func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// strictRead reads one JSON document and nothing after it.
func strictRead(text string, into any) error {
	d := json.NewDecoder(strings.NewReader(text))
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.More() {
		return os.ErrInvalid
	}
	return nil
}
