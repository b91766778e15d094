package webhook

import (
	"crypto/tls"
	"net/http/httptrace"
	"sync"
	"time"
)

// Phases says where the time of an attempt went. A phase that did not happen, as
// on a kept-alive connection, is 0.
type Phases struct {
	DNS       time.Duration
	Dial      time.Duration
	TLS       time.Duration
	FirstByte time.Duration // from the request written to the answer's first byte
	Body      time.Duration // from the first byte to the end
	Reused    bool          // the connection was kept alive from an earlier attempt
}

// phase is how far an attempt has come, in words for a person.
type phase string

const (
	starting   phase = "getting a connection"
	resolving  phase = "resolving the name"
	connecting phase = "connecting"
	shaking    phase = "in the TLS handshake"
	writing    phase = "sending the request"
	waiting    phase = "waiting for an answer"
	reading    phase = "reading the answer"
)

// tracer follows one attempt. net/http calls it from several goroutines, hence
// the lock. It also goes on calling it for a dial that lost against a connection
// which fell idle; hence got, from which on dials are of no interest.
type tracer struct {
	end   time.Time // the attempt's deadline
	hooks httptrace.ClientTrace

	mu     sync.Mutex
	at     phase
	got    bool
	phases Phases

	began, wrote, firstByte time.Time
	tlsErr                  error
}

// newTracer watches what nearly every attempt goes through. What is only for a dial
// is hooked in there (dialHooks): all hooks at every request were 16 allocations.
func newTracer(end time.Time) *tracer {
	t := &tracer{at: starting, end: end}
	t.hooks = httptrace.ClientTrace{
		TLSHandshakeStart: t.shakes, TLSHandshakeDone: t.shook,
		GotConn: t.connected, WroteRequest: t.written, GotFirstResponseByte: t.answered,
	}
	return t
}

// dialHooks watch a name being resolved and a connection being made.
func (t *tracer) dialHooks() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		DNSStart: func(httptrace.DNSStartInfo) { t.enter(resolving) },
		DNSDone:  func(httptrace.DNSDoneInfo) { t.leave(&t.phases.DNS) },
		// Two connects may race (RFC 8305); the pair is timed as one.
		ConnectStart: func(string, string) {
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.at != connecting && !t.got {
				t.at, t.began = connecting, time.Now()
			}
		},
		ConnectDone: func(_, _ string, err error) {
			if err == nil {
				t.leave(&t.phases.Dial)
			}
		},
	}
}

func (t *tracer) shakes() { t.enter(shaking) }

func (t *tracer) shook(_ tls.ConnectionState, err error) {
	t.leave(&t.phases.TLS)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.got {
		t.tlsErr = err
	}
}

func (t *tracer) connected(c httptrace.GotConnInfo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at, t.got, t.phases.Reused = writing, true, c.Reused
}

func (t *tracer) written(httptrace.WroteRequestInfo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wrote = time.Now()
	if t.at == writing { // an early answer is ahead of the request's end
		t.at = waiting
	}
}

func (t *tracer) answered() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at, t.firstByte = reading, time.Now()
	if !t.wrote.IsZero() {
		t.phases.FirstByte = t.firstByte.Sub(t.wrote)
	}
}

func (t *tracer) enter(p phase) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.got {
		t.at, t.began = p, time.Now()
	}
}

// leave adds the time since enter. It does not move on: what comes next says so.
func (t *tracer) leave(phase *time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.got {
		*phase += time.Since(t.began)
	}
}

// look gives what is known at the end of the attempt.
func (t *tracer) look() (Phases, phase, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.phases
	if !t.firstByte.IsZero() {
		p.Body = time.Since(t.firstByte)
	}
	return p, t.at, t.tlsErr
}
