package role

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fanout/fanout/internal/boot"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/test/redistest"
)

// However many subscribers, events and deliveries come, fail in every way and go, the
// series of both processes are those of the first scrape.
func TestCardinalityIsConstant(t *testing.T) {
	t.Parallel()
	const many = 10_000
	w := newCrowd(t)
	before := w.series()
	for n := range many {
		w.subscribe(n)
	}
	w.post("evt_first")
	w.until("the first event's deliveries were attempted", func(l schedule.Ledger, tried int64) bool {
		return l.Accepted == many && tried >= many
	})
	w.post("evt_second") // meets those that fail, and those on hold by now
	w.until("the second's are accepted", func(l schedule.Ledger, _ int64) bool { return l.Accepted == 2*many })
	for _, id := range w.ids[:many/20] {
		if _, err := w.store.Delete(t.Context(), id, false); err != nil {
			t.Fatal(err)
		}
	}
	after := w.series()
	if !slices.Equal(before, after) {
		gone, come := without(before, after), without(after, before)
		t.Errorf("%d series became %d\ngone: %v\ncome: %v", len(before), len(after), gone, come)
	}
	if len(before) > 1500 {
		t.Errorf("%d series for one class", len(before))
	}
	for _, s := range after {
		if strings.Contains(s, "sub_") || strings.Contains(s, "evt_") || strings.Contains(s, "dlv_") {
			t.Errorf("an id in %s", s)
		}
	}
}

// crowd is both roles over one Redis, and an endpoint that answers by path.
type crowd struct {
	*testing.T
	api, dispatcher Parts
	store           *subscriber.Store
	url, endpoint   string
	ids             []string
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	w := &crowd{T: t}
	endpoint := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		status := map[string]int{"0": 200, "1": 500, "2": 404, "3": 410, "4": 422, "5": 200, "6": 429, "7": 302}[r.URL.Path[1:]]
		if status == http.StatusTooManyRequests {
			rw.Header().Set("Retry-After", "30")
		}
		rw.WriteHeader(status)
	}))
	t.Cleanup(endpoint.Close)
	w.endpoint = endpoint.URL
	addr := redistest.Server(t).Addr()
	w.api, w.dispatcher = w.parts(addr), w.parts(addr)
	ln := listener(t, "127.0.0.1:0")
	w.url = "http://" + ln.Addr().String()
	stages, err := API(t.Context(), w.api, ln, boot.Access{Keyless: true})
	if err != nil {
		t.Fatal(err)
	}
	w.run(stages...)
	w.run(Dispatcher(w.dispatcher, Work{Slots: 200, Grace: time.Second, Slice: "canary"}, nil)...)
	w.store = subscriber.New(w.api.Engine, w.api.Endpoint.guard(), w.api.classNames(), w.api.Engine.Now, w.api.sealing())
	return w
}

func (w *crowd) parts(addr string) Parts {
	w.Helper()
	cfg := boot.Common{
		Redis:   boot.Redis{Addr: []string{addr}, Partitions: 1, PoolSize: 8, AllowUnsafe: true},
		Secrets: boot.Secrets{InTheClear: true}, Classes: boot.Classes{"standard": time.Minute},
	}
	e := Endpoint{AllowHTTP: true, AllowAnyPort: true, AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}
	parts, last, err := Assemble(w.Context(), "test", cfg, e, slog.New(slog.DiscardHandler))
	if err != nil {
		w.Fatal(err)
	}
	w.run(last)
	return parts
}

// run runs stages until the test ends. Cleanups go backwards: Redis is let go of last.
func (w *crowd) run(stages ...boot.Stage) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	done := make(chan error, 1)
	go func() { done <- boot.Run(ctx, slog.New(slog.DiscardHandler), stages...) }()
	w.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.Errorf("stop: %v", err)
		}
	})
}

func (w *crowd) subscribe(n int) {
	w.Helper()
	url := fmt.Sprintf("%s/%d", w.endpoint, n%8)
	sub, err := w.store.Create(w.Context(), subscriber.Draft{URL: &url, Filter: &subscriber.Filter{Types: []string{"*"}}})
	if err != nil {
		w.Fatal(err)
	}
	w.ids = append(w.ids, sub.ID)
}

// post posts an event once it reaches all.
func (w *crowd) post(id string) {
	w.Helper()
	body := fmt.Sprintf(`{"id":%q,"type":"shipment.delivered","shipment_id":"s","occurred_at":"2026-01-01T00:00:00Z","data":{}}`, id)
	req, err := http.NewRequestWithContext(w.Context(), http.MethodPost, w.url+"/v1/events", strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusAccepted {
		w.Fatalf("post: %s %s", resp.Status, text)
	}
}

// until waits for a ledger and a number of attempts.
func (w *crowd) until(what string, is func(l schedule.Ledger, tried int64) bool) {
	w.Helper()
	deadline := time.After(time.Minute)
	for {
		s, err := w.api.Engine.Sample(w.Context(), nil)
		if err != nil {
			w.Fatal(err)
		}
		reports, err := w.api.Engine.Workers(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		tried := int64(0)
		for _, r := range reports {
			tried += r.Attempts
		}
		if is(s.Ledger, tried) {
			return
		}
		select {
		case <-deadline:
			w.Fatalf("gave up waiting until %s: %+v, %d attempts", what, s.Ledger, tried)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// series are the names and labels of all that both processes export.
func (w *crowd) series() (out []string) {
	w.Helper()
	for process, reg := range map[string]*prometheus.Registry{"api": w.api.Registry, "dispatcher": w.dispatcher.Registry} {
		families, err := reg.Gather()
		if err != nil {
			w.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				out = append(out, fmt.Sprint(process, " ", f.GetName(), m.GetLabel()))
			}
		}
	}
	slices.Sort(out)
	return out
}

func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}
