//go:build interop

package interop

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/webhook"
)

// TestNodeReceives sends to an HTTP server in Node, from socket to socket: the
// headers arrive as Node parses them, the body as it reads it.
func TestNodeReceives(t *testing.T) {
	secret, err := subscriber.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	node := startNode(t, secret.Value)
	sender := webhook.New(webhook.Options{Guard: webhook.NewGuard(webhook.GuardOptions{
		AllowHTTP: true, AnyPort: true, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	})})
	defer sender.Close()
	e := delivery.Event{
		ID: "evt_3", Type: "shipment.delivered", ShipmentID: "shp_3", OccurredAt: "2026-10-25T02:30:00+02:00",
		Data: []byte("{ \"n\": 18446744073709551616, \"n\": 1.0,\t\"s\": \"\\u00e9é😀<>&\" }"),
	}
	req := webhook.Request{
		URL: node, Secrets: []subscriber.Secret{secret}, DeliveryID: delivery.NewID(e.ID, "sub_1"),
		Attempt: 1, DeliveryCount: 1, Timestamp: time.Now().Add(-2 * time.Minute), Body: e.Body(), Timeout: 10 * time.Second,
	}
	if a := sender.Send(t.Context(), req); a.Status != http.StatusNoContent {
		t.Errorf("attempt 1: %+v", a)
	}
	req.Attempt, req.DeliveryCount, req.Timestamp = 3, 3, time.Now()
	if a := sender.Send(t.Context(), req); a.Status != http.StatusNoContent {
		t.Errorf("attempt 3: %+v", a)
	}

	req.URL = tamper(t, node)
	if a := sender.Send(t.Context(), req); a.Outcome != delivery.HTTP400 || a.Excerpt == "" {
		t.Errorf("a tampered body: %+v", a)
	}
	req.URL, req.Timestamp = node, time.Now().Add(-time.Hour)
	if a := sender.Send(t.Context(), req); a.Outcome != delivery.HTTP400 {
		t.Errorf("an old timestamp: %+v", a)
	}
}

// startNode runs receiver.mjs until the test ends, and gives its URL.
func startNode(t *testing.T, secret string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", "receiver.mjs")
	cmd.Env = append(os.Environ(), "SECRET="+secret)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // which ends it
		_ = cmd.Wait()
	})
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("node said no port: %v", err)
	}
	return "http://127.0.0.1:" + strings.TrimSpace(port) + "/hook"
}

// tamper stands between, and changes one byte of every body.
func tamper(t *testing.T, to string) string {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		body, err := io.ReadAll(r.In.Body)
		if err != nil {
			t.Error(err)
		}
		r.SetURL(target)
		r.Out.Body = io.NopCloser(bytes.NewReader(bytes.Replace(body, []byte("shp_3"), []byte("shp_4"), 1)))
	}})
	t.Cleanup(proxy.Close)
	return proxy.URL
}
