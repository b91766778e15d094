//go:build secrecy

// Package secrecy answers: does a secret show where it must not?
//
// The shipped binaries run with all that they can tell turned on, and are given secrets
// of every kind. Every operation is called, every way to fail is taken, and endpoints
// throw back what they were sent. Then all that the service gave of itself is searched:
// both processes' logs, metrics and spans, every answer of the API, the on-call page and
// its stream, the audit, what the commands print, and what Redis holds in memory and on
// its disk; for each secret as it is, escaped, and in base64.
//
// What may show what:
//
//   - a signing secret: the one answer that made it, or that took it;
//   - a token: the answer that made its key;
//   - a custom header's value: nothing;
//   - the query of an endpoint's URL: nothing, the answers to its owner included;
//   - the path of one: the `url` of a subscriber's answers, for without it its owner could
//     not tell one endpoint from another; nothing else;
//   - the bootstrap key, the keyring, the password of Redis: nothing.
package secrecy

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestNothingShowsASecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.makeKeys()
	w.badStarts()
	subs := w.register()
	w.refusals(subs[0])
	w.badCallers(subs[0])
	w.post(subs, "first")
	w.awaitEnds(subs)
	w.change(subs)
	w.repair(subs)
	w.redrive(subs)
	w.outage(subs)
	w.post(subs, "third")
	w.awaitEnds(subs)
	w.commands(subs[0])
	w.everyView(subs)
	w.end()

	for _, f := range w.findings() {
		t.Error(f)
	}
	bytes := 0
	for _, p := range w.places {
		bytes += len(p.text)
	}
	t.Logf("secrets=%d places=%d bytes=%d", len(w.secrets), len(w.places), bytes)
}

// subscriber is one endpoint that behaves in one way.
type subscriber struct {
	id, behaviour string
	path          string   // of its URL, with a token in it
	own           []string // what its URL may show of its path, in answers
	state         string   // in which its deliveries end; "" for one that is retried
	outcome       string
}

// makeKeys makes a key of each role, and some that are no good any more.
func (w *world) makeKeys() {
	w.Helper()
	w.tokens["bootstrap"] = w.admin
	for _, role := range []string{"producer", "subscriber", "viewer", "operator", "admin", "revoked", "expired"} {
		w.tokens[role] = w.makeKey(role)
	}
	w.until("the key is revoked and the other one expired", func() bool {
		return w.callAs("Bearer "+w.tokens["revoked"], "GET", "/v1/keys/self", "").status == http.StatusUnauthorized &&
			w.callAs("Bearer "+w.tokens["expired"], "GET", "/v1/keys/self", "").status == http.StatusUnauthorized
	})
}

func (w *world) makeKey(role string) string {
	w.Helper()
	body := map[string]any{"name": "of " + role, "role": role}
	switch role {
	case "subscriber":
		body["account"] = "acme"
	case "revoked":
		body["role"] = "admin"
	case "expired":
		body["role"], body["expires_at"] = "admin", time.Now().Add(1500*time.Millisecond).UTC().Format(time.RFC3339Nano)
	}
	what := "the token of " + role
	a := w.must("bootstrap", "POST", "/v1/keys", toJSON(body), what)
	token := w.secret(what, a.field("key"))
	w.secret(what+", its secret half", strings.SplitN(token, "_", 3)[2])
	if role == "revoked" {
		w.must("bootstrap", "DELETE", "/v1/keys/"+a.field("id"), "")
	}
	return token
}

func toJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// badStarts are processes whose settings are wrong: what they say must not quote them.
func (w *world) badStarts() {
	w.Helper()
	short := w.secret("an admin key that is too short", "sh0rt-admin-key/+<5Vd")
	broken := w.secret("a broken keyring", "bm90LWEta2V5LW9mLTMyLWJ5dGVz")
	serve := append([]string{"serve"}, w.args...)
	w.fails("a short admin key", "fanout", slices.Concat(w.env, []string{"FANOUT_ADMIN_KEY=" + short}), serve...)
	for _, binary := range []struct {
		name string
		args []string
	}{{"fanout", serve}, {"dispatcher", w.args}, {"fanout", append([]string{"reseal"}, w.args[0])}} {
		for _, ring := range []string{broken, "k1:" + broken, "k1:" + keyringKey('1') + ",k1:" + keyringKey('2')} {
			w.fails("a broken keyring", binary.name, slices.Concat(w.env, []string{"FANOUT_SECRETS_KEY=" + ring}), binary.args...)
		}
	}
	wrong := w.secret("a wrong password of Redis", "wr0ng-redis-pa55word/+<8Bn")
	w.fails("a wrong password of Redis", "dispatcher", slices.Concat(w.env, []string{"FANOUT_REDIS_PASSWORD=" + wrong}), w.args...)
}

// register makes a subscriber for each way in which an endpoint behaves.
func (w *world) register() (subs []*subscriber) {
	w.Helper()
	plain, selfSigned, nobody := w.endpoints()
	for i, c := range []struct{ behaviour, base, state, outcome string }{
		{"200", plain, "delivered", "delivered"},
		{"302", plain, "dead", "http_3xx"},
		{"400", plain, "dead", "http_400"},
		{"401", plain, "dead", "http_401"},
		{"404", plain, "dead", "http_404"},
		{"410", plain, "dead", "gone"},
		{"422", plain, "dead", "http_422"},
		{"429", plain, "dead", "http_429"},
		{"500", plain, "dead", "http_5xx"},
		{"503", plain, "dead", "http_5xx"},
		{"hangs", plain, "dead", "timeout"},
		{"resets", plain, "dead", "reset"},
		{"garbage", plain, "dead", ""},
		{"tls", selfSigned, "dead", "tls"},
		{"speaks-no-tls", strings.Replace(plain, "http:", "https:", 1), "dead", "tls"},
		{"refuses", nobody, "dead", "connect"},
		{"nowhere", "http://nowhere.onion", "dead", ""},   // never asked of a DNS server (RFC 7686)
		{"no-name", "http://nowhere.invalid", "dead", ""}, // asked, if there is one (RFC 2606)
		{"blocked", "https://blocked.localhost", "dead", ""},
	} {
		s := &subscriber{behaviour: c.behaviour, state: c.state, outcome: c.outcome}
		s.path = "/" + c.behaviour + "/" + w.secret("the path of "+c.behaviour, fmt.Sprintf("p4thToken%02dXk9", i))
		s.own = []string{"the path of " + c.behaviour}
		if i%2 == 1 {
			s.path += "/html"
		}
		w.create(s, c.base, i)
		subs = append(subs, s)
	}
	return subs
}

// create registers a subscriber with secrets of its own; every third gives its
// signing secret.
func (w *world) create(s *subscriber, base string, i int) {
	w.Helper()
	body := map[string]any{
		"account": "acme", "name": s.behaviour, "url": base + s.path + w.query(s.behaviour),
		"filter":  map[string]any{"types": []string{"shipment." + s.behaviour}},
		"headers": map[string]string{"Authorization": "Bearer " + w.headerValue(s.behaviour, "authorization"), "X-Api-Key": w.headerValue(s.behaviour, "api key")},
		"policy": map[string]any{
			"attempt_timeout": "500ms", "max_attempts": 3, "breaker_failures": 2, "backoff_base": "10ms", "backoff_cap": "20ms", "retry_after_cap": "0s",
		},
	}
	what := "the signing secret of " + s.behaviour
	switch i % 3 {
	case 1:
		body["secret"] = w.signingSecret(what, "whsec_"+base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "given signing secret %02d <&\">", i)))
	case 2:
		seed := fmt.Appendf(nil, "an Ed25519 seed, no. %02d of many.", i)[:ed25519.SeedSize]
		body["secret"] = w.signingSecret(what, "whsk_"+base64.StdEncoding.EncodeToString(ed25519.NewKeyFromSeed(seed)))
	}
	a := w.must("subscriber", "POST", "/v1/subscribers", toJSON(body))
	w.signingSecret(what, a.field("secret"))
	w.places[len(w.places)-1].may = append(s.own, what)
	s.id = a.field("id")
	w.knows(strings.TrimSuffix(s.path, "/html"), a.field("secret"))
	if shown := a.field("url"); !strings.HasSuffix(shown, s.path+"?***") {
		w.Errorf("the url of a new subscriber is shown as %q", shown)
	}
}

