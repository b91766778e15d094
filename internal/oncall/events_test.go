package oncall

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// watch opens a stream over a real socket.
func watch(t *testing.T, base string) (*bufio.Reader, func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/oncall/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	leave := func() { cancel(); _ = res.Body.Close() }
	t.Cleanup(leave)
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("the stream is %s, %s", res.Status, res.Header.Get("Content-Type"))
	}
	return bufio.NewReader(res.Body), leave
}

// nextEvent reads up to the next blank line.
func nextEvent(t *testing.T, r *bufio.Reader) (string, error) {
	t.Helper()
	var b strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return b.String(), err
		}
		if line == "\n" {
			return b.String(), nil
		}
		b.WriteString(line)
	}
}

// await reads events until one contains want.
func await(t *testing.T, r *bufio.Reader, want string) string {
	t.Helper()
	for {
		ev, err := nextEvent(t, r)
		if err != nil {
			t.Fatalf("the stream ended before %q came: %v", want, err)
		}
		if strings.Contains(ev, want) {
			return ev
		}
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	source := &fakeSource{sample: calm()}
	o := newOnCall(t, source, Options{Every: minEvery})
	o.blindAfter = time.Second
	stop := run(t, o)
	server := httptest.NewServer(mux(o))
	t.Cleanup(server.Close)
	t.Cleanup(stop)

	one, leave := watch(t, server.URL)
	other, _ := watch(t, server.URL)
	await(t, one, "retry: 2000")
	ev := await(t, one, "Within SLO")
	for line := range strings.Lines(ev) {
		if !strings.HasPrefix(line, "data: ") && line != "event: sample\n" {
			t.Errorf("a line is neither the event's name nor its data: %q", line)
		}
	}
	source.set(func(f *fakeSource) { f.sample = late() })
	await(t, one, `class="breaching"`)
	await(t, other, `class="breaching"`)

	// One leaves; the others stay, and its place is free again.
	leave()
	source.set(func(f *fakeSource) { f.err = errDown })
	await(t, other, `class="blind"`) // bad news is pushed too

	// The end of Run ends the stream, although its client would stay.
	stop()
	for {
		if _, err := nextEvent(t, other); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the stream did not end cleanly: %v", err)
		}
	}
	res, _ := get(t, o.Events(), "/oncall/events")
	if res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a stream after the end of Run is %s, want 503", res.Status)
	}
	if n := len(o.watchers); n != 0 {
		t.Errorf("%d places are still taken", n)
	}
}

func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	o := sampled(t, calm())
	for range maxWatchers {
		o.watchers <- struct{}{}
	}
	res, _ := get(t, o.Events(), "/oncall/events")
	if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
		t.Errorf("stream %d is %s with Retry-After %q, want a 503 that says when", maxWatchers+1, res.Status,
			res.Header.Get("Retry-After"))
	}
}

// pipeListener hands one end of a net.Pipe to a server. A pipe has no buffer: a
// client that does not read blocks its server at once.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { close(l.done); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{} }

// piped serves o over pipes, inside a synctest bubble, and returns a client's end
// with its request sent.
func piped(t *testing.T, o *OnCall) net.Conn {
	t.Helper()
	l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	server := &http.Server{Handler: mux(o), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	mine, its := net.Pipe()
	t.Cleanup(func() { _ = mine.Close() })
	l.conns <- its
	if _, err := io.WriteString(mine, "GET /oncall/events HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return mine
}

// A client that stops reading loses its stream at the write deadline: it must not
// hold a goroutine and a place for ever.
func TestEventsStalledClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOnCall(t, &fakeSource{sample: calm()}, Options{})
		stop := run(t, o)
		piped(t, o)
		synctest.Wait()
		if n := len(o.watchers); n != 1 {
			t.Fatalf("%d streams are open, want 1", n)
		}
		time.Sleep(o.writeTimeout + time.Millisecond)
		synctest.Wait()
		if n := len(o.watchers); n != 0 {
			t.Errorf("%d streams are open past the write deadline, want 0", n)
		}
		stop()
	})
}

// While nothing is sampled, both ends still hear of each other.
func TestEventsHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := sampled(t, calm()) // its Run never ticks
		conn := piped(t, o)
		start := time.Now()
		r := bufio.NewReader(conn)
		for beats := 0; beats < 3; {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(line, ":") {
				beats++
			}
		}
		if took := time.Since(start); took != 3*o.heartbeat {
			t.Errorf("three heartbeats took %s, want %s", took, 3*o.heartbeat)
		}
		_ = conn.Close()
		synctest.Wait()
	})
}

func TestSSE(t *testing.T) {
	t.Parallel()
	got := string(sse("sample", []byte("a\r\nb\rc\n\nevent: x")))
	want := "event: sample\ndata: " + strings.Join([]string{"a", "b", "c", "", "event: x"}, "\ndata: ") + "\n\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
