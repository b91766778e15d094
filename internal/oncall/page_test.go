package oncall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

func get(t *testing.T, h http.Handler, path string, header ...string) (*http.Response, string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	res := rec.Result()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

func TestPage(t *testing.T) {
	t.Parallel()
	o := sampled(t, late(), deadLetters()...)
	res, body := get(t, mux(o), "/oncall")
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("got %s, %s", res.Status, res.Header.Get("Content-Type"))
	}
	for _, want := range []string{
		"<title>Breaching · fanout on call</title>",
		"<noscript><meta http-equiv=\"refresh\" content=\"2\"></noscript>",
		"Class standard is past its SLO of 30 s",
		"18,204", "The ledger balances.", "14:03:02",
		"oldest held delivery in standard, retry lane: 2 h",
		"after http_5xx", "held_full", "sub_01JDN9AAB3C5D7E9F1G3H5J7KM", "never attempted",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if n := strings.Count(body, "<h1"); n != 1 {
		t.Errorf("the page has %d h1, want 1", n)
	}
	if tables, captions := strings.Count(body, "<table"), strings.Count(body, "<caption"); tables != captions {
		t.Errorf("%d tables have %d captions", tables, captions)
	}
	if strings.Count(body, "<th") != strings.Count(body, "scope=")+strings.Count(body, "<thead") {
		t.Error("a header cell has no scope")
	}
	if strings.Contains(body, "ZgotmplZ") || strings.Contains(body, "<no value>") {
		t.Error("the template refused a value")
	}
}

// Each state has a page, told by its word and not by colour alone.
func TestPageStates(t *testing.T) {
	t.Parallel()
	unbalanced := calm()
	unbalanced.Ledger.Pending++
	blind := sampled(t, late())
	blind.latest.Taken = time.Now().Add(-42 * time.Second)
	starting := newOnCall(t, &fakeSource{}, Options{})
	full := sampled(t, calm())
	full.trouble = "Redis refuses writes: <raise maxmemory>"
	for word, o := range map[string]*OnCall{
		"Starting": starting, "Blind": blind, "Breaching": sampled(t, late()),
		"Out of balance": sampled(t, unbalanced), "Within SLO": sampled(t, calm()),
		"Not ready": full,
	} {
		res, body := get(t, o.Page(), "/oncall")
		if res.StatusCode != http.StatusOK || !strings.Contains(body, `<span id="word">`+word+`</span>`) {
			t.Errorf("%s: got %s without the word", word, res.Status)
		}
	}
	if _, body := get(t, blind.Page(), "/oncall"); !strings.Contains(body, "42 s ago") {
		t.Error("a blind page does not say how old its sample is")
	}
	if _, body := get(t, starting.Page(), "/oncall"); strings.Contains(body, "within SLO") || strings.Contains(body, "balances") {
		t.Error("a page that knows nothing says that all is well")
	}
	if _, body := get(t, full.Page(), "/oncall"); !strings.Contains(body, "Redis refuses writes: &lt;raise maxmemory&gt;. Every class") {
		t.Error("the page does not say why it is not ready")
	}
}

// What the ledger's leases are, which class is not configured, and where the
// evidence is.
func TestPageTells(t *testing.T) {
	t.Parallel()
	s := calm()
	s.ExpiredLeases = 5
	s.Ages = append(s.Ages, schedule.Ages{Class: schedule.OtherClass, Lane: delivery.Fresh, Held: ago(10 * time.Hour)})
	d := deadLetter(delivery.Exhausted, "")
	d.EventID = "evt/1?x=#\"y"
	o := sampled(t, s, d)
	_, body := get(t, o.Page(), "/oncall")
	for _, want := range []string{
		`<th scope="row">leased by a worker</th><td>59</td>`, `<th scope="row">expired, not reclaimed</th><td>5</td>`,
		`<h3>other <span>a class that this server was not told of (--class)</span></h3>`,
		"oldest held delivery in a class that this server was not told of (--class), fresh lane: 10 h",
		"There are deliveries of a class that this server was not told of (--class).",
		`<a href="/oncall/dead-letters/` + d.ID + `">` + d.ID + `</a>`, `<a href="/oncall/events/evt%2F1%3Fx=%23%22y">evt/1?x=#&#34;y</a>`,
		`<a href="/oncall/subscribers/` + d.SubscriberID + `">`, "subscriber lanes ready for a turn",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	_, body = get(t, o.JSON(), "/v1/oncall")
	for _, want := range []string{`"leases":64,"leases_expired":5,`, `{"class":"other","configured":false,"slo_seconds":5,`} {
		if !strings.Contains(body, want) {
			t.Errorf("the report lacks %s: %s", want, body)
		}
	}
}

// liveMarkup lists what could run in the page beside its own script: scripts with
// a body or another source, inline handlers and styles.
func liveMarkup(t *testing.T, page string) []string {
	t.Helper()
	var found []string
	for z := html.NewTokenizer(strings.NewReader(page)); ; {
		if z.Next() == html.ErrorToken {
			if err := z.Err(); !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			return found
		}
		tok := z.Token()
		if tok.Type != html.StartTagToken && tok.Type != html.SelfClosingTagToken {
			continue
		}
		own := tok.Data != "style" && tok.Data != "script" && tok.Data != "img"
		for _, a := range tok.Attr {
			own = own || tok.Data == "script" && a.Key == "src" && strings.HasPrefix(a.Val, "/oncall/static/")
			if a.Key == "style" || strings.HasPrefix(a.Key, "on") || strings.Contains(a.Val, "javascript:") {
				found = append(found, tok.String())
			}
		}
		if !own {
			found = append(found, tok.String())
		}
	}
}

// What endpoints answer is a stranger's text: it reaches the page as text, in the
// document and in the stream.
func TestPageHostile(t *testing.T) {
	t.Parallel()
	const hostile = "<script>alert(1)</script><img src=x onerror=alert(2)>\r\n\r\nevent: sample\r\ndata: \x1b[31m" +
		"\u202Egnp.exe\u2066 \"'`</td></table> {{.}} \xff\xfe"
	d := deadLetter(delivery.Exhausted, hostile)
	d.SubscriberID, d.EventID = `"><script>a`, `' onmouseover='b`
	d.LastOutcome, d.Reason = "<b>", "<i>"
	o := sampled(t, calm(), d)
	_, page := get(t, o.Page(), "/oncall")
	frame, _ := o.event(false)
	clean := sampled(t, calm(), deadLetter(delivery.Exhausted, "fine"))
	_, plain := get(t, clean.Page(), "/oncall")
	stream := strings.ReplaceAll(string(frame), "\ndata: ", "\n")
	for name, text := range map[string]string{"page": page, "stream": stream} {
		if got := liveMarkup(t, text); got != nil {
			t.Errorf("the %s has live markup: %q", name, got)
		}
		if strings.ContainsAny(text, "\r\x1b\u202e\u2066") {
			t.Errorf("the %s has control characters", name)
		}
		if !strings.Contains(text, "&lt;script&gt;alert(1)&lt;/script&gt;") {
			t.Errorf("the %s does not show the excerpt as text", name)
		}
	}
	if n := strings.Count("\n"+string(frame), "\nevent:"); n != 1 {
		t.Errorf("the frame begins %d events, want 1", n)
	}
	if strings.Count(page, "<tr") != strings.Count(plain, "<tr") {
		t.Error("the excerpt changed the structure of the table")
	}
}

func TestPageHeaders(t *testing.T) {
	t.Parallel()
	h := mux(sampled(t, calm()))
	const want = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; " +
		"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
	for _, path := range []string{"/oncall", "/oncall/static/oncall.css", "/oncall/static/none"} {
		res, _ := get(t, h, path)
		if got := res.Header.Get("Content-Security-Policy"); got != want {
			t.Errorf("%s: policy is %q", path, got)
		}
		if res.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: type sniffing is allowed", path)
		}
	}
}

func TestStatic(t *testing.T) {
	t.Parallel()
	h := mux(sampled(t, calm()))
	for name, typ := range map[string]string{
		"oncall.css": "text/css; charset=utf-8", "oncall.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
	} {
		res, body := get(t, h, "/oncall/static/"+name)
		if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != typ || body == "" {
			t.Errorf("%s: got %s, %s, %d bytes", name, res.Status, res.Header.Get("Content-Type"), len(body))
		}
		again, _ := get(t, h, "/oncall/static/"+name, "If-None-Match", res.Header.Get("ETag"))
		if again.StatusCode != http.StatusNotModified {
			t.Errorf("%s: the same file again is %s, want 304", name, again.Status)
		}
	}
	for _, name := range []string{"page.html", "none.css", "", "%2e%2e%2fpage.html"} {
		if res, _ := get(t, h, "/oncall/static/"+name); res.StatusCode != http.StatusNotFound {
			t.Errorf("%q is %s, want 404", name, res.Status)
		}
	}
}

func TestClean(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in, want string
		cut      bool
	}{
		{"", "", false},
		{"  two\r\n\t lines  ", "two lines", false},
		{"\x00a\x1b[0m", "a [0m", false},
		{"\u202Eabc\u200b", "abc", false},
		{"abcdefghij", "abcdefghij", false},
		{"abcdefghijk", "abcdefghij…", true},
		{"äöüäöüäöüäö", "äöüäöüäöüä…", true},
		{"bad \xff utf", "bad \uFFFD utf", false},
	} {
		if got, cut := clean(c.in, 10); got != c.want || cut != c.cut {
			t.Errorf("clean(%q) is %q, %v, want %q, %v", c.in, got, cut, c.want, c.cut)
		}
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -5: "-5", -100: "-100", -1000: "-1,000",
	} {
		if got := number(n); got != want {
			t.Errorf("%d reads %q, want %q", n, got, want)
		}
	}
}

