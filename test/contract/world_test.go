package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fanout/fanout/test/inprocess"
)

const (
	patience  = 60 * time.Second
	bootstrap = "the-first-admin-of-the-contract-tests"
)

// world is the whole service, endpoints that answer anything, keys of every role,
// and what of its ids is known so far.
type world struct {
	testing.TB
	url      string
	doc      document
	ops      []operation
	http     *http.Client
	endpoint string
	callers  []caller // with good keys, by role
	nobodies []caller
	logs     *logs

	mu    sync.Mutex
	pools map[string][]string // ids and cursors, by the name of the parameter
	made  int
}

// logs keeps the last lines, for when something went wrong.
type logs struct {
	mu    sync.Mutex
	lines [][]byte
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	const kept = 200
	l.lines = append(l.lines[max(0, len(l.lines)-kept):], bytes.Clone(p))
	return len(p), nil
}

// about are the lines that name a request.
func (l *logs) about(requestID string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for _, line := range l.lines {
		if requestID != "" && bytes.Contains(line, []byte(requestID)) {
			b.Write(line)
		}
	}
	return b.String()
}

func newWorld(t testing.TB) *world {
	t.Helper()
	doc, ops, err := load()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{TB: t, doc: doc, ops: ops, logs: &logs{}, pools: map[string][]string{}}
	w.http = &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 2 * atOnce, DisableCompression: true},
		Timeout:       100 * time.Second, // above that of a delete
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	t.Cleanup(w.http.CloseIdleConnections)
	w.url = inprocess.Start(t, inprocess.AdminKey(bootstrap),
		inprocess.Log(slog.NewJSONHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelDebug})))
	w.startEndpoint()
	w.ready()
	w.people()
	w.things()
	w.redrives()
	w.waiting()
	return w
}

// startEndpoint answers as the last part of the path says, and anything at all on
// the others.
func (w *world) startEndpoint() {
	var n atomic.Uint64
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch turn := n.Add(1); {
		case strings.HasSuffix(r.URL.Path, "/ok"), turn%4 == 0:
		case strings.HasSuffix(r.URL.Path, "/rejects"), turn%11 == 1:
			http.Error(rw, "no \xff\x00 such <thing>", http.StatusUnprocessableEntity)
		case turn%11 == 2:
			rw.Header().Set("Retry-After", "1")
			rw.WriteHeader(http.StatusServiceUnavailable)
		case turn%11 == 3:
			rw.Header().Set("Location", "/ok")
			rw.WriteHeader(http.StatusTemporaryRedirect)
		case turn%11 == 4:
			rw.WriteHeader(http.StatusGone)
		case turn%11 == 5, turn%11 == 6:
			c, _, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("HTTP/1.1 999 \x01\r\n: nonsense\r\n\r\n")[:5+turn%20])
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		case turn%11 == 7:
			select {
			case <-r.Context().Done():
			case <-time.After(200 * time.Millisecond):
			}
		case turn%11 == 8:
			_, _ = rw.Write(bytes.Repeat([]byte("long "), 20_000))
		default:
			rw.WriteHeader(200 + int(turn%400))
		}
	}))
	w.endpoint = s.URL
	w.Cleanup(func() { s.CloseClientConnections(); s.Close() })
}

// ready waits until the service has all that its answers are made of.
func (w *world) ready() {
	w.Helper()
	w.until("it is ready", func() bool {
		for _, path := range []string{"/readyz", "/v1/oncall"} {
			if status, _ := w.do("GET", path, "", bootstrap); status != http.StatusOK {
				return false
			}
		}
		return true
	})
}

