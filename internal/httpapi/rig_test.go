package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/access"
	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/ingest"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/subscriber/subtest"
)

// What cmd hands in.
var (
	_ Ingest      = (*ingest.Service)(nil)
	_ Subscribers = (*subscriber.Store)(nil)
	_ Views       = (*schedule.Engine)(nil)
	_ Deliveries  = (*schedule.Engine)(nil)
	_ Gate        = (*access.Gate)(nil)
	_ Keys        = (*access.Keys)(nil)
	_ Audit       = (*access.Audit)(nil)
)

// fakeIngest answers as it is told and keeps what it was given.
type fakeIngest struct {
	mu    sync.Mutex
	posts []ingest.Post
	to    string // of the last SubmitTo
	do    func(ctx context.Context, p ingest.Post) (ingest.Receipt, error)
}

func (f *fakeIngest) Submit(ctx context.Context, p ingest.Post) (ingest.Receipt, error) {
	f.mu.Lock()
	f.posts = append(f.posts, p)
	f.mu.Unlock()
	if f.do != nil {
		return f.do(ctx, p)
	}
	id := p.ID
	if id == "" {
		id = "evt_01J9ZC3T7R6W8Y2K5M4N0P1QXV"
	}
	return ingest.Receipt{ID: id, Deliveries: 2, AcceptedAt: time.UnixMilli(1764518400123)}, nil
}

func (f *fakeIngest) SubmitBatch(ctx context.Context, posts []ingest.Post) []ingest.BatchResult {
	out := make([]ingest.BatchResult, len(posts))
	for i, p := range posts {
		out[i].Receipt, out[i].Err = f.Submit(ctx, p)
	}
	return out
}

func (f *fakeIngest) SubmitTo(ctx context.Context, p ingest.Post, to *subscriber.Subscriber) (ingest.Receipt, error) {
	f.mu.Lock()
	f.to = to.ID
	f.mu.Unlock()
	return f.Submit(ctx, p)
}

func (f *fakeIngest) last(t *testing.T) ingest.Post {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.posts) == 0 {
		t.Fatal("nothing was submitted")
	}
	return f.posts[len(f.posts)-1]
}

// fakeViews knows what it is given.
type fakeViews struct {
	events     map[string]schedule.Event
	deliveries map[string]schedule.Evidence
	standings  map[string]schedule.Standing // of others: all zero but the id and a cap of 1
	err        error
	asked      []int // sizes of Deliveries calls
	queries    []schedule.DeliveryQuery
}

func (f *fakeViews) Event(_ context.Context, id string) (schedule.Event, error) {
	if e, ok := f.events[id]; ok || f.err != nil {
		return e, f.err
	}
	return schedule.Event{}, schedule.ErrNotFound
}

func (f *fakeViews) Deliveries(_ context.Context, ids []string) ([]delivery.Delivery, error) {
	f.asked = append(f.asked, len(ids))
	var out []delivery.Delivery
	for _, id := range ids {
		if d, ok := f.deliveries[id]; ok {
			out = append(out, d.Delivery)
		}
	}
	return out, f.err
}

func (f *fakeViews) Delivery(_ context.Context, id string) (schedule.Evidence, error) {
	if d, ok := f.deliveries[id]; ok || f.err != nil {
		return d, f.err
	}
	return schedule.Evidence{}, schedule.ErrNotFound
}

func (f *fakeViews) Standings(_ context.Context, ids []string) ([]schedule.Standing, error) {
	out := make([]schedule.Standing, len(ids))
	for i, id := range ids {
		out[i] = schedule.Standing{SubscriberID: id, Cap: 1}
		if st, ok := f.standings[id]; ok {
			out[i] = st
		}
	}
	return out, f.err
}

// of are the deliveries of a subscriber ("" for all) that fit, by event id.
func (f *fakeViews) of(subscriberID string, fits func(delivery.State) bool) []schedule.Evidence {
	var out []schedule.Evidence
	for _, d := range f.deliveries {
		if (subscriberID == "" || d.SubscriberID == subscriberID) && fits(d.State) {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b schedule.Evidence) int {
		return strings.Compare(a.EventID+a.SubscriberID, b.EventID+b.SubscriberID)
	})
	return out
}

// from is a page whose cursor is "at" and a place.
func from(all []schedule.Evidence, after string, limit int) ([]schedule.Evidence, string, error) {
	at := 0
	if after != "" {
		if _, err := fmt.Sscanf(after, "at%d", &at); err != nil || at > len(all) {
			return nil, "", fmt.Errorf("page: %w", schedule.ErrCursor)
		}
	}
	if end := at + limit; end < len(all) {
		return all[at:end], fmt.Sprintf("at%d", end), nil
	}
	return all[at:], "", nil
}