// signingSecret has both a secret and the key in it be hunted.
func (w *world) signingSecret(what, secret string) string {
	_, key, _ := strings.Cut(secret, "_")
	w.secret(what+", its key", key)
	raw, err := base64.StdEncoding.DecodeString(key)
	w.ok(err)
	w.secret(what+", its bytes", string(raw))
	return w.secret(what, secret)
}

// query is one of a URL, with tokens that need escapes.
func (w *world) query(of string) string {
	token := w.secret("a query token of "+of, `qt0ken/+<&">'=`+of+"Wm4")
	plain := w.secret("a plain query token of "+of, "plainQt0ken"+of+"Rz8")
	return "?token=" + url.QueryEscape(token) + "&sig=" + plain
}

func (w *world) headerValue(of, what string) string {
	return w.secret("the "+what+" of "+of, `hdr"t0ken/+<&>'=`+of+what+"Ct6")
}

// refusals must not quote what they refuse.
func (w *world) refusals(s *subscriber) {
	w.Helper()
	admin := "Bearer " + w.tokens["admin"]
	tok := w.secret("what is refused", `refused/+<&>-Yb2`)
	esc := url.QueryEscape(tok)
	key := base64.StdEncoding.EncodeToString([]byte("refused signing secret"))
	w.secret("a signing secret that is refused", key)
	for what, body := range map[string]string{
		"a blocked URL":      `{"url":"http://10.0.0.1/?token=` + esc + `"}`,
		"a bad scheme":       `{"url":"ftp://example.com/?token=` + esc + `"}`,
		"userinfo":           `{"url":"https://me:` + esc + `@example.com/"}`,
		"a user":             `{"url":"https://` + esc + `@example.com/"}`,
		"a fragment":         `{"url":"https://example.com/#` + esc + `"}`,
		"no URL":             `{"url":"https://exa mple.com/?token=` + esc + `"}`,
		"a mask":             `{"url":"https://example.com/` + esc + `?***"}`,
		"a short secret":     `{"url":"https://example.com/","secret":"whsec_` + key[:8] + `"}`,
		"a secret of a kind": `{"url":"https://example.com/","secret":"whpk_` + key + `"}`,
		"no base64":          `{"url":"https://example.com/","secret":"whsec_` + key + `!"}`,
		"a line in a header": `{"url":"https://example.com/","headers":{"X-A":"` + tok + `\r\nX-B: c"}}`,
		"another's header":   `{"url":"https://example.com/","headers":{"Host":"` + tok + `"}}`,
		"a wide header":      `{"url":"https://example.com/","headers":{"X-A":"é` + tok + `"}}`,
		"broken JSON":        `{"url":"https://example.com/?token=` + esc + `","secret":"whsec_` + key + `",}`,
		"a wrong type":       `{"url":["https://example.com/?token=` + esc + `"],"secret":["whsec_` + key + `"]}`,
		"an unknown field":   `{"url":"https://example.com/","sekret":"` + tok + `"}`,
		"a wrong policy":     `{"url":"https://example.com/?t=` + esc + `","policy":{"attempt_timeout":"` + tok + `"}}`,
		"a number":           `{"url":"https://example.com/","headers":{"X-A":1,"X-B":"` + tok + `"}}`,
	} {
		w.refused(what, admin, "POST", "/v1/subscribers", body)
		w.refused(what, admin, "PATCH", "/v1/subscribers/"+s.id, body)
	}
	for what, body := range map[string]string{
		"a short secret": `{"secret":"whsec_` + key[:8] + `"}`, "a long overlap": `{"secret":"whsec_` + key + key + `","overlap":"9999h"}`,
		"a wrong type": `{"secret":{"a":"` + tok + `"}}`, "an overlap": `{"overlap":"` + tok + `"}`,
	} {
		w.refused(what, admin, "POST", "/v1/subscribers/"+s.id+"/secrets", body)
	}
	w.refused("a role", admin, "POST", "/v1/keys", `{"name":"x","role":"`+tok+`"}`)
	for _, path := range []string{"/v1/subscribers", "/v1/audit", "/v1/events/x", "/nowhere", "/metrics", "/oncall"} {
		for _, q := range []string{"?access_token=" + esc, "?cursor=" + esc, "?" + esc + "=1", "?limit=" + esc, "?token=" + url.QueryEscape(w.tokens["admin"])} {
			a := w.callAs(admin, "GET", path+q, "")
			if strings.HasPrefix(q, "?"+esc) { // a name is told back: that is what it is about
				w.places[len(w.places)-1].may = append(w.places[len(w.places)-1].may, "what is refused")
			}
			if a.status < http.StatusBadRequest {
				w.Errorf("GET %s with %s: %d", path, q, a.status)
			}
		}
	}
}

