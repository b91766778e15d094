package client

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// errAny wants an error that is none of the sentinels.
var errAny = errors.New("any error")

// What is posted again, and what is not: every status, and every way to lose an answer.
func TestPostAgain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		script []step
		asked  int
		want   error
		dup    bool
	}{
		"at once":                    {[]step{accept(false)}, 1, nil, false},
		"accepted, and the line cut": {[]step{cut, accept(true)}, 2, nil, true},
		"cut in the midst":           {[]step{half, accept(true)}, 2, nil, true},
		"503, then accepted":         {[]step{status(503, "unavailable"), accept(false)}, 2, nil, false},
		"502 of a proxy":             {[]step{text(502, "<html>"), text(504, ""), accept(false)}, 3, nil, false},
		"429, then accepted":         {[]step{status(429, "rate_limited"), accept(false)}, 2, nil, false},
		"409 is final":               {[]step{status(409, "event_conflict")}, 1, ErrConflict, false},
		"422 is final":               {[]step{status(422, "invalid_request")}, 1, ErrInvalid, false},
		"400 is final":               {[]step{status(400, "invalid_json")}, 1, ErrInvalid, false},
		"401 is final":               {[]step{status(401, "unauthenticated")}, 1, ErrUnauthenticated, false},
		"403 is final":               {[]step{status(403, "forbidden")}, 1, ErrForbidden, false},
		"404 is final":               {[]step{status(404, "not_found")}, 1, ErrNotFound, false},
		"408 is final":               {[]step{status(408, "request_timeout")}, 1, ErrUnavailable, false},
		"500 is final":               {[]step{status(500, "internal")}, 1, errAny, false},
		"a redirect is not followed": {[]step{func(w http.ResponseWriter, r *http.Request, _ []byte) {
			http.Redirect(w, r, "/x", http.StatusFound)
		}}, 1, errAny, false},
		"never up":                    {[]step{status(503, "unavailable")}, 4, ErrUnavailable, false},
		"always cut":                  {[]step{cut}, 4, ErrUnavailable, false},
		"always limited":              {[]step{status(429, "rate_limited")}, 4, ErrLimited, false},
		"garbage for a receipt":       {[]step{text(202, "<html>hello</html>")}, 1, ErrAnswer, false},
		"garbage, and the status 404": {[]step{text(404, "<html>secretpart</html>")}, 1, ErrNotFound, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := serve(t, tt.script...)
			r, err := fast(t, f.URL, WithRetries(3)).Post(t.Context(), event("e1"))
			silent(t, err)
			if (err == nil) != (tt.want == nil) || !errors.Is(err, tt.want) && !errors.Is(tt.want, errAny) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if r.ID != "e1" || r.Duplicate != tt.dup {
				t.Errorf("receipt %+v", r)
			}
			all := f.requests()
			if len(all) != tt.asked {
				t.Fatalf("%d requests, want %d", len(all), tt.asked)
			}
			const want = `{"id":"e1","type":"shipment.delivered","shipment_id":"shp_1","occurred_at":"2026-03-01T09:30:00+01:00","data":{ "n": 1.0,"t":"<&>" }}`
			for _, a := range all {
				if a.method != "POST" || a.uri != "/v1/events" || a.body != want || a.header.Get("Content-Type") != "application/json" || a.header.Get("Authorization") != "Bearer "+testToken {
					t.Errorf("asked %+v", a)
				}
			}
		})
	}
}

// Without an id of its own, every attempt of an event has the same new one.
func TestPostMakesOneID(t *testing.T) {
	t.Parallel()
	f := serve(t, cut, status(503, "unavailable"), accept(true))
	c := fast(t, f.URL)
	r, err := c.Post(t.Context(), event(""))
	if err != nil || !strings.HasPrefix(r.ID, "evt_") || len(r.ID) != 30 {
		t.Fatalf("%+v, %v", r, err)
	}
	all := f.requests()
	if len(all) != 3 || all[0].body != all[1].body || all[1].body != all[2].body || !strings.Contains(all[0].body, r.ID) {
		t.Errorf("asked %+v", all)
	}
	if r2, _ := c.Post(t.Context(), event("")); r2.ID == r.ID {
		t.Error("the next event has the same id")
	}
}

