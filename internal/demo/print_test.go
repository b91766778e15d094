package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/delivery"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 412000000, time.UTC)

// output is a terminal that can be read while it is written.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// line logs one record at noon, as the dispatcher does.
func line(t *testing.T, h slog.Handler, level slog.Level, message string, args ...any) {
	t.Helper()
	if !h.Enabled(t.Context(), level) {
		return
	}
	r := slog.NewRecord(noon, level, message, 0)
	r.Add(args...)
	if err := h.Handle(t.Context(), r); err != nil {
		t.Error(err)
	}
}

func attemptArgs(next delivery.State, o delivery.Outcome, status int, more ...any) []any {
	return append([]any{
		"delivery_id", deliveryID, "subscriber_id", "sub_1", "event_id", "evt_1", "attempt", 2, "fence", int64(2),
		"outcome", o, "status", status, "next", next, "duration_ms", 3, "lane", delivery.Retry, "trace_id", "",
	}, more...)
}

// onScene is a handler that knows sub_1 as "shop", which has seen the delivery.
func onScene(out *output, colour bool, s sighting) *Handler {
	h := NewHandler(out, colour)
	sc := newScene()
	rc := &receiver{role: character{name: "shop", policy: patience(5, time.Second)}}
	rc.seen.put(deliveryID, s)
	sc.enter("sub_1", rc)
	sc.announce("evt_1", "shipment.created")
	h.stage.scene.Store(sc)
	return h
}

func TestHandlerLines(t *testing.T) {
	t.Parallel()
	signed := sighting{seen: true, signed: true, requests: 2}
	for name, tt := range map[string]struct {
		seen   sighting
		colour bool
		level  slog.Level
		msg    string
		args   []any
		want   string
	}{
		"delivered": {
			signed, false, slog.LevelDebug, "attempt", attemptArgs(delivery.Delivered, delivery.OK, 200),
			"12:00:00.412 ✓ delivered        shop         shipment.created            2/5   200      sig ok\n",
		},
		"retry": {
			signed, false, slog.LevelInfo, "attempt",
			attemptArgs(delivery.Scheduled, delivery.HTTP5xx, 503, "due_at", noon.Add(420*time.Millisecond)),
			"12:00:00.412 ↻ retry in 420ms   shop         shipment.created            2/5   503      sig ok\n",
		},
		"retry at once, no answer, not seen": {
			sighting{},
			false, slog.LevelInfo, "attempt",
			attemptArgs(delivery.Scheduled, delivery.Connect, 0, "due_at", noon, "error", "refused"),
			"12:00:00.412 ↻ retry at once    shop         shipment.created            2/5   connect\n",
		},
		"long retry": {
			signed, false, slog.LevelInfo, "attempt",
			attemptArgs(delivery.Scheduled, delivery.Timeout, 0, "due_at", noon.Add(1234567*time.Microsecond)),
			"12:00:00.412 ↻ retry in 1.23s   shop         shipment.created            2/5   timeout  sig ok\n",
		},
		"forged": {
			sighting{seen: true},
			false, slog.LevelInfo, "attempt",
			attemptArgs(delivery.Scheduled, delivery.HTTP5xx, 503, "due_at", noon.Add(9*time.Millisecond)),
			"12:00:00.412 ↻ retry in 9ms     shop         shipment.created            2/5   503      SIG BAD\n",
		},
		"colours": {
			signed, true, slog.LevelInfo, "attempt", attemptArgs(delivery.Delivered, delivery.OK, 204),
			"\x1b[2m12:00:00.412\x1b[0m \x1b[32m✓ delivered       \x1b[0m shop         shipment.created            2/5   204      sig ok\n",
		},
		"warning": {
			signed, false, slog.LevelWarn, "lease lost",
			[]any{"delivery_id", "dlv_1", "error", errors.New("a\nb\x1b[31m")},
			"12:00:00.412 ! warning          lease lost delivery_id=dlv_1 error=a b [31m\n",
		},
		"error": {
			signed, false, slog.LevelError, "handler panicked",
			[]any{"took", time.Second},
			"12:00:00.412 ! ERROR            handler panicked took=1s\n",
		},
		"noise":        {signed, false, slog.LevelInfo, "request", []any{"status", 200}, ""},
		"other debug":  {signed, false, slog.LevelDebug, "redis client", nil, ""},
		"no attempt":   {signed, false, slog.LevelInfo, "attempt", []any{"status", 200}, ""},
		"odd warnings": {signed, false, slog.LevelWarn, "attempt", []any{"n", 1}, "12:00:00.412 ! warning          attempt n=1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out output
			line(t, onScene(&out, tt.colour, tt.seen), tt.level, tt.msg, tt.args...)
			if d := cmp.Diff(tt.want, out.String()); d != "" {
				t.Error(d)
			}
		})
	}
}

