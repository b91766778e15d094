//go:build interop

package interop

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/webhook"
	"github.com/fanout/fanout/test/inprocess"
)

// patience bounds every wait for something that must happen.
const patience = 60 * time.Second

// examples are the receivers of the folder examples, as commands.
func examples(t *testing.T) map[string][]string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "receiver")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, ".")
	build.Dir = "../../examples/receiver-go"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	script, err := filepath.Abs("../../examples/receiver-node/receiver.mjs")
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]string{"go": {bin}, "node": {"node", script}}
}

func TestReceivers(t *testing.T) {
	for name, command := range examples(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("refuses", func(t *testing.T) { t.Parallel(); refuses(t, command, newSecret(t), newSecret(t)) })
			t.Run("refuses by a public key", func(t *testing.T) { t.Parallel(); refuses(t, command, newPrivate(t), newPrivate(t)) })
			t.Run("takes each once", func(t *testing.T) { t.Parallel(); takesOnce(t, command) })
			t.Run("keeps the newest status", func(t *testing.T) { t.Parallel(); keepsTheNewest(t, command) })
		})
	}
}

// What is not ours, not of now or not whole is refused, and leaves nothing behind.
func refuses(t *testing.T, command []string, secret, foreign subscriber.Secret) {
	key, err := secret.Public()
	if err != nil {
		t.Fatal(err)
	}
	rc := startReceiver(t, command, cmp.Or(key, secret.Value))
	sender := webhook.New(webhook.Options{Guard: webhook.NewGuard(webhook.GuardOptions{
		AllowHTTP: true, AnyPort: true, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	})})
	defer sender.Close()
	e := delivery.Event{
		ID: "evt_3", Type: "shipment.delivered", ShipmentID: "shp_3", OccurredAt: "2026-10-25T02:30:00+02:00",
		Data: []byte("{ \"n\": 18446744073709551616, \"n\": 1.0,\t\"s\": \"\\u00e9é😀<>&\" }"),
	}
	send := func(to string, age time.Duration, body []byte, secrets ...subscriber.Secret) webhook.Answer {
		return sender.Send(t.Context(), webhook.Request{
			URL: to, Secrets: secrets, DeliveryID: delivery.NewID(e.ID, "sub_1"),
			Attempt: 1, DeliveryCount: 1, Timestamp: time.Now().Add(-age), Body: body, Timeout: 10 * time.Second,
		})
	}
	tampered := newProxy(t, rc)
	tampered.change = func(b []byte) []byte { return bytes.Replace(b, []byte("shp_3"), []byte("shp_4"), 1) }
	for what, c := range map[string]struct {
		got  webhook.Answer
		want int
	}{
		"a body that was changed": {send(tampered.url+"/hook", 0, e.Body(), secret), 401},
		"a foreign secret":        {send(rc.url, 0, e.Body(), foreign), 401},
		"of an hour ago":          {send(rc.url, time.Hour, e.Body(), secret), 401},
		"of an hour from now":     {send(rc.url, -time.Hour, e.Body(), secret), 401},
		"no event":                {send(rc.url, 0, []byte(`[1,`), secret), 400},
		"longer than any event":   {send(rc.url, 0, bytes.Repeat([]byte{' '}, 2<<20), secret), 413},
		"another path":            {send(rc.url+"/other", 0, e.Body(), secret), 404},
	} {
		if c.got.Status != c.want {
			t.Errorf("%s: %+v, want %d", what, c.got, c.want)
		}
	}
	if s := rc.stored(t); s.Deliveries != 0 {
		t.Errorf("it stored %+v", s)
	}
	// Two minutes are within what clocks may differ by, and in a rotation the
	// receiver's secret is one of two.
	if a := send(rc.url, 2*time.Minute, e.Body(), foreign, secret); a.Status != http.StatusNoContent {
		t.Errorf("a good one: %+v", a)
	}
	if s := rc.stored(t); s.Deliveries != 1 || s.Shipments["shp_3"] != "shipment.delivered" {
		t.Errorf("it stored %+v", s)
	}
}

// A delivery whose answer was lost comes again, and a receiver that was killed between
// the two knows it all the same.
func takesOnce(t *testing.T, command []string) {
	secret := newSecret(t)
	rc := startReceiver(t, command, secret.Value)
	between := newProxy(t, rc)
	var lost sync.Once
	between.lose = func() (lose bool) {
		lost.Do(func() {
			lose = true
			rc.kill(t)
			rc.start(t)
		})
		return lose
	}
	c := subscribe(t, between.url+"/hook", secret.Value)
	post(t, c, "one", "shipment.created", "shp_1", "2026-03-01T08:00:00Z")
	post(t, c, "two", "shipment.delivered", "shp_2", "2026-03-01T08:00:00Z")
	delivered(t, c, 2)

	requests := map[string]int{}
	for _, a := range between.answered() {
		requests[a.id]++
		if a.status != http.StatusNoContent {
			t.Errorf("%s was answered %d", a.id, a.status)
		}
	}
	if counts := slices.Sorted(maps.Values(requests)); !slices.Equal(counts, []int{1, 2}) {
		t.Errorf("requests by webhook-id: %v, want one of them twice", requests)
	}
	rc.kill(t)
	rc.start(t)
	if s := rc.stored(t); s.Deliveries != 2 || len(s.Shipments) != 2 {
		t.Errorf("it stored %+v", s)
	}
}

