//go:build crash

package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// postEvery is the pause of each producer between two events, which makes each run
// some hundred of them.
const postEvery = 20 * time.Millisecond

var client = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 8}}

// call makes a request and decodes the answer; status 0 says that none came.
func call(ctx context.Context, method, url, body string, into any) (int, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err
	}
	if into != nil && res.StatusCode < 300 {
		err = json.Unmarshal(b, into)
	}
	return res.StatusCode, err
}

// producer is the ledger of truth: an event is accepted by its 202 and by nothing
// else. One that got no answer, or another, is in doubt, and posted again later.
type producer struct {
	mu       sync.Mutex
	accepted map[string]int // event -> deliveries, as the 202 said
	doubt    map[string]bool
	next     atomic.Int64
}

// drive posts until stop ends, from three at once.
func (p *producer) drive(ctx context.Context, url func() string) {
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for ctx.Err() == nil {
				p.post(ctx, url(), fmt.Sprintf("evt-%d", p.next.Add(1)))
				select {
				case <-ctx.Done():
				case <-time.After(postEvery):
				}
			}
		})
	}
	all.Wait()
}

// post posts one event. The request is not cut off by the end of the driving: an
// answer that is under way counts.
func (p *producer) post(ctx context.Context, url, id string) int {
	body := fmt.Sprintf(`{"id":%q,"type":"crash","shipment_id":"shp_1","occurred_at":"2026-11-30T12:00:00Z","data":{"id":%q}}`, id, id)
	var receipt struct{ Deliveries int }
	status, _ := call(context.WithoutCancel(ctx), http.MethodPost, url+"/v1/events", body, &receipt)
	p.mu.Lock()
	defer p.mu.Unlock()
	if status == http.StatusAccepted {
		delete(p.doubt, id)
		p.accepted[id] = receipt.Deliveries
	} else {
		p.doubt[id] = true
	}
	return status
}

// receiver is all endpoints: it answers 2xx, but 503 to the first request of some,
// so that there are retries, and to every request under /never.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	requests map[string]int  // by webhook-id
	had      map[string]bool // answered by a 2xx
}

func newReceiver() *receiver {
	r := &receiver{requests: map[string]int{}, had: map[string]bool{}}
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve))
	return r
}

func (r *receiver) serve(w http.ResponseWriter, req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body)
	id := req.Header.Get("Webhook-Id")
	r.mu.Lock()
	r.requests[id]++
	// The last digit of an id has one bit only, the one before it five.
	fails := strings.HasPrefix(req.URL.Path, "/never") || (r.requests[id] == 1 && len(id) > 1 && id[len(id)-2]%4 == 0)
	r.had[id] = r.had[id] || !fails
	r.mu.Unlock()
	if fails {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}
