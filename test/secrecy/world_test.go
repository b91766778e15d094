//go:build secrecy

package secrecy

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/test/redistest"
)

// world is the shipped binaries over a Redis that asks for a password, with a keyring,
// keys of every role, traces on, and logs that tell all that they can.
type world struct {
	testing.TB
	*hunt

	bin       string
	redis     *redistest.Redis
	collector *collector
	env       []string // of both processes
	args      []string
	api, disp *process
	url       string // of the API
	probes    string // of the dispatcher
	admin     string
	tokens    map[string]string // by role

	http *http.Client

	mu      sync.Mutex
	seen    map[string]int      // requests, by the behaviour of the endpoint
	signing map[string][]string // secrets, by the path of the endpoint
}

// The texts that must not show have in them what each kind of escaping changes.
const (
	bootstrap     = `b00tstrap-admin/key+with<signs>&"quotes"=7Kq`
	redisPassword = `redis/pa55word+with<signs>&=9Xw`
	otlpToken     = "0tlp-exporter-token/+3Jm"
)

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{
		TB: t, hunt: &hunt{}, bin: build(t), collector: newCollector(t), tokens: map[string]string{},
		seen: map[string]int{}, signing: map[string][]string{}, http: &http.Client{Timeout: patience},
	}
	w.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.Cleanup(w.http.CloseIdleConnections)
	w.admin = w.secret("the bootstrap key", bootstrap)
	w.redis = redistest.Server(t, redistest.Password(w.secret("the password of Redis", redisPassword)), redistest.AOFAlways())
	first, second := keyringKey('1'), keyringKey('2')
	w.secret("a key of the keyring", first)
	w.secret("a key of the keyring", second)
	w.env = []string{
		"FANOUT_ADMIN_KEY=" + w.admin, "FANOUT_REDIS_PASSWORD=" + redisPassword, "FANOUT_SECRETS_KEY=k2:" + second + ",k1:" + first,
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + w.collector.URL, "OTEL_BSP_SCHEDULE_DELAY=100",
		"OTEL_EXPORTER_OTLP_HEADERS=Authorization=Bearer%20" + w.secret("the token of the trace exporter", otlpToken),
	}
	w.args = []string{
		"--redis-addr=" + w.redis.Addr(), "--redis-partitions=4", "--listen=127.0.0.1:0", "--log-level=debug",
		"--allow-http", "--allow-any-port", "--allow-cidr=127.0.0.1/32",
	}
	w.api = w.run("fanout", w.env, append([]string{"serve"}, w.args...)...)
	w.disp = w.run("dispatcher", append(w.env, "FANOUT_LOG_FORMAT=text"), append([]string{"--slots=20", "--grace=2s"}, w.args...)...)
	w.url, w.probes = "http://"+w.listening(w.api), "http://"+w.listening(w.disp)
	w.ready()
	return w
}

func keyringKey(c byte) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(c)+"keyring", 4)))
}

func (w *world) ready() {
	w.Helper()
	w.until("both are ready", func() bool {
		for _, url := range []string{w.url + "/readyz", w.probes + "/readyz", w.url + "/v1/oncall"} {
			if status, _ := w.fetch("GET", url, "", "Authorization: Bearer "+w.admin); status != http.StatusOK {
				return false
			}
		}
		return true
	})
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
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

// fetch makes a request whose answer nobody looks into; headers are lines.
func (w *world) fetch(method, url, body string, headers ...string) (int, string) {
	w.Helper()
	status, b, _ := w.exchange(method, url, body, headers)
	return status, b
}

func (w *world) exchange(method, url, body string, headers []string) (status int, b string, h http.Header) {
	w.Helper()
	req, err := http.NewRequestWithContext(context.WithoutCancel(w.Context()), method, url, strings.NewReader(body))
	w.ok(err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Set(name, value)
	}
	resp, err := w.http.Do(req)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error(), nil
	}
	return resp.StatusCode, string(text), resp.Header
}

// answer is what came of a call.
type answer struct {
	status int
	body   string
}

func (a answer) field(names ...string) string {
	var tree any
	_ = json.Unmarshal([]byte(a.body), &tree)
	for _, name := range names {
		m, _ := tree.(map[string]any)
		tree = m[name]
	}
	text, _ := tree.(string)
	return text
}

// call calls the API with the token of a role, and has its answer looked into. may
// names the secrets that it may show.
func (w *world) call(role, method, path, body string, may ...string) answer {
	w.Helper()
	return w.callAs("Bearer "+w.tokens[role], method, path, body, may...)
}

func (w *world) callAs(auth, method, path, body string, may ...string) answer {
	w.Helper()
	status, text, header := w.exchange(method, w.url+path, body, []string{"Authorization: " + auth, "Fanout-Reason: to see what shows"})
	where, _, _ := strings.Cut(path, "?")
	w.look(fmt.Sprintf("the %d of %s %s", status, method, where), []byte(fmt.Sprint(header, "\n")+text), may...)
	return answer{status, text}
}

// must is call for what has to succeed.
func (w *world) must(role, method, path, body string, may ...string) answer {
	w.Helper()
	a := w.call(role, method, path, body, may...)
	if a.status >= http.StatusBadRequest || a.status == 0 {
		w.Fatalf("%s %s as %s: %d %s", method, path, role, a.status, a.body)
	}
	return a
}

// refused is callAs for what must not succeed.
func (w *world) refused(what, auth, method, path, body string) {
	w.Helper()
	if a := w.callAs(auth, method, path, body); a.status < http.StatusBadRequest {
		w.Errorf("%s is not refused: %d %s", what, a.status, a.body)
	}
}

// cli runs a command over the API with a key in its environment.
func (w *world) cli(token string, may []string, args ...string) string {
	w.Helper()
	p := w.run("fanout", []string{"FANOUT_API=" + w.url, "FANOUT_KEY=" + token}, args...)
	select {
	case <-p.exited:
	case <-time.After(patience):
		w.Fatalf("fanout %s does not end: %s", args[0], p.said())
	}
	out := p.said()
	w.look("fanout "+strings.Join(args[:min(2, len(args))], " "), out, may...)
	return string(out)
}

// redisHolds is all that is in Redis, key by key.
func (w *world) redisHolds() map[string][]byte {
	w.Helper()
	ctx, rdb := w.Context(), w.redis.Client()
	all := map[string][]byte{}
	for it := rdb.Scan(ctx, 0, "*", 500).Iterator(); it.Next(ctx); {
		key := it.Val()
		var v any
		var err error
		switch kind := rdb.Type(ctx, key).Val(); kind {
		case "string":
			v, err = rdb.Get(ctx, key).Result()
		case "hash":
			v, err = rdb.HGetAll(ctx, key).Result()
		case "list":
			v, err = rdb.LRange(ctx, key, 0, -1).Result()
		case "set":
			v, err = rdb.SMembers(ctx, key).Result()
		case "zset":
			v, err = rdb.ZRangeWithScores(ctx, key, 0, -1).Result()
		case "stream":
			v, err = rdb.XRange(ctx, key, "-", "+").Result()
		case "none":
			continue // it has just expired
		default:
			w.Fatalf("%s is a %s: teach this test to read it", key, kind)
		}
		if err != nil && !isGone(err) {
			w.Fatal(err)
		}
		all[key] = fmt.Appendln([]byte(key), fmt.Sprint(v))
	}
	return all
}

func isGone(err error) bool { return err == redis.Nil } //nolint:errorlint // it is never wrapped here

// knows has the endpoint of a path know its signing secrets.
func (w *world) knows(path, secret string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.signing[path], secret) {
		w.signing[path] = append(w.signing[path], secret)
	}
}