// badCallers have no good key.
func (w *world) badCallers(s *subscriber) {
	w.Helper()
	good := w.tokens["operator"]
	wrong := w.secret("a wrong token", good[:len(good)-8]+"wr0ngXy7")
	for what, auth := range map[string]string{
		"a wrong token":   "Bearer " + wrong,
		"half a token":    "Bearer " + good[:len(good)-9],
		"a revoked token": "Bearer " + w.tokens["revoked"],
		"an expired one":  "Bearer " + w.tokens["expired"],
		"another scheme":  "Token " + good,
		"bootstrap, cut":  "Bearer " + w.admin[:len(w.admin)-1],
		"basic":           "Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+wrong)),
		"a password":      "Bearer " + w.secret("a password", "somebody's-pa55word/+<4Gt"),
	} {
		for _, c := range [][2]string{
			{"GET", "/v1/subscribers/" + s.id}, {"POST", "/v1/events"}, {"GET", "/oncall"}, {"GET", "/nowhere"}, {"DELETE", "/v1/keys/key_x"},
		} {
			w.refused(what, auth, c[0], c[1], "")
		}
	}
	for role := range w.tokens { // who may and who may not, by Basic too
		for _, path := range []string{"/v1/keys", "/v1/audit", "/v1/subscribers", "/v1/keys/self", "/oncall", "/docs"} {
			w.callAs("Basic "+base64.StdEncoding.EncodeToString([]byte("me:"+w.tokens[role])), "GET", path, "", w.pathsOf(path)...)
		}
	}
}

// pathsOf are the names of the paths that an answer may show: a list of subscribers,
// all of them.
func (w *world) pathsOf(list string) (names []string) {
	if !strings.Contains(list, "subscribers") {
		return nil
	}
	for what := range w.secrets {
		if strings.HasPrefix(what, "the path of ") {
			names = append(names, what)
		}
	}
	return names
}

// post posts an event for each subscriber, alone, in a batch, and as a test.
func (w *world) post(subs []*subscriber, prefix string) {
	w.Helper()
	var batch []any
	for _, s := range subs {
		e := map[string]any{
			"id": prefix + "-" + s.behaviour, "type": "shipment." + s.behaviour, "shipment_id": "shp_1", "occurred_at": "2026-11-30T12:00:00Z", "data": prefix,
		}
		w.must("producer", "POST", "/v1/events", toJSON(e))
		e["id"] = prefix + "-batch-" + s.behaviour
		batch = append(batch, e)
		w.must("subscriber", "POST", "/v1/subscribers/"+s.id+"/test", `{}`)
	}
	w.must("producer", "POST", "/v1/events/batch", toJSON(map[string]any{"events": batch}))
}

