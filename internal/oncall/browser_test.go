package oncall

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// screenshotsTo names the variable with a directory for pictures of the page at
// phone and desktop size, light and dark.
const screenshotsTo = "FANOUT_SCREENSHOTS"

// TestBrowser opens the page in a real browser: it loads, follows the source,
// says when its stream is lost, logs no error and talks to nobody else.
func TestBrowser(t *testing.T) {
	t.Parallel()
	source := &fakeSource{sample: calm(), dead: deadLetters()}
	var answer atomic.Pointer[error]
	o := newOnCall(t, source, Options{Every: 100 * time.Millisecond, Ready: func(context.Context) error {
		if err := answer.Load(); err != nil {
			return *err
		}
		return nil
	}})
	o.blindAfter = 2 * time.Second // how long the page is patient
	remember(o)
	stop := run(t, o)
	server := httptest.NewServer(mux(o))
	t.Cleanup(server.Close)
	t.Cleanup(stop) // runs first: Close waits for the streams

	ctx, seen := browser(t)
	do(ctx, t, "load the page", chromedp.Navigate(server.URL+"/oncall"))
	waitFor(ctx, t, "the calm verdict", `document.getElementById("word").textContent === "Within SLO"`)
	waitFor(ctx, t, "a hostile excerpt as text", `document.querySelector("#failures .said").textContent.includes("<script>")`)

	// Live: the same document, without a reload, shows what the source says now.
	waitFor(ctx, t, "a mark on the document", `window.sameDocument = true`)
	source.set(func(f *fakeSource) { f.sample = late() })
	waitFor(ctx, t, "the breach, live", `window.sameDocument && document.title.startsWith("Breaching") &&
		document.getElementById("verdict").className === "breaching" &&
		document.querySelector(".sentence").textContent.includes("standard is past its SLO of 30 s") &&
		document.querySelector(".class.late .age strong").textContent === "48 s"`)
	source.set(func(f *fakeSource) { f.sample.Ledger.Delivered++ })
	waitFor(ctx, t, "the imbalance, live", `document.querySelector("#ledger caption").textContent.includes("out by -1")`)

	// What on-call must not miss below the worst: an unknown class, a worker that is
	// gone, a Redis that refuses writes.
	refusal := schedule.ErrFull
	answer.Store(&refusal)
	source.set(func(f *fakeSource) {
		f.sample.ExpiredLeases = 5
		f.sample.Ages = append(f.sample.Ages,
			schedule.Ages{Class: schedule.OtherClass, Lane: delivery.Fresh, Eligible: ago(1200 * time.Millisecond)})
	})
	waitFor(ctx, t, "the rest, live", `window.sameDocument && document.querySelectorAll(".class").length === 3 &&
		document.querySelector(".sentence").textContent.includes("no dispatcher reclaims expired leases") &&
		document.getElementById("says").textContent.includes("a class that this server was not told of") &&
		document.getElementById("says").textContent.includes("Redis refuses writes: redis is out of memory") &&
		document.querySelector("#ledger .late td").textContent === "5"`)
	waitFor(ctx, t, "links to the evidence", `document.querySelectorAll('#failures a[href^="/oncall/dead-letters/dlv_"]').length === 3 &&
		document.querySelectorAll('#failures a[href^="/oncall/events/evt_"]').length === 3`)

	source.set(func(f *fakeSource) { f.sample.OnHold, f.sample.Held, f.onHold = 5, 1245, standings() })
	waitFor(ctx, t, "who is on hold, live", `window.sameDocument &&
		document.querySelectorAll('#holds a[href^="/oncall/subscribers/sub_"]').length === 5 &&
		document.querySelector("#holds .reason").textContent === "paused, breaker" &&
		document.getElementById("aside").textContent.includes("1,245 deliveries wait")`)

	seen.check(t, server.URL)
	screenshots(ctx, t)

	stop()
	waitFor(ctx, t, "the loss of the stream", `document.title.startsWith("Stream lost") &&
		!document.getElementById("lost").hidden`)
}

// browser starts Debian's chromium with a fresh profile and records what its page
// logs and asks for.
func browser(t *testing.T) (context.Context, *record) {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("this test needs chromium on PATH (on Debian: apt-get install chromium)")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("no-sandbox", true), chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true))
	//nolint:usetesting // t.Context is over before the cleanup below, which closes the browser
	alloc, cancelAlloc := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, cancel := chromedp.NewContext(alloc)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits for the browser to be gone, so that the profile can be removed
		cancel()
		cancelAlloc()
	})
	seen := &record{}
	if err := chromedp.Listen(ctx, seen.note); err != nil {
		t.Fatalf("start chromium: %v", err)
	}
	return ctx, seen
}

// record is what a page did.
type record struct {
	mu       sync.Mutex
	errors   []string
	requests []string
}

