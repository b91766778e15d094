package client

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

// No verb, no logger and no error tells the token.
func TestTokenIsNotPrinted(t *testing.T) {
	t.Parallel()
	f := serve(t, status(500, "internal"))
	c := fast(t, f.URL)
	var b strings.Builder
	type holder struct{ C *Client }
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		fmt.Fprintf(&b, verb+"\n", c)
		fmt.Fprintf(&b, verb+"\n", holder{c})
		fmt.Fprintf(&b, verb+"\n", []*Client{c})
	}
	slog.New(slog.NewTextHandler(&b, nil)).Info("made", "client", c)
	slog.New(slog.NewJSONHandler(&b, nil)).Info("made", "client", c, "in", holder{c})
	j, err := json.Marshal(holder{c})
	b.Write(j)
	if err != nil || strings.Contains(b.String(), "secretpart") || !strings.Contains(b.String(), f.URL) {
		t.Errorf("%v:\n%s", err, b.String())
	}
	_, err = c.ListSubscribers(t.Context(), SubscriberFilter{}, Page{Cursor: "cursor-with-secret"})
	silent(t, err)
	dead := fast(t, "http://127.0.0.1:1", WithRetries(0))
	_, err = dead.ListSubscribers(t.Context(), SubscriberFilter{}, Page{Cursor: "cursor-with-secret"})
	if err == nil {
		t.Error("nobody listens there")
	}
	silent(t, err)
}

func TestNewIsStrict(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "fanout.example.com", "ftp://x", "http://", "https://u:secretpart@x", "https://x?secretpart=1", "https://x#y", "http://[::1", "https://x\x7f"} {
		_, err := New(bad, testToken)
		if err == nil {
			t.Errorf("%q passed", bad)
		}
		silent(t, err)
	}
	for _, bad := range []string{"secretpart b", "a\nb", "ä", strings.Repeat("x", 2000)} {
		if _, err := New("https://x", bad); err == nil || strings.Contains(err.Error(), bad) {
			t.Errorf("token %q: %v", bad, err)
		}
	}
	for _, o := range []Option{WithRetries(-1), WithBackoff(-1, 1), WithBackoff(2, 1), WithRetryAfterCap(-1), WithAttemptTimeout(0)} {
		if _, err := New("https://x", "", o); err == nil {
			t.Error("a bad option passed")
		}
	}
	f := serve(t, accept(false))
	c, err := New(f.URL+"/behind/", "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Post(t.Context(), event("e1")); err != nil || f.requests()[0].uri != "/behind/v1/events" || f.requests()[0].header.Get("Authorization") != "" {
		t.Errorf("%v: %+v", err, f.requests())
	}
}

// An id stays within its place in the path.
func TestIDsAreEscaped(t *testing.T) {
	t.Parallel()
	f := serve(t, text(200, "{}"))
	c := fast(t, f.URL)
	for id, want := range map[string]string{"": "-", "..": "-", "a/b": "a%2Fb", "a?b=c": "a%3Fb=c", "sub_1": "sub_1", "self/../x": "self%2F..%2Fx"} {
		if _, err := c.GetKey(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		all := f.requests()
		if got := all[len(all)-1].uri; got != "/v1/keys/"+want {
			t.Errorf("%q: %s, want %s", id, got, want)
		}
	}
}

func TestReason(t *testing.T) {
	t.Parallel()
	f := serve(t, text(200, "{}"))
	c := fast(t, f.URL)
	ctx := WithReason(t.Context(), "moved\r\nX: y, ticket 4711 é"+strings.Repeat("x", 300))
	_, err := c.PauseSubscriber(ctx, "sub_1", If{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = c.GetSubscriber(ctx, "sub_1"); err != nil {
		t.Fatal(err)
	}
	all := f.requests()
	if got := all[0].header.Get("Fanout-Reason"); !strings.HasPrefix(got, "moved  X: y, ticket 4711 ") || len(got) > 200 || all[0].header.Get("X") != "" {
		t.Errorf("said %q", got)
	}
	if got := all[1].header.Get("Fanout-Reason"); got != "" {
		t.Errorf("a read said %q", got)
	}
}

// Iterators go through all pages, stop when they are told, and end with the error.
func TestIterators(t *testing.T) {
	t.Parallel()
	pages := func(w http.ResponseWriter, r *http.Request, b []byte) {
		switch r.URL.Query().Get("cursor") {
		case "":
			text(200, `{"data":[{"id":"sub_1"},{"id":"sub_2"}],"next_cursor":"a&b"}`)(w, r, b)
		case "a&b":
			text(200, `{"data":[],"next_cursor":"c"}`)(w, r, b)
		case "c":
			text(200, `{"data":[{"id":"sub_3"}],"next_cursor":null}`)(w, r, b)
		}
	}
	f := serve(t, pages)
	c := fast(t, f.URL)
	var ids []string
	for s, err := range c.Subscribers(t.Context(), SubscriberFilter{Account: "acc 1", Class: "bulk"}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.ID)
	}
	if got := strings.Join(ids, " "); got != "sub_1 sub_2 sub_3" {
		t.Errorf("got %s", got)
	}
	all := f.requests()
	if len(all) != 3 || all[1].uri != "/v1/subscribers?account=acc+1&class=bulk&cursor=a%26b&limit=200" {
		t.Errorf("asked %+v", all)
	}
	for range c.Subscribers(t.Context(), SubscriberFilter{}) {
		break
	}
	if n := len(f.requests()); n != 4 {
		t.Errorf("%d requests: it went on", n)
	}

	f = serve(t, text(200, `{"data":[{"id":"dlv_1"}],"next_cursor":"x"}`), status(400, "invalid_cursor"))
	var last error
	n := 0
	for _, last = range fast(t, f.URL).Deliveries(t.Context(), DeliveryFilter{EventID: "e1"}) {
		n++
	}
	if n != 2 || last == nil || !strings.HasPrefix(last.Error(), "GET /v1/deliveries: 400 invalid_cursor") {
		t.Errorf("%d values, %v", n, last)
	}
}
