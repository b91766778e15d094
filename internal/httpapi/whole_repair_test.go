package httpapi

import (
	"fmt"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// A batch, its deliveries as lists show them, and their repair, with every package
// behind the API real.
func TestWholeRepair(t *testing.T) {
	t.Parallel()
	r, engine, _ := whole(t)
	sub := r.create(`{"url":"https://a.example/","filter":{"types":["shipment.*"]},"policy":{"max_attempts":3,"breaker_failures":2}}`)
	items := make([]string, 0, 6)
	for i := range 5 {
		items = append(items, item(fmt.Sprintf("evt_%d", i), `{"n":1}`))
	}
	batch := into[BatchReceipt](t, r.do("POST", "/v1/events/batch", batchOf(append(items, `{"id":"evt_bad"}`)...)), 200)
	if batch.Accepted != 5 || batch.Refused != 1 || batch.Results[5].Problem.Code != ProblemCodeInvalidRequest {
		t.Fatalf("got %+v", batch)
	}
	if again := into[BatchReceipt](t, r.do("POST", "/v1/events/batch", batchOf(items...)), 200); again.Duplicates != 5 {
		t.Errorf("again: %+v", again)
	}

	seen := map[string]bool{}
	for cursor := ""; ; {
		page := into[DeliveryList](t, r.do("GET", "/v1/deliveries?limit=2&subscriber_id="+sub.ID+cursor, ""), 200)
		for _, d := range page.Data {
			seen[d.ID] = true
		}
		if page.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + *page.NextCursor
	}
	if len(seen) != 5 {
		t.Errorf("%d deliveries are listed, want 5", len(seen))
	}
	foreign := into[DeliveryList](t, r.do("GET", "/v1/deliveries?limit=2&subscriber_id="+sub.ID, ""), 200).NextCursor
	wantProblem(t, r.do("GET", "/v1/dead-letters?cursor="+*foreign, ""), ProblemCodeInvalidCursor)
	of := into[DeliveryList](t, r.do("GET", "/v1/deliveries?event_id=evt_3", ""), 200)
	if len(of.Data) != 1 || of.Data[0].ID != delivery.NewID("evt_3", sub.ID) {
		t.Errorf("got %+v", of)
	}

	now, err := engine.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	settle(t, engine, sub.ID, 1, schedule.Verdict{Outcome: delivery.HTTP5xx, Status: 503, Decision: delivery.Decision{Next: delivery.Scheduled, DueAt: now.Add(time.Hour)}})
	var late Delivery
	for _, d := range into[DeliveryList](t, r.do("GET", "/v1/deliveries?state=scheduled&subscriber_id="+sub.ID, ""), 200).Data {
		if d.NextAttemptAt.After(now.Add(time.Minute)) {
			late = d
		}
	}
	moved := into[Delivery](t, r.do("POST", "/v1/deliveries/"+late.ID+"/retry", `{"reason":"it is back"}`), 200)
	if moved.NextAttemptAt.After(now.Add(time.Minute)) || moved.Attempts != 1 {
		t.Errorf("got %+v", moved)
	}
	cancelled := into[Delivery](t, r.do("POST", "/v1/deliveries/"+late.ID+"/cancel", `{"reason":"it is gone"}`), 200)
	if cancelled.State != delivery.Cancelled {
		t.Errorf("got %+v", cancelled)
	}
	wantProblem(t, r.do("POST", "/v1/deliveries/"+late.ID+"/retry", ""), ProblemCodeNotScheduled)

	settle(t, engine, sub.ID, 2, schedule.Verdict{Outcome: delivery.HTTP404, Status: 404, Decision: delivery.Decision{Next: delivery.Dead, Reason: delivery.HTTP404}})
	dead := into[DeadLetterList](t, r.do("GET", "/v1/dead-letters?subscriber_id="+sub.ID, ""), 200)
	if len(dead.Data) != 1 || dead.NextCursor != nil {
		t.Fatalf("got %+v", dead)
	}
	wantProblem(t, r.do("POST", "/v1/deliveries/"+dead.Data[0].Delivery.ID+"/cancel", `{"reason":"x"}`), ProblemCodeAlreadyFinal)

	trial := into[TestReceipt](t, r.do("POST", "/v1/subscribers/"+sub.ID+"/test", ""), 202)
	event := into[Event](t, r.do("GET", "/v1/events/"+trial.EventID, ""), 200)
	if event.Type != "fanout.test" || len(event.Deliveries) != 1 || event.Deliveries[0].ID != trial.DeliveryID {
		t.Errorf("got %+v", event)
	}
	stats := into[SubscriberStats](t, r.do("GET", "/v1/subscribers/"+sub.ID+"/stats", ""), 200)
	if stats.Pending != 4 || stats.DeadLetters != 1 || stats.OldestPendingAt.IsZero() {
		t.Errorf("got %+v", stats)
	}
}
