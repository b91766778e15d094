package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/fanout/fanout/internal/webhook"
)

const (
	// maxBody is what a receiver reads; an event's data ends at 256 KiB.
	maxBody = 1 << 20
	// drainFor lets requests on the wire end by themselves when the receivers
	// close: longer than the hanging one's attempt timeout.
	drainFor = 2 * time.Second
)

// tally is what an endpoint saw.
type tally struct {
	requests   int
	verified   int // requests whose signature was right
	bad        int // requests whose signature was not
	ids        int // distinct webhook-ids, by verified requests
	delivered  int // distinct webhook-ids that got a 2xx
	duplicates int // 2xx beyond the first of their webhook-id
}

func (t *tally) add(o tally) {
	t.requests += o.requests
	t.verified += o.verified
	t.bad += o.bad
	t.ids += o.ids
	t.delivered += o.delivered
	t.duplicates += o.duplicates
}

// sighting is what an endpoint saw of one webhook-id.
type sighting struct {
	requests int  // verified ones
	taken    int  // answered with a 2xx
	seen     bool // any request of it, verified or not
	signed   bool // the last one was verified
}

// receiver is one subscriber's endpoint, as a careful subscriber would write it:
// it verifies before it looks at anything else.
type receiver struct {
	role character
	quit <-chan struct{}

	mu     sync.Mutex
	secret string
	tally  tally
	seen   recent[sighting]
}

// setSecret arms the receiver. Until then it trusts nobody.
func (rc *receiver) setSecret(s string) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.secret = s
}

func (rc *receiver) count() tally {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	return rc.tally
}

func (rc *receiver) sighted(id string) sighting {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	return rc.seen.get(id)
}

func (rc *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "cannot read the body", http.StatusBadRequest)
		return
	}
	id := r.Header.Get(webhook.HeaderID)
	turn, ok := rc.arrive(id, r.Header, body)
	if !ok {
		http.Error(w, "the signature is not ours", http.StatusUnauthorized)
		return
	}
	switch {
	case rc.role.manner == hanging && turn%manyRequests < hangs:
		select {
		case <-r.Context().Done():
		case <-rc.quit:
			panic(http.ErrAbortHandler) // to return would be to answer 200
		}
	case rc.role.manner == failing:
		http.Error(w, "the database is away", http.StatusInternalServerError)
	case rc.role.manner == rejecting:
		reject(w, body)
	case rc.role.manner == flaky && turn%fewRequests < refusals:
		http.Error(w, "busy, come back later", http.StatusServiceUnavailable)
	case rc.role.manner == flaky:
		rc.take(id)
		w.WriteHeader(http.StatusNoContent)
	default:
		rc.take(id)
		w.WriteHeader(http.StatusOK)
	}
}

// arrive counts a request and verifies it, and says how many came before.
func (rc *receiver) arrive(id string, h http.Header, body []byte) (turn int, ok bool) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	turn = rc.tally.requests
	rc.tally.requests++
	s := rc.seen.get(id)
	s.seen, s.signed = true, webhook.Verify(rc.secret, h, body, time.Now()) == nil
	if !s.signed {
		rc.tally.bad++
		rc.seen.put(id, s)
		return turn, false
	}
	rc.tally.verified++
	if s.requests == 0 {
		rc.tally.ids++
	}
	s.requests++
	rc.seen.put(id, s)
	return turn, true
}

// take counts a 2xx that is about to be answered.
func (rc *receiver) take(id string) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	s := rc.seen.get(id)
	s.taken++
	if s.taken == 1 {
		rc.tally.delivered++
	} else {
		rc.tally.duplicates++
	}
	rc.seen.put(id, s)
}

// reject answers as an endpoint that cannot use the event, and says why: that is
// the evidence which the dead letter keeps.
func reject(w http.ResponseWriter, body []byte) {
	var event struct {
		ShipmentID string `json:"shipment_id"`
	}
	_ = json.Unmarshal(body, &event)   // the answer is the same without
	answer, _ := json.Marshal(struct { //nolint:errchkjson // strings always marshal
		Error  string `json:"error"`
		Detail string `json:"detail"`
	}{"unknown_shipment", "no label was ordered for " + event.ShipmentID})
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusUnprocessableEntity)
	_, _ = w.Write(answer) // the sender is gone if this fails
}

// receivers are all endpoints, on one listener, each under the path of its name.
type receivers struct {
	base   string // URL without a path
	list   []*receiver
	srv    *http.Server
	quit   chan struct{}
	served chan error
}

// openReceivers starts them on a free loopback port.
func openReceivers(ctx context.Context, roles []character) (*receivers, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open the demo receivers: %w", err)
	}
	rs := &receivers{
		base: "http://" + ln.Addr().String(), quit: make(chan struct{}), served: make(chan error, 1),
	}
	mux := http.NewServeMux()
	for _, r := range roles {
		rc := &receiver{role: r, quit: rs.quit}
		rs.list = append(rs.list, rc)
		mux.Handle("POST /"+r.name, rc)
	}
	rs.srv = &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // what it notes, the sender notes better
	}
	go func() { rs.served <- rs.srv.Serve(ln) }()
	return rs, nil
}

// url is where a role's endpoint listens.
func (rs *receivers) url(r character) string { return rs.base + "/" + r.name }

// close lets the requests on the wire end, the hanging ones by their sender's
// timeout, and then cuts off what is left.
func (rs *receivers) close(ctx context.Context) error {
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainFor)
	defer cancel()
	err := rs.srv.Shutdown(drain)
	close(rs.quit)
	if errors.Is(err, context.DeadlineExceeded) {
		err = rs.srv.Close()
	}
	if serveErr := <-rs.served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	if err != nil {
		return fmt.Errorf("close the demo receivers: %w", err)
	}
	return nil
}
