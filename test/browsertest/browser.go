// Package browsertest answers: does it work in a browser?
//
// It drives Debian's chromium for tests, records what its pages log and ask for, and takes
// pictures of them.
package browsertest

import (
	"context"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is how long one thing is waited for: a page that refreshes itself every 5 s
// has time for two.
const patience = 15 * time.Second

// Browser is one window with a fresh profile, in the hands of one test.
type Browser struct {
	t   testing.TB
	ctx context.Context //nolint:containedctx // it is what chromedp calls a tab

	mu       sync.Mutex
	errors   []string
	requests []string
}

// Open starts a browser that ends with the test.
func Open(t testing.TB) *Browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("this test needs chromium on PATH (on Debian: apt-get install chromium)")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("no-sandbox", true), chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("hide-scrollbars", true))
	//nolint:usetesting,forbidigo // t.Context is over before the cleanup below, which closes the browser
	alloc, cancelAlloc := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, cancel := chromedp.NewContext(alloc)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits for the browser to be gone, so that the profile can be removed
		cancel()
		cancelAlloc()
	})
	b := &Browser{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.note); err != nil {
		t.Fatalf("start chromium: %v", err)
	}
	return b
}

func (b *Browser) note(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch ev := ev.(type) {
	case *runtime.EventExceptionThrown:
		b.errors = append(b.errors, "exception: "+ev.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		b.errors = append(b.errors, fmt.Sprintf("console.%s", ev.Type))
	case *cdplog.EventEntryAdded: // refused by the policy, not found, and so on
		b.errors = append(b.errors, fmt.Sprintf("%s: %s %s", ev.Entry.Level, ev.Entry.Text, ev.Entry.URL))
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, ev.Request.URL)
	}
}

// Check fails the test for any console message, any request to another host than that of
// base, and each of the paths that was never asked for.
func (b *Browser) Check(base string, paths ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.errors {
		b.t.Errorf("the browser's console shows %s", e)
	}
	own, err := url.Parse(base)
	if err != nil {
		b.t.Fatal(err)
	}
	asked := map[string]bool{}
	for _, req := range b.requests {
		u, err := url.Parse(req)
		if err != nil || u.Host != own.Host {
			b.t.Errorf("the page asked for %s, which is not its own host %s", req, own.Host)
			continue
		}
		asked[u.Path] = true
	}
	for _, want := range paths {
		if !asked[want] {
			b.t.Errorf("the page never asked for %s; it asked for %v", want, b.requests)
		}
	}
}

// Do takes steps.
func (b *Browser) Do(what string, steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatalf("%s: %v\n%s", what, err, b.text())
	}
}

// Go opens an address.
func (b *Browser) Go(to string) {
	b.t.Helper()
	b.Do("open "+to, chromedp.Navigate(to))
}

// Wait waits until an expression of script is true, on this page or on one that it leads
// to.
func (b *Browser) Wait(what, expression string) {
	b.t.Helper()
	var err error
	for end := time.Now().Add(patience); ; {
		left := time.Until(end)
		if left <= 0 {
			break
		}
		_, err = chromedp.Run(b.ctx, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(left)))
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "navigated") && !strings.Contains(err.Error(), "context") {
			break
		}
	}
	b.t.Fatalf("waiting for %s: %v\nthe page reads:\n%s", what, err, b.text())
}

// Text is what an expression of script gives.
func (b *Browser) Text(expression string) string {
	b.t.Helper()
	s, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return s
}

func (b *Browser) text() string {
	s, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string](`location.pathname + "\n" + document.title + "\n" + document.body.innerText`))
	return s
}

// Type puts text into the field of a CSS selector.
func (b *Browser) Type(selector, text string) {
	b.t.Helper()
	b.Do("type into "+selector, chromedp.SendKeys(chromedp.CSS(selector), text))
}

// Click clicks what a CSS selector finds first.
func (b *Browser) Click(selector string) {
	b.t.Helper()
	b.Do("click "+selector, chromedp.Click(chromedp.CSS(selector)))
}

// Size makes the window so large, in CSS pixels, with so many dots for each.
func (b *Browser) Size(width, height int64, scale float64) {
	b.t.Helper()
	b.Do("set the size", chromedp.EmulateViewport(width, height, chromedp.EmulateScale(scale)))
}

// Scheme asks for light or dark.
func (b *Browser) Scheme(scheme string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}, //nolint:misspell // CSS names it so
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// Fits fails the test if the page is wider than its window, and says what sticks out.
func (b *Browser) Fits() {
	b.t.Helper()
	out := b.Text(`(() => {
		const wide = document.documentElement.clientWidth;
		const out = [...document.querySelectorAll("body *")].filter((e) =>
			!e.closest(".unseen, .skip, .defs, thead, svg svg") && e.getBoundingClientRect().right > wide + 0.5);
		if (document.documentElement.scrollWidth <= wide && !out.length) return "";
		return document.documentElement.scrollWidth + " px in " + wide + ": " +
			out.slice(0, 5).map((e) => e.tagName + "#" + e.id + "." + e.getAttribute("class") + " " + e.textContent.slice(0, 40)).join("; ");
	})()`)
	if out != "" {
		b.t.Errorf("%s is wider than its window: %s", b.Text("location.pathname"), strings.TrimSpace(out))
	}
}
