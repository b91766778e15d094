package oncall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fanout/fanout/internal/schedule"
)

// A Redis that refuses writes is not "within SLO", however young the heads are. It
// is asked every 2 s, and each change is logged once.
func TestReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var asked atomic.Int64
		var answer atomic.Pointer[error]
		reg := prometheus.NewRegistry()
		o := newOnCall(t, &fakeSource{sample: calm()}, Options{
			Registerer: reg, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Ready: func(context.Context) error {
				asked.Add(1)
				if err := answer.Load(); err != nil {
					return *err
				}
				return nil
			},
		})
		gauge := func(want string) {
			t.Helper()
			if got := exposition(t, reg); !strings.Contains(got, "\nfanout_ready "+want+"\n") {
				t.Errorf("fanout_ready is not %s", want)
			}
		}
		gauge("0") // nobody has asked
		stop := run(t, o)
		after := func(d time.Duration, err error) (page, report string) {
			t.Helper()
			answer.Store(&err)
			time.Sleep(d)
			synctest.Wait()
			_, page = get(t, o.Page(), "/oncall")
			_, report = get(t, o.JSON(), "/v1/oncall")
			return page, report
		}
		if page, _ := after(time.Minute-time.Millisecond, nil); !strings.Contains(page, "Within SLO") {
			t.Error("a ready service is not within its SLO")
		}
		gauge("1")
		if n := asked.Load(); n != 30 {
			t.Errorf("asked %d times in a minute, want 30", n)
		}
		page, report := after(time.Minute, fmt.Errorf("try to write: %w", schedule.ErrFull))
		const says = "Redis refuses writes: try to write: redis is out of memory"
		if !strings.Contains(page, `<section id="verdict" class="unready"`) || !strings.Contains(page, says) ||
			!strings.Contains(report, `"trouble":"`+says+`"`) {
			t.Errorf("neither the page nor the report say %q", says)
		}
		gauge("0")
		if page, report = after(time.Minute, nil); !strings.Contains(page, "Within SLO") || !strings.Contains(report, `"trouble":""`) {
			t.Error("it is ready again, and nobody says so")
		}
		gauge("1")
		stop()
		if n := strings.Count(log.String(), "\n"); n != 2 || strings.Count(log.String(), "ready again") != 1 {
			t.Errorf("got %d log lines, want one as it began and one as it ended:\n%s", n, &log)
		}
	})
}

// A write that hangs is given up, and holds up no sample.
func TestReadyHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &fakeSource{sample: calm()}
		o := newOnCall(t, source, Options{Ready: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		stop := run(t, o)
		time.Sleep(time.Minute - time.Millisecond)
		synctest.Wait()
		if samples, _ := source.counts(); samples != 60 {
			t.Errorf("%d samples were taken in a minute, want 60", samples)
		}
		if _, body := get(t, o.Page(), "/oncall"); !strings.Contains(body, "This server is not ready: context deadline exceeded") {
			t.Error("a hung write is not shown")
		}
		stop()
	})
}

func TestTroubleText(t *testing.T) {
	t.Parallel()
	unsafe := func(text string) error { return fmt.Errorf("%w: %s", schedule.ErrUnsafe, text) }
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{schedule.ErrFull, "Redis refuses writes: redis is out of memory"},
		{
			fmt.Errorf("try to write: %w: %w: READONLY", schedule.ErrUnavailable, schedule.ErrRefused),
			"Redis refuses writes: try to write: redis is unavailable: redis refuses it now: READONLY",
		},
		{fmt.Errorf("ping: %w", schedule.ErrUnavailable), "Redis does not answer a write: ping: redis is unavailable"},
		{
			errors.Join(unsafe("evicts"), unsafe("appendonly is off")),
			"Redis is not set up to keep what it accepts: evicts; appendonly is off",
		},
		{errors.New("a\x1b[31m\u202Eb\r\nc"), "This server is not ready: a [31mb ; c"},
	} {
		if got := troubleText(c.err); got != c.want {
			t.Errorf("%q reads\n%s\nwant\n%s", c.err, got, c.want)
		}
	}
	if got := troubleText(errors.New(strings.Repeat("x", 10_000))); len([]rune(got)) > 600 {
		t.Errorf("a long error is shown with %d characters; the contract allows 600", len([]rune(got)))
	}
}