// people makes keys: of each role, of two accounts, and some that are no good.
func (w *world) people() {
	w.Helper()
	for _, c := range []caller{
		{role: "producer"},
		{role: "viewer"},
		{role: "operator"},
		{role: "admin"},
		{role: "subscriber", account: "acme"},
		{role: "subscriber", account: "globex"},
	} {
		c.auth = "Bearer " + w.key(c)
		w.callers = append(w.callers, c)
	}
	w.callers = append(w.callers, caller{role: "admin", auth: "Bearer " + bootstrap})
	revoked := w.key(caller{role: "admin"})
	id := w.pools["key_id"][0] // made last, and so first known
	w.must("DELETE", "/v1/keys/"+id, "", http.StatusOK, nil)
	for _, auth := range []string{
		"", "Bearer " + revoked, "Bearer " + bootstrap + "x", "Bearer fok_", "Basic eDp5", "Digest x", "Bearer " + strings.Repeat("t", 600),
		"Bearer fok_01J9ZC3T7R6W8Y2K5M4N0P1QXV_Jx1dZc0r5o0V7l2mX8kq3nWb4tYp6sAeUiGhQfRvLw9", "Bearer \xff",
	} {
		w.nobodies = append(w.nobodies, caller{auth: auth})
	}
	w.pools["key_id"] = []string{id, w.victim(), w.victim()}
}

// key makes a key and gives its token.
func (w *world) key(c caller) string {
	w.Helper()
	var k struct{ ID, Key string }
	body := map[string]string{"name": "of " + c.role, "role": c.role}
	if c.account != "" {
		body["account"] = c.account
	}
	w.must("POST", "/v1/keys", scalar(body).scalar, http.StatusCreated, &k)
	w.pools["key_id"] = []string{k.ID}
	return k.Key
}

// victim is a key that nobody uses, to be revoked.
func (w *world) victim() string {
	w.key(caller{role: "viewer"})
	return w.pools["key_id"][0]
}

// things are subscribers of both accounts and events with deliveries in every state.
func (w *world) things() {
	w.Helper()
	policy := `"policy":{"max_attempts":2,"breaker_failures":1,"backoff_base":"10ms","backoff_cap":"20ms"}`
	for _, account := range []string{"acme", "globex"} {
		for _, path := range []string{"/ok", "/rejects", "/any"} {
			var s struct{ ID string }
			w.must("POST", "/v1/subscribers", fmt.Sprintf(`{"account":%q,"url":%q,%s}`, account, w.endpoint+path, policy), http.StatusCreated, &s)
			w.learn("subscriber_id", s.ID)
		}
	}
	for i := range 10 {
		id := fmt.Sprintf("evt_%d", i)
		w.must("POST", "/v1/events", fmt.Sprintf(`{"id":%q,"type":"shipment.delivered","shipment_id":"s",`+
			`"occurred_at":"2026-11-30T12:00:00Z","attributes":{"carrier":"dhl"},"data":{"n":%d}}`, id, i), http.StatusAccepted, nil)
		w.learn("event_id", id)
	}
	w.until("there are dead letters", func() bool {
		var list struct {
			Data []struct{ Delivery struct{ ID string } }
		}
		w.must("GET", "/v1/dead-letters", "", http.StatusOK, &list)
		for _, d := range list.Data {
			w.learn("delivery_id", d.Delivery.ID)
		}
		return len(list.Data) > 5
	})
}

// redrives are some whose canary was delivered, and that have others to send.
func (w *world) redrives() {
	w.Helper()
	const of = 3 // dead letters each
	var s struct{ ID string }
	w.must("POST", "/v1/subscribers", fmt.Sprintf(`{"account":"acme","url":%q,"filter":{"types":["return.created"]}}`, w.endpoint+"/rejects"), http.StatusCreated, &s)
	for i := range 16 * of { // one of four is delivered all the same
		w.must("POST", "/v1/events", fmt.Sprintf(`{"id":"return_%d","type":"return.created","shipment_id":"s","occurred_at":"2026-11-30T12:00:00Z","data":1}`, i),
			http.StatusAccepted, nil)
	}
	var list struct {
		Data []struct{ Delivery struct{ ID string } }
	}
	w.until("enough are dead", func() bool {
		w.must("GET", "/v1/dead-letters?limit=200&subscriber_id="+s.ID, "", http.StatusOK, &list)
		return len(list.Data) >= 8*of
	})
	w.must("PATCH", "/v1/subscribers/"+s.ID, fmt.Sprintf(`{"url":%q}`, w.endpoint+"/ok"), http.StatusOK, nil)
	for some := range slices.Chunk(list.Data[:8*of], of) {
		var ids []string
		for _, d := range some {
			ids = append(ids, d.Delivery.ID)
		}
		var r struct{ ID string }
		w.must("POST", "/v1/redrives", `{"reason":"it is back","ids":`+scalar(ids).scalar+`}`, http.StatusCreated, &r)
		w.learn("redrive_id", r.ID)
	}
	w.until("all await an approval", func() bool {
		_, b := w.do("GET", "/v1/redrives", "", bootstrap)
		return strings.Count(string(b), `"state":"awaiting_approval"`) == 8
	})
}

