package httpapi

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/fanout/fanout/internal/access"
)

// SessionCookie is the cookie of who has signed in at /oncall/login.
const SessionCookie = "fanout_session"

// lookAgain is how often it is asked whether who watches a stream still may.
const lookAgain = time.Second

// Sessions says whose session it is; *access.Sessions is one.
type Sessions interface {
	// Identity returns what Gate.Authenticate does.
	Identity(ctx context.Context, session string) (access.Identity, error)
}

// May says whether a role may call an operation of the contract. It is for pages, which
// offer what may be done; whether it may is asked again when it is done.
func May(role access.Role, operation string) bool {
	may, known := roles[operation]
	return known && (may == nil || role == access.Admin || slices.Contains(may, role))
}

// people adds the pages for a person to the router. They are no part of the contract:
// each shows what operations of it say, and changes something by calling one. Who may
// see the on-call page may see them.
func (s *server) people() {
	if s.deps.Console == nil {
		return
	}
	pages := s.deps.Console(http.HandlerFunc(s.inside))
	look := s.person(pages, "getOnCallPage")
	s.router.Method(http.MethodGet, "/oncall/login", s.person(pages, "getRoot"))
	s.router.Method(http.MethodPost, "/oncall/login", s.person(pages, "getRoot"))
	s.router.Method(http.MethodPost, "/oncall/logout", s.person(pages, "getRoot"))
	s.router.Method(http.MethodGet, "/oncall/find", look)
	s.router.Method(http.MethodGet, "/oncall/runbook", look)
	s.router.Method(http.MethodGet, "/oncall/{kind}/{id}", look)
	s.router.Method(http.MethodPost, "/oncall/{kind}/{id}/{action}", look)
}

// person serves a page to whoever may call an operation.
func (s *server) person(pages http.Handler, operation string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := noteOf(r).who
		if !May(who.Role, operation) {
			s.fail(w, r, fail(ProblemCodeForbidden, "Your key has the role %s. This is for %s.", who.Role,
				oneOf(append(slices.Clone(roles[operation]), access.Admin))))
			return
		}
		bounded, cancel := limited(w, r.WithContext(access.With(r.Context(), who)), workTimeout)
		defer cancel()
		pages.ServeHTTP(w, bounded)
	})
}

type insideKey struct{}

// inside is the API for a page of this server, in the name of whom the page is for: by
// the same routes, roles, limits and audit as from outside, and without a second look at
// a key.
func (s *server) inside(w http.ResponseWriter, r *http.Request) {
	ctx := context.WithValue(r.Context(), insideKey{}, access.From(r.Context()))
	ctx = context.WithValue(ctx, chi.RouteCtxKey, (*chi.Context)(nil)) // the page's own
	s.router.ServeHTTP(w, r.WithContext(ctx))
}

// session is whose session a request carries. Beside the pages it opens what changes
// nothing: nobody else's page can have a browser change anything by the cookie alone.
func (s *server) session(ctx context.Context, r *http.Request) (access.Identity, error) {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	cookie, err := r.Cookie(SessionCookie)
	if err != nil || s.deps.Sessions == nil || !reads && !strings.HasPrefix(r.URL.Path, "/oncall/") {
		return access.Identity{}, access.ErrNoToken
	}
	return s.deps.Sessions.Identity(ctx, cookie.Value) //nolint:wrapcheck // unknownCaller takes it
}

// toLogin sends who has no key or session, and sits at a browser, to where he can show
// one.
func (s *server) toLogin(w http.ResponseWriter, r *http.Request, err error) bool {
	var f *failure
	page := r.URL.Path == "/oncall" || strings.HasPrefix(r.URL.Path, "/oncall/")
	if s.deps.Console == nil || !page || !errors.As(err, &f) || f.code != ProblemCodeUnauthenticated ||
		r.Header.Get("Authorization") != "" || !strings.Contains(r.Header.Get("Accept"), "text/html") {
		return false
	}
	noteOf(r).code = f.code
	if site := r.Header.Get("Sec-Fetch-Site"); r.Method == http.MethodGet && (site == "cross-site" || site == "same-site") {
		again(w, r.URL)
		return true
	}
	next := "/oncall"
	if r.Method == http.MethodGet {
		next = r.URL.EscapedPath()
	}
	w.Header().Set("Location", "/oncall/login?next="+url.QueryEscape(next))
	w.WriteHeader(http.StatusSeeOther)
	return true
}

// again has a browser that followed a link of another site, an alert's, ask once more:
// it did not send the cookie of a session along (SameSite=Strict), and does for a page of
// our own.
func again(w http.ResponseWriter, to *url.URL) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'")
	_, _ = fmt.Fprintf(w, "<!doctype html><title>fanout</title><meta http-equiv=\"refresh\" content=\"0;url=%[1]s\"><a href=\"%[1]s\">Go on</a>\n",
		html.EscapeString(to.EscapedPath()))
}

// asLongAsAllowed ends a stream when who watches it may no longer: his session or key
// has ended. While that cannot be found out it goes on.
func (s *server) asLongAsAllowed(h http.Handler) http.Handler {
	if h == nil {
		return nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			tick := time.NewTicker(lookAgain)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				var f *failure
				if _, err := s.identity(r); errors.As(err, &f) && f.code == ProblemCodeUnauthenticated {
					cancel()
					return
				}
			}
		}()
		h.ServeHTTP(w, r.WithContext(ctx))
		cancel()
		<-watched
	})
}
