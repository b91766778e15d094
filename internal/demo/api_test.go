package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/client"
)

// serve gives an api whose server answers by the handler.
func serve(t *testing.T, h http.HandlerFunc) *api {
	t.Helper()
	srv := httptest.NewServer(h)
	a, err := newAPI(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); srv.Close() })
	return a
}

// Only what an earlier demo left is deleted, from every page of the list.
func TestSweep(t *testing.T) {
	t.Parallel()
	var deleted []string
	a := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			deleted = append(deleted, r.URL.String())
			if len(deleted) == 1 { // somebody else was faster
				w.WriteHeader(http.StatusNotFound)
			}
			_, _ = w.Write([]byte("{}"))
			return
		}
		page := client.List[client.Subscriber]{Data: []client.Subscriber{{ID: "sub_1", Account: "demo"}, {ID: "sub_2", Account: "acc_1"}}, NextCursor: "a&b"}
		if r.URL.Query().Get("cursor") == "a&b" {
			page = client.List[client.Subscriber]{Data: []client.Subscriber{{ID: "sub_3", Account: "demo"}}}
		}
		_ = json.NewEncoder(w).Encode(page)
	})
	n, err := a.sweep(t.Context())
	want := []string{"/v1/subscribers/sub_1?wait=0", "/v1/subscribers/sub_3?wait=0"}
	if err != nil || n != 2 || !slices.Equal(deleted, want) {
		t.Errorf("deleted %d, %q, %v; want %q", n, deleted, err, want)
	}
}

func TestRegisterAsAUserWould(t *testing.T) {
	t.Parallel()
	a := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var in map[string]any
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%v, %v", err, r.Header)
		}
		policy, _ := in["policy"].(map[string]any)
		if in["account"] != "demo" || in["name"] != "hung-erp" || in["url"] != "http://x" || policy["attempt_timeout"] != "1s" || policy["max_attempts"] != 5.0 || policy["breaker_failures"] != 2.0 {
			t.Errorf("posted %v", in)
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"id":"sub_9","secret":"whsec_x"}`))
	})
	all := cast()
	got, err := a.register(t.Context(), all[len(all)-1], "http://x")
	if err != nil || got.ID != "sub_9" || got.Secret != "whsec_x" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestInsist(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answers []int
		calls   int
		want    string
	}{
		"at once":             {[]int{202}, 1, ""},
		"Redis comes back":    {[]int{503, 503, 202}, 3, ""},
		"a refusal is final":  {[]int{409}, 1, "409 event_conflict: not so"},
		"after a short fault": {[]int{503, 422}, 2, "422 event_conflict: not so"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			a := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				status := tt.answers[min(calls, len(tt.answers)-1)]
				calls++
				w.WriteHeader(status)
				fmt.Fprint(w, `{"id":"e","deliveries":2,"code":"event_conflict","detail":"not so"}`)
			})
			receipt, err := a.post(t.Context(), []byte(`{"id":"e"}`))
			if calls != tt.calls || (err == nil) != (tt.want == "") {
				t.Fatalf("%d calls, %v", calls, err)
			}
			if err == nil && receipt.Deliveries != 2 {
				t.Errorf("receipt %+v", receipt)
			}
			if err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// A service that never comes up must not keep the play, nor leave receivers.
func TestRunIsInterrupted(t *testing.T) {
	t.Parallel()
	for _, end := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		called := make(chan struct{}, 100)
		a := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			select {
			case called <- struct{}{}:
			default:
			}
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		go func() { <-called; <-called; cancel() }()
		var out output
		begin := time.Now()
		_, err := Run(ctx, Options{BaseURL: a.base, End: end, Out: &out})
		if end != errors.Is(err, context.Canceled) {
			t.Errorf("end %t: %v", end, err)
		}
		if took := time.Since(begin); took > persistFor/2 {
			t.Errorf("took %s", took)
		}
		if last := "accepted=0 delivered=0 dead=0 pending=0 attempts=0 verified=0 duplicates=0\n"; end != strings.HasSuffix(out.String(), last) {
			t.Errorf("end %t: printed %q", end, out.String())
		}
	}
}
