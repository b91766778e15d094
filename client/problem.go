package client

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// What an error is about. Ask by errors.Is; a *Problem says more.
var (
	// ErrInvalid: the request breaks a rule, and would again (400, 413, 415, 422). The
	// problem's Errors say where.
	ErrInvalid = errors.New("the request is not valid")
	// ErrUnauthenticated: no token, or one that is not known, expired or revoked (401).
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrForbidden: the key's role may not do it (403).
	ErrForbidden = errors.New("not allowed")
	// ErrNotFound: there is no such thing, or it is another account's (404).
	ErrNotFound = errors.New("not found")
	// ErrConflict: it cannot be done as things stand (409): an event id that was used
	// for another body, a delivery that has ended.
	ErrConflict = errors.New("conflict")
	// ErrPrecondition: the subscriber is at another version than IfMatch said (412).
	ErrPrecondition = errors.New("somebody has changed it")
	// ErrLimited: too many requests for the key (429), after all attempts.
	ErrLimited = errors.New("too many requests")
	// ErrUnavailable: no answer came, or 408, 502, 503 or 504, after all attempts. Whether
	// it was done is not known; posting an event again with its id is safe.
	ErrUnavailable = errors.New("the service did not answer")
	// ErrAnswer: an answer that is none of fanout's, such as a proxy's page.
	ErrAnswer = errors.New("not an answer of fanout")
)

// Problem is an error that the server answered (RFC 9457).
type Problem struct { //nolint:errname // the name of RFC 9457 and of the contract
	Type      string         `json:"type"`
	Title     string         `json:"title"`
	Status    int            `json:"status"`
	Code      string         `json:"code"` // stable: branch on it, or on the sentinels
	Detail    string         `json:"detail"`
	Errors    []FieldProblem `json:"errors,omitempty"`
	RequestID string         `json:"request_id"` // the request in the server's logs
}

// FieldProblem is one thing that is wrong with a request.
type FieldProblem struct {
	Pointer   string `json:"pointer,omitempty"`   // JSON pointer into the body; "" is all of it
	Parameter string `json:"parameter,omitempty"` // a parameter's or header's name instead
	Detail    string `json:"detail"`
}

// Error has the status, the code, what the server said for people, and the request
// id to look for in its logs.
func (p *Problem) Error() string {
	var b strings.Builder
	if p.Status != 0 {
		fmt.Fprintf(&b, "%d ", p.Status)
	}
	fmt.Fprintf(&b, "%s: %s", p.Code, strings.TrimSuffix(p.Detail, "."))
	for _, e := range p.Errors {
		fmt.Fprintf(&b, "; %s %s", cmp.Or(e.Pointer, e.Parameter, "it"), e.Detail) // "" is all of it
	}
	if p.RequestID != "" {
		fmt.Fprintf(&b, " (request %s)", p.RequestID)
	}
	return b.String()
}

// Is says which of the sentinels the problem is.
func (p *Problem) Is(target error) bool {
	s := sentinel(p.Status)
	return s != nil && target == s
}

func sentinel(status int) error {
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return ErrInvalid
	case http.StatusUnauthorized:
		return ErrUnauthenticated
	case http.StatusForbidden:
		return ErrForbidden
	case http.StatusNotFound:
		return ErrNotFound
	case http.StatusConflict:
		return ErrConflict
	case http.StatusPreconditionFailed:
		return ErrPrecondition
	case http.StatusTooManyRequests:
		return ErrLimited
	case http.StatusRequestTimeout, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return ErrUnavailable
	}
	return nil
}

// problemOf reads an error's body. What is not a problem, such as a proxy's page,
// gives one of the status alone: its text may be anything.
func problemOf(resp *http.Response, body []byte) *Problem {
	p := &Problem{}
	if err := json.Unmarshal(body, p); err != nil || p.Code == "" {
		detail := "the answer is none of fanout's; is a proxy between?"
		if resp.StatusCode/100 == 3 {
			detail = "the answer is a redirect; is the base URL right?"
		}
		p = &Problem{Code: "http_" + fmt.Sprint(resp.StatusCode), Title: http.StatusText(resp.StatusCode), Detail: detail}
		p.RequestID = resp.Header.Get("X-Request-ID")
	}
	p.Status = resp.StatusCode
	return p
}

// invalid is a problem found here: the request was not sent.
func invalid(pointer, detail string) *Problem {
	return &Problem{
		Type: "urn:fanout:problem:invalid_request", Title: "Invalid request", Status: http.StatusUnprocessableEntity,
		Code: "invalid_request", Detail: "The event was not sent.",
		Errors: []FieldProblem{{Pointer: pointer, Detail: detail}},
	}
}
