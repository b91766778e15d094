// Package fuzz answers: is there a body, a query or a cursor that the API's handlers
// misread? It is apart from them so that what a fuzzer has built anew is little.
package fuzz

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/fanout/fanout/internal/access"
	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/httpapi"
	"github.com/fanout/fanout/internal/ingest"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/subscriber/subtest"
	"github.com/fanout/fanout/test/redistest"
)

// ask asks a handler without a socket: a fuzzer has no time for one.
func ask(h http.Handler, method, path, query, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader(body))
	r.URL.RawQuery = query
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// told fails unless an answer is one that a client can act on.
func told(t *testing.T, w *httptest.ResponseRecorder) (code httpapi.ProblemCode) {
	t.Helper()
	if w.Code < 400 {
		return ""
	}
	var p httpapi.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code >= 500 || p.Status != w.Code || p.Detail == "" {
		t.Fatalf("%d, %v: %s", w.Code, err, w.Body)
	}
	return p.Code
}

// keep takes every event, and keeps what it was given.
type keep struct{ posts *[]ingest.Post }

func (k keep) Submit(_ context.Context, p ingest.Post) (ingest.Receipt, error) {
	p.Data = bytes.Clone(p.Data)
	*k.posts = append(*k.posts, p)
	return ingest.Receipt{ID: "evt_1"}, nil
}

func (k keep) SubmitBatch(ctx context.Context, posts []ingest.Post) []ingest.BatchResult {
	out := make([]ingest.BatchResult, len(posts))
	for i, p := range posts {
		out[i].Receipt, out[i].Err = k.Submit(ctx, p)
	}
	return out
}

func (k keep) SubmitTo(ctx context.Context, p ingest.Post, _ *subscriber.Subscriber) (ingest.Receipt, error) {
	return k.Submit(ctx, p)
}

// FuzzPostEvent: of a body that is taken, data reaches ingest byte for byte, and an
// event in a batch has the fate that it has alone.
func FuzzPostEvent(f *testing.F) {
	const head = `{"id":"evt_1","type":"a.b","shipment_id":"s","occurred_at":"2026-11-30T14:03:22+01:00",`
	for _, s := range []string{
		head + `"data":{"b":1,"a":18446744073709551616,"b":2}}`,
		head + `"data": [ 1e400 , "\ud800", "<&>\u2028" ] }`,
		head + `"attributes":{"k":"v","\u006b":"w"},"data":null}`,
		head + `"data":"\/","data":1}`,
		head + `"extra":1,"data":1}`,
		`{"Type":"a.b"}`, `{"data":{"data":{"data":[[]]}}}`, `[]`, `null`, ``, `{}x`, "\xef\xbb\xbf{}", "{\"data\":\"\xff\"}",
		strings.Replace(head, "evt_1", "", 1) + `"data":0}`,
		head + `"data":` + strings.Repeat("[", 65) + strings.Repeat("]", 65) + `}`,
	} {
		f.Add([]byte(s))
	}
	var got []ingest.Post
	h := httpapi.New(httpapi.Deps{Ingest: keep{&got}, Logger: slog.New(slog.DiscardHandler)})
	f.Fuzz(func(t *testing.T, body []byte) {
		got = nil
		alone := ask(h, "POST", "/v1/events", "", string(body))
		told(t, alone)
		if alone.Code == http.StatusAccepted {
			var fields map[string]json.RawMessage
			if err := json.Unmarshal(body, &fields); err != nil {
				t.Fatalf("%q is taken: %v", body, err)
			}
			if len(got) != 1 || !bytes.Equal(got[0].Data, fields["data"]) {
				t.Fatalf("data %q became %q", fields["data"], got[0].Data)
			}
		} else if len(got) > 0 {
			t.Fatalf("%d, and yet it went on: %+v", alone.Code, got)
		}
		if len(body) == 0 || bytes.HasPrefix(body, []byte("\xef\xbb\xbf")) || !json.Valid(body) {
			return // it is no part of a list
		}
		single := got
		got = nil
		all := ask(h, "POST", "/v1/events/batch", "", `{"events":[`+string(body)+`]}`)
		if told(t, all) != "" {
			if alone.Code == http.StatusAccepted {
				t.Fatalf("taken alone, and in a batch %d: %s", all.Code, all.Body)
			}
			return
		}
		var receipt httpapi.BatchReceipt
		if err := json.Unmarshal(all.Body.Bytes(), &receipt); err != nil || len(receipt.Results) != 1 || receipt.Results[0].Status != alone.Code {
			t.Fatalf("alone %d, in a batch %s", alone.Code, all.Body)
		}
		if !slices.EqualFunc(got, single, func(a, b ingest.Post) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
			t.Fatalf("alone %+v, in a batch %+v", single, got)
		}
	})
}