func (f *fakeViews) ListDeliveries(_ context.Context, q schedule.DeliveryQuery, after string, limit int) ([]delivery.Delivery, string, error) {
	f.queries = append(f.queries, q)
	page, next, err := from(f.of(q.SubscriberID, func(s delivery.State) bool {
		switch q.State {
		case schedule.ListDead, schedule.ListLeased, schedule.ListScheduled:
			return string(s) == string(q.State)
		default:
			return s == delivery.Scheduled || s == delivery.Leased
		}
	}), after, limit)
	var out []delivery.Delivery
	for _, d := range page {
		out = append(out, d.Delivery)
	}
	return out, next, errors.Join(err, f.err)
}

func (f *fakeViews) DeadLettersPage(_ context.Context, subscriberID, after string, limit int) ([]schedule.Evidence, string, error) {
	page, next, err := from(f.of(subscriberID, func(s delivery.State) bool { return s == delivery.Dead }), after, limit)
	return page, next, errors.Join(err, f.err)
}

func (f *fakeViews) RetryNow(_ context.Context, id string) (delivery.Delivery, error) {
	d := f.deliveries[id].Delivery
	if d.State != delivery.Scheduled {
		return delivery.Delivery{}, fmt.Errorf("retry: %w", schedule.ErrNotScheduled)
	}
	d.DueAt = d.AcceptedAt
	f.deliveries[id] = schedule.Evidence{Delivery: d}
	return d, f.err
}

func (f *fakeViews) CancelDelivery(_ context.Context, id string) (delivery.Delivery, error) {
	d := f.deliveries[id].Delivery
	if d.State == delivery.Dead || d.State == delivery.Delivered {
		return d, fmt.Errorf("cancel: %w", schedule.ErrFinal)
	}
	d.State = delivery.Cancelled
	f.deliveries[id] = schedule.Evidence{Delivery: d}
	return d, f.err
}

// rig is the API on a real socket, over fakes and the real subscriber store.
type rig struct {
	t      *testing.T
	url    string
	client *http.Client
	ingest *fakeIngest
	views  *fakeViews
	memory *subtest.Memory
	log    *syncBuffer
	key    string // sent with every request, if any
}

func newRig(t *testing.T, change ...func(*Deps)) *rig {
	t.Helper()
	r := &rig{
		t: t, ingest: &fakeIngest{}, log: &syncBuffer{}, memory: subtest.NewMemory(4),
		views: &fakeViews{events: map[string]schedule.Event{}, deliveries: map[string]schedule.Evidence{}},
	}
	d := Deps{
		Ingest: r.ingest, Views: r.views, Deliveries: r.views,
		Subscribers: subscriber.New(r.memory, subtest.AnyURL{}, []string{"standard", "bulk"}, r.memory.Now),
		Logger:      slog.New(slog.NewJSONHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, c := range change {
		c(&d)
	}
	r.serve(New(d), d.Logger)
	return r
}

func (r *rig) serve(h http.Handler, log *slog.Logger) {
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = NewServer(h, log)
	srv.Start()
	r.t.Cleanup(srv.Close)
	r.url = srv.URL
	r.client = &http.Client{
		Transport: validating{r.t, srv.Client().Transport},
		Timeout:   20 * time.Second,
	}
}

// answer is a response, read.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a request; headers are "Name: value". A body gets the JSON type
// unless a header says otherwise.
func (r *rig) do(method, path, body string, headers ...string) answer {
	r.t.Helper()
	a, err := r.send(method, path, body, headers...)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

// send is do for goroutines that may not end the test.
func (r *rig) send(method, path, body string, headers ...string) (answer, error) {
	var in io.Reader = http.NoBody
	if body != "" {
		in = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, in)
	if err != nil {
		return answer{}, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.key != "" {
		req.Header.Set("Authorization", "Bearer "+r.key)
	}
	for _, h := range headers {
		name, value, ok := strings.Cut(h, ": ")
		if ok {
			req.Header.Set(name, value)
		}
		if name == "Host" {
			req.Host = value
		}
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b)}, err
}

// into reads an answer's body, and fails the test if its status is another.
func into[T any](t *testing.T, a answer, status int) T {
	t.Helper()
	var v T
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	return v
}

// wantProblem checks status and code, and returns the problem.
func wantProblem(t *testing.T, a answer, code ProblemCode) Problem {
	t.Helper()
	p := into[Problem](t, a, kinds[code].status)
	if p.Code != code || p.Status != a.status || p.Type != "urn:fanout:problem:"+string(code) {
		t.Errorf("got code %q, status %d, type %q; want code %q", p.Code, p.Status, p.Type, code)
	}
	if p.RequestID == "" || p.RequestID != a.header.Get(requestIDHeader) {
		t.Errorf("request_id %q is not that of the header %q", p.RequestID, a.header.Get(requestIDHeader))
	}
	if a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("Content-Type is %q", a.header.Get("Content-Type"))
	}
	return p
}

// wantPointers checks which parts of the request were named.
func wantPointers(t *testing.T, p Problem, want ...string) {
	t.Helper()
	var got []string
	for _, e := range p.Errors {
		switch {
		case e.Pointer != nil:
			got = append(got, *e.Pointer)
		default:
			got = append(got, "?"+e.Parameter)
		}
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("errors point at %q, want %q: %+v", got, want, p.Errors)
	}
}

// syncBuffer is a log that may be read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