// awaitEnds waits until nothing is pending; what holds a subscriber is ended on the way.
func (w *world) awaitEnds(subs []*subscriber) {
	w.Helper()
	for _, s := range subs {
		w.until("the deliveries of "+s.behaviour+" have ended", func() bool {
			var stats struct {
				Pending int
				Holds   []struct{ Reason string }
			}
			_, text := w.fetch("GET", w.url+"/v1/subscribers/"+s.id+"/stats", "", "Authorization: Bearer "+w.admin)
			_ = json.Unmarshal([]byte(text), &stats)
			if stats.Pending > 0 && len(stats.Holds) > 0 {
				w.must("operator", "POST", "/v1/subscribers/"+s.id+"/resume", "", s.own...)
			}
			return text != "" && strings.HasPrefix(text, "{") && stats.Pending == 0
		})
	}
}

// change rotates every secret that a subscriber has, and does it once more.
func (w *world) change(subs []*subscriber) {
	w.Helper()
	for i, s := range subs {
		at := "/v1/subscribers/" + s.id
		what := "a rotated secret of " + s.behaviour
		given := w.signingSecret(what, "whsec_"+base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "rotated signing secret %02d <&>", i)))
		w.must("subscriber", "POST", at+"/secrets", toJSON(map[string]any{"secret": given, "overlap": "1h"}), what)
		w.knows(strings.TrimSuffix(s.path, "/html"), given)
		what = "a secret that was made for " + s.behaviour
		a := w.must("subscriber", "POST", at+"/secrets", `{}`)
		made := w.signingSecret(what, a.field("secret"))
		w.places[len(w.places)-1].may = []string{what}
		w.knows(strings.TrimSuffix(s.path, "/html"), made)
		w.must("subscriber", "PATCH", at, toJSON(map[string]any{
			"headers": map[string]any{"x-api-key": w.headerValue(s.behaviour, "second key"), "X-More": w.headerValue(s.behaviour, "third key"), "Authorization": nil},
		}), s.own...)
		w.must("operator", "POST", at+"/pause", "", s.own...)
	}
	w.post(subs, "second")
	for _, s := range subs {
		at := "/v1/subscribers/" + s.id
		w.must("operator", "POST", at+"/resume", "", s.own...)
		a := w.must("viewer", "GET", at, "", s.own...)
		shown, _, _ := strings.Cut(a.field("url"), "?")
		if s.behaviour != "blocked" {
			w.must("admin", "PATCH", at, toJSON(map[string]any{"url": shown + w.query("another-"+s.behaviour)}), s.own...)
		}
	}
	w.awaitEnds(subs)
}

// repair is what operators and owners do to deliveries, in the states in which it
// works and in those in which it does not.
func (w *world) repair(subs []*subscriber) {
	w.Helper()
	s := subs[0]
	w.must("operator", "POST", "/v1/subscribers/"+s.id+"/pause", "", s.own...)
	for range 2 {
		a := w.must("subscriber", "POST", "/v1/subscribers/"+s.id+"/test", `{"data":{"a":1}}`)
		id := a.field("delivery_id")
		w.until("it waits", func() bool {
			return w.call("operator", "POST", "/v1/deliveries/"+id+"/retry", `{"reason":"to see"}`).status == http.StatusOK
		})
		w.must("subscriber", "POST", "/v1/deliveries/"+id+"/cancel", `{"reason":"to see"}`)
		w.call("operator", "POST", "/v1/deliveries/"+id+"/retry", ``)
	}
	w.must("operator", "POST", "/v1/subscribers/"+s.id+"/resume", "", s.own...)
	gone := &subscriber{behaviour: "deleted", path: "/200/" + w.secret("the path of deleted", "p4thTokenDeleted7"), own: []string{"the path of deleted"}}
	w.create(gone, "http://127.0.0.1:9", 97)
	w.must("subscriber", "DELETE", "/v1/subscribers/"+gone.id+"?wait=0", "")
	w.call("subscriber", "GET", "/v1/subscribers/"+gone.id, "")
}