// On an error the id is there to try again with.
func TestPostFailsWithItsID(t *testing.T) {
	t.Parallel()
	f := serve(t, status(503, "unavailable"))
	r, err := fast(t, f.URL, WithRetries(0)).Post(t.Context(), event(""))
	if err == nil || !strings.Contains(f.requests()[0].body, `"id":"`+r.ID+`"`) || r.ID == "" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestProblemIsWhatTheServerSaid(t *testing.T) {
	t.Parallel()
	f := serve(t, status(409, "event_conflict"))
	_, err := fast(t, f.URL).Post(t.Context(), event("e1"))
	var p *Problem
	if !errors.As(err, &p) || p.Status != 409 || p.Code != "event_conflict" || p.RequestID != "req_1" || len(p.Errors) != 1 || p.Errors[0].Pointer != "/type" {
		t.Fatalf("%#v", p)
	}
	const want = "POST /v1/events: 409 event_conflict: Do it otherwise; /type must be dotted (request req_1)"
	if err.Error() != want || errors.Is(err, ErrNotFound) {
		t.Errorf("got %q, want %q", err, want)
	}
}

// What is JSON already stays as it is, and must have an id.
func TestPostRaw(t *testing.T) {
	t.Parallel()
	f := serve(t, cut, accept(true))
	c := fast(t, f.URL)
	const raw = `{ "data": {"a":1, "a":2},"id":"e1"}`
	if r, err := c.PostRaw(t.Context(), json.RawMessage(raw)); err != nil || r.ID != "e1" || f.requests()[1].body != raw {
		t.Errorf("%+v, %v", r, err)
	}
	for _, bad := range []string{"", "{}", `{"id":7}`, `{"id":""}`, `{"id":"e1"`} {
		if _, err := c.PostRaw(t.Context(), json.RawMessage(bad)); !errors.Is(err, ErrInvalid) || len(f.requests()) != 2 {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// What the server could not refuse, or what it could not read, does not leave.
func TestPostIsCheckedHere(t *testing.T) {
	t.Parallel()
	f := serve(t, accept(false))
	c := fast(t, f.URL)
	for pointer, change := range map[string]func(*Event){
		"/occurred_at":  func(e *Event) { e.OccurredAt = time.Time{} },
		"/occurred_at ": func(e *Event) { e.OccurredAt = time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"/data":         func(e *Event) { e.Data = json.RawMessage(`{`) },
		"/data ":        func(e *Event) { e.Data = make(chan int) },
		// encoding/json would send another moment, and other text.
		"  /occurred_at":      func(e *Event) { e.OccurredAt = time.Date(1890, 1, 1, 0, 0, 0, 0, time.FixedZone("LMT", 53*60+28)) },
		"/id":                 func(e *Event) { e.ID = "\xff" },
		"/type":               func(e *Event) { e.Type = "a.\xe9" },
		"/shipment_id":        func(e *Event) { e.ShipmentID = "M\xfcller" },
		"/attributes":         func(e *Event) { e.Attributes = map[string]string{"\xff": "v"} },
		"/attributes/a~1b~0c": func(e *Event) { e.Attributes = map[string]string{"a/b~c": "\xff"} },
		"  /data":             func(e *Event) { e.Data = json.RawMessage("\"\xff\"") },
		"   /data":            func(e *Event) { e.Data = "M\xfcller" },
		"    /data":           func(e *Event) { e.Data = map[string]any{"\xff": 1} },
		"     /data":          func(e *Event) { e.Data = struct{ Names []string }{[]string{"\ufffd", "\xc3"}} },
		"      /data":         func(e *Event) { e.Data = map[string]any{"raw": json.RawMessage("\"\xff\"")} },
	} {
		e := event("e1")
		change(&e)
		_, err := c.Post(t.Context(), e)
		var p *Problem
		if !errors.As(err, &p) || !errors.Is(err, ErrInvalid) || p.Errors[0].Pointer != strings.TrimSpace(pointer) {
			t.Errorf("%s: %v", pointer, err)
		}
	}
	if r, err := c.PostBatch(t.Context(), []Event{{ID: "e1", Type: "a.b", ShipmentID: "s", OccurredAt: time.Now(), Data: "M\xfcller"}}); err != nil ||
		r.Refused != 1 || r.Results[0].Problem.Errors[0].Pointer != "/data" {
		t.Errorf("in a batch: %+v, %v", r, err)
	}
	if n := len(f.requests()); n != 0 {
		t.Errorf("%d were sent", n)
	}
	e := event("e1")
	e.Data = map[string]any{"html": "<b>&", "n": 1}
	if _, err := c.Post(t.Context(), e); err != nil || !strings.HasSuffix(f.requests()[0].body, `"data":{"html":"<b>&","n":1}}`) {
		t.Errorf("%v, posted %s", err, f.requests()[0].body)
	}
}

// The replacement character itself is text like any other, and so is an escape for it in
// JSON of the caller's own.
func TestReplacementCharacterIsText(t *testing.T) {
	t.Parallel()
	f := serve(t, accept(false))
	c := fast(t, f.URL)
	for i, tt := range []struct {
		data any
		want string
	}{
		{"\ufffd", `"` + "\ufffd" + `"`},
		{`\ufffd`, `"\\ufffd"`},
		{map[string]any{"a": json.RawMessage(`"\ufffd"`)}, `{"a":"\ufffd"}`},
		{json.RawMessage(`"\ufffd"`), `"\ufffd"`},
	} {
		e := event("e1")
		e.Data = tt.data
		if _, err := c.Post(t.Context(), e); err != nil || !strings.HasSuffix(f.requests()[i].body, `"data":`+tt.want+`}`) {
			t.Errorf("%#v: %v, posted %s", tt.data, err, f.requests()[i].body)
		}
	}
}

// What is wrong with all of the body is said without a pointer.
func TestProblemWithoutPointer(t *testing.T) {
	t.Parallel()
	f := serve(t, accept(false))
	for raw, want := range map[string]string{
		"nonsense":          "invalid_request: The event was not sent; it is not the JSON of an event",
		"{\"id\":\"\xff\"}": "invalid_request: The event was not sent; it is not valid UTF-8, which JSON must be: decode it from what it is first",
	} {
		_, err := fast(t, f.URL).PostRaw(t.Context(), json.RawMessage(raw))
		if p, is := errors.AsType[*Problem](err); !is || strings.TrimPrefix(p.Error(), "422 ") != want {
			t.Errorf("%q: %v", raw, err)
		}
	}
}

// The context bounds all attempts and the waits between them, and the error says what
// the last one was answered.
func TestDeadline(t *testing.T) {
	t.Parallel()
	f := serve(t, status(503, "unavailable", "Retry-After", "60"))
	c := fast(t, f.URL, WithRetryAfterCap(time.Minute))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := c.Post(ctx, event("e1"))
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrUnavailable) || time.Since(begin) > 20*time.Second {
		t.Errorf("%v after %s", err, time.Since(begin))
	}
	if len(f.requests()) != 1 {
		t.Errorf("%d requests", len(f.requests()))
	}

	hang := serve(t, func(_ http.ResponseWriter, r *http.Request, _ []byte) { <-r.Context().Done() })
	ctx, cancel = context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := fast(t, hang.URL).Post(ctx, event("e1")); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := c.Post(ctx, event("e1")); !errors.Is(err, context.Canceled) || len(f.requests()) != 1 {
		t.Errorf("cancelled before: %v", err)
	}
}

// An attempt that hangs is given up for the next one.
func TestAttemptTimeout(t *testing.T) {
	t.Parallel()
	f := serve(t, func(_ http.ResponseWriter, r *http.Request, _ []byte) { <-r.Context().Done() }, accept(true))
	r, err := fast(t, f.URL, WithAttemptTimeout(50*time.Millisecond)).Post(t.Context(), event("e1"))
	if err != nil || !r.Duplicate {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestRetryAfterIsObeyedUpToItsCap(t *testing.T) {
	t.Parallel()
	f := serve(t, status(429, "rate_limited", "Retry-After", "1"), accept(false))
	begin := time.Now()
	if _, err := fast(t, f.URL).Post(t.Context(), event("e1")); err != nil || time.Since(begin) < time.Second {
		t.Errorf("%v after %s, before the second was over", err, time.Since(begin))
	}
	f = serve(t, status(429, "rate_limited", "Retry-After", "31536000"), accept(false))
	begin = time.Now()
	if _, err := fast(t, f.URL, WithRetryAfterCap(20*time.Millisecond)).Post(t.Context(), event("e1")); err != nil || time.Since(begin) > 10*time.Second {
		t.Errorf("%v after %s", err, time.Since(begin))
	}
}

// A wait is drawn from the whole of its window, which doubles up to its cap.
func TestBackoff(t *testing.T) {
	t.Parallel()
	w := waits{retryAfterCap: 5 * time.Second}
	const base, widest = 100 * time.Millisecond, time.Second
	for attempt, window := range []time.Duration{base, 2 * base, 4 * base, 8 * base, widest, widest, widest} {
		var lo, hi time.Duration = widest, 0
		for range 2000 {
			d := w.backoff(base, widest, attempt, nil)
			lo, hi = min(lo, d), max(hi, d)
		}
		if lo < 0 || lo > window/20 || hi > window || hi < window*19/20 {
			t.Errorf("attempt %d: from %s to %s, want from 0 to %s", attempt, lo, hi, window)
		}
	}
	if d := w.backoff(base, time.Duration(1<<62), 1000, nil); d < 0 {
		t.Errorf("overflow: %s", d)
	}
	now := time.Now()
	for header, want := range map[string][2]time.Duration{
		"": {0, base}, "3": {3 * time.Second, 3*time.Second + base}, "99999999999": {0, base}, "-1": {0, base}, "1.5": {0, base},
		"3600": {5 * time.Second, 5*time.Second + base},
		now.Add(3 * time.Second).UTC().Format(http.TimeFormat): {1900 * time.Millisecond, 3*time.Second + base},
		now.Add(-time.Hour).UTC().Format(http.TimeFormat):      {0, base},
	} {
		for _, code := range []int{429, 503} {
			d := w.backoff(base, widest, 0, &http.Response{StatusCode: code, Header: http.Header{"Retry-After": {header}}})
			if d < want[0] || d > want[1] {
				t.Errorf("%d %q: %s, want %s", code, header, d, want)
			}
		}
	}
	if d := w.backoff(base, widest, 0, &http.Response{StatusCode: http.StatusBadGateway, Header: http.Header{"Retry-After": {"3"}}}); d > base {
		t.Errorf("a 502 has no say: %s", d)
	}
}

// The defaults end within a minute even where nothing ever answers.
func TestDefaultsAreFinite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		c, err := New("http://fanout.test", "", WithTransport(roundTrip(func(*http.Request) (*http.Response, error) {
			calls++
			return nil, errors.New("reset")
		})))
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		_, err = c.Post(t.Context(), event("e1"))
		if err == nil || calls != 1+defaultRetries || time.Since(begin) > time.Minute {
			t.Errorf("%d calls in %s: %v", calls, time.Since(begin), err)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A call that may not be made twice is made again only when it surely was not made.
func TestOnceIsOnce(t *testing.T) {
	t.Parallel()
	in := SubscriberInput{URL: new("https://x.example")}
	for name, tt := range map[string]struct {
		first step
		asked int
	}{
		"cut":     {cut, 1},
		"half":    {half, 1},
		"503":     {status(503, "unavailable"), 1},
		"limited": {status(429, "rate_limited"), 2},
	} {
		f := serve(t, tt.first, text(201, `{"id":"sub_1","secret":"whsec_x"}`))
		_, err := fast(t, f.URL).CreateSubscriber(t.Context(), in)
		if len(f.requests()) != tt.asked || (err == nil) != (tt.asked == 2) {
			t.Errorf("%s: %d requests, %v", name, len(f.requests()), err)
		}
		f = serve(t, tt.first, text(200, `{"id":"sub_1"}`))
		_, err = fast(t, f.URL).PatchSubscriber(t.Context(), "sub_1", in, If{Version: 3})
		if len(f.requests()) != tt.asked || (err == nil) != (tt.asked == 2) || f.requests()[0].header.Get("If-Match") != `"3"` {
			t.Errorf("%s, with a version: %d requests, %v", name, len(f.requests()), err)
		}
		f = serve(t, tt.first, text(200, `{"id":"sub_1"}`))
		if _, err = fast(t, f.URL).PatchSubscriber(t.Context(), "sub_1", in, If{}); err != nil || len(f.requests()) != 2 {
			t.Errorf("%s, without: %d requests, %v", name, len(f.requests()), err)
		}
	}

	// Nobody listens there for now: nothing was made.
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	_ = ln.Close()
	dials := 0
	c := fast(t, "http://"+addr, WithRetries(2), WithTransport(&http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials++
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	}))
	if _, err := c.CreateSubscriber(t.Context(), in); !errors.Is(err, ErrUnavailable) || dials != 3 {
		t.Errorf("refused: %d dials, %v", dials, err)
	}
}

// A failing call leaves the connections of the others alone.
func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	var remotes []string
	f := serve(t, func(w http.ResponseWriter, r *http.Request, b []byte) {
		remotes = append(remotes, r.RemoteAddr)
		if len(remotes)%2 == 1 {
			status(503, "unavailable")(w, r, b)
			return
		}
		accept(false)(w, r, b)
	})
	c := fast(t, f.URL, WithRetries(0)) // so that a 503 is the end of its call
	for i := range 6 {
		if _, err := c.Post(t.Context(), event("e1")); (err != nil) != (i%2 == 0) {
			t.Fatal(err)
		}
	}
	slices.Sort(remotes)
	if len(slices.Compact(remotes)) != 1 {
		t.Errorf("connections %v", remotes)
	}
}