// waiting are deliveries that can still be retried and cancelled: those of a paused
// subscriber.
func (w *world) waiting() {
	w.Helper()
	var s struct{ ID string }
	w.must("POST", "/v1/subscribers", fmt.Sprintf(`{"account":"globex","url":%q,"paused":true,"filter":{"types":["return.held"]}}`, w.endpoint+"/ok"), http.StatusCreated, &s)
	const n = 50
	for i := range n {
		w.must("POST", "/v1/events", fmt.Sprintf(`{"id":"held_%d","type":"return.held","shipment_id":"s","occurred_at":"2026-11-30T12:00:00Z","data":1}`, i),
			http.StatusAccepted, nil)
	}
	w.until("they wait", func() bool {
		var list struct{ Data []struct{ ID string } }
		w.must("GET", "/v1/deliveries?subscriber_id="+s.ID, "", http.StatusOK, &list)
		for _, d := range list.Data {
			w.learn("delivery_id", d.ID)
		}
		return len(list.Data) == n
	})
}

// most of a kind are remembered.
const most = 200

func (w *world) learn(name, id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pool := w.pools[name]
	if id == "" || slices.Contains(pool, id) {
		return
	}
	w.made++
	if len(pool) < most {
		w.pools[name] = append(pool, id)
		return
	}
	pool[w.made%most] = id
}

// learnFrom takes the ids and cursors out of an answer.
func (w *world) learnFrom(r *request, body []byte) {
	var tree any
	if json.Unmarshal(body, &tree) != nil {
		return
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, part := range v[:min(len(v), 20)] {
				walk(part)
			}
		case object:
			for name, part := range v {
				text, is := part.(string)
				switch {
				case !is:
					walk(part)
				case name == "next_cursor":
					w.learn("cursor of "+r.op.id, text)
				case name == "id" && strings.HasPrefix(text, "sub_"), name == "subscriber_id":
					w.learn("subscriber_id", text)
				case name == "id" && strings.HasPrefix(text, "rdv_"):
					w.learn("redrive_id", text)
				case name == "id" && strings.HasPrefix(text, "dlv_"), name == "delivery_id":
					w.learn("delivery_id", text)
				case name == "id" && r.op.id == "createKey" && r.method == "POST":
					w.learn("key_id", text)
				case name == "event_id":
					w.learn("event_id", text)
				}
			}
		}
	}
	walk(tree)
}