// redrive sends dead letters again, to endpoints that still fail, and forgets one.
func (w *world) redrive(subs []*subscriber) {
	w.Helper()
	for _, s := range subs {
		if s.behaviour != "500" && s.behaviour != "404" {
			continue
		}
		var list struct {
			Data []struct{ Delivery struct{ ID string } }
		}
		a := w.must("operator", "GET", "/v1/dead-letters?limit=3&subscriber_id="+s.id, "")
		w.ok(json.Unmarshal([]byte(a.body), &list))
		if len(list.Data) < 3 {
			w.Fatalf("%d dead letters of %s", len(list.Data), s.behaviour)
		}
		w.must("operator", "GET", "/v1/dead-letters/"+list.Data[0].Delivery.ID, "", s.own...) // with its subscriber
		ids := []string{list.Data[0].Delivery.ID, list.Data[1].Delivery.ID, list.Data[2].Delivery.ID}
		id := w.must("operator", "POST", "/v1/redrives", toJSON(map[string]any{"reason": "to see", "ids": ids, "attempt_budget": 1})).field("id")
		at := "/v1/redrives/" + id
		state := ""
		w.until("the canary of "+s.behaviour+" is back", func() bool {
			_, text := w.fetch("GET", w.url+at, "", "Authorization: Bearer "+w.admin)
			state = answer{body: text}.field("state")
			if strings.HasPrefix(state, "canary") { // it is waited for while its endpoint is on hold
				w.must("operator", "POST", "/v1/subscribers/"+s.id+"/resume", "", s.own...)
			}
			return state != "" && !strings.HasPrefix(state, "canary")
		})
		w.call("operator", "POST", at+"/approve", `{"effect":"seen in the logs"}`)
		w.call("operator", "POST", at+"/pause", `{"reason":"to see"}`)
		w.call("operator", "POST", at+"/abort", `{"reason":"to see"}`)
		w.must("operator", "GET", at, "")
		var e struct{ Deliveries []struct{ ID string } }
		w.ok(json.Unmarshal([]byte(w.must("operator", "GET", "/v1/events/second-batch-"+s.behaviour, "").body), &e))
		for _, d := range e.Deliveries {
			w.must("operator", "POST", "/v1/dead-letters/discard", toJSON(map[string]any{"reason": "to see", "ids": []string{d.ID}}))
		}
	}
}

// outage kills Redis for a moment, while everything is asked for.
func (w *world) outage(subs []*subscriber) {
	w.Helper()
	w.redis.Kill9()
	secret := w.secret("a secret that came while Redis was away", "whsec_"+base64.StdEncoding.EncodeToString([]byte("came while Redis was away")))
	s := subs[0]
	for _, c := range []struct{ role, method, path, body string }{
		{"admin", "POST", "/v1/subscribers", toJSON(map[string]any{
			"url": "http://127.0.0.1:9/" + w.query("away-new"), "secret": secret,
			"headers": map[string]string{"X-A": w.headerValue("one that came while Redis was away", "key")},
		})},
		{"admin", "PATCH", "/v1/subscribers/" + s.id, toJSON(map[string]any{"url": "http://127.0.0.1:9/" + w.query("away-changed")})},
		{"admin", "POST", "/v1/subscribers/" + s.id + "/secrets", toJSON(map[string]any{"secret": secret})},
		{"admin", "POST", "/v1/keys", `{"name":"x","role":"viewer"}`},
		{"producer", "POST", "/v1/events", `{"id":"away","type":"shipment.200","shipment_id":"s","occurred_at":"2026-11-30T12:00:00Z","data":1}`},
		{"admin", "GET", "/v1/subscribers/" + s.id, ""},
		{"admin", "GET", "/v1/subscribers", ""},
		{"revoked", "GET", "/v1/subscribers", ""},
		{"viewer", "GET", "/readyz", ""},
	} {
		if a := w.call(c.role, c.method, c.path, c.body, w.pathsOf(c.path)...); a.status < http.StatusBadRequest {
			w.Errorf("%s %s while Redis is away: %d", c.method, c.path, a.status)
		}
	}
	status, text := w.fetch("GET", w.probes+"/readyz", "")
	w.look("the dispatcher's /readyz while Redis is away", []byte(text))
	if status == http.StatusOK {
		w.until("the dispatcher sees that Redis is away", func() bool {
			status, text := w.fetch("GET", w.probes+"/readyz", "")
			w.look("the dispatcher's /readyz while Redis is away", []byte(text))
			return status != http.StatusOK
		})
	}
	w.redis.Restart()
	w.ready()
}

