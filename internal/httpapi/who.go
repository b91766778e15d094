package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/fanout/fanout/internal/access"
)

// gateTimeout bounds how long a request waits to be known. The keys are in memory;
// only while they are read anew does it take the time of a call to Redis.
const gateTimeout = 5 * time.Second

// challenges are what a 401 asks for (RFC 9110, 11.6.1), each on a line of its own:
// Chromium reads no second one on a line. Basic has a browser ask its user, who gives
// the key as the password.
var challenges = []string{`Basic realm="fanout"`, `Bearer realm="fanout"`}

// challengesFor leaves out what would have a browser ask its user for a password where
// he has signed in: the session has ended, and the page says so.
func challengesFor(r *http.Request) []string {
	if _, err := r.Cookie(SessionCookie); err == nil {
		return challenges[1:]
	}
	return challenges
}

// public paths ask for no key: probes have none, and / only says where the page is.
var public = map[string]bool{"/": true, "/healthz": true, "/readyz": true, "/oncall/login": true, "/oncall/logout": true}

// isPublic: also the files of the page, which whoever signs in needs and which say
// nothing of anybody.
func isPublic(path string) bool {
	file, static := strings.CutPrefix(path, "/oncall/static/")
	return public[path] || static && file != "" && !strings.Contains(file, "/")
}

// authenticate finds out who asks, before anything else is said of the request: who
// has no key does not learn which paths there are. The identity goes onto the request's
// note, from there into the context (allowed) and, without the token, onto its log line.
func (s *server) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := s.identity(r)
		noteOf(r).who = who // also of one that is over its rate
		if err != nil {
			if s.toLogin(w, r, err) {
				return
			}
			s.fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *server) identity(r *http.Request) (access.Identity, error) {
	if who, ok := r.Context().Value(insideKey{}).(access.Identity); ok {
		return who, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), gateTimeout)
	defer cancel()
	token := tokenOf(r)
	open, err := s.open(ctx)
	open = open || s.deps.Keyless && token == ""
	switch {
	case open:
		return access.Local, localOnly(r)
	case isPublic(r.URL.Path):
		return access.Identity{}, nil // a probe must not fail for want of Redis
	case err != nil:
		return access.Identity{}, unknownCaller(err)
	case len(r.Header.Values("Authorization")) > 1: // whichever was taken, it would be told of as the other
		return access.Identity{}, fail(ProblemCodeUnauthenticated, "The request has more than one header Authorization. Send one, with your key.")
	}
	who, err := s.shown(r.WithContext(ctx))
	if err != nil {
		return who, unknownCaller(err)
	}
	return who, nil
}

// shown is who asks by the key or the session that the request shows.
func (s *server) shown(r *http.Request) (access.Identity, error) {
	switch token := tokenOf(r); {
	case s.deps.Gate == nil:
		return access.Local, nil
	case token == "":
		return s.session(r.Context(), r)
	default:
		return s.deps.Gate.Authenticate(r.Context(), token) //nolint:wrapcheck // unknownCaller takes it
	}
}

// open says whether whoever reaches the server may do anything.
func (s *server) open(ctx context.Context) (bool, error) {
	switch {
	case s.deps.NeverOpen:
		return false, nil
	case s.deps.Gate == nil:
		return true, nil
	}
	return s.deps.Gate.Open(ctx) //nolint:wrapcheck // unknownCaller takes it
}

// unknownCaller is what is told to who could not be made out.
func unknownCaller(err error) error {
	var limited *access.LimitedError
	switch {
	case errors.Is(err, access.ErrNoToken):
		return &failure{
			code: ProblemCodeUnauthenticated, cause: err,
			detail: "Send your key in the header Authorization: Bearer, or in a browser as the password of any user; " +
				"the on-call page takes it at /oncall/login.",
		}
	case errors.Is(err, access.ErrBadToken):
		return &failure{
			code: ProblemCodeUnauthenticated, cause: err,
			detail: "This is no good key: it is unknown, malformed, expired or revoked. Ask an admin of this server for another.",
		}
	case errors.As(err, &limited):
		return &failure{
			code: ProblemCodeRateLimited, cause: err, retryAfter: limited.RetryAfter,
			detail: "This key sends more requests than it may. Wait for Retry-After, then send the same request again; " +
				"an admin can give a key a higher rate.",
		}
	case errors.Is(err, access.ErrUnavailable), isUnavailable(err):
		f := unavailable("Whose key this is cannot be looked up for now. Nothing was done: send the same request again.")
		f.cause = err
		return f
	}
	return fmt.Errorf("find out who asks: %w", err)
}

// tokenOf is the key that a request carries, "" if none. A header of another scheme
// carries none that is ours.
func tokenOf(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") { // RFC 9110, 11.1: of any case
		return ""
	}
	return strings.TrimLeft(token, " ")
}
