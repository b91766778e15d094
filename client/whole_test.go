package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/test/inprocess"
)

// withToken is another client of the same server.
func withToken(t *testing.T, url, token string, o ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New(url, token, o...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// 2,001 events in three requests, one of them bad and one posted before: each has its
// own fate, and to post them all again adds nothing.
func TestBatchForReal(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := newClient(t, inprocess.Start(t))
	events := make([]client.Event, 2001)
	for i := range events {
		events[i] = event("")
		events[i].ID = client.NewID()
	}
	events[1500].Type = "Not Dotted"
	if _, err := c.Post(ctx, events[7]); err != nil {
		t.Fatal(err)
	}
	r, err := c.PostBatch(ctx, events)
	if err != nil || r.Accepted != 1999 || r.Duplicates != 1 || r.Refused != 1 || !r.Results[7].Duplicate {
		t.Fatalf("%d accepted, %d duplicates, %d refused, %v", r.Accepted, r.Duplicates, r.Refused, err)
	}
	if bad := r.Results[1500]; !errors.Is(bad.Problem, client.ErrInvalid) || bad.Problem.Errors[0].Pointer != "/type" || bad.ID != events[1500].ID {
		t.Errorf("%+v, %+v", bad, bad.Problem)
	}
	if r, err = c.PostBatch(ctx, events); err != nil || r.Accepted != 0 || r.Duplicates != 2000 {
		t.Errorf("again: %d accepted, %d duplicates, %v", r.Accepted, r.Duplicates, err)
	}
}

// A key may do what its role says, at its rate, until it is revoked; and who did what
// stands in the audit.
func TestKeysForReal(t *testing.T) {
	t.Parallel()
	ctx := client.WithReason(t.Context(), "ticket 4711")
	url := inprocess.Start(t)
	admin := newClient(t, url)
	key, err := admin.CreateKey(ctx, client.NewKey{Name: "warehouse", Role: client.RoleProducer, RatePerSecond: 1})
	if err != nil || key.Token == "" || key.Role != client.RoleProducer {
		t.Fatalf("%v, %v", key.ID, err)
	}
	producer := withToken(t, url, key.Token, client.WithRetries(0))
	if who, err := producer.Self(ctx); err != nil || who.ID != key.ID || who.Role != client.RoleProducer {
		t.Errorf("%+v, %v", who, err)
	}
	_, err = withToken(t, url, key.Token).ListSubscribers(ctx, client.SubscriberFilter{}, client.Page{})
	if !errors.Is(err, client.ErrForbidden) {
		t.Errorf("a producer reads subscribers: %v", err)
	}
	limited := false
	for range 10 {
		_, err := producer.Self(ctx)
		limited = limited || errors.Is(err, client.ErrLimited)
	}
	if !limited {
		t.Error("ten calls within a second of a key of one a second")
	}
	if _, err := withToken(t, url, key.Token).Post(ctx, event("")); err != nil { // waits for its turn
		t.Errorf("with retries: %v", err)
	}
	if _, err := withToken(t, url, "fok_nobody").Self(ctx); !errors.Is(err, client.ErrUnauthenticated) {
		t.Errorf("a stranger: %v", err)
	}
	for range 2 {
		if k, err := admin.RevokeKey(ctx, key.ID); err != nil || k.RevokedAt.IsZero() {
			t.Errorf("%+v, %v", k, err)
		}
	}
	if _, err := producer.Self(ctx); !errors.Is(err, client.ErrUnauthenticated) {
		t.Errorf("revoked: %v", err)
	}
	if k, err := admin.GetKey(ctx, key.ID); err != nil || k.Name != "warehouse" {
		t.Errorf("%+v, %v", k, err)
	}
	n := 0
	for k, err := range admin.Keys(ctx) {
		if err != nil || k.ID != key.ID {
			t.Errorf("%+v, %v", k, err)
		}
		n++
	}
	made := 0
	for e, err := range admin.Audit(ctx, client.AuditFilter{Target: key.ID}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Action == "createKey" && e.Reason == "ticket 4711" && e.Actor.Role == client.RoleAdmin && e.RequestID != "" {
			made++
		}
	}
	if n != 1 || made != 1 {
		t.Errorf("%d keys, %d entries of its making", n, made)
	}
}

// What an operator does to deliveries, and a subscriber's owner to its secrets.
func TestRepairForReal(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := newClient(t, inprocess.Start(t))
	e := newEndpoint(t, http.StatusOK)
	sub, err := c.CreateSubscriber(ctx, client.SubscriberInput{
		URL: &e.URL, Policy: policy(), Paused: new(true), Headers: map[string]*string{"X-Team": new("parcels"), "X-Old": new("s3cret")},
	})
	if err != nil || sub.Headers["X-Team"] != "***" || len(sub.Secrets) != 1 {
		t.Fatalf("%+v, %v", sub.Headers, err)
	}
	less, err := c.PatchSubscriber(ctx, sub.ID, client.SubscriberInput{Headers: map[string]*string{"X-Old": nil}}, client.If{})
	if err != nil || len(less.Headers) != 1 || less.Headers["X-Team"] != "***" {
		t.Fatalf("one header less: %+v, %v", less.Headers, err)
	}
	for range 2 {
		if _, err := c.Post(ctx, event("")); err != nil {
			t.Fatal(err)
		}
	}
	var waiting []string
	until(t, "both wait", func() bool {
		waiting = nil
		for d, err := range c.Deliveries(ctx, client.DeliveryFilter{SubscriberID: sub.ID, State: client.Pending}) {
			if err != nil {
				t.Fatal(err)
			}
			waiting = append(waiting, d.ID)
		}
		return len(waiting) == 2
	})
	for range 2 { // again is safe
		if d, err := c.CancelDelivery(ctx, waiting[0], "not wanted"); err != nil || d.State != client.Cancelled {
			t.Errorf("%+v, %v", d, err)
		}
	}
	if d, err := c.RetryDelivery(ctx, waiting[1]); err != nil || d.State != client.Scheduled {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := c.RetryDelivery(ctx, waiting[0]); !errors.Is(err, client.ErrConflict) {
		t.Errorf("a cancelled one: %v", err)
	}
	if stats, err := c.GetSubscriberStats(ctx, sub.ID); err != nil || stats.Pending != 1 || len(stats.Holds) != 1 || stats.Holds[0].Reason != client.Paused {
		t.Errorf("%+v, %v", stats, err)
	}
	preview, err := c.PreviewSchedule(ctx, sub.ID, 2)
	if err != nil || len(preview.Attempts) != 2 || preview.Attempts[1].Window != client.Duration(10*time.Millisecond) || preview.End.Note == "" {
		t.Errorf("%+v, %v", preview, err)
	}

	rotated, err := c.RotateSecret(ctx, sub.ID, client.Rotation{Overlap: new(client.Duration(time.Hour))})
	if err != nil || rotated.Secret == "" || rotated.Secret == sub.Secret || len(rotated.Secrets) != 2 {
		t.Errorf("%d secrets, %v", len(rotated.Secrets), err)
	}
	if _, err := c.ResumeSubscriber(ctx, sub.ID, client.If{}); err != nil {
		t.Fatal(err)
	}
	test, err := c.TestSubscriber(ctx, sub.ID, client.TestEvent{Data: json.RawMessage(`{"hello":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{waiting[1], test.DeliveryID} {
		until(t, "it is delivered", func() bool {
			d, err := c.GetDelivery(context.WithoutCancel(ctx), id)
			return err == nil && d.State == client.Delivered
		})
	}
	if n := e.seen(); n != 2 {
		t.Errorf("%d deliveries came", n)
	}
}

// Dead letters are looked at, redriven after a canary, and forgotten.
func TestRedriveForReal(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := newClient(t, inprocess.Start(t))
	bad, good := newEndpoint(t, http.StatusUnprocessableEntity), newEndpoint(t, http.StatusOK)
	sub, err := c.CreateSubscriber(ctx, client.SubscriberInput{URL: &bad.URL, Policy: policy()})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := c.Post(ctx, event("")); err != nil {
			t.Fatal(err)
		}
	}
	filter := client.DeadLetterFilter{
		SubscriberID: sub.ID, Class: sub.Class, Outcome: "http_422", Reason: "http_422", Type: "shipment.delivered",
		Since: sub.CreatedAt, Until: sub.CreatedAt.Add(time.Hour),
	}
	var ids []string
	until(t, "all are dead", func() bool {
		ids = nil
		for d, err := range c.DeadLetters(ctx, filter) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, d.Delivery.ID)
		}
		return len(ids) == 3
	})
	got, err := c.GetDeadLetter(ctx, ids[0])
	last := got.Delivery.Evidence[0]
	if body, bad := got.Payload.Bytes(); err != nil || bad != nil || len(body) != got.Payload.Length || got.Event.ShipmentID != "shp_1" || got.Subscriber.ID != sub.ID ||
		last.Phases == nil || last.Terms == nil || last.Terms.Headers["Webhook-Id"] != ids[0] || last.Terms.Policy.MaxAttempts != 2 || got.Delivery.Reason != "http_422" {
		t.Errorf("%+v, %v", got, err)
	}
	if d, err := c.DiscardDeadLetters(ctx, ids[2:], "not wanted"); err != nil || d.Discarded != 1 || d.Results[0].Result != "discarded" {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := c.GetDeadLetter(ctx, ids[2]); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("after its end: %v", err)
	}
	if _, err := c.PatchSubscriber(ctx, sub.ID, client.SubscriberInput{URL: &good.URL}, client.If{}); err != nil {
		t.Fatal(err)
	}
	order := client.RedriveOrder{Filter: &filter, Reason: "its endpoint is another", Within: client.Duration(time.Hour)}
	if p, err := c.PreviewRedrive(ctx, order); err != nil || p.Matching != 2 || p.ByReason[0].Reason != "http_422" || p.HeadRoom.Slots == 0 {
		t.Errorf("%+v, %v", p, err)
	}
	r, err := c.CreateRedrive(ctx, order)
	if err != nil || r.State != client.RedrivePlanning || r.AttemptBudget != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	becomes := func(state client.RedriveState) {
		t.Helper()
		until(t, "it is "+string(state), func() bool {
			r, err = c.GetRedrive(ctx, r.ID)
			return err == nil && r.State == state
		})
	}
	becomes(client.RedriveAwaiting)
	if len(r.CanaryDeliveries) != 1 || r.CanaryDeliveries[0].State != client.Delivered || r.Tally.Waiting != 1 || good.seen() != 1 {
		t.Errorf("%+v, %d seen", r, good.seen())
	}
	if _, err := c.ResumeRedrive(ctx, r.ID, "it is mended"); !errors.Is(err, client.ErrConflict) {
		t.Errorf("resumed: %v", err)
	}
	for range 2 { // again is safe
		if p, err := c.PauseRedrive(ctx, r.ID, "lunch"); err != nil || p.State != client.RedrivePaused {
			t.Errorf("%+v, %v", p, err)
		}
	}
	if p, err := c.ResumeRedrive(ctx, r.ID, "it is mended"); err != nil || p.State != client.RedriveAwaiting {
		t.Errorf("%+v, %v", p, err)
	}
	if a, err := c.ApproveRedrive(ctx, r.ID, "the parcel is shown once"); err != nil || a.State != client.RedriveRunning {
		t.Errorf("%+v, %v", a, err)
	}
	becomes(client.RedriveDone)
	if r.Tally.Delivered != 2 || good.seen() != 2 || !r.State.Final() {
		t.Errorf("%+v, %d seen", r.Tally, good.seen())
	}
	if _, err := c.AbortRedrive(ctx, r.ID, "too late"); !errors.Is(err, client.ErrConflict) {
		t.Errorf("aborted: %v", err)
	}
	for one, err := range c.Redrives(ctx) {
		if err != nil || one.ID != r.ID {
			t.Errorf("%+v, %v", one, err)
		}
	}
}