// commands are those of the command line, with good keys and bad ones.
func (w *world) commands(s *subscriber) {
	w.Helper()
	admin := w.tokens["admin"]
	file := filepath.Join(w.TempDir(), "key")
	w.ok(os.WriteFile(file, []byte(admin), 0o600))
	for _, format := range []string{"table", "json"} {
		o := "--output=" + format
		for _, args := range [][]string{
			{"subscribers", "ls"},
			{"subscribers", "show", s.id},
			{"subscribers", "stats", s.id},
			{"subscribers", "schedule", s.id},
			{"subscribers", "pause", s.id},
			{"subscribers", "resume", s.id},
			{"subscribers", "test", s.id},
			{"subscribers", "patch", s.id, "--name=renamed"},
			{"keys", "ls"},
			{"keys", "self"},
			{"keys", "self", "--key-file=" + file},
			{"audit"},
			{"events", "show", "first-200"},
			{"dead", "ls"},
			{"deliveries", "ls", "--event=first-404"},
			{"trigger", "shipment.200"},
			{"subscribers", "show", "sub_nobody"},
		} {
			w.cli(admin, w.pathsOf(args[0]), append(args, o)...)
		}
		what := "a secret that was rotated by a command as " + format
		w.once(what, "secret", format, "subscribers", "rotate-secret", s.id, "--overlap=0s", o)
		w.once("a token that was made by a command as "+format, "key", format, "keys", "create", "--name=cli", "--role=viewer", o)
	}
	for _, token := range []string{w.tokens["revoked"], w.secrets["a wrong token"], w.tokens["producer"]} {
		for _, args := range [][]string{{"subscribers", "ls"}, {"keys", "self"}, {"audit", "-o", "json"}} {
			w.cli(token, nil, args...)
		}
	}
	broken := w.secret("a key with a line break", "a-key-with\na-line-break/+<6Hu")
	w.cli(broken, nil, "keys", "self")
}

// once runs a command that shows a secret, this once.
func (w *world) once(what, name, format string, args ...string) {
	w.Helper()
	out := w.cli(w.tokens["admin"], nil, args...)
	shown := ""
	if format == "json" {
		_, document, _ := strings.Cut(out, "\n") // after what it says on its standard error
		shown = answer{body: document}.field(name)
	}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); shown == "" && len(f) > 1 && f[0] == name {
			shown = f[1]
		}
	}
	if len(shown) < 30 {
		w.Fatalf("fanout %v shows no %s: %s", args, name, out)
	}
	w.secret(what, shown)
	w.places[len(w.places)-1].may = []string{what}
}

// everyView is all that can be read, by each role that may.
func (w *world) everyView(subs []*subscriber) {
	w.Helper()
	for _, role := range []string{"subscriber", "viewer", "operator", "admin", "producer"} {
		for _, s := range subs {
			at := "/v1/subscribers/" + s.id
			for _, path := range []string{at, at + "/stats", at + "/schedule", "/v1/dead-letters?limit=200&subscriber_id=" + s.id, "/v1/deliveries?state=dead&subscriber_id=" + s.id} {
				may := []string(nil)
				if path == at {
					may = s.own
				}
				w.call(role, "GET", path, "", may...)
			}
			w.outcomes(role, s)
		}
		for _, path := range []string{"/v1/subscribers?limit=200", "/v1/audit?limit=200"} {
			for next := ""; ; {
				a := w.call(role, "GET", path+next, "", w.pathsOf(path)...)
				if cursor := a.field("next_cursor"); cursor != "" {
					next = "&cursor=" + url.QueryEscape(cursor)
					continue
				}
				break
			}
		}
		for _, path := range []string{"/metrics", "/oncall", "/v1/oncall", "/v1/keys?limit=200", "/v1/keys/self", "/v1/dead-letters?limit=200", "/v1/redrives", "/openapi.yaml", "/docs"} {
			w.call(role, "GET", path, "")
		}
	}
	_, text := w.fetch("GET", w.probes+"/metrics", "")
	if !strings.Contains(text, "fanout_") {
		w.Error("the dispatcher has no metrics")
	}
	w.look("the dispatcher's metrics", []byte(text))
	w.stream()
}

