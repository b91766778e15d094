package client_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/test/inprocess"
)

// patience bounds every wait for something that must happen.
const patience = 60 * time.Second

func newClient(t testing.TB, url string) *client.Client {
	t.Helper()
	c, err := client.New(url, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// endpoint takes what it is sent, and counts it by its id.
type endpoint struct {
	*httptest.Server

	mu  sync.Mutex
	ids map[string]int
}

func newEndpoint(t testing.TB, status int) *endpoint {
	t.Helper()
	e := &endpoint{ids: map[string]int{}}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		e.ids[r.Header.Get("Webhook-Id")]++
		e.mu.Unlock()
		w.WriteHeader(status)
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *endpoint) seen() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.ids)
}

// until polls for something that must become true.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for !is() {
		select {
		case <-deadline:
			t.Fatalf("gave up waiting until %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func event(id string) client.Event {
	return client.Event{
		ID: id, Type: "shipment.delivered", ShipmentID: "shp_1",
		OccurredAt: time.Date(2026, 3, 1, 9, 30, 0, 0, time.FixedZone("", 3600)), Data: map[string]any{"signed_by": "M. Vogel"},
	}
}

func policy() *client.PolicyInput {
	return &client.PolicyInput{
		AttemptTimeout: new(client.Duration(5 * time.Second)), MaxAttempts: new(2), BreakerFailures: new(1),
		BackoffBase: new(client.Duration(10 * time.Millisecond)), BackoffCap: new(client.Duration(20 * time.Millisecond)),
	}
}

// Fifty posts of one id at the same moment are one event.
func TestOneIDIsOneEvent(t *testing.T) {
	t.Parallel()
	c := newClient(t, inprocess.Start(t))
	e := newEndpoint(t, http.StatusOK)
	if _, err := c.CreateSubscriber(t.Context(), client.SubscriberInput{URL: &e.URL, Policy: policy()}); err != nil {
		t.Fatal(err)
	}
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		firsts int
		begin  = make(chan struct{})
	)
	for range 50 {
		wg.Go(func() {
			<-begin
			r, err := c.Post(t.Context(), event("same"))
			mu.Lock()
			defer mu.Unlock()
			if err != nil || r.ID != "same" || r.Deliveries != 1 {
				t.Errorf("%+v, %v", r, err)
			}
			if !r.Duplicate {
				firsts++
			}
		})
	}
	close(begin)
	wg.Wait()
	if firsts != 1 {
		t.Errorf("%d posts were the first", firsts)
	}
	until(t, "it is delivered", func() bool {
		look, err := c.OnCall(t.Context())
		return err == nil && look.Ledger.Delivered == 1 && look.Ledger.Pending == 0
	})
	if n := e.seen(); n != 1 {
		t.Errorf("%d deliveries came", n)
	}
	other := event("same")
	other.ShipmentID = "shp_2"
	if _, err := c.Post(t.Context(), other); !errors.Is(err, client.ErrConflict) {
		t.Errorf("another body: %v", err)
	}
}

// A subscriber's life, as the tools of its owner see it.
func TestLifeOfASubscriber(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := newClient(t, inprocess.Start(t))
	e := newEndpoint(t, http.StatusUnprocessableEntity)
	created, err := c.CreateSubscriber(ctx, client.SubscriberInput{
		Account: new("acc_1"), Name: new("one"), URL: &e.URL, Policy: policy(),
		Filter: &client.Filter{Types: []string{"shipment.*"}, Attributes: map[string][]string{"carrier": {"dhl"}}},
	})
	if err != nil || created.ID == "" || created.Secret == "" || created.Version == 0 || created.Policy.MaxAttempts != 2 {
		t.Fatalf("%+v, %v", created, err)
	}
	for i := range 3 {
		if _, err := c.CreateSubscriber(ctx, client.SubscriberInput{URL: &e.URL, Name: new(fmt.Sprint(i)), Filter: &client.Filter{Types: []string{"none"}}}); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for s, err := range c.Subscribers(ctx, client.SubscriberFilter{}) {
		if err != nil || s.ID == "" {
			t.Fatal(err)
		}
		n++
	}
	if page, err := c.ListSubscribers(ctx, client.SubscriberFilter{}, client.Page{Limit: 2}); err != nil || n != 4 || len(page.Data) != 2 || page.NextCursor == "" {
		t.Errorf("%d subscribers, a page of %d, %v", n, len(page.Data), err)
	}

	paused, err := c.PauseSubscriber(ctx, created.ID, client.If{Version: created.Version})
	if err != nil || !paused.Paused || paused.Version <= created.Version {
		t.Errorf("%+v, %v", paused, err)
	}
	if _, err := c.ResumeSubscriber(ctx, created.ID, client.If{Version: created.Version}); !errors.Is(err, client.ErrPrecondition) {
		t.Errorf("resumed at an old version: %v", err)
	}
	if _, err := c.PatchSubscriber(ctx, created.ID, client.SubscriberInput{Paused: new(false), Filter: &client.Filter{Attributes: map[string][]string{}}}, client.If{}); err != nil {
		t.Errorf("patch: %v", err)
	}
	got, err := c.GetSubscriber(ctx, created.ID)
	if err != nil || got.Paused || len(got.Filter.Attributes) != 0 || got.Filter.Types[0] != "shipment.*" || got.Status == nil {
		t.Errorf("%+v, %v", got, err)
	}
	var p *client.Problem
	if _, err := c.PatchSubscriber(ctx, created.ID, client.SubscriberInput{Policy: &client.PolicyInput{MaxAttempts: new(0)}}, client.If{}); !errors.As(err, &p) || p.Errors[0].Pointer != "/policy/max_attempts" {
		t.Errorf("a bad patch: %v", err)
	}

	r, err := c.Post(ctx, event(""))
	if err != nil || r.Deliveries != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	var d client.Delivery
	until(t, "its delivery is dead", func() bool {
		ev, err := c.GetEvent(ctx, r.ID)
		if err != nil || len(ev.Deliveries) != 1 || ev.Deliveries[0].State != client.Dead {
			return false
		}
		d, err = c.GetDelivery(ctx, ev.Deliveries[0].ID)
		return err == nil
	})
	if d.EventID != r.ID || d.SubscriberID != created.ID || len(d.Evidence) != 1 || d.Evidence[0].Status != 422 || d.Evidence[0].Duration < 0 {
		t.Errorf("%+v", d)
	}
	dead, err := c.ListDeadLetters(ctx, client.DeadLetterFilter{}, client.Page{Limit: 10})
	if err != nil || len(dead.Data) != 1 || dead.Data[0].Reason != "http_422" || dead.Data[0].Delivery.ID != d.ID {
		t.Errorf("%+v, %v", dead, err)
	}

	gone, err := c.DeleteSubscriber(ctx, created.ID, true, client.If{})
	if err != nil || gone.ID != created.ID || gone.Leases != 0 {
		t.Errorf("%+v, %v", gone, err)
	}
	if _, err := c.GetSubscriber(ctx, created.ID); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("after its end: %v", err)
	}
}
