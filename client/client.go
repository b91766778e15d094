package client

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// The defaults, and the bounds of what a Client waits for.
const (
	defaultRetries       = 6 // with the windows below: 7 attempts over a mean of 6 s
	defaultBackoffBase   = 200 * time.Millisecond
	defaultBackoffCap    = 10 * time.Second
	defaultRetryAfterCap = 30 * time.Second
	// defaultAttemptTimeout is above what the server takes for most answers (15 s of
	// work, 10 s to read and as many to write).
	defaultAttemptTimeout = 40 * time.Second
	// patientTimeout is for the calls that may take longer: a delete waits for requests
	// in flight, at most 90 s, and then writes its answer; a batch is read for 30 s and
	// worked on for 30 s, and a redrive is previewed for 30 s.
	patientTimeout = 110 * time.Second

	maxAnswer      = 64 << 20 // bytes of one answer; more is an error
	idlePerHost    = 64       // connections kept for the next calls
	idleTimeout    = 75 * time.Second
	maxReason      = 200 // characters, as the server has it
	maxTokenLength = 1024
)

// Client calls one fanout server. It is safe for concurrent use, and meant to be
// made once. It prints as its base URL, without the token.
type Client struct {
	base string
	// authorise puts the token on a request. It is a closure so that no printer of
	// structs finds the token.
	authorise func(http.Header)
	agent     string
	http      *retryablehttp.Client
	patient   *retryablehttp.Client // the same for what takes longer
	idle      func()
	waits     waits
}

// Option changes how a Client works.
type Option func(*options)

type options struct {
	waits
	retries   int
	timeout   time.Duration
	transport http.RoundTripper
	agent     string
}

// WithRetries sets how often a call may be made again after its first attempt: 0 is
// never, the default 6.
func WithRetries(n int) Option { return func(o *options) { o.retries = n } }

// WithBackoff sets the windows that the waits between attempts are drawn from: the
// first, doubled each time, up to the widest. Default 200 ms and 10 s.
func WithBackoff(base, widest time.Duration) Option {
	return func(o *options) { o.base, o.widest = base, widest }
}

// WithRetryAfterCap sets how much of a Retry-After is obeyed. Default 30 s.
func WithRetryAfterCap(d time.Duration) Option { return func(o *options) { o.retryAfterCap = d } }

// WithAttemptTimeout bounds each attempt, from its dial to the end of its answer.
// Default 40 s, which is above the server's own bounds; a delete that waits, a batch and
// the preview of a redrive have at least 110 s, for these take longer. The context
// bounds them all.
func WithAttemptTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// WithTransport sets what carries the requests, for certificates, proxies or traces.
// The default keeps connections alive and heeds the environment's proxies, as
// net/http does: none for loopback addresses.
func WithTransport(t http.RoundTripper) Option { return func(o *options) { o.transport = t } }

// WithUserAgent sets the User-Agent. Default "fanout-go".
func WithUserAgent(s string) Option { return func(o *options) { o.agent = s } }

// New makes a client of the server at baseURL, such as https://fanout.example.com;
// a path before /v1 is fine. The token is a key of the API, or "" for a server that
// has no keys.
func New(baseURL, token string, opts ...Option) (*Client, error) {
	base, err := parseBase(baseURL)
	if err != nil {
		return nil, err
	}
	if len(token) > maxTokenLength || strings.IndexFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) >= 0 {
		return nil, errors.New("client: the token holds what no token does, such as a blank or a line break")
	}
	o := options{
		waits:   waits{base: defaultBackoffBase, widest: defaultBackoffCap, retryAfterCap: defaultRetryAfterCap},
		retries: defaultRetries, timeout: defaultAttemptTimeout, agent: "fanout-go",
	}
	for _, set := range opts {
		set(&o)
	}
	if o.retries < 0 || o.base < 0 || o.widest < o.base || o.retryAfterCap < 0 || o.timeout <= 0 {
		return nil, errors.New("client: retries and waits must not be negative, the widest window not below the first, and the attempt timeout above 0")
	}
	c := &Client{
		base: base, agent: o.agent, waits: o.waits, idle: func() {},
		authorise: func(h http.Header) {
			if token != "" {
				h.Set("Authorization", "Bearer "+token)
			}
		},
	}
	if o.transport == nil {
		t := &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
			MaxIdleConnsPerHost: idlePerHost, IdleConnTimeout: idleTimeout,
		}
		o.transport, c.idle = t, t.CloseIdleConnections
	}
	c.http, c.patient = c.newHTTP(o, o.timeout), c.newHTTP(o, max(o.timeout, patientTimeout))
	return c, nil
}

// parseBase checks the address once, so that no call fails by it later.
func parseBase(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil {
		// url.Error would repeat it.
		return "", errors.New("client: the base URL cannot be read: it must begin with https:// or http:// and a host")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return "", errors.New("client: the base URL must begin with https:// or http:// and a host")
	case u.User != nil:
		return "", errors.New("client: the base URL must not hold a user: give the token by itself")
	case u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("client: the base URL must have neither a query nor a fragment")
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// newHTTP wraps the transport in the retries. The transport is hidden but for
// RoundTrip: after a failure retryablehttp closes the idle connections, which are
// those of the calls beside it too.
func (c *Client) newHTTP(o options, timeout time.Duration) *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient: &http.Client{
			Transport: struct{ http.RoundTripper }{o.transport}, Timeout: timeout,
			// A redirected POST would be a GET, or take its body to a stranger.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		Logger:   nil, // its own would print query strings
		RetryMax: o.retries, RetryWaitMin: o.base, RetryWaitMax: o.widest,
		CheckRetry: checkRetry, Backoff: c.waits.backoff,
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
}

// Close lets go of the idle connections, unless the transport was given.
func (c *Client) Close() { c.idle() }

// String names the server, and never the token.
func (c *Client) String() string { return "fanout client of " + c.base }

// Format is String under every verb.
func (c *Client) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// MarshalText is String, for a logger that writes structs as JSON.
func (c *Client) MarshalText() ([]byte, error) { //nolint:revive // a Client is never a value
	return []byte(c.String()), nil
}
