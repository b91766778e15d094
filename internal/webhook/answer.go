package webhook

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/fanout/fanout/internal/delivery"
)

const (
	maxBody    = 16 << 10 // read of an answer, in bytes; what is beyond costs the connection
	maxExcerpt = 1 << 10  // kept of a failure, in bytes
	maxErr     = 300      // of an error's words, in bytes
)

var buffers = sync.Pool{New: func() any { return new([maxBody]byte) }}

// read turns a response into an answer, by its status. The body is read, up to
// its bound, for the sake of the connection and of the excerpt: its errors, the
// deadline included, change nothing (see Send).
func read(resp *http.Response, now time.Time, retryAfterCap time.Duration) Answer {
	defer func() { _ = resp.Body.Close() }()
	a := Answer{Outcome: delivery.Classify(resp.StatusCode), Status: resp.StatusCode}
	if resp.StatusCode < 200 {
		// A 101 hands over the bare connection, which no deadline would end.
		a.Err = fmt.Sprintf("answered %d, which is no final answer", resp.StatusCode)
		return a
	}
	if a.Outcome == delivery.OK && resp.ContentLength == 0 {
		return a // nothing to read, as with most receivers
	}
	buf, _ := buffers.Get().(*[maxBody]byte)
	defer buffers.Put(buf)
	n, _ := io.ReadFull(resp.Body, buf[:])
	if a.Outcome == delivery.OK {
		return a
	}
	a.Err = "answered " + statusWords(resp.StatusCode)
	a.Excerpt = string(buf[:n]) // cut to its bound when it is scrubbed
	a.cut = n == maxBody
	var note string
	if a.RetryAfter, note = leaveAlone(resp, now, retryAfterCap); note != "" {
		a.Err += "; " + note
	}
	return a
}

// mostAsked bounds what is told of a Retry-After, not what is obeyed.
const mostAsked = 100 * 365 * 24 * time.Hour

// leaveAlone is for how long the endpoint is to be left alone, and in words what became
// of its Retry-After if it did not get what it asked for.
func leaveAlone(resp *http.Response, now time.Time, most time.Duration) (wait time.Duration, note string) {
	header := resp.Header.Get("Retry-After")
	asked, ok := delivery.ParseRetryAfter(header, now, mostAsked)
	switch {
	case header == "":
		return 0, ""
	case resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable:
		return 0, "its Retry-After is ignored: it counts with 429 and 503 alone"
	case !ok:
		return 0, "its Retry-After is ignored: it is neither whole seconds nor an HTTP date"
	case asked > most:
		return most, fmt.Sprintf("its Retry-After asked for %s and gets %s (retry_after_cap)", asked.Round(time.Second), most)
	}
	return asked, ""
}

// statusWords names a status in our words: the endpoint's own are not trusted.
func statusWords(status int) string {
	if text := http.StatusText(status); text != "" {
		return fmt.Sprintf("%d %s", status, text)
	}
	return fmt.Sprint(status)
}

// refused is the answer when no request was made. A place that may not be called
// is the endpoint's fault; a request that cannot be made is ours.
func refused(err error) Answer {
	a := Answer{Outcome: delivery.BadRequest, Err: err.Error()}
	if blocked, ok := errors.AsType[*BlockedError](err); ok {
		switch blocked.Verdict {
		case Malformed, Scheme, Userinfo:
		default:
			a.Outcome = delivery.BlockedAddress
		}
	}
	return a
}

// clip makes valid UTF-8 of s and cuts it to n bytes, between runes.
func clip(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.Clone(s[:n]) // and let go of the rest
}

// printable keeps an error on one line.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return ' '
	}
	return r
}
