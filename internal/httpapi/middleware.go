package httpapi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"go.opentelemetry.io/otel/trace"

	"github.com/fanout/fanout/internal/access"
)

// note gathers what the request's one log line says. It belongs to one request
// and is not shared between goroutines.
type note struct {
	requestID string
	code      ProblemCode // empty on success
	err       error
	ids       []slog.Attr // event_id, delivery_id, subscriber_id
	trace     string
	// who asks, as far as that is known.
	who access.Identity
	// repeat is what to do when nobody knows whether the request took effect;
	// empty for what repeatable says.
	repeat string
	// inBatch while one event of a batch is spoken of.
	inBatch bool
}

// what is to be sent again.
func (n *note) what() string {
	if n.inBatch {
		return "event"
	}
	return "request"
}

type noteKey struct{}

// noteOf is the request's note; a spare one outside of the middlewares.
func noteOf(r *http.Request) *note { return noteIn(r.Context()) }

func noteIn(ctx context.Context) *note {
	if n, ok := ctx.Value(noteKey{}).(*note); ok {
		return n
	}
	return &note{}
}

func (n *note) id(key, value string) { n.ids = append(n.ids, slog.String(key, value)) }

// requestIDHeader carries a request's id, in and out.
const requestIDHeader = "X-Request-ID"

// identify gives the request an id, its own if it came with a usable one, and
// says it in the answer.
func identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(requestIDHeader)
		if !usableRequestID(id) {
			id = "req_" + rand.Text()
		}
		w.Header().Set(requestIDHeader, id)
		ctx := context.WithValue(r.Context(), noteKey{}, &note{requestID: id})
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// usableRequestID: 1 to 64 of A-Z a-z 0-9 . _ -. It comes back in a header and
// goes into every log, so nothing else is let in.
func usableRequestID(id string) bool { return len(id) >= 1 && len(id) <= 64 && only(id, "._-") }

// only says whether s is made of letters, digits and the characters of extra.
func only(s, extra string) bool {
next:
	for i := range len(s) {
		c := s[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' {
			continue
		}
		for j := range len(extra) {
			if c == extra[j] {
				continue next
			}
		}
		return false
	}
	return true
}

// report writes one wide line per request. No query string and no header: either
// may carry a token. The path is the route's pattern, with the ids beside it; a
// path that is no route is told as it came, bounded.
func (s *server) report(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		defer func() { s.line(r, ww, time.Since(start)) }()
		next.ServeHTTP(ww, r)
	})
}

func (s *server) line(r *http.Request, ww middleware.WrapResponseWriter, took time.Duration) {
	n := noteOf(r)
	route := chi.RouteContext(r.Context()).RoutePattern()
	status := ww.Status()
	if status == 0 {
		status = http.StatusOK // nothing written: net/http says 200
	}
	level := slog.LevelInfo
	switch {
	case status >= 500 && !errors.Is(n.err, context.Canceled):
		level = slog.LevelError
	case status < 400 && quiet[route]:
		level = slog.LevelDebug
	}
	attrs := []slog.Attr{
		slog.String("request_id", n.requestID),
		slog.String("method", clip(r.Method, 16)),
		slog.String("route", route),
		slog.Int("status", status),
		slog.Float64("duration_ms", float64(took.Microseconds())/1000),
		slog.Int64("bytes_in", max(r.ContentLength, 0)),
		slog.Int("bytes_out", ww.BytesWritten()),
	}
	if route == "" {
		attrs = append(attrs, slog.String("path", clip(r.URL.Path, 128)))
	}
	if n.trace != "" {
		attrs = append(attrs, slog.String("trace_id", n.trace))
	}
	if n.who.KeyID != "" {
		attrs = append(attrs, slog.String("key_id", n.who.KeyID), slog.String("role", string(n.who.Role)))
	}
	attrs = append(attrs, n.ids...)
	if n.err != nil {
		attrs = append(attrs, slog.String("code", string(n.code)), slog.String("error", clip(n.err.Error(), maxDetail)))
	}
	s.log.LogAttrs(r.Context(), level, "request", attrs...)
}

// quiet routes are asked all the time by machines; their successes are no news.
var quiet = map[string]bool{
	"/": true, "/healthz": true, "/readyz": true, "/metrics": true, "/v1/oncall": true,
	"/oncall": true, "/oncall/events": true, "/oncall/static/{file}": true,
	"/oncall/{kind}/{id}": true,
}

// recovered turns a panic into a problem, or, when the answer has begun, into a
// broken connection: half an answer must not look whole.
func (s *server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ww, ok := w.(middleware.WrapResponseWriter) // report's, if no span is between
		if !ok {
			ww = middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		}
		defer func() {
			if p := recover(); p != nil {
				s.panicked(ww, r, p)
			}
		}()
		next.ServeHTTP(ww, r)
	})
}

func (s *server) panicked(ww middleware.WrapResponseWriter, r *http.Request, p any) {
	if p == http.ErrAbortHandler { //nolint:errorlint // net/http compares it by identity too
		panic(p)
	}
	err := fmt.Errorf("panic: %v", p)
	s.log.ErrorContext(r.Context(), "handler panicked", "request_id", noteOf(r).requestID,
		"error", err, "stack", string(debug.Stack()))
	if ww.Status() != 0 {
		n := noteOf(r)
		n.code, n.err = ProblemCodeInternal, err
		panic(http.ErrAbortHandler)
	}
	s.fail(ww, r, err)
}

// traced notes the trace of a request for its log line.
func traced(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if sc := trace.SpanContextFromContext(r.Context()); sc.IsValid() {
			noteOf(r).trace = sc.TraceID().String()
		}
		next.ServeHTTP(w, r)
	})
}

// guard bounds every body and sets what every answer carries. An If-Match in
// several lines becomes the one that it stands for (RFC 9110, 5.3).
func (s *server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store") // answers hold secrets and states
		most := s.maxBody
		if r.URL.Path == batchPath {
			most = maxBatchBody
		}
		r.Body = http.MaxBytesReader(w, r.Body, most)
		if lines := r.Header[ifMatchHeader]; len(lines) > 1 {
			r.Header[ifMatchHeader] = []string{strings.Join(lines, ", ")}
		}
		next.ServeHTTP(w, r)
	})
}

// bodyTime is how long a body may take.
func bodyTime(r *http.Request) time.Duration {
	if r.URL.Path == batchPath {
		return batchBodyTimeout
	}
	return bodyTimeout
}

// limited gives a request its time: for its body, for its work, for its answer.
// A limit of 0 is for streams, which bound their own writes.
func limited(w http.ResponseWriter, r *http.Request, limit time.Duration) (*http.Request, context.CancelFunc) {
	rc := http.NewResponseController(w)
	if r.ContentLength != 0 {
		// net/http lifts it when the body has been read. Deadlines cannot be set on
		// a connection that is not one, as in a test without a socket; there is no
		// slow peer to guard against then.
		_ = rc.SetReadDeadline(time.Now().Add(bodyTime(r)))
	}
	if limit == 0 {
		_ = rc.SetWriteDeadline(time.Time{}) // the last request's would still stand
		return r, func() {}
	}
	_ = rc.SetWriteDeadline(time.Now().Add(limit + answerTimeout))
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	return r.WithContext(ctx), cancel
}