// Statuses come in any order; a shipment keeps the one that happened last, across a
// kill, whatever the offsets of the times.
func keepsTheNewest(t *testing.T, command []string) {
	secret := newSecret(t)
	rc := startReceiver(t, command, secret.Value)
	c := subscribe(t, rc.url, secret.Value)
	post(t, c, "delivered", "shipment.delivered", "shp_1", "2026-03-01T09:30:00Z")
	post(t, c, "other", "shipment.created", "shp_2", "2026-03-01T06:00:00Z")
	delivered(t, c, 2)
	post(t, c, "late", "shipment.out_for_delivery", "shp_1", "2026-03-01T10:30:00+02:00") // an hour before
	delivered(t, c, 3)
	rc.kill(t)
	rc.start(t)
	post(t, c, "later", "shipment.in_transit", "shp_1", "2026-03-01T09:29:59.999Z")
	post(t, c, "newer", "shipment.picked_up", "shp_2", "2026-03-01T01:00:01-05:00") // a second after
	for sub, err := range c.Subscribers(t.Context(), client.SubscriberFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.TestSubscriber(t.Context(), sub.ID, client.TestEvent{}); err != nil { // moves nothing
			t.Fatal(err)
		}
	}
	delivered(t, c, 6)
	want := map[string]string{"shp_1": "shipment.delivered", "shp_2": "shipment.picked_up"}
	if s := rc.stored(t); s.Deliveries != 6 || !maps.Equal(s.Shipments, want) {
		t.Errorf("it stored %+v, want %v", s, want)
	}
}

// receiver is a running example.
type receiver struct {
	command []string
	env     []string
	url     string // of its hook
	cmd     *exec.Cmd
}

// newPrivate is a secret that signs v1a.
func newPrivate(t *testing.T) subscriber.Secret {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return subscriber.Secret{Value: "whsk_" + base64.StdEncoding.EncodeToString(private)}
}

// startReceiver runs an example on a port and a folder of its own until the test ends.
func startReceiver(t *testing.T, command []string, secret string) *receiver {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String() // kept over a restart
	_ = ln.Close()
	rc := &receiver{command: command, env: append(
		os.Environ(), "WEBHOOK_SECRET="+secret, "LISTEN="+addr, "DATA="+filepath.Join(t.TempDir(), "data"),
	)}
	rc.start(t)
	t.Cleanup(func() { rc.kill(t) })
	return rc
}

// start runs it, and waits until it says its URL.
func (rc *receiver) start(t *testing.T) {
	t.Helper()
	rc.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), rc.command[0], rc.command[1:]...)
	rc.cmd.Env, rc.cmd.Stderr = rc.env, os.Stderr
	out, err := rc.cmd.StdoutPipe()
	if err != nil {
		t.Error(err)
		return
	}
	if err := rc.cmd.Start(); err != nil {
		t.Error(err)
		return
	}
	line := make([]byte, 256)
	n, err := out.Read(line)
	if err != nil {
		t.Errorf("it said no URL: %v", err)
	}
	rc.url = strings.TrimSpace(string(line[:n]))
}

// kill ends it as a crash would.
func (rc *receiver) kill(t *testing.T) {
	t.Helper()
	if err := rc.cmd.Process.Kill(); err != nil {
		t.Errorf("kill: %v", err)
	}
	_ = rc.cmd.Wait() // "signal: killed"
}

type stored struct {
	Deliveries int
	Shipments  map[string]string
}

// stored asks it what it has.
func (rc *receiver) stored(t *testing.T) (s stored) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(rc.url, "/hook")+"/shipments", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

// proxy stands between the dispatcher and a receiver.
type proxy struct {
	url    string
	change func(body []byte) []byte // nil: as it is
	lose   func() bool              // asked after each answer: is it lost?

	mu  sync.Mutex
	log []answer
}

type answer struct {
	id     string
	status int
}

func newProxy(t *testing.T, rc *receiver) *proxy {
	t.Helper()
	p := &proxy{}
	transport := &http.Transport{DisableKeepAlives: true}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if p.change != nil {
			body = p.change(body)
		}
		out, err := http.NewRequestWithContext(r.Context(), r.Method, strings.TrimSuffix(rc.url, "/hook")+r.URL.Path, bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		out.Header = r.Header.Clone()
		resp, err := transport.RoundTrip(out)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway) // it is being killed
			return
		}
		_ = resp.Body.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.log = append(p.log, answer{r.Header.Get("Webhook-Id"), resp.StatusCode})
		if p.lose != nil && p.lose() {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(resp.StatusCode)
	}))
	t.Cleanup(srv.Close)
	p.url = srv.URL
	return p
}

func (p *proxy) answered() []answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.log)
}

// subscribe starts a service, registers the endpoint for everything, and gives a
// client of the service.
func subscribe(t *testing.T, endpoint, secret string) *client.Client {
	t.Helper()
	c, err := client.New(inprocess.Start(t), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	_, err = c.CreateSubscriber(t.Context(), client.SubscriberInput{
		URL: &endpoint, Secret: &secret,
		Policy: &client.PolicyInput{
			BackoffBase: new(client.Duration(50 * time.Millisecond)), BackoffCap: new(client.Duration(200 * time.Millisecond)),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func post(t *testing.T, c *client.Client, id, kind, shipment, at string) {
	t.Helper()
	occurred, err := time.Parse(time.RFC3339, at)
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Post(t.Context(), client.Event{ID: id, Type: kind, ShipmentID: shipment, OccurredAt: occurred})
	if err != nil || r.Deliveries != 1 {
		t.Fatalf("post %s: %+v, %v", id, r, err)
	}
}

// delivered waits until so many deliveries are delivered, and none is pending.
func delivered(t *testing.T, c *client.Client, want int64) {
	t.Helper()
	deadline := time.After(patience)
	for {
		look, err := c.OnCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if l := look.Ledger; l.Pending == 0 && l.Delivered == want && l.Accepted == want {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("gave up waiting for %d deliveries: %+v, %+v", want, look.Ledger, look.LastFailures)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
