package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/fanout/fanout/api"
	"github.com/fanout/fanout/internal/ingest"
	"github.com/fanout/fanout/internal/schedule"
)

func TestUnknownPathsAndMethods(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, path := range []string{"/v1", "/v1/", "/v2/events", "/v1/events/", "/v1/events/a/b", "/oncall/", "/%2e%2e/etc", "/v1/subscribers/x/resume/"} {
		wantProblem(t, r.do("GET", path, ""), ProblemCodeNotFound)
	}
	for _, c := range [][3]string{
		{"GET", "/v1/events", "POST"},
		{"DELETE", "/v1/events", "POST"},
		{"OPTIONS", "/v1/events", "POST"},
		{"HEAD", "/v1/events", "POST"},
		{"BREW", "/v1/events", "POST"},
		{"POST", "/v1/events/evt_1", "GET, HEAD"},
		{"PUT", "/v1/subscribers/sub_1", "GET, HEAD, PATCH, DELETE"},
		{"PUT", "/v1/subscribers", "GET, HEAD, POST"},
		{"GET", "/v1/subscribers/sub_1/pause", "POST"},
		{"POST", "/metrics", "GET, HEAD"},
	} {
		a := r.do(c[0], c[1], "")
		if a.status != 405 || a.header.Get("Allow") != c[2] {
			t.Errorf("%s %s: status %d, Allow %q, want 405 and %q", c[0], c[1], a.status, a.header.Get("Allow"), c[2])
		}
		if c[0] != "HEAD" {
			wantProblem(t, a, ProblemCodeMethodNotAllowed)
		}
	}
	if a := r.do("BREW", "/nowhere", ""); a.status != 404 {
		t.Errorf("an unknown method on an unknown path: %d", a.status)
	}
	if a := r.do("HEAD", "/healthz", ""); a.status != 200 || a.body != "" {
		t.Errorf("HEAD: %d %q", a.status, a.body)
	}
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for given, kept := range map[string]bool{
		"abc-1.2_Z": true, strings.Repeat("x", 64): true,
		"": false, strings.Repeat("x", 65): false, "a b": false, "a\"b": false, "ä": false, "{}": false,
	} {
		got := r.do("GET", "/healthz", "", "X-Request-Id: "+given).header.Get(requestIDHeader)
		if (got == given) != kept || got == "" {
			t.Errorf("%q came back as %q", given, got)
		}
	}
	one, two := r.do("GET", "/healthz", "").header, r.do("GET", "/healthz", "").header
	if one.Get(requestIDHeader) == two.Get(requestIDHeader) {
		t.Error("two requests have one id")
	}
}

// lines are the log's lines with the message "request".
func (r *rig) lines() []map[string]any {
	var out []map[string]any
	for line := range strings.SplitSeq(strings.TrimSpace(r.log.String()), "\n") {
		var m map[string]any
		if json.Unmarshal([]byte(line), &m) == nil && m["msg"] == "request" {
			out = append(out, m)
		}
	}
	return out
}

func TestOneLogLinePerRequest(t *testing.T) {
	t.Parallel()
	recorder := tracetest.NewSpanRecorder()
	r := newRig(t, func(d *Deps) { d.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)) })
	r.do("GET", "/v1/subscribers/sub_1", "")
	r.do("GET", "/v1/subscribers?token=s3cret&s3cret", "")
	r.do("GET", "/v1/nowhere/s?token=s3cret", "")
	r.do("POST", "/v1/events", post(`1`))
	r.do("GET", "/healthz", "")
	lines := r.lines()
	if len(lines) != 5 {
		t.Fatalf("%d lines: %s", len(lines), r.log)
	}
	for i, want := range []map[string]any{
		{"level": "INFO", "method": "GET", "route": "/v1/subscribers/{subscriber_id}", "status": 404.0, "code": "not_found", "subscriber_id": "sub_1"},
		{"level": "INFO", "route": "/v1/subscribers", "status": 400.0, "code": "invalid_parameter"},
		{"level": "INFO", "route": "", "path": "/v1/nowhere/s", "status": 404.0},
		{"level": "INFO", "route": "/v1/events", "status": 202.0, "event_id": "evt_01J9ZC3T7R6W8Y2K5M4N0P1QXV", "bytes_in": float64(len(post(`1`)))},
		{"level": "DEBUG", "route": "/healthz", "status": 200.0},
	} {
		for k, v := range want {
			if lines[i][k] != v {
				t.Errorf("line %d: %s is %v, want %v", i, k, lines[i][k], v)
			}
		}
		for _, k := range []string{"request_id", "duration_ms", "bytes_out"} {
			if lines[i][k] == nil {
				t.Errorf("line %d has no %s", i, k)
			}
		}
	}
	if strings.Contains(r.log.String(), "s3cret") {
		t.Errorf("the log tells the query: %s", r.log)
	}
	if lines[3]["trace_id"] == nil || lines[4]["trace_id"] != nil {
		t.Error("the trace of the post is not named, or a probe has one")
	}
	checkSpans(t, recorder.Ended())
}

