package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// waits are how long to rest between two attempts.
type waits struct {
	base, widest  time.Duration
	retryAfterCap time.Duration
}

// backoff draws the wait after an attempt (from 0): uniform over a window that
// doubles (full jitter), so that a crowd that failed as one does not return as one.
// A Retry-After comes before it, up to the cap: retryablehttp's own backoff has no
// jitter, and would obey one of a year.
func (w waits) backoff(base, widest time.Duration, attempt int, resp *http.Response) time.Duration {
	window := base
	for ; attempt > 0 && window < widest && window > 0; attempt-- {
		window = min(window, widest/2+1) * 2 // no overflow
	}
	wait := time.Duration(rand.Int64N(int64(min(window, widest)) + 1)) //nolint:gosec // a wait is no secret
	if resp == nil || (resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable) {
		return wait
	}
	return min(retryAfter(resp.Header.Get("Retry-After"), time.Now()), w.retryAfterCap) + wait
}

// retryAfter reads whole seconds or an HTTP-date (RFC 9110, 10.2.3); anything else
// asks for nothing.
func retryAfter(header string, now time.Time) time.Duration {
	header = strings.TrimSpace(header)
	if n, err := strconv.ParseUint(header, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

// repeat says when a call may be made again.
type repeat int

const (
	// anyway: a second time changes nothing, so that every doubt may be resolved by
	// another.
	anyway repeat = iota
	// unlessDone: a second time would do it twice, so only if the first surely did
	// nothing: it was refused by a 429, or its connection was never made.
	unlessDone
)

// afterStatus says whether an answer asks for another attempt. A 500 does not: it is
// a fault that would come again.
func (r repeat) afterStatus(status int) bool {
	switch status {
	case http.StatusTooManyRequests:
		return true
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return r == anyway
	}
	return false
}

// afterError says whether an attempt without an answer may be followed by another.
func (r repeat) afterError(err error) bool {
	var (
		op       *net.OpError
		cert     *tls.CertificateVerificationError
		record   tls.RecordHeaderError
		unknown  x509.UnknownAuthorityError
		hostname x509.HostnameError
	)
	switch {
	case errors.As(err, &cert), errors.As(err, &record), errors.As(err, &unknown), errors.As(err, &hostname):
		return false // as it would be the next time
	case errors.As(err, &op) && op.Op == "dial":
		return true
	}
	return r == anyway
}

// checkRetry judges an attempt for retryablehttp. The call that it belongs to is in
// the context, and reads the answer here, while another attempt can still make good
// for one that was cut off.
func checkRetry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return false, errors.New("client: a request that is none of its calls")
	}
	again := c.judge(resp, err)
	return again && ctx.Err() == nil, nil
}
