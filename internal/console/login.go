package console

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fanout/fanout/internal/access"
)

// maxForm bounds a form, in bytes.
const maxForm = 16 << 10

// loginBody is what the login's template gets beside the page.
type loginBody struct {
	Next string
	// Needless says that this server has no keys, and lets in whoever sits at it.
	Needless bool
}

// login shows the form that takes a key.
func (s *Site) login(w http.ResponseWriter, r *http.Request) {
	s.loginPage(w, r, http.StatusOK, r.URL.Query().Get("next"), "")
}

func (s *Site) loginPage(w http.ResponseWriter, r *http.Request, status int, next, wrong string) {
	local := access.From(r.Context()) == access.Local || s.sessions == nil
	s.render(w, r, status, "login", page{
		Title: "Sign in", Path: "/oncall/login", Wrong: wrong, Body: loginBody{Next: safeNext(next), Needless: local},
	})
}

// safeNext keeps a login from being the way to somebody else's page.
func safeNext(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Host != "" || u.Scheme != "" || u.Path != "/oncall" && !strings.HasPrefix(u.Path, "/oncall/") ||
		strings.HasPrefix(u.Path, "/oncall/log") {
		return "/oncall"
	}
	return u.EscapedPath()
}

// signIn takes a key and gives a session. The key goes nowhere else: not into a cookie,
// a URL, a log or a page, the one with the error included.
func (s *Site) signIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	key, next := strings.TrimSpace(r.PostFormValue("key")), r.PostFormValue("next")
	if s.sessions == nil {
		s.loginPage(w, r, http.StatusOK, next, "")
		return
	}
	if wait := s.attempts.take(r, time.Now()); wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))
		s.loginPage(w, r, http.StatusTooManyRequests, next, "There were too many sign-ins from your address. Wait a moment, then try again.")
		return
	}
	session, err := s.sessions.Begin(r.Context(), key, func(role access.Role) bool { return s.may(role, "getOnCallPage") })
	if err != nil {
		status, wrong := refused(err, session.Identity)
		s.log.InfoContext(r.Context(), "sign-in refused", "key_id", session.Identity.KeyID, "error", err)
		s.loginPage(w, r, status, next, wrong)
		return
	}
	s.log.InfoContext(r.Context(), "signed in", "key_id", session.Identity.KeyID, "role", session.Identity.Role)
	http.SetCookie(w, s.cookieOf(r, session.Token, int(time.Until(session.ExpiresAt)/time.Second)))
	w.Header().Set("Location", safeNext(next))
	w.WriteHeader(http.StatusSeeOther)
}

// refused says why a key gets no session.
func refused(err error, who access.Identity) (status int, said string) {
	var limited *access.LimitedError
	switch {
	case errors.Is(err, access.ErrRole):
		return http.StatusForbidden, "This is a key of the role " + string(who.Role) +
			". The pages show what concerns all accounts: they are for viewers, operators and admins. With this key, use the API."
	case errors.Is(err, access.ErrNoToken), errors.Is(err, access.ErrBadToken):
		return http.StatusUnauthorized, "This is no good key: it is unknown, malformed, expired or revoked."
	case errors.As(err, &limited):
		return http.StatusTooManyRequests, "This key sends more requests than it may. Wait a moment, then try again."
	}
	return http.StatusServiceUnavailable, "Whose key this is cannot be looked up for now: Redis does not answer. Try again shortly."
}

// signOut ends the session, here and everywhere.
func (s *Site) signOut(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	cookie, err := r.Cookie(s.cookie)
	if err == nil && s.sessions != nil {
		if v := (Visitor{Token: s.sessionToken(cookie.Value)}); !s.ownForm(r, v) {
			s.loginPage(w, r, http.StatusForbidden, "", "That form was not of this session. You are still signed in.")
			return
		}
		if err := s.sessions.End(r.Context(), cookie.Value); err != nil {
			s.log.WarnContext(r.Context(), "cannot end a session", "error", err)
			s.loginPage(w, r, http.StatusServiceUnavailable, "",
				"You are still signed in: Redis does not answer, so the session cannot be ended. Try again shortly.")
			return
		}
	}
	http.SetCookie(w, s.cookieOf(r, "", -1))
	w.Header().Set("Location", "/oncall/login")
	w.WriteHeader(http.StatusSeeOther)
}

// cookieOf is a session's cookie: no script reads it, no other site's request carries it,
// and by TLS, here or at a proxy in front, it never leaves in the clear.
func (s *Site) cookieOf(r *http.Request, value string, seconds int) *http.Cookie {
	proto, _, _ := strings.Cut(r.Header.Get("X-Forwarded-Proto"), ",")
	return &http.Cookie{ //nolint:gosec // Secure by plain http, on loopback, would keep it from coming back
		Name: s.cookie, Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || strings.EqualFold(strings.TrimSpace(proto), "https"),
	}
}
