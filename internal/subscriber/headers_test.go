package subscriber_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fanout/fanout/internal/subscriber"
)

func TestHeadersAreJudged(t *testing.T) {
	t.Parallel()
	_, store := newStore(t)
	for name, ok := range map[string]bool{
		"X-Token": true, "Authorization": true, "Cookie": true, "x": true, "!#$%&'*+-.^_`|~09azAZ": true,
		"Webhooks": true, "Fanout": true, "X-Webhook-Id": true, "Content-Language": true, "X-Expect": true, "baggage": true,
		strings.Repeat("n", 64): true, strings.Repeat("n", 65): false,
		"": false, " ": false, "X Token": false, " X-Token": false, "X-Token ": false, "X-Token:": false, "X-T\u00f6ken": false,
		"X-Token\r\nX-Other": false, "X\x00": false, "X\t": false, "(X)": false, "X/Y": false, "X@Y": false, "X,Y": false, `"X"`: false, "\xff": false,
		"Connection": false, "Proxy-Connection": false, "Keep-Alive": false, "TE": false, "Transfer-Encoding": false, "Upgrade": false,
		"Trailer": false, "HTTP2-Settings": false, "Proxy-Authorization": false, "Proxy-Authenticate": false,
		"Host": false, "host": false, "HOST": false, "Content-Length": false, "Content-Type": false, "content-TYPE": false, "Content-Encoding": false,
		"Expect": false, "User-Agent": false, "Accept-Encoding": false, "Idempotency-Key": false, "X-Idempotency-Key": false, "x-idempotency-KEY": false,
		"traceparent": false, "Tracestate": false, "webhook-id": false, "Webhook-Signature": false, "WEBHOOK-X": false, "webhook-": false,
		"fanout-attempt": false, "Fanout-Anything": false,
	} {
		value := "hunter2"
		_, err := store.Create(t.Context(), subscriber.Draft{URL: new("https://example.com"), Headers: map[string]*string{name: &value}})
		want := []string(nil)
		if !ok {
			shown := strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
			if len(name) > 64 {
				shown = strings.Repeat("n", 40) + "..."
			}
			want = []string{"/headers/" + shown}
		}
		if got := pointers(t, err); !slices.Equal(got, want) {
			t.Errorf("%q: faults at %q, want %q", name, got, want)
		}
	}
	for value, ok := range map[string]bool{
		"a": true, "Bearer abc": true, "a\tb": true, "!~": true, strings.Repeat("v", 1024): true, strings.Repeat("v", 1025): false,
		"": false, " a": false, "a ": false, "\ta": false, "a\t": false, " ": false,
		"a\rb": false, "a\nb": false, "a\r\nX-Other: b": false, "a\x00b": false, "a\x7fb": false, "a\x1bb": false, "\u00e4": false, "\xff": false,
		"***": false, "a***": true,
	} {
		_, err := store.Create(t.Context(), subscriber.Draft{URL: new("https://example.com"), Headers: map[string]*string{"X-Token": &value}})
		want := []string(nil)
		if !ok {
			want = []string{"/headers/X-Token"}
		}
		if got := pointers(t, err); !slices.Equal(got, want) {
			t.Errorf("%q: faults at %q, want %q", value, got, want)
		}
		if err != nil && value != "***" && len(strings.TrimSpace(value)) > 1 && strings.Contains(err.Error(), value) {
			t.Errorf("the error quotes the value: %v", err)
		}
	}
}

func TestHeadersMerge(t *testing.T) {
	t.Parallel()
	many := func(n int) map[string]*string {
		m := map[string]*string{}
		for i := range n {
			m[fmt.Sprint("X-", i)] = new("v")
		}
		return m
	}
	_, store := newStore(t)
	s := create(t, store, subscriber.Draft{Headers: map[string]*string{"X-Gone": nil, "X-Token": new("one")}})
	for _, c := range []struct {
		what   string
		draft  map[string]*string
		faults []string
		want   subscriber.Headers
	}{
		{"nothing", nil, nil, subscriber.Headers{"X-Token": "one"}},
		{"one more", map[string]*string{"X-B": new("b")}, nil, subscriber.Headers{"X-Token": "one", "X-B": "b"}},
		{"another case", map[string]*string{"x-TOKEN": new("two")}, nil, subscriber.Headers{"x-TOKEN": "two", "X-B": "b"}},
		{"both cases", map[string]*string{"X-Token": new("three"), "x-token": nil}, []string{"/headers/x-token"}, nil},
		{"an unknown one removed", map[string]*string{"Host": nil, "X-Never": nil}, nil, subscriber.Headers{"x-TOKEN": "two", "X-B": "b"}},
		{"up to 20", many(18), nil, nil},
		{"21", map[string]*string{"X-More": new("v")}, []string{"/headers"}, nil},
		{"one for another", map[string]*string{"X-More": new("v"), "x-b": nil}, nil, nil},
	} {
		got, err := store.Patch(t.Context(), s.ID, -1, subscriber.Draft{Headers: c.draft})
		if p := pointers(t, err); !slices.Equal(p, c.faults) {
			t.Errorf("%s: faults at %q, want %q", c.what, p, c.faults)
		}
		if c.want != nil && !reflect.DeepEqual(got.Headers, c.want) {
			t.Errorf("%s: %q, want %q", c.what, got.Headers.Names(), c.want.Names())
		}
	}
	if got, _ := store.Get(t.Context(), s.ID); len(got.Headers) != 20 || got.Headers["X-More"] != "v" {
		t.Errorf("in the end %d", len(got.Headers))
	}
}

// TestHeaderValuesNeverPrint, by any verb, alone or nested, in slog and in JSON.
func TestHeaderValuesNeverPrint(t *testing.T) {
	t.Parallel()
	h := subscriber.Headers{"X-Token": "hunter2"}
	s := subscriber.Subscriber{ID: "sub_1", Headers: h}
	var out strings.Builder
	for _, v := range []any{h, &h, struct{ H subscriber.Headers }{h}, []subscriber.Headers{h}, s, &s} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x", "%X"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", "v", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "v", v)
	}
	b, err := json.Marshal(h)
	if err != nil || string(b) != `{"X-Token":"***"}` {
		t.Errorf("marshalled as %s, %v", b, err)
	}
	if printed := strings.ToLower(out.String()); strings.Contains(printed, "hunter2") || strings.Contains(printed, "68756e74657232") {
		t.Errorf("a value shows in %s", printed)
	}
	if !strings.Contains(out.String(), "X-Token") {
		t.Error("its name does not show")
	}
}