// known gives the values that mean something: half of the ids are real ones.
func (w *world) known(d *drawer, name string) (*value, bool) {
	switch name {
	case "event_id", "subscriber_id", "delivery_id", "redrive_id", "key_id", "target":
		if d.chance(0.15) {
			return nil, false
		}
		if name == "target" {
			name = pick(d, []string{"subscriber_id", "delivery_id", "key_id"})
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		return scalar(pick(d, w.pools[name])), true
	case "cursor":
		w.mu.Lock()
		defer w.mu.Unlock()
		pool := slices.Concat(w.pools["cursor of listDeliveries"], w.pools["cursor of listDeadLetters"],
			w.pools["cursor of listSubscribers"], w.pools["cursor of listKeys"], w.pools["cursor of listAudit"], w.pools["cursor of listRedrives"])
		if len(pool) == 0 || d.chance(0.2) {
			return nil, false
		}
		return scalar(pick(d, pool)), true
	case "url": // nothing is sent beyond this machine
		if d.chance(0.7) {
			return scalar(w.endpoint + pick(d, []string{"/ok", "/any", "/rejects", "/any?token=t%20x&é=1"})), true
		}
		return scalar(pick(d, []string{
			"http://nowhere.onion/", "https://10.0.0.1/", "http://[::1]/", "ftp://x", "//x", "http://me:pw@127.0.0.1/", "https://127.1/", "x", "",
			"http://127.0.0.1:0/", "http://127.0.0.1:99999/", "https://127.0.0.1/#f", "http://127.0.0.1:1/%zz", "https://exa mple.com/",
		})), true
	case "id":
		if d.chance(0.5) {
			return nil, false
		}
		return scalar(fmt.Sprintf("evt_%d", d.IntN(300))), true
	case "type":
		if d.chance(0.4) {
			return nil, false
		}
		return scalar("shipment.delivered"), true
	case "class":
		return scalar(pick(d, []string{"standard", "standard", "standard", "none"})), true
	case "account":
		return scalar(pick(d, []string{"acme", "globex", "initech"})), true
	case "types": // few of them match, so that an event does not go to everybody
		return &value{kind: '[', parts: []*value{scalar(pick(d, []string{"shipment.delivered", "shipment.*", "a.b", "fanout.test", "return.*", "none", "none.*"}))}}, true
	case "ids":
		v := &value{kind: '['}
		w.mu.Lock()
		defer w.mu.Unlock()
		for range 1 + d.IntN(2) { // few: what is claimed or gone is so for all the others
			v.parts = append(v.parts, scalar(pick(d, w.pools["delivery_id"])))
		}
		return v, true
	case "occurred_at", "expires_at":
		return scalar(pick(d, []string{"2026-11-30T14:03:22+01:00", "2032-01-01T00:00:00Z", "0001-01-01T00:00:00Z"})), true
	case "attempt_timeout", "overlap", "max_age", "retry_after_cap", "backoff_base", "backoff_cap":
		return scalar(pick(d, []string{"0s", "10ms", "100ms", "1s", "1m", "1h", "24h", "1000h", "1.5ms", "1ns"})), true
	case "file":
		return scalar(pick(d, []string{"oncall.css", "oncall.js", "icon.svg", "none.css", "oncall.css"})), true
	case "If-Match":
		return scalar(pick(d, []string{`"1"`, `"2"`, "*", `"3", "4"`, `W/"3"`, "x"})), true
	}
	return nil, false
}

// pick chooses an operation; what adds work for all the others comes less often.
func (w *world) pick(d *drawer) *operation {
	for {
		op := &w.ops[d.IntN(len(w.ops))]
		switch op.id {
		case "createSubscriber", "postEventBatch", "deleteSubscriber", "streamOnCall":
			if d.chance(0.5) {
				continue
			}
		}
		return op
	}
}

// caller is most often one who may.
func (w *world) caller(d *drawer, op *operation) caller {
	switch {
	case d.chance(0.08):
		return pick(d, w.nobodies)
	case d.chance(0.15):
		return pick(d, w.callers)
	}
	for {
		if c := pick(d, w.callers); op.roles == nil || slices.Contains(op.roles, c.role) {
			return c
		}
	}
}

// text is what a drawn value is in a path, a query or a header.
func (w *world) text(v *value) string {
	var s string
	if json.Unmarshal([]byte(v.String()), &s) == nil {
		return s
	}
	return v.String()
}

func (w *world) do(method, path, body, key string) (int, []byte) {
	w.Helper()
	req, err := http.NewRequestWithContext(context.WithoutCancel(w.Context()), method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := w.http.Do(req)
	if err != nil {
		w.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.Fatal(err)
	}
	return resp.StatusCode, b
}

func (w *world) must(method, path, body string, want int, into any) {
	w.Helper()
	status, b := w.do(method, path, body, bootstrap)
	if status != want {
		w.Fatalf("%s %s: %d, want %d: %s", method, path, status, want, b)
	}
	if into != nil {
		if err := json.Unmarshal(b, into); err != nil {
			w.Fatal(err)
		}
	}
}

func (w *world) until(what string, is func() bool) {
	w.Helper()
	for deadline := time.After(patience); !is(); {
		select {
		case <-deadline:
			w.Fatalf("gave up waiting until %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
