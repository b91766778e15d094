//go:build interop

// Package interop answers: does a receiver that is not ours believe us? It sends
// real requests and has the npm package standardwebhooks verify them.
// Run it by `make test-interop`, which installs that package.
package interop

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/webhook"
)

// captured is one request as its receiver saw it.
type captured struct {
	Name     string            `json:"name"`
	Secret   string            `json:"secret"`
	Headers  map[string]string `json:"headers"`
	Body     []byte            `json:"body"`
	Tampered bool              `json:"tampered"`
}

func TestNodeVerifies(t *testing.T) {
	old, current, foreign := newSecret(t), newSecret(t), newSecret(t)
	events := map[string]delivery.Event{
		"plain":  {ID: "evt_1", Type: "shipment.delivered", ShipmentID: "shp_1", OccurredAt: "2026-03-29T01:30:00+01:00", Data: []byte(`{"signed_by":"A. Müller"}`)},
		"exotic": {ID: "evt_2", Type: "shipment.exception", ShipmentID: "shp_2", OccurredAt: "2026-03-29T03:30:00+02:00", Data: []byte("{ \"n\": 12345678901234567890, \"n\": 1e400,\n \"t\": \"<é&\u2028😀>\" }")},
	}
	var all []captured
	for name, e := range events {
		id := delivery.NewID(e.ID, "sub_1")
		for attempt := 1; attempt <= 3; attempt++ {
			c := send(t, webhook.Request{
				DeliveryID: id, Attempt: attempt, DeliveryCount: int64(attempt), Body: e.Body(),
				Secrets:   []subscriber.Secret{old, current}, // in the overlap of a rotation
				Timestamp: time.Now().Add(time.Duration(attempt-3) * time.Second),
				Timeout:   10 * time.Second,
			})
			if c.Headers["webhook-id"] != id {
				t.Errorf("%s, attempt %d: webhook-id %q, want the delivery's %q", name, attempt, c.Headers["webhook-id"], id)
			}
			for label, key := range map[string]string{"old": old.Value, "current": current.Value} {
				c.Name, c.Secret, c.Tampered = name+" by the "+label+" secret", key, false
				all = append(all, c)
			}
			c.Name, c.Secret, c.Tampered = name+" by a foreign secret", foreign.Value, true
			all = append(all, c)
			c.Name, c.Secret, c.Body = name+" with a byte more", current.Value, append(bytes.Clone(c.Body), ' ')
			all = append(all, c)
		}
		first, third := all[len(all)-12], all[len(all)-1]
		if first.Headers["webhook-timestamp"] == third.Headers["webhook-timestamp"] {
			t.Errorf("%s: attempts 1 and 3 carry the same timestamp", name)
		}
	}

	var in bytes.Buffer
	enc := json.NewEncoder(&in)
	for _, c := range all {
		if err := enc.Encode(c); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "node", "verify.mjs")
	cmd.Stdin = &in
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("node: %v\n%s", err, out)
	}
	if got, want := strings.TrimSpace(string(out)), "verified=12 refused=12"; got != want {
		t.Errorf("node says %q, want %q", got, want)
	}
}

func newSecret(t *testing.T) subscriber.Secret {
	t.Helper()
	s, err := subscriber.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// send makes one attempt by the real sender, over a real socket.
func send(t *testing.T, req webhook.Request) captured {
	t.Helper()
	got := make(chan captured, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		h := map[string]string{}
		for _, name := range []string{"webhook-id", "webhook-timestamp", "webhook-signature"} {
			h[name] = r.Header.Get(name)
		}
		got <- captured{Headers: h, Body: body}
	}))
	defer srv.Close()
	sender := webhook.New(webhook.Options{Guard: webhook.NewGuard(webhook.GuardOptions{
		AllowHTTP: true, AnyPort: true, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})})
	defer sender.Close()
	req.URL = srv.URL
	if a := sender.Send(t.Context(), req); a.Outcome != delivery.OK {
		t.Fatalf("the send came to %s: %s", a.Outcome, a.Err)
	}
	return <-got
}
