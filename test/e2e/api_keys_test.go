package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/boot"
	"github.com/fanout/fanout/internal/role"
)

// callerOf is a service as the holder of a key sees it, at one of its API servers.
type callerOf struct {
	*service
	at, token string
}

func (c callerOf) ask(method, path, body string) (int, string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.at+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", "application/json")
	res, err := client.RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}

func (c callerOf) get(method, path, body string, want int, into any) {
	c.Helper()
	status, text, err := c.ask(method, path, body)
	c.ok(err)
	if status != want {
		c.Fatalf("%s %s: %d, want %d: %s", method, path, status, want, text)
	}
	if into != nil {
		c.ok(json.Unmarshal([]byte(text), into))
	}
}

// key makes a key and gives its id and its holder.
func (c callerOf) key(role, account string) (string, callerOf) {
	c.Helper()
	if account != "" {
		account = fmt.Sprintf(`,"account":%q`, account)
	}
	var k struct{ ID, Key string }
	c.get("POST", "/v1/keys", fmt.Sprintf(`{"name":"e2e","role":%q%s}`, role, account), http.StatusCreated, &k)
	return k.ID, callerOf{c.service, c.at, k.Key}
}

// keyed starts a service that has keys, and gives its first admin.
func keyed(t testing.TB) (*service, callerOf) {
	t.Helper()
	s := start(t)
	_, admin := callerOf{s, s.url, ""}.key("admin", "")
	return s, admin
}

// another starts a second API server over the same Redis.
func (s *service) another() string {
	s.Helper()
	p := s.parts(s.seeds)
	ln, err := new(net.ListenConfig).Listen(s.Context(), "tcp", "127.0.0.1:0")
	s.ok(err)
	stages, err := role.API(s.Context(), p.Parts, ln, boot.Access{})
	s.ok(err)
	s.run(append(stages, p.last)...)
	return "http://" + ln.Addr().String()
}

// A key that is revoked under load is refused from the answer on by the server that
// revoked it, and within a second by every other.
func TestRevokedKeyStops(t *testing.T) {
	t.Parallel()
	s, admin := keyed(t)
	id, producer := admin.key("producer", "")
	elsewhere := producer
	elsewhere.at = s.another()
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		revoked time.Time // the answer
		late    = map[string]time.Duration{}
		posts   atomic.Int64
		done    = make(chan struct{})
	)
	for i := range 8 {
		c := []callerOf{producer, elsewhere}[i%2]
		wg.Go(func() {
			for n := 0; ; n++ {
				began := time.Now()
				status, text, err := c.ask("POST", "/v1/events", event(fmt.Sprint("load-", i, "-", n), "load", `{}`))
				if err != nil || status != http.StatusAccepted && status != http.StatusUnauthorized {
					t.Errorf("%d %s %v", status, text, err)
					return
				}
				posts.Add(1)
				mu.Lock()
				if status == http.StatusAccepted && !revoked.IsZero() {
					late[c.at] = max(late[c.at], began.Sub(revoked))
				}
				mu.Unlock()
				if status == http.StatusUnauthorized {
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	s.until("there is load", func() bool { return posts.Load() > 100 })
	admin.get("DELETE", "/v1/keys/"+id, "", http.StatusOK, nil)
	mu.Lock()
	revoked = time.Now()
	mu.Unlock()
	time.AfterFunc(patience, func() { close(done) })
	wg.Wait()
	t.Logf("posts=%d last_accepted_here_ms=%d last_accepted_elsewhere_ms=%d", posts.Load(), late[s.url].Milliseconds(), late[elsewhere.at].Milliseconds())
	if late[s.url] > 0 {
		t.Errorf("the server that revoked it took a post that began %s later", late[s.url])
	}
	if late[elsewhere.at] > time.Second {
		t.Errorf("another server took a post that began %s later", late[elsewhere.at])
	}
	for _, c := range []callerOf{producer, elsewhere} {
		c.get("GET", "/v1/keys/self", "", http.StatusUnauthorized, nil)
	}
}

// What goes to two accounts is seen by each as if the other were not there; a producer
// sees its events and nothing of the subscribers'.
func TestRolesOverARealEvent(t *testing.T) {
	t.Parallel()
	s, admin := keyed(t)
	_, acme := admin.key("subscriber", "acme")
	_, globex := admin.key("subscriber", "globex")
	_, initech := admin.key("subscriber", "initech")
	_, producer := admin.key("producer", "")
	e := s.endpoint(always(http.StatusOK))
	ids := map[string]string{}
	for name, c := range map[string]callerOf{"acme": acme, "globex": globex} {
		var r registered
		c.get("POST", "/v1/subscribers", fmt.Sprintf(`{"url":%q,"filter":{"types":["shared"]}}`, e.URL), http.StatusCreated, &r)
		s.mu.Lock()
		s.secrets[r.ID] = r.Secret
		s.mu.Unlock()
		ids[name] = r.ID
	}
	producer.get("POST", "/v1/events", event("shared", "shared", `{}`), http.StatusAccepted, nil)
	s.await(e, 2)
	var view struct {
		Planned    int `json:"deliveries_planned"`
		Deliveries []struct {
			ID           string
			SubscriberID string `json:"subscriber_id"`
		}
	}
	var others string
	for name, c := range map[string]callerOf{"acme": acme, "globex": globex} {
		c.get("GET", "/v1/events/shared", "", http.StatusOK, &view)
		if view.Planned != 1 || len(view.Deliveries) != 1 || view.Deliveries[0].SubscriberID != ids[name] {
			t.Errorf("%s sees %+v", name, view)
		}
		var list struct {
			Data []struct {
				SubscriberID string `json:"subscriber_id"`
			}
		}
		c.get("GET", "/v1/deliveries?event_id=shared", "", http.StatusOK, &list)
		if len(list.Data) != 1 || list.Data[0].SubscriberID != ids[name] {
			t.Errorf("%s lists %+v", name, list)
		}
		if name == "globex" {
			others = view.Deliveries[0].ID
		}
	}
	acme.get("GET", "/v1/deliveries/"+others, "", http.StatusNotFound, nil)
	acme.get("POST", "/v1/deliveries/"+others+"/cancel", `{"reason":"x"}`, http.StatusNotFound, nil)
	acme.get("GET", "/v1/subscribers/"+ids["globex"], "", http.StatusNotFound, nil)
	acme.get("DELETE", "/v1/subscribers/"+ids["globex"], "", http.StatusNotFound, nil)
	initech.get("GET", "/v1/events/shared", "", http.StatusNotFound, nil)

	producer.get("GET", "/v1/events/shared", "", http.StatusOK, &view)
	if view.Planned != 2 || len(view.Deliveries) != 2 {
		t.Errorf("the producer sees %+v", view)
	}
	for _, path := range []string{
		"/v1/subscribers", "/v1/subscribers/" + ids["acme"], "/v1/subscribers/" + ids["acme"] + "/stats", "/v1/subscribers/" + ids["acme"] + "/schedule",
		"/v1/deliveries?subscriber_id=" + ids["acme"], "/v1/dead-letters", "/v1/keys", "/v1/audit", "/v1/oncall", "/oncall", "/metrics",
	} {
		producer.get("GET", path, "", http.StatusForbidden, nil)
	}
	producer.get("PATCH", "/v1/subscribers/"+ids["acme"], `{"name":"mine"}`, http.StatusForbidden, nil)
	producer.get("POST", "/v1/subscribers/"+ids["acme"]+"/secrets", `{}`, http.StatusForbidden, nil)
}
