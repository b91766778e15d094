// Package observe answers: is what we export what our alerts, our dashboard and a
// collector of traces take it for? A whole service runs over real sockets, and what it
// exports is read as Prometheus and OpenTelemetry would.
package observe

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/boot"
	"github.com/fanout/fanout/internal/role"
	"github.com/fanout/fanout/test/redistest"
)

// patience bounds every wait for something that must happen.
const patience = 60 * time.Second

// world is an API and a dispatcher, each with its own registry and listener, as two
// processes would have.
type world struct {
	testing.TB
	api, dispatcher string // addresses
	client          *client.Client
	stop            []func() // of the API and of the dispatcher
}

func start(t testing.TB) *world {
	t.Helper()
	w := &world{TB: t}
	redis := redistest.Server(t)
	api, last := w.parts("fanout", redis.Addr())
	ln := w.listen()
	stages, err := role.API(t.Context(), api, ln, boot.Access{})
	w.ok(err)
	w.api = "http://" + ln.Addr().String()
	w.run(append(stages, last)...)
	worker, last := w.parts("dispatcher", redis.Addr())
	ln = w.listen()
	w.dispatcher = "http://" + ln.Addr().String()
	w.run(append(role.Dispatcher(worker, role.Work{Slots: 10, Grace: time.Second, Slice: "canary"}, ln), last)...)
	w.client, err = client.New(w.api, "")
	w.ok(err)
	return w
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) listen() net.Listener {
	w.Helper()
	ln, err := new(net.ListenConfig).Listen(w.Context(), "tcp", "127.0.0.1:0")
	w.ok(err)
	return ln
}

func (w *world) parts(service, redis string) (role.Parts, boot.Stage) {
	w.Helper()
	p, last, err := role.Assemble(w.Context(), service, boot.Common{
		Redis:   boot.Redis{Addr: []string{redis}, Partitions: 1, PoolSize: 8},
		Classes: boot.Classes{"standard": time.Minute, "bulk": time.Hour},
	}, role.Endpoint{
		AllowHTTP: true, AllowAnyPort: true, AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	}, slog.New(slog.DiscardHandler))
	w.ok(err)
	return p, last
}

// run runs stages until the test ends, or until w.end.
func (w *world) run(stages ...boot.Stage) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	done := make(chan error, 1)
	go func() { done <- boot.Run(ctx, slog.New(slog.DiscardHandler), stages...) }()
	end := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.Errorf("stop: %v", err)
		}
	})
	w.stop = append(w.stop, end)
	w.Cleanup(end)
}

// end stops both, so that what they have gathered is sent.
func (w *world) end() {
	for _, stop := range w.stop {
		stop()
	}
}

// subscribe registers an endpoint for all events.
func (w *world) subscribe(url string) {
	w.Helper()
	_, err := w.client.CreateSubscriber(w.Context(), client.SubscriberInput{URL: &url})
	w.ok(err)
}

// post posts an event and waits until all of its deliveries have ended.
func (w *world) post(id string) {
	w.Helper()
	_, err := w.client.Post(w.Context(), client.Event{
		ID: id, Type: "shipment.delivered", ShipmentID: "shp_1", OccurredAt: time.Now(), Data: json.RawMessage(`{"pin": "d4ta"}`),
	})
	w.ok(err)
	w.until("deliveries of "+id+" end", func() bool {
		e, err := w.client.GetEvent(w.Context(), id)
		w.ok(err)
		for _, d := range e.Deliveries {
			if d.State != "delivered" && d.State != "dead" {
				return false
			}
		}
		return len(e.Deliveries) > 0
	})
}

// until waits for something that comes by itself.
func (w *world) until(what string, is func() bool) {
	w.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !is(); <-tick.C {
		if time.Now().After(end) {
			w.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// scrape reads the metrics of one of the two, in the form that is asked for.
func (w *world) scrape(from, accept string) string {
	w.Helper()
	req, err := http.NewRequestWithContext(w.Context(), http.MethodGet, from+"/metrics", nil)
	w.ok(err)
	req.Header.Set("Accept", accept)
	resp, err := http.DefaultClient.Do(req)
	w.ok(err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		w.Fatalf("%s/metrics: status %d, %v", from, resp.StatusCode, err)
	}
	return string(body)
}

// receiver is an endpoint that answers one status and keeps the traceparents it got.
type receiver struct {
	*httptest.Server

	mu           sync.Mutex
	traceparents []string
}

func newReceiver(t testing.TB, status int) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.traceparents = append(r.traceparents, req.Header.Get("Traceparent"))
		rw.WriteHeader(status)
	}))
	t.Cleanup(r.Close)
	return r
}

// otlp takes spans as a collector does, by OTLP over HTTP.
type otlp struct {
	*httptest.Server

	mu    sync.Mutex
	spans map[string][]*traces.Span // by service.name
	raw   strings.Builder           // a protobuf holds its texts as they are
}

func newOTLP(t testing.TB) *otlp {
	t.Helper()
	o := &otlp{spans: map[string][]*traces.Span{}}
	o.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if err := o.take(r); err != nil {
			t.Errorf("a request of %s to the collector: %v", r.URL.Path, err)
			rw.WriteHeader(http.StatusBadRequest)
		}
	}))
	t.Cleanup(o.Close)
	return o
}

func (o *otlp) take(r *http.Request) error {
	var body io.Reader = bufio.NewReader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			return err
		}
		body = z
	}
	b, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	var req collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(b, &req); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.raw.Write(b)
	for _, rs := range req.GetResourceSpans() {
		service := ""
		for _, a := range rs.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, ss := range rs.GetScopeSpans() {
			o.spans[service] = append(o.spans[service], ss.GetSpans()...)
		}
	}
	return nil
}

// named are the spans of a service that have a name.
func (o *otlp) named(service, name string) (found []*traces.Span) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.spans[service] {
		if s.GetName() == name {
			found = append(found, s)
		}
	}
	return found
}