// outcomes looks at what became of an event, and that it is what it was to be.
func (w *world) outcomes(role string, s *subscriber) {
	w.Helper()
	for _, prefix := range []string{"first-", "first-batch-", "second-", "third-"} {
		a := w.call(role, "GET", "/v1/events/"+prefix+s.behaviour, "")
		var e struct{ Deliveries []struct{ ID string } }
		_ = json.Unmarshal([]byte(a.body), &e)
		w.call(role, "GET", "/v1/deliveries?event_id="+prefix+s.behaviour, "")
		if len(e.Deliveries) != 1 {
			w.Errorf("%d deliveries of %s as %s: %s", len(e.Deliveries), prefix+s.behaviour, role, a.body)
			continue
		}
		d := w.must(role, "GET", "/v1/deliveries/"+e.Deliveries[0].ID, "")
		if prefix == "first-" && (d.field("state") != s.state || s.outcome != "" && d.field("last_outcome") != s.outcome) {
			w.Errorf("%s came to %s, %s: %s", s.behaviour, d.field("state"), d.field("last_outcome"), d.body)
		}
		if s.behaviour == "404" && !strings.Contains(d.body, "[redacted]") {
			w.Errorf("the evidence of %s does not show that something was taken out: %s", s.behaviour, d.body)
		}
	}
}

// stream reads two samples of the on-call page's stream.
func (w *world) stream() {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+"/oncall/events", http.NoBody)
	w.ok(err)
	req.Header.Set("Authorization", "Bearer "+w.tokens["viewer"])
	resp, err := w.http.Do(req)
	w.ok(err)
	defer resp.Body.Close()
	var text strings.Builder
	samples := 0
	for lines := bufio.NewScanner(resp.Body); samples < 3 && lines.Scan(); {
		text.WriteString(lines.Text() + "\n")
		if strings.HasPrefix(lines.Text(), "event: sample") {
			samples++
		}
	}
	if samples < 3 {
		w.Errorf("%d samples of the stream", samples)
	}
	w.look("the stream of the on-call page", []byte(text.String()))
}

// end stops everything, and looks at what is left: logs, spans and Redis.
func (w *world) end() {
	w.Helper()
	for key, text := range w.redisHolds() {
		w.look("Redis, at "+key, text)
	}
	w.stop(w.disp)
	w.stop(w.api)
	w.look("the log of the API", w.api.said())
	w.look("the log of the dispatcher", w.disp.said())
	if !strings.Contains(string(w.api.said()), `"msg":"tracing"`) && !strings.Contains(string(w.disp.said()), "msg=tracing") {
		w.Error("no log of the export that failed")
	}
	spans, auth := w.collector.got()
	w.look("the spans", spans)
	for _, name := range []string{"delivery_id", "POST /v1/subscribers/{subscriber_id}/secrets", "http_404", "fanout.event_id"} {
		if !strings.Contains(string(spans), name) {
			w.Errorf("no %q in %d bytes of spans", name, len(spans))
		}
	}
	if auth != "Bearer "+otlpToken {
		w.Error("the spans came without the exporter's token")
	}
	aof := 0
	for name, text := range files(w, w.redis.Dir()) {
		w.look("Redis' file "+name, text)
		if strings.Contains(name, "incr.aof") {
			aof += len(text)
		}
	}
	if aof < 100_000 {
		w.Errorf("%d bytes of append-only file", aof)
	}
}
