package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/fanout/fanout/client"
)

// Remote are the flags that every command shares: where the service is, who asks,
// and how the answer is shown.
type Remote struct {
	API     string        `default:"http://127.0.0.1:8080" env:"FANOUT_API" help:"Address of the API; default ${default}." placeholder:"URL"`
	KeyFile string        `help:"File with the key to show; or set FANOUT_KEY. None is needed by a server that has no keys." placeholder:"FILE" type:"path"`
	Output  string        `default:"table" enum:"table,json" help:"table, or json: what the API answered, as one document; from tail, listen and watch a line for each thing." short:"o"`
	Timeout time.Duration `default:"30s" help:"Bound of each call of the API, with all its attempts."`
	Reason  string        `help:"Why, for the audit; sent with what changes something." placeholder:"TEXT"`
}

// keyVariable holds the key. There is no flag for it: a command line is seen by every
// process, and kept in the shell's history.
const keyVariable = "FANOUT_KEY"

const (
	retries = 3 // with the windows below: 4 attempts over a mean of 0.7 s
	// untilTimeout is for what posts: it is safe to repeat, and rides out a restart of
	// the service. The timeout of the call ends it.
	untilTimeout = 1 << 20

	backoffBase = 200 * time.Millisecond
	backoffCap  = 2 * time.Second
	maxKeyFile  = 4 << 10 // bytes
)

// session is one run of a command.
type session struct {
	Remote

	in  io.Reader
	out *keeper
	err io.Writer
	// terminal: a person sits at both ends and may be asked.
	terminal bool
	colour   bool
	// precious is set before what is printed once and cannot be asked for again.
	precious bool
	// patient has each call tried until its timeout, not a few times only.
	patient bool

	api    *client.Client
	answer *recorder
}

func newSession(r Remote, in io.Reader, out, errs io.Writer) *session {
	return &session{
		Remote: r, in: in, out: &keeper{w: out}, err: errs,
		terminal: isTerminal(in) && isTerminal(errs), colour: useColour(out),
	}
}

func (s *session) close() {
	if s.api != nil {
		s.api.Close()
	}
}

func (s *session) json() bool { return s.Output == "json" }

// notef tells the person something that is no part of the answer.
func (s *session) notef(format string, a ...any) {
	_, _ = fmt.Fprintln(s.err, clean(fmt.Sprintf(format, a...)))
}

// connect makes the client at its first use. It asks nothing of the server.
func (s *session) connect() (*client.Client, error) {
	if s.api != nil {
		return s.api, nil
	}
	key, err := secretFrom(s.KeyFile, keyVariable)
	if err != nil {
		return nil, err
	}
	if s.API, err = baseOf(s.API); err != nil {
		return nil, err
	}
	if key != "" && inTheClear(s.API) {
		s.notef("warning: %s is plain http to another machine: whoever is between can read the key", s.API)
	}
	s.answer = &recorder{next: &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute,
	}}
	often := retries
	if s.patient {
		often = untilTimeout
		s.answer.away = func() { s.notef("%s gives no answer; trying again, for up to %s", s.API, s.Timeout) }
	}
	c, err := client.New(s.API, key, client.WithTransport(s.answer), client.WithUserAgent("fanout-cli"),
		client.WithRetries(often), client.WithBackoff(backoffBase, backoffCap))
	if err != nil {
		return nil, usage("--api, FANOUT_API or the key: %s", strings.TrimPrefix(err.Error(), "client: "))
	}
	s.api = c
	return c, nil
}

// baseOf is the address that the API's paths are under. What people copy ends in /v1,
// or in what they last looked at.
func baseOf(api string) (string, error) {
	base := strings.TrimSuffix(strings.TrimRight(strings.TrimSpace(api), "/"), "/v1")
	if before, _, found := strings.Cut(base, "/v1/"); found {
		return "", usage("--api or FANOUT_API: %s is one path of the API; give the address alone: %s", endpointOf(api), before)
	}
	for _, page := range []string{"/oncall", "/docs", "/openapi.yaml"} {
		if before, found := strings.CutSuffix(base, page); found {
			return "", usage("--api or FANOUT_API: %s is a page; give the address alone: %s", endpointOf(api), before)
		}
	}
	return base, nil
}

// ask makes one call within the timeout.
func ask[T any](ctx context.Context, s *session, call func(context.Context, *client.Client) (T, error)) (T, error) {
	return askFor(ctx, s, s.Timeout, call)
}

func askFor[T any](
	ctx context.Context, s *session, limit time.Duration, call func(context.Context, *client.Client) (T, error),
) (T, error) {
	var none T
	c, err := s.connect()
	if err != nil {
		return none, err
	}
	if s.Reason != "" {
		ctx = client.WithReason(ctx, s.Reason)
	}
	s.answer.begin(limit)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return call(ctx, c)
}

// secretFrom reads a key or secret from a file, or else from a variable; "" if there
// is neither.
func secretFrom(file, variable string) (string, error) {
	if file == "" {
		return strings.TrimSpace(os.Getenv(variable)), nil
	}
	f, err := os.Open(file)
	if err != nil {
		return "", usage("cannot read the file of the key or secret: %v", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	switch {
	case err != nil:
		return "", usage("cannot read the file of the key or secret: %v", err)
	case len(text) > maxKeyFile:
		return "", usage("%s is longer than a key or secret can be", file)
	case len(bytes.TrimSpace(text)) == 0:
		return "", usage("%s is empty", file)
	}
	return string(bytes.TrimSpace(text)), nil
}

// inTheClear: plain http to another machine.
func inTheClear(api string) bool {
	u, err := url.Parse(api)
	if err != nil || u.Scheme != "http" || u.Hostname() == "localhost" {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return err != nil || !ip.Unmap().IsLoopback()
}
