package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/go-retryablehttp"
)

// request is one operation of the API.
type request struct {
	method string
	path   string     // without the query, so that it can stand in an error
	query  url.Values // nil for none
	body   []byte     // nil for none
	header map[string]string
	repeat repeat
	wait   bool // it may take the server longer than most do
}

// call is a request and what its last attempt came to.
type call struct {
	request

	status int
	body   []byte // of a 2xx
	err    error  // nil after a 2xx
}

type callKey struct{}

// judge takes in an attempt, and says whether another is allowed.
func (c *call) judge(resp *http.Response, err error) (again bool) {
	c.body, c.status = nil, 0
	if err != nil {
		c.err = noAnswer(err)
		return c.repeat.afterError(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	c.status = resp.StatusCode
	ok := resp.StatusCode/100 == 2
	switch {
	case !ok:
		c.err = problemOf(resp, body)
		return c.repeat.afterStatus(resp.StatusCode)
	case err != nil: // it was done, and what it came to was lost on the way
		c.err = noAnswer(err)
		return c.repeat.afterError(err)
	case len(body) > maxAnswer:
		c.err = fmt.Errorf("%w: it is longer than %d bytes", ErrAnswer, maxAnswer)
		return false
	}
	c.body, c.err = body, nil
	return false
}

// noAnswer names what kept the answer away. The URL goes: it holds the query.
func noAnswer(err error) error {
	for {
		var ue *url.Error
		if !errors.As(err, &ue) {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		err = ue.Err
	}
}

// do makes the request, again if need be, and reads a 2xx into out, unless that is
// nil.
func (c *Client) do(ctx context.Context, r request, out any) error {
	made := &call{request: r}
	if err := c.attempt(ctx, made); err != nil {
		return fmt.Errorf("%s %s: %w", r.method, r.path, err)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(made.body, out); err != nil {
		// The error of encoding/json may quote the answer, which may hold a secret.
		return fmt.Errorf("%s %s: %w: a %d that is not the JSON of the contract", r.method, r.path, ErrAnswer, made.status)
	}
	return nil
}

func (c *Client) attempt(ctx context.Context, made *call) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	req, err := c.build(context.WithValue(ctx, callKey{}, made), made.request)
	if err != nil {
		return err
	}
	by := c.http
	if made.wait {
		by = c.patient
	}
	_, err = by.Do(req) //nolint:bodyclose // judge reads and closes every answer
	switch {
	case made.err == nil && err == nil:
		return nil
	case ctx.Err() == nil && made.err != nil:
		return made.err
	case ctx.Err() == nil:
		return noAnswer(err)
	case made.err == nil, errors.Is(made.err, ctx.Err()):
		return ctx.Err() //nolint:wrapcheck // the caller's own
	}
	// The time ran out between two attempts: the last answer says why there was more
	// than one.
	return fmt.Errorf("%w; the last attempt: %w", ctx.Err(), made.err)
}

func (c *Client) build(ctx context.Context, r request) (*retryablehttp.Request, error) {
	target := c.base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	// By hand: a *bytes.Reader would give the request a GetBody, which net/http
	// repeats by itself on a connection that died. Attempts are counted here alone.
	req, err := http.NewRequestWithContext(ctx, r.method, target, http.NoBody)
	if err != nil {
		return nil, errors.New("the request cannot be built") // url.Error would print the query
	}
	wrapped := &retryablehttp.Request{Request: req}
	if r.body != nil {
		if err := wrapped.SetBody(retryablehttp.ReaderFunc(func() (io.Reader, error) { return bytes.NewReader(r.body), nil })); err != nil {
			return nil, fmt.Errorf("the request cannot be built: %w", err)
		}
		wrapped.ContentLength, wrapped.GetBody = int64(len(r.body)), nil
		wrapped.Header.Set("Content-Type", "application/json")
	}
	wrapped.Header.Set("Accept", "application/json, application/problem+json")
	wrapped.Header.Set("User-Agent", c.agent)
	for name, value := range r.header {
		wrapped.Header.Set(name, value)
	}
	if reason, ok := ctx.Value(reasonKey{}).(string); ok && r.method != http.MethodGet {
		wrapped.Header.Set("Fanout-Reason", reason)
	}
	c.authorise(wrapped.Header)
	return wrapped, nil
}

type reasonKey struct{}

// WithReason has every change that is made with the context carry a reason, for the
// audit: at most 200 characters that can be printed. What cannot be sent is made a
// blank, and what is too long is cut.
func WithReason(ctx context.Context, reason string) context.Context {
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' { // a header holds no others
			return ' '
		}
		return r
	}, reason)
	if utf8.RuneCountInString(clean) > maxReason {
		clean = clean[:maxReason]
	}
	return context.WithValue(ctx, reasonKey{}, strings.TrimSpace(clean))
}

// path puts an id into a path. An id that is none of the server's, "" or "..", must
// not reach another operation.
func path(prefix, id, suffix string) string {
	if id == "" || id == "." || id == ".." {
		id = "-" // unknown everywhere
	}
	return prefix + url.PathEscape(id) + suffix
}