func checkSpans(t *testing.T, spans []sdktrace.ReadOnlySpan) {
	t.Helper()
	names := make([]string, 0, len(spans))
	for _, s := range spans {
		names = append(names, s.Name())
		for _, a := range s.Attributes() {
			if strings.Contains(a.Value.Emit(), "s3cret") { //nolint:staticcheck // any form will do
				t.Errorf("span %s tells the query: %s", s.Name(), a.Key)
			}
			if a.Key == attribute.Key("url.query") {
				t.Errorf("span %s has the query", s.Name())
			}
		}
	}
	if got := strings.Join(names, ", "); got != "GET /v1/subscribers/{subscriber_id}, GET /v1/subscribers, GET, POST /v1/events" {
		t.Errorf("spans are %s", got)
	}
}

func TestPanics(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(d *Deps) {
		d.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "half")
			panic("after the start")
		})
		d.OnCallJSON = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	})
	r.ingest.do = func(context.Context, ingest.Post) (ingest.Receipt, error) { panic("boom: s3cret") }
	a := r.do("POST", "/v1/events", post(`1`))
	wantProblem(t, a, ProblemCodeInternal)
	if strings.Contains(a.body, "boom") {
		t.Errorf("the panic got out: %s", a.body)
	}
	if log := r.log.String(); !strings.Contains(log, "events_test.go") && !strings.Contains(log, "middleware_test.go") {
		t.Errorf("the log has no stack: %s", log)
	}
	for _, path := range []string{"/metrics", "/v1/oncall"} {
		if a, err := r.send("GET", path, ""); err == nil {
			t.Errorf("%s: half an answer looked whole: %d %q", path, a.status, a.body)
		}
	}
}

func TestOperations(t *testing.T) {
	t.Parallel()
	var notReady error
	r := newRig(t, func(d *Deps) { d.Ready = func(context.Context) error { return notReady } })
	if a := r.do("GET", "/openapi.yaml", ""); a.body != string(api.OpenAPI) {
		t.Error("the contract served is not the contract")
	}
	for range 2 {
		into[Health](t, r.do("GET", "/healthz", ""), 200)
		if notReady == nil {
			into[Health](t, r.do("GET", "/readyz", ""), 200)
			notReady = fmt.Errorf("ping: %w", schedule.ErrUnavailable)
			continue
		}
		if a := r.do("GET", "/readyz", ""); wantProblem(t, a, ProblemCodeUnavailable).Detail == "" || a.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	for _, told := range []error{schedule.ErrUnsafe, schedule.ErrFull, schedule.ErrLayout, schedule.ErrRefused} {
		notReady = fmt.Errorf("%w: set it to noeviction", told)
		if d := wantProblem(t, r.do("GET", "/readyz", ""), ProblemCodeUnavailable).Detail; !strings.Contains(d, "set it to noeviction") {
			t.Errorf("%v: /readyz says %q, and not what to set", told, d)
		}
	}
	r.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if a := r.do("GET", "/", ""); a.status != http.StatusTemporaryRedirect || a.header.Get("Location") != "/oncall" {
		t.Errorf("/ gives %d to %q", a.status, a.header.Get("Location"))
	}
	for _, path := range []string{"/metrics", "/oncall", "/v1/oncall", "/oncall/events", "/oncall/static/a.css"} {
		wantProblem(t, r.do("GET", path, ""), ProblemCodeNotFound) // nobody serves it here
	}
}

// An error of a handler that was handed in has the one form too.
func TestHandedInErrors(t *testing.T) {
	t.Parallel()
	answer := func(status int, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})
	}
	r := newRig(t, func(d *Deps) {
		d.OnCallJSON = answer(503, `{"detail":"no sample of Redis was taken yet","code":"x"}`)
		d.OnCallPage = answer(404, "404 page not found")
		d.OnCallEvents = answer(503, strings.Repeat("x", 10_000))
		d.Metrics = answer(500, "s3cret detail")
	})
	a := r.do("GET", "/v1/oncall", "")
	if p := wantProblem(t, a, ProblemCodeUnavailable); p.Detail != "no sample of Redis was taken yet" || a.header.Get("Retry-After") == "" {
		t.Errorf("got %+v", p)
	}
	wantProblem(t, r.do("GET", "/oncall/static/none.css", ""), ProblemCodeNotFound)
	wantProblem(t, r.do("GET", "/oncall/events", ""), ProblemCodeUnavailable)
	if a := r.do("GET", "/metrics", ""); wantProblem(t, a, ProblemCodeInternal).Code == "" || strings.Contains(a.body, "s3cret") {
		t.Errorf("got %s", a.body)
	}
}

