package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// client keeps as many connections as a parallel test needs.
var client = &http.Transport{MaxIdleConnsPerHost: 64}

// call makes an API request and decodes the answer, which must have the status.
func (s *service) call(method, path, body string, want int, into any) {
	s.Helper()
	status, b := s.do(method, path, body)
	if status != want {
		s.Fatalf("%s %s: %d, want %d: %s", method, path, status, want, b)
	}
	if into != nil {
		s.ok(json.Unmarshal(b, into))
	}
}

func (s *service) do(method, path, body string) (int, []byte) {
	s.Helper()
	status, b, err := s.try(method, path, body)
	s.ok(err)
	return status, b
}

// try is do for goroutines, which may not end their test.
func (s *service) try(method, path, body string) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := client.RoundTrip(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, b, err
}

// registered is what a test needs of a subscriber it made.
type registered struct {
	ID, Secret string
	Policy     delivery.Policy
}

// quick is a policy with which a failure by an answer is over at once, and a slow
// machine is not taken for a slow endpoint.
const quick = `{"attempt_timeout":"30s","max_attempts":3,"backoff_base":"20ms","backoff_cap":"40ms"}`

// hasty is for endpoints that do not answer.
const hasty = `{"attempt_timeout":"400ms","max_attempts":2,"backoff_base":"20ms","backoff_cap":"40ms"}`

// persistent is for endpoints that come back.
const persistent = `{"attempt_timeout":"30s","max_attempts":100,"backoff_base":"20ms","backoff_cap":"250ms"}`

// tireless is the same without a breaker that opens on the way.
const tireless = `{"attempt_timeout":"30s","max_attempts":100,"breaker_failures":99,"backoff_base":"20ms","backoff_cap":"250ms"}`

// subscribe registers an endpoint for one event type. policy is JSON, or "" for
// quick.
func (s *service) subscribe(url, eventType, policy string) registered {
	s.Helper()
	if policy == "" {
		policy = quick
	}
	return s.register(fmt.Sprintf(
		`{"account":"acme","name":"test","url":%q,"filter":{"types":[%q]},"policy":%s}`, url, eventType, policy))
}

// register creates a subscriber from the body of its POST.
func (s *service) register(body string) registered {
	s.Helper()
	var r registered
	s.call("POST", "/v1/subscribers", body, http.StatusCreated, &r)
	s.mu.Lock()
	s.secrets[r.ID] = r.Secret
	s.mu.Unlock()
	return r
}

// receipt is the answer to a post.
type receipt struct {
	ID         string    `json:"id"`
	Deliveries int       `json:"deliveries"`
	Duplicate  bool      `json:"duplicate"`
	AcceptedAt time.Time `json:"accepted_at"`
}

// event is the body of a post.
func event(id, eventType, data string) string {
	return fmt.Sprintf(
		`{"id":%q,"type":%q,"shipment_id":"shp_1","occurred_at":"2026-11-30T12:00:00+01:00","data":%s}`, id, eventType, data)
}

// post posts an event with the given data.
func (s *service) post(id, eventType, data string) receipt {
	s.Helper()
	var r receipt
	s.call("POST", "/v1/events", event(id, eventType, data), http.StatusAccepted, &r)
	return r
}

// postMany posts n events, several at a time, and returns their ids.
func (s *service) postMany(n int, prefix, eventType string) []string {
	s.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint(prefix, i)
	}
	errs := make(chan error, 8)
	for w := range cap(errs) {
		go func() {
			for i := w; i < n; i += cap(errs) {
				status, b, err := s.try("POST", "/v1/events", event(ids[i], eventType, fmt.Sprintf(`{"n":%d}`, i)))
				if err == nil && status != http.StatusAccepted {
					err = fmt.Errorf("post %s: %d: %s", ids[i], status, b)
				}
				if err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range cap(errs) {
		s.ok(<-errs)
	}
	return ids
}

// view is a delivery as the API shows it.
type view struct {
	ID             string    `json:"id"`
	EventID        string    `json:"event_id"`
	State          string    `json:"state"`
	Attempts       int       `json:"attempts"`
	DeliveryCount  int       `json:"delivery_count"`
	Releases       int       `json:"releases"`
	LeaseLosses    int       `json:"lease_losses"`
	LastOutcome    string    `json:"last_outcome"`
	FirstAttemptAt time.Time `json:"first_attempt_at"`
	LastAttemptAt  time.Time `json:"last_attempt_at"`
	NextAttemptAt  time.Time `json:"next_attempt_at"`
	EndedAt        time.Time `json:"ended_at"`
	Evidence       []attempt `json:"evidence"`
}

type attempt struct {
	Attempt   int               `json:"attempt"`
	StartedAt time.Time         `json:"started_at"`
	Duration  delivery.Duration `json:"duration"`
	Outcome   string            `json:"outcome"`
	Status    int               `json:"status"`
	Error     string            `json:"error"`
	Excerpt   string            `json:"excerpt"`
	Worker    string            `json:"worker"`
}

// outcomes of the attempts that left evidence.
func (v view) outcomes() []string {
	var all []string
	for _, a := range v.Evidence {
		all = append(all, a.Outcome)
	}
	return all
}

// expect compares the outcomes of the attempts.
func (s *service) expect(v view, outcomes ...string) {
	s.Helper()
	if !slices.Equal(v.outcomes(), outcomes) {
		s.Errorf("%s came to %v, want %v: %+v", v.EventID, v.outcomes(), outcomes, v.Evidence)
	}
}

// look reads the only delivery of an event; its zero value if there is none yet.
func (s *service) look(event string) view {
	s.Helper()
	var e struct{ Deliveries []struct{ ID string } }
	s.call("GET", "/v1/events/"+event, "", http.StatusOK, &e)
	if len(e.Deliveries) != 1 {
		return view{}
	}
	var v view
	s.call("GET", "/v1/deliveries/"+e.Deliveries[0].ID, "", http.StatusOK, &v)
	return v
}

// delivery waits until the only delivery of an event is in the state.
func (s *service) delivery(event, state string) view {
	s.Helper()
	var v view
	s.until(fmt.Sprintf("the delivery of %s is %s", event, state), func() bool {
		v = s.look(event)
		if v.State != state && slices.Contains([]string{"delivered", "dead", "cancelled"}, v.State) {
			s.Fatalf("the delivery of %s is %s, want %s; its last attempts: %+v",
				event, v.State, state, v.Evidence[max(0, len(v.Evidence)-3):])
		}
		return v.State == state
	})
	return v
}

// dead waits for the dead letter of an event's only delivery: there must be one,
// with the reason and the same evidence as the delivery.
func (s *service) dead(event, reason string) view {
	s.Helper()
	v := s.delivery(event, "dead")
	var list struct {
		Data []struct {
			Reason   string
			Delivery view
		}
	}
	s.call("GET", "/v1/dead-letters?limit=200", "", http.StatusOK, &list)
	n := 0
	for _, d := range list.Data {
		if d.Delivery.ID != v.ID {
			continue
		}
		n++
		if d.Reason != reason || !slices.Equal(d.Delivery.Evidence, v.Evidence) || v.EndedAt.IsZero() {
			s.Errorf("dead letter of %s: %+v, want reason %s and the evidence of %+v", event, d, reason, v)
		}
	}
	if n != 1 {
		s.Errorf("%d dead letters of %s", n, event)
	}
	return v
}
