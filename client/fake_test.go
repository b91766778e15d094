package client

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// step answers one request of a fake server.
type step func(w http.ResponseWriter, r *http.Request, body []byte)

// fake is a server that answers by a script; the last step is for all the rest. It
// keeps what it was asked.
type fake struct {
	*httptest.Server

	mu     sync.Mutex
	script []step
	asked  []asked
}

type asked struct {
	method, uri string
	header      http.Header
	body        string
	at          time.Time
}

func serve(t *testing.T, script ...step) *fake {
	t.Helper()
	f := &fake{script: script}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		f.mu.Lock()
		f.asked = append(f.asked, asked{r.Method, r.URL.RequestURI(), r.Header.Clone(), string(body), time.Now()})
		next := f.script[min(len(f.asked), len(f.script))-1]
		f.mu.Unlock()
		next(w, r, body)
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) requests() []asked {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]asked(nil), f.asked...)
}

const testToken = "fok_01J9ZC3T7R6W8Y2K5M4N0P1QXV_secretpartofit"

// fast makes a client whose waits are short.
func fast(t *testing.T, url string, more ...Option) *Client {
	t.Helper()
	c, err := New(url, testToken, append([]Option{WithBackoff(time.Millisecond, 5*time.Millisecond)}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// status answers with a problem.
func status(code int, problem string, header ...string) step {
	return func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(Problem{
			Type: "urn:fanout:problem:" + problem, Title: "t", Status: code, Code: problem, Detail: "Do it otherwise.", RequestID: "req_1",
			Errors: []FieldProblem{{Pointer: "/type", Detail: "must be dotted"}},
		})
	}
}

// accept answers a post of an event as the server does.
func accept(duplicate bool) step {
	return func(w http.ResponseWriter, _ *http.Request, body []byte) {
		var e struct{ ID string }
		_ = json.Unmarshal(body, &e)
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(Receipt{ID: e.ID, Deliveries: 3, Duplicate: duplicate})
	}
}

// text answers with a body that is no JSON, or JSON of something else.
func text(code int, body string) step {
	return func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// cut closes the connection without an answer.
func cut(w http.ResponseWriter, _ *http.Request, _ []byte) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = c.Close()
	}
}

// half begins an answer and closes the connection in its midst.
func half(w http.ResponseWriter, _ *http.Request, _ []byte) {
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = rw.WriteString("HTTP/1.1 202 Accepted\r\nContent-Length: 200\r\n\r\n{\"id\":\"")
	_ = rw.Flush()
	_ = c.Close()
}

// event is a good one.
func event(id string) Event {
	return Event{
		ID: id, Type: "shipment.delivered", ShipmentID: "shp_1",
		OccurredAt: time.Date(2026, 3, 1, 9, 30, 0, 0, time.FixedZone("", 3600)), Data: json.RawMessage(`{ "n": 1.0,"t":"<&>" }`),
	}
}

// silent fails the test if an error says what it must not.
func silent(t *testing.T, err error) {
	t.Helper()
	if err != nil && (strings.Contains(err.Error(), testToken) || strings.Contains(err.Error(), "secretpart") || strings.Contains(err.Error(), "cursor-with-secret")) {
		t.Errorf("the error holds a secret: %v", err)
	}
}
