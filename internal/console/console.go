package console

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/access"
)

//go:embed *.html
var files embed.FS

// csp lets a page load the on-call page's style and script, and send its forms home.
const csp = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// refresh is how often a page that is open draws itself anew.
const refresh = 5 * time.Second

// Sessions makes and ends sessions; *access.Sessions is one.
type Sessions interface {
	// Begin MUST make a session only for a role that may have one, and return
	// access.ErrRole with the identity for another; else what access.Gate.Authenticate
	// returns.
	Begin(ctx context.Context, key string, may func(access.Role) bool) (access.Session, error)
	// End MUST have no process take the session from then on.
	End(ctx context.Context, session string) error
}

// Options of New.
type Options struct {
	// Sessions, or nil for a server that nobody signs in at.
	Sessions Sessions
	// Cookie is the name of the cookie that carries a session.
	Cookie string
	// May says whether a role may call an operation of the API.
	May func(role access.Role, operation string) bool
	// Runbook, in Markdown, is what the on-call page leads to.
	Runbook string
	// Logger; nil means silence.
	Logger *slog.Logger
}

// Site is the pages. It is safe for concurrent use.
type Site struct {
	sessions Sessions
	cookie   string
	may      func(access.Role, string) bool
	log      *slog.Logger
	pages    *template.Template
	book     template.HTML
	secret   []byte // of forms outside of sessions
	attempts attempts
	api      *client.Client // set by Over
}

// New reads the templates. An error is a mistake in them.
func New(o Options) (*Site, error) {
	pages, err := template.ParseFS(files, "*.html")
	if err != nil {
		return nil, fmt.Errorf("parse the pages: %w", err)
	}
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Site{sessions: o.Sessions, cookie: o.Cookie, may: o.May, log: log, pages: pages, book: markdown(o.Runbook), secret: newSecret()}, nil
}

// Over serves the pages over an API, which finds out who asks from the context
// (access.From). It is to be called once, and its handler to be reached only by those who
// may look, but for /oncall/login and /oncall/logout.
func (s *Site) Over(api http.Handler) http.Handler {
	s.api = clientOf(api)
	m := http.NewServeMux()
	m.HandleFunc("GET /oncall/login", s.login)
	m.HandleFunc("POST /oncall/login", s.signIn)
	m.HandleFunc("POST /oncall/logout", s.signOut)
	m.HandleFunc("GET /oncall/find", s.find)
	m.HandleFunc("GET /oncall/runbook", s.runbook)
	m.HandleFunc("GET /oncall/{kind}/{id}", func(w http.ResponseWriter, r *http.Request) {
		s.show(w, r, attempted{})
	})
	m.HandleFunc("POST /oncall/{kind}/{id}/{action}", s.act)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := within(r.Context(), w.Header().Get(requestIDHeader))
		m.ServeHTTP(w, r.WithContext(ctx))
	})
}

// look is one request for a page.
type look struct {
	context.Context
	Visitor

	kind, id string
	// attempted is what was pressed on the page, and failed.
	attempted attempted
}

// attempted is a deed that failed: the page is drawn again with what was typed.
type attempted struct {
	action, text string
	err          error
}

// subject draws what one kind of page is about.
type subject struct {
	template string
	draw     func(*Site, look) (title string, body any, err error)
}

var subjects = map[string]subject{
	"subscribers":  {"subscriber", (*Site).subscriber},
	"deliveries":   {"delivery", (*Site).delivery},
	"events":       {"event", (*Site).event},
	"dead-letters": {"dead-letter", (*Site).deadLetter},
	"redrives":     {"redrive", (*Site).redrive},
}

// page is what every template gets.
type page struct {
	Visitor

	Title   string
	Path    string // of this page
	Refresh int64  // ms
	Done    string // what was just done, as a sentence
	Wrong   string // what was not, and why
	Body    any
}

// show draws the page of one thing.
func (s *Site) show(w http.ResponseWriter, r *http.Request, a attempted) {
	kind, id := r.PathValue("kind"), r.PathValue("id")
	sub, known := subjects[kind]
	if !known {
		s.problem(w, r, &client.Problem{Status: http.StatusNotFound, Detail: "There is no such page."})
		return
	}
	l := look{Context: r.Context(), Visitor: s.Visitor(r), kind: kind, id: id, attempted: a}
	title, body, err := sub.draw(s, l)
	if err != nil {
		if a.err != nil { // what was pressed says more
			err = a.err
		}
		s.problem(w, r, err)
		return
	}
	p := page{Title: title, Path: pathTo(kind, id), Refresh: refresh.Milliseconds(), Body: body}
	status := http.StatusOK
	if a.err != nil {
		status, p.Wrong = told(a.err)
	} else if d, ok := deeds[kind+"/"+r.URL.Query().Get("done")]; ok {
		p.Done = d.done
	}
	s.render(w, r, status, sub.template, p)
}

// problem is a page that says what is wrong.
func (s *Site) problem(w http.ResponseWriter, r *http.Request, err error) {
	status, said := told(err)
	title := "Not to be shown"
	switch status {
	case http.StatusNotFound:
		title = "Not found"
	case http.StatusForbidden:
		title = "Not for your role"
	case http.StatusServiceUnavailable:
		title = "Not known for now"
	}
	if status >= http.StatusInternalServerError {
		s.log.WarnContext(r.Context(), "cannot show a page", "path", pathTo(r.PathValue("kind"), r.PathValue("id")), "error", err)
	}
	s.render(w, r, status, "problem", page{Title: title, Path: r.URL.Path, Wrong: said})
}

// told is what a person is told of an error, and the status that goes with it.
func told(err error) (status int, said string) {
	var p *client.Problem
	if !errors.As(err, &p) {
		return http.StatusServiceUnavailable, "The server could not ask itself: it is busy or stopping. Try again."
	}
	said = p.Detail
	for _, f := range p.Errors {
		name := strings.TrimPrefix(f.Pointer, "/")
		if name == "" {
			name = f.Parameter
		}
		said += fmt.Sprintf(" The %s %s.", strings.ReplaceAll(name, "_", " "), f.Detail)
	}
	return p.Status, said
}

// render draws a page whole before it sends anything of it.
func (s *Site) render(w http.ResponseWriter, r *http.Request, status int, name string, p page) {
	if p.KeyID == "" {
		p.Visitor = s.Visitor(r)
	}
	h := w.Header()
	h.Set("Content-Security-Policy", csp)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // a form's Origin would be null under no-referrer
	var b bytes.Buffer
	if err := s.pages.ExecuteTemplate(&b, name, p); err != nil {
		s.log.ErrorContext(r.Context(), "cannot draw a page", "page", name, "error", err)
		http.Error(w, "cannot draw the page", http.StatusInternalServerError)
		return
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the client is gone
}

// find leads to the page of an id, by its prefix.
func (s *Site) find(w http.ResponseWriter, r *http.Request) {
	id := strings.TrimSpace(r.URL.Query().Get("id"))
	const longest = 64 // of all ids
	if id == "" || len(id) > longest {
		s.problem(w, r, &client.Problem{Status: http.StatusNotFound, Detail: "That is no id of anything here."})
		return
	}
	kind := "events" // whose ids are the producers' own
	for prefix, of := range map[string]string{"dlv_": "deliveries", "sub_": "subscribers", "rdv_": "redrives"} {
		if strings.HasPrefix(id, prefix) {
			kind = of
		}
	}
	w.Header().Set("Location", pathTo(kind, id))
	w.WriteHeader(http.StatusSeeOther)
}
