package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// recorder keeps the body of the last good answer, so that -o json is what the API
// answered and not what this program understood of it; and how the last call was tried.
type recorder struct {
	next http.RoundTripper
	last *bytes.Buffer

	// away is called at the first attempt of a call that finds nobody; nil for nothing.
	away     func()
	began    time.Time
	limit    time.Duration
	attempts int
	failing  bool
	// unanswered: a change went out on a connection, and no answer said what became of it.
	unanswered bool
}

// begin is that of a call.
func (r *recorder) begin(limit time.Duration) {
	r.began, r.limit, r.attempts, r.failing, r.unanswered = time.Now(), limit, 0, false, false
}

// RoundTrip passes the answer on, and keeps what is read of it.
func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	r.attempts++
	var connected atomic.Bool
	if req.Method != http.MethodGet && !req.URL.Query().Has("dry_run") {
		req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}))
	}
	resp, err := r.next.RoundTrip(req)
	unwell := err != nil || resp.StatusCode == http.StatusBadGateway || resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusGatewayTimeout
	if unwell && !r.failing && r.away != nil && req.Context().Err() == nil {
		r.away() // once a call: what is tried in silence looks hung
	}
	r.failing = r.failing || unwell
	// A refusal settles this attempt, but not one before it that had no answer. Nor does a
	// 2xx, until its body is here: it may be cut off.
	r.unanswered = r.unanswered || connected.Load() && (unwell || resp.StatusCode/100 == 2)
	if err != nil || resp.StatusCode/100 != 2 {
		return resp, err //nolint:wrapcheck // a transport adds nothing
	}
	kept := new(bytes.Buffer)
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(resp.Body, kept), resp.Body}
	r.last = kept
	return resp, nil
}

// raw is the last answer's body.
func (r *recorder) raw() json.RawMessage {
	if r == nil || r.last == nil {
		return json.RawMessage("null")
	}
	return r.last.Bytes()
}

// tried says how often the last call was tried, and for how long.
func (r *recorder) tried() string {
	if r == nil || r.attempts == 0 {
		return "tried"
	}
	return fmt.Sprintf("tried %s in %s", times(r.attempts), span(time.Since(r.began)))
}

// unsettled: whether a change was made by the last call is not known.
func (r *recorder) unsettled() bool { return r != nil && r.unanswered }

// timedOut: a longer timeout would have changed something.
func (r *recorder) timedOut() bool { return r != nil && r.limit > 0 && time.Since(r.began) >= r.limit }
