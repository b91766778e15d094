package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/fanout/fanout/client"
)

func Example() {
	ctx := context.Background()
	c, err := client.New(exampleServer(), "fok_...")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	scan := client.Event{
		ID:         "evt_dhl_00340434161094042557_delivered", // made from the scan: whoever posts it, it is one event
		Type:       "shipment.delivered",
		ShipmentID: "shp_8842017",
		OccurredAt: time.Date(2026, 11, 30, 14, 3, 22, 0, time.FixedZone("CET", 3600)),
		Attributes: map[string]string{"carrier": "dhl"},
		Data:       map[string]any{"signed_by": "M. Vogel"},
	}
	for range 2 { // a crash between the two would do no harm
		receipt, err := c.Post(ctx, scan)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(receipt.ID, "goes to", receipt.Deliveries, "duplicate:", receipt.Duplicate)
	}
	// Output:
	// evt_dhl_00340434161094042557_delivered goes to 3 duplicate: false
	// evt_dhl_00340434161094042557_delivered goes to 3 duplicate: true
}

func ExampleClient_Post_errors() {
	ctx := context.Background()
	c, err := client.New(exampleServer(), "fok_...")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	event := client.Event{Type: "Shipment Delivered", ShipmentID: "shp_1", OccurredAt: time.Now()}
	receipt, err := c.Post(ctx, event)
	var problem *client.Problem
	switch {
	case err == nil:
		fmt.Println("accepted")
	case errors.Is(err, client.ErrConflict):
		fmt.Println("this id was used for another body")
	case errors.Is(err, client.ErrInvalid) && errors.As(err, &problem):
		for _, e := range problem.Errors {
			fmt.Println(e.Pointer, e.Detail)
		}
	default: // not known: keep it, and post it again later with the same id
		event.ID = receipt.ID
	}
	// Output:
	// /type must be dotted words of a-z 0-9 _ -
}

func ExampleClient_PostRaw() {
	ctx := context.Background()
	c, err := client.New(exampleServer(), "fok_...")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	// As it came from a queue or a file: it is sent byte for byte, and must have an id.
	line := []byte(`{"id":"evt_dhl_00340434161094042557_delivered","type":"shipment.delivered","shipment_id":"shp_8842017",` +
		`"occurred_at":"2026-11-30T14:03:22+01:00","data":{"weight_kg":1.840}}`)
	receipt, err := c.PostRaw(ctx, line)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(receipt.ID, "goes to", receipt.Deliveries)

	_, err = c.PostRaw(ctx, []byte(`{"type":"shipment.delivered"}`))
	fmt.Println(errors.Is(err, client.ErrInvalid), err)
	// Output:
	// evt_dhl_00340434161094042557_delivered goes to 3
	// true 422 invalid_request: The event was not sent; /id is not set: without it a second attempt would be a second event
}

func ExampleClient_PostBatch() {
	ctx := context.Background()
	c, err := client.New(exampleServer(), "fok_...")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	var events []client.Event // as many as there are
	for i := range 3 {
		events = append(events, client.Event{
			ID: fmt.Sprint("scan-", i), Type: "shipment.in_transit", ShipmentID: fmt.Sprint("shp_", i), OccurredAt: time.Now(),
		})
	}
	events[2].OccurredAt = time.Time{}
	result, err := c.PostBatch(ctx, events)
	if err != nil { // some are in doubt: their Status is 0, or that of a passing trouble
		fmt.Println(err)
	}
	fmt.Println("accepted", result.Accepted, "refused", result.Refused)
	for _, r := range result.Results {
		if r.Problem != nil {
			fmt.Println(r.ID, r.Problem.Errors[0].Pointer)
		}
	}
	// Output:
	// accepted 2 refused 1
	// scan-2 /occurred_at
}

func ExampleClient_Subscribers() {
	ctx := client.WithReason(context.Background(), "moved to the new gateway, ticket 4711")
	c, err := client.New(exampleServer(), "fok_...")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	for s, err := range c.Subscribers(ctx, client.SubscriberFilter{Account: "acc_1042"}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		// Only if nobody has changed it since it was read.
		_, err := c.PauseSubscriber(ctx, s.ID, client.If{Version: s.Version})
		fmt.Println(s.ID, "paused:", err == nil)
	}
	// Output:
	// sub_1 paused: true
	// sub_2 paused: true
}

// exampleServer stands in for a fanout.
func exampleServer() string {
	posted := map[string]bool{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/events", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var e struct{ ID, Type string }
		_ = json.Unmarshal(body, &e)
		if e.Type != "shipment.delivered" {
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"code":"invalid_request","errors":[{"pointer":"/type","detail":"must be dotted words of a-z 0-9 _ -"}]}`)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprintf(w, `{"id":%q,"deliveries":3,"duplicate":%t}`, e.ID, posted[e.ID])
		posted[e.ID] = true
	})
	mux.HandleFunc("POST /v1/events/batch", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"results":[{"index":0,"status":202},{"index":1,"status":202}]}`)
	})
	mux.HandleFunc("GET /v1/subscribers", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"data":[{"id":"sub_1","version":3},{"id":"sub_2","version":1}],"next_cursor":null}`)
	})
	mux.HandleFunc("POST /v1/subscribers/{id}/pause", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) })
	return httptest.NewServer(mux).URL
}
