package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// explain names an attempt that brought no status line. Errors are told apart by
// type, never by their text; the order is from the surest to the vaguest.
func explain(ctx context.Context, err error, t *tracer) Answer {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // without the URL
	}
	_, at, tlsErr := t.look()
	var blocked *BlockedError
	var dns *net.DNSError
	var none *net.AddrError
	var op *net.OpError
	switch {
	case errors.As(err, &blocked):
		return Answer{Outcome: delivery.BlockedAddress, Err: blocked.Error()}
	case passed(ctx):
		return Answer{Outcome: delivery.Timeout, Err: "timeout while " + string(at)}
	case ctx.Err() != nil:
		return Answer{Outcome: delivery.LeaseLost, Err: fmt.Sprintf("stopped by the sender while %s: %v", at, context.Cause(ctx))}
	case ours(err):
		return Answer{Outcome: delivery.LeaseLost, Err: "the sender is out of resources: " + err.Error()}
	case errors.As(err, &dns):
		return Answer{Outcome: delivery.DNS, Err: fmt.Sprintf("cannot resolve %s: %s", dns.Name, dns.Err)}
	case errors.As(err, &none): // the resolver has no address and no error: it asks nobody for an .onion
		return Answer{Outcome: delivery.DNS, Err: fmt.Sprintf("cannot resolve %s: it has no address", none.Addr)}
	case isTimeout(err):
		return Answer{Outcome: delivery.Timeout, Err: "timeout while " + string(at)}
	case isClosed(err):
		return Answer{Outcome: delivery.Reset, Err: "connection closed by the endpoint while " + string(at)}
	case errors.As(err, &op) && op.Op == "dial":
		return Answer{Outcome: delivery.Connect, Err: "cannot connect: " + op.Err.Error()}
	case isTLS(err):
		return Answer{Outcome: delivery.TLS, Err: tlsWords(err)}
	case tlsErr != nil: // the handshake's other errors have no type
		return Answer{Outcome: delivery.TLS, Err: tlsWords(err)}
	case at == writing || at == waiting:
		// So do those of a kept-alive connection that was closed, and of HTTP/2: not
		// one byte of an answer came.
		return Answer{Outcome: delivery.Reset, Err: fmt.Sprintf("connection lost while %s: %v", at, err)}
	}
	return Answer{Outcome: delivery.Unknown, Err: fmt.Sprintf("failed while %s: %v", at, err)}
}

// passed says whether the deadline is over. A socket may report it a moment
// before the context does.
func passed(ctx context.Context) bool {
	if err := ctx.Err(); err != nil {
		return errors.Is(err, context.DeadlineExceeded)
	}
	end, ok := ctx.Deadline()
	return ok && !time.Now().Before(end)
}

// ours says whether this machine, and not the endpoint, kept the connection from
// being made. Blaming the endpoints would open every breaker at once.
func ours(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// isTimeout is for deadlines that are not the attempt's: the TLS handshake's, and
// the kernel's own.
func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// isTLS knows certificates, alerts of either side, and an endpoint that does not
// speak TLS at all.
func isTLS(err error) bool {
	var (
		cert     *tls.CertificateVerificationError
		record   tls.RecordHeaderError
		unknown  x509.UnknownAuthorityError
		invalid  x509.CertificateInvalidError
		hostname x509.HostnameError
		op       *net.OpError
	)
	return errors.As(err, &cert) || errors.As(err, &record) ||
		errors.As(err, &unknown) || errors.As(err, &invalid) || errors.As(err, &hostname) ||
		errors.Is(err, http.ErrSchemeMismatch) ||
		// crypto/tls wraps an alert, whose type it keeps to itself, in these.
		errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error")
}

// tlsWords has the prefix that only some of crypto/tls's errors have.
func tlsWords(err error) string { return "tls: " + strings.TrimPrefix(err.Error(), "tls: ") }

// isClosed says whether the other side ended the connection.
func isClosed(err error) bool {
	for _, e := range []error{
		io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, http.ErrServerClosed,
		syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
