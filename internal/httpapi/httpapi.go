package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace/noop"
)

// DefaultMaxBody is the largest request body: 256 KiB of data, and 64 KiB for all
// that is around it.
const DefaultMaxBody = 320 << 10

// How long a request may take. The work limit is well above what Redis takes and
// well below what a load balancer waits. A delete waits for leases, which last
// at most an attempt timeout (60 s) and the settle margin (15 s).
const (
	bodyTimeout   = 10 * time.Second
	workTimeout   = 15 * time.Second
	deleteTimeout = 90 * time.Second
	answerTimeout = 10 * time.Second // beyond the work, to write the answer
	readyTimeout  = 2 * time.Second  // a probe that is slow is a probe that failed
)

// Bounds of a connection. Headers of 16 KiB are twice what common proxies pass on.
const (
	headerTimeout  = 5 * time.Second
	idleTimeout    = 90 * time.Second // above the 60 s of common load balancers: they close first
	maxHeaderBytes = 16 << 10
)

type server struct {
	deps    Deps
	log     *slog.Logger
	maxBody int64
	router  *chi.Mux

	auditFailures prometheus.Counter
}

var _ ServerInterface = (*server)(nil)

// New is the API. Serve it by NewServer, whose limits belong to it.
func New(d Deps) http.Handler { return newServer(d).router }

func newServer(d Deps) *server {
	s := &server{deps: d, log: d.Logger, maxBody: d.MaxBody, router: chi.NewRouter()}
	s.auditFailures = newAuditFailures(d.Registerer)
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.maxBody <= 0 {
		s.maxBody = DefaultMaxBody
	}
	if s.deps.TracerProvider == nil {
		s.deps.TracerProvider = noop.NewTracerProvider()
	}
	// From the outside in. recovered is within the span, so that a panic is a 500
	// in the trace too; nothing outside of it calls a handler's code.
	s.router.Use(
		s.guard,
		identify,
		s.report,
		s.sites,
		middleware.GetHead,
		otelhttp.NewMiddleware("http",
			otelhttp.WithTracerProvider(s.deps.TracerProvider),
			otelhttp.WithMeterProvider(metricnoop.NewMeterProvider()), // ours are in Prometheus
			otelhttp.WithPropagators(propagation.TraceContext{}),
			otelhttp.WithFilter(s.spanned),
			otelhttp.WithSpanNameFormatter(spanName),
		),
		traced,
		s.recovered,
		s.authenticate,
	)
	s.router.NotFound(func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, fail(ProblemCodeNotFound, "No such path. The paths are in /openapi.yaml."))
	})
	s.router.MethodNotAllowed(s.methodNotAllowed)
	HandlerWithOptions(s, ChiServerOptions{
		BaseRouter: s.router,
		// The last is the outermost: who may not ask is not told how to.
		Middlewares: []MiddlewareFunc{s.knownQuery, s.allowed},
		ErrorHandlerFunc: func(w http.ResponseWriter, r *http.Request, err error) {
			if bad := checkRole(r); bad != nil { // the parameters are read before the middlewares
				err = bad
			} else if bad := checkQuery(r); bad != nil { // it says more
				err = bad
			}
			s.fail(w, r, parameterFailure(err))
		},
	})
	s.people()
	return s
}

// NewServer is an http.Server with the limits that the API counts on. It has no
// ReadTimeout and no WriteTimeout on purpose: handlers set deadlines of their own,
// because the on-call stream and a waiting delete outlast any common one.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), // what clients do wrong
	}
}

// spanned says which requests get a span. With tracing off a span is of use only to
// one that brings the trace it belongs to, which its deliveries are to be linked to:
// the others are spared an eighth of the handler's CPU.
func (s *server) spanned(r *http.Request) bool {
	if _, off := s.deps.TracerProvider.(noop.TracerProvider); off && r.Header.Get("Traceparent") == "" {
		return false
	}
	return strings.HasPrefix(r.URL.Path, "/v1/")
}

// spanName is asked twice: before the route is known, and after.
func spanName(_ string, r *http.Request) string {
	if r.Pattern == "" {
		return r.Method
	}
	return r.Method + " " + r.Pattern
}

// methodNotAllowed says which methods the path has (RFC 9110, 15.5.6).
func (s *server) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, m := range []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	} {
		if s.router.Match(chi.NewRouteContext(), m, r.URL.Path) {
			allowed = append(allowed, m)
			if m == http.MethodGet {
				allowed = append(allowed, http.MethodHead) // GetHead sees to it
			}
		}
	}
	if len(allowed) == 0 {
		s.fail(w, r, fail(ProblemCodeNotFound, "No such path. The paths are in /openapi.yaml."))
		return
	}
	allow := strings.Join(slices.Compact(allowed), ", ")
	w.Header().Set("Allow", allow)
	s.fail(w, r, fail(ProblemCodeMethodNotAllowed, "This path has %s only.", allow))
}

// run gives a handler its time and renders its error.
func (s *server) run(w http.ResponseWriter, r *http.Request, limit time.Duration, h func(http.ResponseWriter, *http.Request) error) {
	r, cancel := limited(w, r, limit)
	defer cancel()
	if err := h(w, r); err != nil {
		s.fail(w, r, err)
	}
}

// parameterFailure is about what the generated code could not bind.
func parameterFailure(err error) error {
	var format *InvalidParamFormatError
	var many *TooManyValuesForParamError
	var known *failure
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &format):
		return badParameter(ProblemCodeInvalidParameter, format.ParamName, must(format.ParamName))
	case errors.As(err, &many):
		return badParameter(ProblemCodeInvalidParameter, many.ParamName, "is given more than once; send it once")
	}
	return &failure{code: ProblemCodeInvalidParameter, detail: "A parameter cannot be used; /openapi.yaml says what they take.", cause: err}
}

// write sends a value as JSON. It is made whole first: what cannot be marshalled
// becomes an error, never half an answer.
func write(w http.ResponseWriter, status int, mediaType string, v any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // nosniff stands in every answer, and people read these
	if err := enc.Encode(v); err != nil {
		panic("httpapi: marshal an answer: " + err.Error())
	}
	w.Header().Set("Content-Type", mediaType)
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // an error means that the client is gone
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	write(w, status, "application/json", v)
	return nil
}