// FuzzCursors: whatever comes as a cursor, a list goes on from there or says that it
// is none; what it lists stays in order and comes once.
func FuzzCursors(f *testing.F) {
	mini := redistest.Mini(f)
	engine, err := schedule.Open(f.Context(), redistest.Client(f, mini.Addr()), schedule.Options{})
	if err != nil {
		f.Fatal(err)
	}
	store, err := access.Open(redistest.Client(f, mini.Addr()), access.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(store.Close)
	subs := subscriber.New(engine, subtest.AnyURL{}, nil, engine.Now)
	h := httpapi.New(httpapi.Deps{ // without a gate: everybody may
		Subscribers: subs, Views: engine, Deliveries: engine, Keys: store.Keys, Audit: store.Audit, Logger: slog.New(slog.DiscardHandler),
	})
	endpoint := "https://a.example/"
	var sub subscriber.Subscriber
	for i := range 5 {
		if sub, err = subs.Create(f.Context(), subscriber.Draft{URL: &endpoint}); err != nil {
			f.Fatal(err)
		}
		if err := store.Audit.Append(f.Context(), access.Entry{Actor: access.Local, Action: "createSubscriber", Target: sub.ID}); err != nil {
			f.Fatal(err)
		}
		if _, _, err := store.Keys.Create(f.Context(), access.NewKey{Name: fmt.Sprint(i), Role: access.Viewer}, "local"); err != nil {
			f.Fatal(err)
		}
	}
	lists := []string{
		"/v1/subscribers?", "/v1/keys?", "/v1/audit?", "/v1/dead-letters?", "/v1/dead-letters?subscriber_id=" + sub.ID + "&",
		"/v1/deliveries?subscriber_id=" + sub.ID + "&", "/v1/deliveries?state=dead&subscriber_id=" + sub.ID + "&",
		"/v1/deliveries?state=leased&subscriber_id=" + sub.ID + "&",
	}
	for i, list := range lists {
		path, query, _ := strings.Cut(list, "?")
		if next := nextOf(ask(h, "GET", path, query+"limit=2", "")); next != "" {
			f.Add(uint8(i), next)
			f.Add(uint8(i+1), next)
		}
	}
	for i, s := range []string{"", "MTo", "MTpzdWJfMQ", "%00", "\x00", "é", strings.Repeat("A", 257), delivery.NewID("a", "b"), "1-1", "-", "18446744073709551616-0"} {
		f.Add(uint8(i), s)
	}
	f.Fuzz(func(t *testing.T, which uint8, cursor string) {
		path, query, _ := strings.Cut(lists[int(which)%len(lists)], "?")
		w := ask(h, "GET", path, query+"limit=2&cursor="+url.QueryEscape(cursor), "")
		if code := told(t, w); code != "" && code != httpapi.ProblemCodeInvalidCursor {
			t.Fatalf("%s: %s", path, w.Body)
		}
		seen := map[string]bool{}
		for pages := 0; w.Code == http.StatusOK; pages++ {
			var list struct{ Data []struct{ ID string } }
			if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || pages > 10 {
				t.Fatalf("page %d, %v: %s", pages, err, w.Body)
			}
			for _, item := range list.Data {
				if seen[item.ID] {
					t.Fatalf("%s is listed twice from %q on", item.ID, cursor)
				}
				seen[item.ID] = true
			}
			next := nextOf(w)
			if next == "" {
				return
			}
			if w = ask(h, "GET", path, query+"limit=2&cursor="+url.QueryEscape(next), ""); w.Code != http.StatusOK {
				t.Fatalf("its own cursor %q: %d %s", next, w.Code, w.Body)
			}
		}
	})
}

func nextOf(w *httptest.ResponseRecorder) string {
	var list struct {
		Next string `json:"next_cursor"`
	}
	_ = json.Unmarshal(w.Body.Bytes(), &list)
	return list.Next
}

// FuzzQuery: no query is dropped in part or brings the server down.
func FuzzQuery(f *testing.F) {
	for _, s := range []string{"", "limit=5", "limit=5&limit=6", "a;b=1", "%zz", "limit", "=", "&&", "account=%FF", "limit=+1&class=a", "cursor=MTo&limit=0x1", "%6cimit=1"} {
		f.Add(s)
	}
	m := subtest.NewMemory(1)
	h := httpapi.New(httpapi.Deps{Subscribers: subscriber.New(m, subtest.AnyURL{}, nil, m.Now), Logger: slog.New(slog.DiscardHandler)})
	f.Fuzz(func(t *testing.T, query string) {
		w := ask(h, "GET", "/v1/subscribers", query, "")
		if told(t, w) != "" {
			return
		}
		given, err := url.ParseQuery(query)
		if err != nil {
			t.Fatalf("%q is taken: %v", query, err)
		}
		for name, values := range given {
			if !slices.Contains([]string{"limit", "cursor", "account", "class"}, name) || len(values) != 1 {
				t.Fatalf("%q is taken with %s=%q", query, name, values)
			}
		}
	})
}
