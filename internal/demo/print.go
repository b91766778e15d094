package demo

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// noColour, if it is set to anything, turns colours off.
const noColour = "NO_COLOR" //nolint:misspell // it is spelt so

// attemptMessage is what the dispatcher logs once for every attempt.
const attemptMessage = "attempt"

// Handler is a slog.Handler for people: one short line for each attempt that the
// dispatcher logs, warnings and errors in a readable form, and nothing else. It
// wants every level, since first attempts that succeed are logged at debug. It is
// safe for concurrent use, and so is what is derived from it.
type Handler struct {
	stage  *stage
	attrs  []slog.Attr
	prefix string // of open groups, with its dot
}

// stage is what a Handler and all that are derived from it share.
type stage struct {
	screen *screen
	// scene knows the names of who acts; nil before the play and after it.
	scene atomic.Pointer[scene]
}

// NewHandler makes a Handler that writes to out, each line in one Write.
func NewHandler(out io.Writer, colour bool) *Handler {
	return &Handler{stage: &stage{screen: &screen{out: out, colour: colour}}}
}

// UseColor says whether colours belong on out: it is a terminal that can show
// them, and nobody asked for none by the variable of no-color.org.
func UseColor(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok || os.Getenv(noColour) != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Enabled takes everything; Handle chooses.
func (*Handler) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs adds to every line.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(attrs) == 0 {
		return h
	}
	d := *h
	d.attrs = append([]slog.Attr(nil), h.attrs...)
	for _, a := range attrs {
		a.Key = h.prefix + a.Key
		d.attrs = append(d.attrs, a)
	}
	return &d
}

// WithGroup prefixes the keys of what follows.
func (h *Handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	d := *h
	d.prefix += name + "."
	return &d
}

// Handle prints a record or drops it. It never waits for anything but the write.
func (h *Handler) Handle(_ context.Context, r slog.Record) error {
	if r.Message == attemptMessage {
		if a, ok := h.attempt(r); ok {
			return h.stage.show(a)
		}
	}
	if r.Level < slog.LevelWarn {
		return nil
	}
	attrs := append([]slog.Attr(nil), h.attrs...)
	r.Attrs(func(a slog.Attr) bool {
		a.Key = h.prefix + a.Key
		attrs = append(attrs, a)
		return true
	})
	return h.stage.screen.trouble(r.Time, r.Level, r.Message, attrs)
}

// attempt is the dispatcher's line of one attempt, read back.
type attempt struct {
	at                    time.Time
	deliveryID            string
	subscriberID, eventID string
	number                int
	outcome               string
	status                int
	next                  delivery.State
	reason                string
	due                   time.Time

	// From the scene.
	name, kind  string
	maxAttempts int
	signature   signature
}

// signature is what the receiver made of it.
type signature string

const (
	unseen   signature = "" // no receiver of ours saw the request
	verified signature = "sig ok"
	forged   signature = "SIG BAD"
)

// attempt reads a record, and says whether it is what it looks like.
func (h *Handler) attempt(r slog.Record) (attempt, bool) {
	a := attempt{at: r.Time}
	read := func(at slog.Attr) bool {
		v := at.Value.Resolve()
		switch at.Key {
		case "delivery_id":
			a.deliveryID = v.String()
		case "subscriber_id":
			a.subscriberID = v.String()
		case "event_id":
			a.eventID = v.String()
		case "attempt":
			a.number = whole(v)
		case "outcome":
			a.outcome = v.String()
		case "status":
			a.status = whole(v)
		case "next":
			a.next = delivery.State(v.String())
		case "reason":
			a.reason = v.String()
		case "due_at":
			if v.Kind() == slog.KindTime {
				a.due = v.Time()
			}
		}
		return true
	}
	for _, at := range h.attrs {
		read(at)
	}
	r.Attrs(read)
	return a, a.deliveryID != "" && a.next != ""
}

func whole(v slog.Value) int {
	if v.Kind() == slog.KindInt64 {
		return int(v.Int64())
	}
	return 0
}

// show prints an attempt. A dead letter goes by way of the scene, which prints
// it together with its evidence.
func (s *stage) show(a attempt) error {
	sc := s.scene.Load()
	a.name, a.kind = a.subscriberID, a.eventID
	if sc != nil {
		sc.recognise(&a)
		if a.next == delivery.Dead && sc.bury(a) {
			return nil
		}
	}
	return s.screen.attempt(a, nil)
}

// printable keeps what endpoints and producers wrote from steering the terminal,
// and its length in bounds.
func printable(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}
