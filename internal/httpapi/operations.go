package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/fanout/fanout/api"
	"github.com/fanout/fanout/internal/access"
	"github.com/fanout/fanout/internal/schedule"
)

// GetRoot sends a person to the on-call page, or to the contract if his key may not see
// that.
func (s *server) GetRoot(w http.ResponseWriter, r *http.Request) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		to := "/oncall"
		if who, err := s.shown(r); err == nil && who.Role != access.Admin && !slices.Contains(roles["getOnCallPage"], who.Role) {
			to = "/docs"
		}
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusTemporaryRedirect)
		return nil
	})
}

// GetOnCall, GetOnCallPage, GetOnCallFile, StreamOnCall and GetMetrics hand over
// to what other packages serve.
func (s *server) GetOnCall(w http.ResponseWriter, r *http.Request) {
	s.run(w, r, workTimeout, s.handOver(s.deps.OnCallJSON))
}

// GetOnCallPage is the page.
func (s *server) GetOnCallPage(w http.ResponseWriter, r *http.Request) {
	s.run(w, r, workTimeout, s.handOver(s.deps.OnCallPage))
}

// GetOnCallFile is a file of the page. A part of one, or none because of a
// precondition, would be an answer that the contract has not: any server may give the
// whole (RFC 9110, 13.1 and 14.2).
func (s *server) GetOnCallFile(w http.ResponseWriter, r *http.Request, _ string) {
	for _, name := range []string{"Range", ifMatchHeader, "If-Unmodified-Since"} {
		r.Header.Del(name)
	}
	s.run(w, r, workTimeout, s.handOver(s.deps.OnCallPage))
}

// StreamOnCall is the live part of the page. It has no time limit.
func (s *server) StreamOnCall(w http.ResponseWriter, r *http.Request) {
	s.run(w, r, 0, s.handOver(s.asLongAsAllowed(s.deps.OnCallEvents)))
}

// GetMetrics is what Prometheus scrapes.
func (s *server) GetMetrics(w http.ResponseWriter, r *http.Request) {
	s.run(w, r, workTimeout, s.handOver(s.deps.Metrics))
}

// GetHealth says that the process lives. It asks nobody: a Redis that is away
// must not get every process restarted.
func (s *server) GetHealth(w http.ResponseWriter, r *http.Request) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, _ *http.Request) error {
		return writeJSON(w, http.StatusOK, Health{Status: HealthOK})
	})
}

// GetReady says whether the process can do its work now.
// notReady says what to do about it, where that is known: these errors name
// settings and nobody's secret. Others may quote addresses.
func notReady(err error) string {
	for _, told := range []error{schedule.ErrUnsafe, schedule.ErrFull, schedule.ErrLayout, schedule.ErrRefused} {
		if errors.Is(err, told) {
			text := strings.ToValidUTF8(strings.ReplaceAll(err.Error(), "\n", "; "), "")
			const most = 1500 // every primary of a cluster may have its sentence
			return "Not ready: " + strings.ToValidUTF8(text[:min(len(text), most)], "") + "."
		}
	}
	if errors.Is(err, schedule.ErrUnavailable) {
		return "Not ready: Redis does not answer. The log says what was tried."
	}
	return "Not ready: the process cannot do its work now. Its log says why."
}

func (s *server) GetReady(w http.ResponseWriter, r *http.Request) {
	s.run(w, r, readyTimeout, func(w http.ResponseWriter, r *http.Request) error {
		if s.deps.Ready != nil {
			if err := s.deps.Ready(r.Context()); err != nil {
				return &failure{
					code: ProblemCodeUnavailable, retryAfter: retryUnavailable, cause: err,
					detail: notReady(err),
				}
			}
		}
		return writeJSON(w, http.StatusOK, Health{Status: HealthOK})
	})
}

// GetOpenAPI is the contract itself.
func (s *server) GetOpenAPI(w http.ResponseWriter, r *http.Request) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Type", "application/yaml") // RFC 9512
		_, _ = w.Write(api.OpenAPI)                        // an error means that the client is gone
		return nil
	})
}

// handOver lets another package's handler answer, but for its errors: those are
// rendered here, like everyone's.
func (s *server) handOver(h http.Handler) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if h == nil {
			return notServed()
		}
		k := &keeper{ResponseWriter: w}
		h.ServeHTTP(k, r)
		return k.failure(r.Context())
	}
}

// keeper passes an answer on as it is written, and keeps one with an error status
// back.
type keeper struct {
	http.ResponseWriter
	status int
	kept   bytes.Buffer
}

// maxKept bytes of an error are enough for its detail.
const maxKept = 4 << 10

// Unwrap lets http.ResponseController find the connection: a stream flushes and
// sets deadlines.
func (k *keeper) Unwrap() http.ResponseWriter { return k.ResponseWriter }

func (k *keeper) WriteHeader(status int) {
	if k.status == 0 {
		k.status = status
	}
	if k.status < http.StatusBadRequest {
		k.ResponseWriter.WriteHeader(status)
	}
}

func (k *keeper) Write(b []byte) (int, error) {
	if k.status >= http.StatusBadRequest {
		k.kept.Write(b[:min(len(b), maxKept-k.kept.Len())])
		return len(b), nil
	}
	if k.status == 0 {
		k.status = http.StatusOK
	}
	return k.ResponseWriter.Write(b) //nolint:wrapcheck // io.Writer's own error
}

// failure is what was kept back, or nil.
func (k *keeper) failure(ctx context.Context) error {
	if k.status < http.StatusBadRequest {
		return nil
	}
	var said struct {
		Detail string `json:"detail"`
	}
	_ = json.Unmarshal(k.kept.Bytes(), &said) // plain text has no detail, and needs none
	f := fail(ProblemCodeInternal, "Something is wrong on our side. The logs have it under this request_id.")
	switch k.status {
	case http.StatusNotFound:
		f = fail(ProblemCodeNotFound, "There is no such file.")
	case http.StatusServiceUnavailable:
		f = fail(ProblemCodeUnavailable, "Not available for now. Try again shortly.")
		f.retryAfter = retryUnavailable
		if said.Detail != "" {
			f.detail = said.Detail
		}
	}
	f.cause = ctx.Err()
	return f
}