// The stream reaches its reader as it is written, on a connection whose deadline
// an earlier request has set.
func TestStreamFlushes(t *testing.T) {
	t.Parallel()
	next := make(chan string)
	r := newRig(t, func(d *Deps) {
		d.OnCallEvents = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			rc := http.NewResponseController(w)
			for text := range next {
				_, _ = io.WriteString(w, "data: "+text+"\n\n")
				if err := errors.Join(rc.Flush(), rc.SetWriteDeadline(time.Now().Add(time.Minute))); err != nil {
					t.Error(err)
				}
			}
		})
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/oncall/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	go func() { next <- "one" }()
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for _, want := range []string{"one", "two", "three"} {
		if !lines.Scan() || lines.Text() != "data: "+want {
			t.Fatalf("got %q, want %q", lines.Text(), want)
		}
		lines.Scan() // the blank line
		if want == "one" {
			go func() { next <- "two"; next <- "three"; close(next) }()
		}
	}
}

// pipe is an HTTP server and client within one process and one synctest bubble,
// where real sockets would stop the clock.
type pipe struct {
	t     *testing.T
	conns chan net.Conn
}

func newPipe(t *testing.T) *pipe { return &pipe{t, make(chan net.Conn)} }

func (p *pipe) Accept() (net.Conn, error) {
	if c, ok := <-p.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p *pipe) Close() error   { return nil }
func (p *pipe) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipe) serve(h http.Handler) {
	srv := NewServer(h, slog.New(slog.DiscardHandler))
	go func() { _ = srv.Serve(p) }()
	p.t.Cleanup(func() { close(p.conns); _ = srv.Close() })
}

// dial is the client's end of a new connection.
func (p *pipe) dial() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	return client
}

func (p *pipe) do(method, path string) answer {
	p.t.Helper()
	tr := &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return p.dial(), nil },
		DisableKeepAlives: true,
	}
	req, err := http.NewRequestWithContext(p.t.Context(), method, "http://localhost"+path, http.NoBody)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

// A body that stops half way costs its connection for bodyTimeout and no longer;
// headers that do, for headerTimeout.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sent string
		want time.Duration
		says string
	}{
		"body":    {"POST /v1/events HTTP/1.1\r\nHost: [::1]\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{\"type\":", bodyTimeout, "HTTP/1.1 408 "},
		"headers": {"POST /v1/events HTTP/1.1\r\nHost: [::1]\r\n", headerTimeout, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPipe(t)
				p.serve(New(Deps{Ingest: &fakeIngest{}, Logger: slog.New(slog.DiscardHandler)}))
				conn := p.dial()
				defer conn.Close()
				start := time.Now()
				if _, err := io.WriteString(conn, c.sent); err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(conn)
				if err != nil {
					t.Fatal(err)
				}
				if !strings.HasPrefix(string(got), c.says) {
					t.Errorf("got %q", got)
				}
				if took := time.Since(start); took < c.want || took > c.want+time.Second {
					t.Errorf("the connection was held for %s, want %s", took, c.want)
				}
			})
		})
	}
}

// The body's deadline must not outlive the body: it would end the context of a
// handler that still works.
func TestSlowWorkIsNotCutByTheBodysDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in := &fakeIngest{do: func(ctx context.Context, _ ingest.Post) (ingest.Receipt, error) {
			select {
			case <-ctx.Done():
				return ingest.Receipt{}, ctx.Err()
			case <-time.After(workTimeout - time.Second):
				return ingest.Receipt{ID: "evt_slow"}, nil
			}
		}}
		p := newPipe(t)
		p.serve(New(Deps{Ingest: in, Logger: slog.New(slog.DiscardHandler)}))
		conn := p.dial()
		defer conn.Close()
		body := post(`1`)
		_, err := fmt.Fprintf(conn, "POST /v1/events HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 202 ") {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// With tracing off, a trace that a request brings is passed on all the same: its
// deliveries are linked to it. A request without one costs no span.
func TestForeignTraceWithTracingOff(t *testing.T) {
	t.Parallel()
	const header, trace32 = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "0af7651916cd43dd8448eb211c80319c"
	const body = `{"type":"shipment.delivered","shipment_id":"s","occurred_at":"2026-03-01T09:30:00Z","data":1}`
	r := newRig(t)
	seen := make(chan trace.SpanContext, 1)
	r.ingest.do = func(ctx context.Context, p ingest.Post) (ingest.Receipt, error) {
		seen <- trace.SpanContextFromContext(ctx)
		return ingest.Receipt{ID: "evt_1", AcceptedAt: time.Now()}, nil
	}
	r.do(http.MethodPost, "/v1/events", body, "Traceparent: "+header)
	if sc := <-seen; sc.TraceID().String() != trace32 || !sc.IsSampled() {
		t.Errorf("ingest was given the trace %v", sc.TraceID())
	}
	r.do(http.MethodPost, "/v1/events", body)
	if sc := <-seen; sc.IsValid() {
		t.Errorf("a trace from nowhere: %v", sc.TraceID())
	}
}
