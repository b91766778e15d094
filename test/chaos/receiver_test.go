//go:build chaos

package chaos

import (
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// request is one webhook as it arrived.
type request struct {
	ID      string // webhook-id
	Sub     string // the name of the subscriber that the path belongs to
	Path    string
	Event   string // as the body says
	Attempt int
	Count   int64 // delivery_count
	At      time.Time
	Status  int // what it was answered; 0 if it was not
}

// receivers are all endpoints of a world, on one listener, a path for each.
type receivers struct {
	*httptest.Server
	w *world

	mu     sync.Mutex
	log    []*request
	had    map[string]bool // webhook-ids answered by a 2xx
	onHook map[string]func(*request, http.ResponseWriter, *http.Request)
	ill    bool // each endpoint behaves as its kind does; else all are well
}

func startReceivers(w *world) *receivers {
	r := &receivers{w: w, had: map[string]bool{}, onHook: map[string]func(*request, http.ResponseWriter, *http.Request){}}
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve))
	return r
}

// path is /name/generation: a change of the URL is a new generation.
func (r *receivers) serve(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // cut off in the middle: not a whole request
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/")
	in := &request{ID: req.Header.Get("Webhook-Id"), Sub: name, Path: req.URL.Path, Event: eventOf(body), At: time.Now()}
	in.Attempt, _ = strconv.Atoi(req.Header.Get("Fanout-Attempt"))
	in.Count, _ = strconv.ParseInt(req.Header.Get("Fanout-Delivery-Count"), 10, 64)
	r.mu.Lock()
	r.log = append(r.log, in)
	hook, well := r.onHook[name], r.had[in.ID] || !r.ill
	r.mu.Unlock()
	figures.requests.Add(1)

	if err := verify(r.w.truth.secret(name), body, req.Header); err != nil {
		r.w.wrong("a webhook to %s does not verify: %v", name, err)
	}
	if hook != nil {
		hook(in, w, req)
		return
	}
	if well { // a receiver that dedupes says so by a 2xx, too
		r.answer(in, w, http.StatusOK)
		return
	}
	r.behave(in, w, req)
}

func verify(secret string, body []byte, h http.Header) error {
	wh, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return fmt.Errorf("secret: %w", err)
	}
	return wh.Verify(body, h)
}

func (r *receivers) answer(in *request, w http.ResponseWriter, status int) {
	r.mu.Lock()
	in.Status = status
	if status/100 == 2 {
		r.had[in.ID] = true
	}
	r.mu.Unlock()
	w.WriteHeader(status)
}

// behave answers as the kind of the endpoint does. What a flaky one does hangs on
// the delivery and its count alone.
func (r *receivers) behave(in *request, w http.ResponseWriter, req *http.Request) {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, in.ID, in.Count)
	dice := h.Sum64() >> 3
	switch kind, _, _ := strings.Cut(in.Sub, "-"); kind {
	case "flaky":
		switch dice % 10 {
		case 0:
			r.answer(in, w, http.StatusInternalServerError)
		case 1:
			w.Header().Set("Retry-After", "1")
			r.answer(in, w, http.StatusServiceUnavailable)
		case 2, 3:
			hangUp(w)
		default:
			r.answer(in, w, http.StatusOK)
		}
	case "slow": // about a third are later than the attempt timeout of 1 s
		if wait(req, time.Duration(dice%1500)*time.Millisecond) {
			r.answer(in, w, http.StatusAccepted)
		}
	case "hanging":
		<-req.Context().Done()
	case "failing": // two deliveries of three, always
		h = fnv.New64a()
		_, _ = fmt.Fprint(h, in.ID)
		if h.Sum64()>>3%3 > 0 {
			r.answer(in, w, http.StatusBadGateway)
		} else {
			r.answer(in, w, http.StatusOK)
		}
	case "refusing":
		r.answer(in, w, http.StatusUnprocessableEntity)
	default:
		r.answer(in, w, http.StatusOK)
	}
}

// wait says whether the sender was still there at its end.
func wait(req *http.Request, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-req.Context().Done():
		return false
	}
}

func hangUp(w http.ResponseWriter) {
	if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = c.Close()
	}
}

// setIll has the endpoints behave as their kinds do, or all be well: an endpoint that
// stays ill keeps its deliveries waiting for as long as its breaker's rests grow.
func (r *receivers) setIll(ill bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ill = ill
}

// hook has f answer every webhook to a name.
func (r *receivers) hook(name string, f func(*request, http.ResponseWriter, *http.Request)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onHook[name] = f
}

// requests is a copy of the log, by webhook-id.
func (r *receivers) requests() map[string][]request {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string][]request)
	for _, in := range r.log {
		all[in.ID] = append(all[in.ID], *in)
	}
	return all
}
