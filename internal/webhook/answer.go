package webhook

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/subscriber"
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
	buf, _ := buffers.Get().(*[maxBody]byte)
	defer buffers.Put(buf)
	n, _ := io.ReadFull(resp.Body, buf[:])
	if a.Outcome == delivery.OK {
		return a
	}
	a.Err = "answered " + statusWords(resp.StatusCode)
	a.Excerpt = string(buf[:n]) // cut to its bound when it is scrubbed
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		a.RetryAfter, _ = delivery.ParseRetryAfter(resp.Header.Get("Retry-After"), now, retryAfterCap)
	}
	return a
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

// scrub takes out of the words and of the excerpt what must not be kept (an
// endpoint may echo its query, or print its secret on an error page), then cuts
// both to their bounds. req is nil if none was built; nothing then holds any.
func (a *Answer) scrub(req *http.Request, secrets []subscriber.Secret) {
	if req != nil {
		hide := newReplacer(req.URL, secrets)
		a.Err, a.Excerpt = hide.Replace(a.Err), hide.Replace(a.Excerpt)
	}
	a.Err = clip(strings.Map(printable, a.Err), maxErr)
	a.Excerpt = clip(a.Excerpt, maxExcerpt)
}

// newReplacer hides the query in the forms in which it may come back, and the
// secrets. Values of less than four bytes hide nothing, and would riddle the text.
func newReplacer(u *url.URL, secrets []subscriber.Secret) *strings.Replacer {
	const redacted = "[redacted]"
	var pairs []string
	add := func(s string) {
		if len(s) >= 4 {
			pairs = append(pairs, s, redacted)
		}
	}
	add(u.RawQuery)
	if plain, err := url.QueryUnescape(u.RawQuery); err == nil {
		add(plain)
	}
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		_, value, _ := strings.Cut(pair, "=")
		add(value)
		if plain, err := url.QueryUnescape(value); err == nil {
			add(plain)
		}
	}
	for _, s := range secrets {
		add(s.Value)
		_, key, _ := strings.Cut(s.Value, "_")
		add(key)
	}
	return strings.NewReplacer(pairs...)
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
