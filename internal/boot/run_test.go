package boot

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// journal notes what stages do, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(s string) { j.mu.Lock(); defer j.mu.Unlock(); j.lines = append(j.lines, s) }

// stage takes a second to finish once it is told to.
func (j *journal) stage(name string) Stage {
	return Stage{Name: name, Run: func(ctx context.Context) error {
		<-ctx.Done()
		j.add(name + " told")
		time.Sleep(time.Second) // in a synctest bubble: it costs nothing
		j.add(name + " done")
		return ctx.Err()
	}}
}

var inOrder = []string{"api told", "api done", "work told", "work done", "redis told", "redis done"}

func TestStagesEndOneAfterTheOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := Run(ctx, quiet, j.stage("api"), j.stage("work"), j.stage("redis"))
		if err != nil {
			t.Errorf("an ordered stop gave %v", err)
		}
		if d := cmp.Diff(inOrder, j.lines); d != "" {
			t.Error(d)
		}
	})
}

func TestOneStageEndsAll(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]error{"by an error": errors.New("port taken"), "by itself": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var j journal
				err := Run(t.Context(), quiet, j.stage("api"), j.stage("work"), j.stage("redis"),
					Stage{Name: "demo", Run: func(context.Context) error { return end }})
				if !errors.Is(err, end) || (end != nil && !strings.HasPrefix(err.Error(), "demo: ")) {
					t.Errorf("got %v, want %v with the stage's name", err, end)
				}
				if d := cmp.Diff(inOrder, j.lines); d != "" {
					t.Error(d)
				}
			})
		})
	}
}

func TestStuckStageIsLeftBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		free := make(chan struct{})
		stuck := Stage{Name: "stuck", Grace: 3 * time.Second, Run: func(context.Context) error { <-free; return nil }}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begin := time.Now()
		err := Run(ctx, quiet, stuck, j.stage("redis"))
		if err == nil || !strings.Contains(err.Error(), "stuck: did not stop within 3s") {
			t.Errorf("got %v, want the stuck stage named", err)
		}
		if took := time.Since(begin); took != 4*time.Second || len(j.lines) != 2 {
			t.Errorf("took %s with %v; want 3 s of grace and the next stage's second", took, j.lines)
		}
		close(free)
	})
}

// A signal goes to the whole process, so this one has the process to itself.
func TestSignalStops(t *testing.T) { //nolint:paralleltest // see above
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	err := Run(t.Context(), logger, Stage{Name: "one", Run: func(ctx context.Context) error {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "terminated signal received") {
		t.Errorf("logged %s; want the signal's name", log.String())
	}
}

func TestServeFinishesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	l := Loopback("127.0.0.1:0")
	ln, err := l.Bind(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	entered, release := make(chan struct{}), make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-release
		if r.Context().Err() != nil {
			w.WriteHeader(http.StatusInternalServerError) // the stop reached into the request
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, ln, &http.Server{Handler: h}) }()

	got := make(chan string, 1)
	go func() {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Get("http://" + ln.Addr().String())
		if err != nil {
			got <- err.Error()
			return
		}
		_ = resp.Body.Close()
		got <- resp.Status
	}()
	<-entered
	cancel()
	// Only once the listener is closed is it certain that the stop had begun.
	for {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			break
		}
		_ = c.Close()
	}
	close(release)
	if s := <-got; s != "200 OK" {
		t.Errorf("a request under way got %s", s)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