func (r *record) note(ev any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch ev := ev.(type) {
	case *runtime.EventExceptionThrown:
		r.errors = append(r.errors, "exception: "+ev.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		r.errors = append(r.errors, fmt.Sprintf("console.%s", ev.Type))
	case *cdplog.EventEntryAdded: // refused by the policy, not found, and so on
		r.errors = append(r.errors, fmt.Sprintf("%s: %s %s", ev.Entry.Level, ev.Entry.Text, ev.Entry.URL))
	case *network.EventRequestWillBeSent:
		r.requests = append(r.requests, ev.Request.URL)
	}
}

// check fails for any console message and any request to another host.
func (r *record) check(t *testing.T, base string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.errors {
		t.Errorf("the browser's console shows %s", e)
	}
	own, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]bool{}
	for _, req := range r.requests {
		u, err := url.Parse(req)
		if err != nil || u.Host != own.Host {
			t.Errorf("the page asked for %s, which is not its own host %s", req, own.Host)
			continue
		}
		paths[u.Path] = true
	}
	for _, want := range []string{"/oncall", "/oncall/events", "/oncall/static/oncall.css", "/oncall/static/oncall.js"} {
		if !paths[want] {
			t.Errorf("the page never asked for %s; it asked for %v", want, r.requests)
		}
	}
}

func do(ctx context.Context, t *testing.T, what string, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func waitFor(ctx context.Context, t *testing.T, what, expression string) {
	t.Helper()
	_, err := chromedp.Run(ctx, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(15*time.Second)))
	if err != nil {
		text, _ := chromedp.Run(ctx, chromedp.Evaluate[string](`document.title + "\n" + document.body.innerText`))
		t.Fatalf("waiting for %s: %v\nthe page reads:\n%s", what, err, text)
	}
}

// screenshots takes pictures of the page as it stands, if somebody asked for them.
func screenshots(ctx context.Context, t *testing.T) {
	dir := os.Getenv(screenshotsTo)
	if dir == "" {
		return
	}
	for _, size := range []struct {
		name          string
		width, height int64
	}{{"phone", 390, 844}, {"desktop", 1280, 900}} {
		for _, scheme := range []string{"light", "dark"} {
			do(ctx, t, "set the size", chromedp.EmulateViewport(size.width, size.height, chromedp.EmulateScale(2)))
			_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}, //nolint:misspell // CSS names it so
			})
			if err != nil {
				t.Fatal(err)
			}
			png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
			if err != nil {
				t.Fatal(err)
			}
			name := filepath.Join(dir, strings.Join([]string{"oncall", size.name, scheme}, "-")+".png")
			if err := os.WriteFile(name, png, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// remember gives the sparklines a past: a swell in one class, and a minute when
// nobody looked.
func remember(o *OnCall) {
	for i := 299; i > 0; i-- {
		if i > 200 && i < 240 {
			continue
		}
		at := ago(time.Duration(i) * time.Second)
		swell := 20*math.Exp(-math.Pow(float64(i-120)/35, 2)) + 48*math.Exp(-float64(i)/9) + 1.5 + math.Sin(float64(i))
		s := calm()
		s.Now, s.Ages = at, []schedule.Ages{
			{Class: "standard", Lane: delivery.Fresh, Eligible: at.Add(-time.Duration(swell * float64(time.Second)))},
			{Class: "express", Lane: delivery.Fresh, Eligible: at.Add(-time.Duration(30+i%17*9) * time.Millisecond)},
		}
		o.history.add(snapshot(o.slo, s, time.Now(), nil))
	}
}

func mux(o *OnCall) http.Handler {
	m := http.NewServeMux()
	m.Handle("/v1/oncall", o.JSON())
	m.Handle("/oncall", o.Page())
	m.Handle("/oncall/static/", o.Page())
	m.Handle("/oncall/events", o.Events())
	return m
}

// deadLetters are a few that look like real ones, the first from somebody hostile.
func deadLetters() []schedule.DeadLetter {
	hostile := deadLetter(delivery.Exhausted, `<script>alert(1)</script><img src="https://evil.example/x.png" onerror=alert(2)>`)
	gone := deadLetter(delivery.Gone, "This endpoint was removed.\r\nSee https://status.example/")
	gone.History[0].Error, gone.LastOutcome, gone.Attempts = "answered 410", delivery.Gone, 1
	gone.ID, gone.SubscriberID = delivery.NewID("evt_01JDNA1C", "sub_01JDN9AAB3C5D7E9F1G3H5J7KM"), "sub_01JDN9AAB3C5D7E9F1G3H5J7KM"
	full := deadLetter(delivery.HeldFull, "")
	full.History, full.LastOutcome, full.Attempts = nil, "", 0
	full.ID = delivery.NewID("evt_01JDNA7Q", full.SubscriberID)
	return []schedule.DeadLetter{hostile, gone, full}
}