// Before the play nobody has a name, and nothing waits for evidence.
func TestHandlerWithoutAScene(t *testing.T) {
	t.Parallel()
	var out output
	h := NewHandler(&out, false)
	logger := slog.New(h).With("worker", "w1").WithGroup("g").With("x", 1)
	line(t, logger.Handler(), slog.LevelWarn, "odd", "y", 2)
	line(t, slog.New(h).With("worker", "w1").Handler(), slog.LevelWarn, "attempt",
		attemptArgs(delivery.Dead, delivery.HTTP422, 422, "reason", delivery.HTTP422)...)
	const want = "12:00:00.412 ! warning          odd worker=w1 g.x=1 g.y=2\n" +
		"12:00:00.412 ✗ dead letter      sub_1        evt_1                       2     422\n"
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Error(d)
	}
}

// A dead letter is printed with its evidence, once Redis has it: the log line
// comes first.
func TestDeadLetterWithEvidence(t *testing.T) {
	t.Parallel()
	asked := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		d := client.Delivery{ID: deliveryID, State: "leased", Attempts: 2}
		if asked > 2 {
			d.State = "dead"
			d.Evidence = []client.Attempt{
				{Status: 503, Excerpt: "earlier"},
				{Status: 422, Excerpt: "{\"error\":\"unknown\"}\r\n\x1b[2J" + strings.Repeat("long-", 40)},
			}
		}
		if r.URL.Path != "/v1/deliveries/"+deliveryID {
			t.Errorf("asked for %s", r.URL.Path)
		}
		_ = json.NewEncoder(w).Encode(d)
	}))
	defer srv.Close()
	api, err := newAPI(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	var out output
	h := onScene(&out, false, sighting{seen: true, signed: true})
	sc := h.stage.scene.Load()
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { sc.gravedigger(ctx, api, h.stage.screen) })

	line(t, h, slog.LevelWarn, "attempt", attemptArgs(delivery.Dead, delivery.HTTP422, 422, "reason", delivery.HTTP422)...)
	sc.buried(ctx)
	cancel()
	work.Wait()
	const want = "12:00:00.412 ✗ dead letter      shop         shipment.created            2/5   422      sig ok\n" +
		"             │ http_422 after 2 attempts, kept as " + deliveryID + "\n" +
		"             │ answered: {\"error\":\"unknown\"}   [2Jlong-long-long-long-long-long-long-long-…\n"
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Error(d)
	}
}

// Too many dead letters at once, or the end of the play, cost evidence and never
// a line.
func TestNoDeadLetterGoesUnseen(t *testing.T) {
	t.Parallel()
	var out output
	h := onScene(&out, false, sighting{})
	for range mostDead + 3 { // nobody digs
		line(t, h, slog.LevelWarn, "attempt", attemptArgs(delivery.Dead, delivery.HTTP422, 422, "reason", delivery.HTTP422)...)
	}
	if n := strings.Count(out.String(), "✗"); n != 3 {
		t.Errorf("%d lines, want the 3 that no longer fit", n)
	}
	h.stage.scene.Load().leftovers(h.stage.screen)
	if n := strings.Count(out.String(), "✗"); n != mostDead+3 {
		t.Errorf("%d lines, want all %d", n, mostDead+3)
	}
}

func TestUseColor(t *testing.T) {
	if UseColor(&bytes.Buffer{}) {
		t.Error("colours on a buffer")
	}
	f, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if UseColor(f) {
		t.Error("colours in a file")
	}
	tty, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0) // a character device, as a terminal is
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tty.Close() }()
	t.Setenv("TERM", "xterm")
	t.Setenv(noColour, "")
	if !UseColor(tty) {
		t.Error("no colours on a device")
	}
	t.Setenv(noColour, "1")
	if UseColor(tty) {
		t.Error("the wish for none was not honoured")
	}
}
