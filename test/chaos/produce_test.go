//go:build chaos

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

// answer is what came back from the API; Err when nothing did.
type answer struct {
	Status     int
	Header     http.Header
	Body       []byte
	Code       string // of a problem
	Err        error
	ID         string
	Deliveries int
}

// sure says that the request took no effect.
func (a answer) sure() bool {
	return a.Err == nil && (a.Status/100 == 4 || a.Code == "storage_full")
}

// call sends one request to one API process. It never fails the test: under
// faults, anything may come back.
func (w *world) call(ctx context.Context, c *child, method, path, body string) answer {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.address()+path, strings.NewReader(body))
	if err != nil {
		return answer{Err: err}
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := w.http.Do(req)
	if err != nil {
		return answer{Err: err}
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{Err: err}
	}
	a := answer{Status: res.StatusCode, Header: res.Header, Body: b}
	_ = json.Unmarshal(b, &a) // what is not there stays empty
	a.Status = res.StatusCode // a problem has a field of that name too
	if a.Status == http.StatusInternalServerError {
		w.wrong("%s answered 500 to %s %s: %s", c.name, method, path, b)
	}
	if a.Status == http.StatusServiceUnavailable && a.Header.Get("Retry-After") == "" {
		w.wrong("%s answered 503 without Retry-After to %s %s", c.name, method, path)
	}
	return a
}

const (
	// postTries is how often a producer posts an event before it leaves it open
	// whether it was accepted.
	postTries = 6
	// postTimeout is how long it waits for each answer.
	postTimeout = 4 * time.Second
)

// produce posts events, one after the other, until ctx ends.
func (w *world) produce(ctx context.Context, n int, rng *rand.Rand) {
	for i := 0; ctx.Err() == nil; i++ {
		kind := "fast"
		if rng.IntN(8) == 0 {
			kind = "slow"
		}
		w.post(ctx, rng, fmt.Sprintf("e-%s-%d-%d", w.name, n, i), kind)
		pause(ctx, time.Duration(20+rng.IntN(80))*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// post posts one event, again and again while it is in doubt, to either API.
func (w *world) post(ctx context.Context, rng *rand.Rand, id, kind string) *posted {
	e := &posted{ID: id, Type: kind, First: time.Now()}
	e.Body = fmt.Sprintf(
		`{"id":%q,"type":%q,"shipment_id":"shp_1","occurred_at":"2026-11-30T12:00:00Z","data":{"pad":%q}}`,
		id, kind, strings.Repeat("x", rng.IntN(400)))
	w.truth.with(func() { w.truth.events[id] = e })
	figures.events.Add(1)
	for range postTries {
		c := w.apis()[rng.IntN(w.cast.apis)]
		a := w.postOnce(e, c)
		if a.Err == nil && a.Status != http.StatusAccepted && a.Status != http.StatusServiceUnavailable {
			w.wrong("%s answered %d to the post of %s: %s", c.name, a.Status, id, a.Body)
		}
		if a.Status == http.StatusAccepted || a.Status/100 == 4 || ctx.Err() != nil {
			return e
		}
		pause(ctx, time.Duration(50+rng.IntN(400))*time.Millisecond)
	}
	return e
}

// postOnce posts the event and notes what is known of it after that.
func (w *world) postOnce(e *posted, c *child) answer {
	ctx, cancel := context.WithTimeout(w.ctx, postTimeout)
	defer cancel()
	w.truth.with(func() { e.Posts++; e.Last = time.Now().Add(time.Hour) }) // until it has ended
	a := w.call(ctx, c, http.MethodPost, "/v1/events", e.Body)
	w.truth.with(func() {
		e.Last = time.Now()
		switch {
		case a.Status == http.StatusAccepted:
			if e.Accepted && e.Deliveries != a.Deliveries {
				defer w.wrong("%s was accepted with %d deliveries, and then with %d", e.ID, e.Deliveries, a.Deliveries)
			}
			if a.ID != e.ID {
				defer w.wrong("the post of %s was answered with id %q", e.ID, a.ID)
			}
			e.Accepted, e.AcceptedAt, e.Deliveries = true, e.Last, a.Deliveries
		case !a.sure():
			e.Unknown = true
			// The API may go on for as long as one request may work.
			e.Last = e.Last.Add(apiWorks)
		}
	})
	return a
}

// apiWorks is how long after its client went away a request may still take effect:
// it may sit in a frozen process, or in a socket's buffer of one.
const apiWorks = time.Hour

// eventOf reads the event id out of a webhook's body.
func eventOf(body []byte) string {
	var e struct {
		EventID string `json:"event_id"`
	}
	if json.NewDecoder(bytes.NewReader(body)).Decode(&e) != nil {
		return ""
	}
	return e.EventID
}
