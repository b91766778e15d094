package oncall

import (
	"bytes"
	"fmt"
	"net/http"
	"time"
)

// maxWatchers bounds the open streams: each holds a connection and a goroutine,
// and nobody needs a hundred screens of one page.
const maxWatchers = 64

// Events serves /oncall/events: after each sample, good or bad, the inside of the
// page as one server-sent event named "sample". It answers 503 beyond 64 streams.
// A stream ends when its client goes, when a write takes longer than 5 s, or when
// Run returns; http.Server.Shutdown alone does not end one.
func (o *OnCall) Events() http.Handler { return o.EventsFor(nobody) }

// EventsFor is Events for whom visitor tells. A stream has no form's token, whoever
// watches it: the page has, and its script fills it in.
func (o *OnCall) EventsFor(visitor func(*http.Request) Visitor) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-o.done:
			unavailable(w, "the server is stopping")
			return
		default:
		}
		select {
		case o.watchers <- struct{}{}:
			defer func() { <-o.watchers }()
		default:
			unavailable(w, fmt.Sprintf("%d pages are watching already", maxWatchers))
			return
		}
		h := w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Accel-Buffering", "no") // a buffering proxy would deliver the past
		if r.ProtoMajor == 1 {
			// The write deadline below outlives the handler; nobody else may inherit
			// the connection.
			h.Set("Connection", "close")
		}
		o.stream(w, r, visitor(r).Acts)
	})
}

// stream writes until somebody has had enough. A slow client skips samples: it
// always gets the newest, and none are queued for it.
func (o *OnCall) stream(w http.ResponseWriter, r *http.Request, acts bool) {
	beat := time.NewTimer(o.heartbeat)
	defer beat.Stop()
	// A page that lost its stream comes back after 2 s, not in the browser's own time.
	ok := o.send(w, r, []byte("retry: 2000\n\n"))
	for ok {
		frame, next := o.event(acts)
		ok = o.send(w, r, frame)
		for fresh := false; ok && !fresh; {
			beat.Reset(o.heartbeat)
			select {
			case <-r.Context().Done():
				return
			case <-o.done:
				return
			case <-next:
				fresh = true
			case <-beat.C: // a comment: tells both ends that the other is there
				ok = o.send(w, r, []byte(": still here\n\n"))
			}
		}
	}
}

// send writes and flushes within the write timeout, or says that the stream is over.
func (o *OnCall) send(w http.ResponseWriter, r *http.Request, b []byte) bool {
	rc := http.NewResponseController(w)
	err := rc.SetWriteDeadline(time.Now().Add(o.writeTimeout))
	if err == nil {
		_, err = w.Write(b)
	}
	if err == nil {
		err = rc.Flush()
	}
	if err != nil {
		o.log.DebugContext(r.Context(), "on-call stream ended", "error", err)
	}
	return err == nil
}

// event is the frame of the present tick, drawn once for all watchers that may act, once
// for those that may not, and the channel that closes at the next.
func (o *OnCall) event(acts bool) (frame []byte, next <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := &o.frames[0]
	if acts {
		of = &o.frames[1]
	}
	if *of == nil {
		var b bytes.Buffer
		if err := o.page.ExecuteTemplate(&b, "live", o.view(Visitor{Acts: acts})); err != nil {
			// Only a broken template does this, and the tests draw every part of it.
			o.log.Error("cannot draw the on-call page", "error", err)
		}
		*of = sse("sample", b.Bytes())
	}
	return *of, o.tick
}

// sse frames one server-sent event. Each of the three line ends that the format
// knows (HTML standard, 9.2.5) starts a new data line, so that no payload can end
// the event or begin another.
func sse(name string, data []byte) []byte {
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	data = bytes.ReplaceAll(data, []byte("\r"), []byte("\n"))
	var b bytes.Buffer
	b.Grow(len(data) + len(data)/16 + 64)
	b.WriteString("event: " + name + "\n")
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		b.WriteString("data: ")
		b.Write(line)
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	return b.Bytes()
}
