package httpapi

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/access"
	"github.com/fanout/fanout/internal/ingest"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/subscriber/subtest"
)

// What cmd hands in.
var (
	_ Ingest      = (*ingest.Service)(nil)
	_ Subscribers = (*subscriber.Store)(nil)
	_ Views       = (*schedule.Engine)(nil)
	_ Deliveries  = (*schedule.Engine)(nil)
	_ Gate        = (*access.Gate)(nil)
	_ Keys        = (*access.Keys)(nil)
	_ Audit       = (*access.Audit)(nil)
)

// rig is the API on a real socket, over fakes and the real subscriber store.
type rig struct {
	t      *testing.T
	url    string
	client *http.Client
	ingest *fakeIngest
	views  *fakeViews
	memory *subtest.Memory
	log    *syncBuffer
	key    string // sent with every request, if any
}

func newRig(t *testing.T, change ...func(*Deps)) *rig {
	t.Helper()
	r := &rig{
		t: t, ingest: &fakeIngest{}, log: &syncBuffer{}, memory: subtest.NewMemory(4),
		views: &fakeViews{events: map[string]schedule.Event{}, deliveries: map[string]schedule.Evidence{}},
	}
	d := Deps{
		Ingest: r.ingest, Views: r.views, Deliveries: r.views,
		Subscribers: subscriber.New(r.memory, subtest.AnyURL{}, []string{"standard", "bulk"}, r.memory.Now),
		Logger:      slog.New(slog.NewJSONHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, c := range change {
		c(&d)
	}
	r.serve(New(d), d.Logger)
	return r
}

func (r *rig) serve(h http.Handler, log *slog.Logger) {
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = NewServer(h, log)
	srv.Start()
	r.t.Cleanup(srv.Close)
	r.url = srv.URL
	r.client = &http.Client{
		Transport: validating{r.t, srv.Client().Transport},
		Timeout:   20 * time.Second,
	}
}

// answer is a response, read.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a request; headers are "Name: value". A body gets the JSON type
// unless a header says otherwise.
func (r *rig) do(method, path, body string, headers ...string) answer {
	r.t.Helper()
	a, err := r.send(method, path, body, headers...)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

// send is do for goroutines that may not end the test.
func (r *rig) send(method, path, body string, headers ...string) (answer, error) {
	var in io.Reader = http.NoBody
	if body != "" {
		in = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, in)
	if err != nil {
		return answer{}, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.key != "" {
		req.Header.Set("Authorization", "Bearer "+r.key)
	}
	for _, h := range headers {
		name, value, ok := strings.Cut(h, ": ")
		if ok {
			req.Header.Set(name, value)
		}
		if name == "Host" {
			req.Host = value
		}
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b)}, err
}

// into reads an answer's body, and fails the test if its status is another.
func into[T any](t *testing.T, a answer, status int) T {
	t.Helper()
	var v T
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	return v
}

// wantProblem checks status and code, and returns the problem.
func wantProblem(t *testing.T, a answer, code ProblemCode) Problem {
	t.Helper()
	p := into[Problem](t, a, kinds[code].status)
	if p.Code != code || p.Status != a.status || p.Type != "urn:fanout:problem:"+string(code) {
		t.Errorf("got code %q, status %d, type %q; want code %q", p.Code, p.Status, p.Type, code)
	}
	if p.RequestID == "" || p.RequestID != a.header.Get(requestIDHeader) {
		t.Errorf("request_id %q is not that of the header %q", p.RequestID, a.header.Get(requestIDHeader))
	}
	if a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("Content-Type is %q", a.header.Get("Content-Type"))
	}
	return p
}

// wantPointers checks which parts of the request were named.
func wantPointers(t *testing.T, p Problem, want ...string) {
	t.Helper()
	var got []string
	for _, e := range p.Errors {
		switch {
		case e.Pointer != nil:
			got = append(got, *e.Pointer)
		default:
			got = append(got, "?"+e.Parameter)
		}
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("errors point at %q, want %q: %+v", got, want, p.Errors)
	}
}

// wantFirst checks where the first errors point: what else is wrong with a body follows
// a field that cannot be read.
func wantFirst(t *testing.T, p Problem, want ...string) {
	t.Helper()
	if p.Code == ProblemCodeInvalidField {
		p.Errors = p.Errors[:min(len(want), len(p.Errors))]
	}
	wantPointers(t, p, want...)
}

// syncBuffer is a log that may be read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