// The last snapshot is everybody's: pages and answers that are drawn at once leave it as
// it was, and each other alone.
func TestDrawnAtOnce(t *testing.T) {
	t.Parallel()
	workers := readSituation(t, "testdata/situations/concentrated-outage.json").Workers
	for i := range workers {
		workers[i].Version += "\u202e<b>" // to be cleaned
	}
	source := &fakeSource{sample: late(), dead: deadLetters(), workers: workers}
	source.onHold = []schedule.Standing{{SubscriberID: "sub_1", Holds: []schedule.Hold{schedule.Breaker}, Since: ago(time.Minute)}}
	o := newOnCall(t, source, Options{
		Gaps: func() (map[schedule.Gap]int64, []schedule.Finding) {
			return map[schedule.Gap]int64{schedule.GapLate: 1}, []schedule.Finding{{Gap: schedule.GapLate, ID: "evt_1"}}
		},
		Redrives: func(context.Context) ([]LiveRedrive, error) {
			return []LiveRedrive{{ID: "rdv_1", State: "awaiting_approval", Reason: "<b>", Members: 3, Released: 1, Delivered: 1, Canaries: []string{"dlv_1"}}}, nil
		},
	})
	o.sample(t.Context())
	before, _ := o.Latest()
	told := fmt.Sprintf("%+v", before)
	h := mux(o)
	var draws sync.WaitGroup
	for range 4 {
		for _, path := range []string{"/oncall", "/v1/oncall"} {
			draws.Go(func() { get(t, h, path) })
		}
	}
	draws.Wait()
	if after, _ := o.Latest(); fmt.Sprintf("%+v", after) != told {
		t.Errorf("the snapshot was\n%s, and is\n%+v", told, after)
	}
}
