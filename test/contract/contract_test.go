// Package contract answers: can anything that is sent make the service break its
// contract?
//
// Requests are drawn from api/openapi.yaml by a seed, good ones and broken ones: every
// operation, bodies made from the schemas and then spoilt, odd methods, paths, queries,
// headers and media types, ids of what is there and what is not, keys of every role,
// none and bad ones. They go over a socket to a whole service whose dispatcher runs,
// with endpoints that answer anything. No answer may be a 5xx, or one that the contract
// has not; each error must be a problem with a code of the contract; who may not must
// be refused. What goes wrong is reduced to the least request that does, and printed
// with the seed and the number of it:
//
//	make contract
//	make contract CONTRACT='-contract.seed=7 -contract.only=1234'
package contract

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var flags struct {
	seed uint64
	n    uint64
	only uint64
}

func init() { //nolint:gochecknoinits // flags must stand before the test binary parses them
	flag.Uint64Var(&flags.seed, "contract.seed", 1, "seed of the requests")
	flag.Uint64Var(&flags.n, "contract.n", 2000, "how many requests to draw")
	flag.Uint64Var(&flags.only, "contract.only", 0, "draw this request only, from 1; 0: all")
}

// atOnce requests are out at the same time.
const atOnce = 4

// mostFaults end the run: the rest is hardly news.
const mostFaults = 10

// tally counts what was sent and what came back.
type tally struct {
	mu        sync.Mutex
	statuses  map[int]int
	codes     map[string]int
	succeeded map[string]int // by operation
	refused   map[string]int
}

func TestRandomRequests(t *testing.T) {
	t.Parallel()
	j, err := newJudge()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	counts := &tally{statuses: map[int]int{}, codes: map[string]int{}, succeeded: map[string]int{}, refused: map[string]int{}}
	first, last := uint64(1), flags.n
	if flags.only > 0 {
		first, last = flags.only, flags.only
	}
	began := time.Now()
	var next, faults atomic.Uint64
	next.Store(first)
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for n := next.Add(1) - 1; n <= last && faults.Load() < mostFaults; n = next.Add(1) - 1 {
				if !w.try(j, counts, n) {
					faults.Add(1)
				}
			}
		})
	}
	workers.Wait()
	took := time.Since(began)
	sent := last - first + 1
	t.Logf("seed=%d requests=%d faults=%d requests_per_s=%.0f statuses=%v codes=%v", flags.seed, sent, faults.Load(),
		float64(sent)/took.Seconds(), counts.statuses, counts.codes)
	if faults.Load() > 0 || sent < 2000 { // too few to reach every operation
		return
	}
	for _, op := range w.ops {
		if counts.succeeded[op.id] == 0 || counts.refused[op.id] == 0 {
			t.Errorf("%s succeeded %d times and was refused %d times: the requests drawn do not reach it", op.id,
				counts.succeeded[op.id], counts.refused[op.id])
		}
	}
}

// try sends the nth request and says whether all was well.
func (w *world) try(j *judge, counts *tally, n uint64) bool {
	w.Helper()
	r := w.request(flags.seed, n)
	a, faults, err := w.send(j, r)
	if err != nil {
		w.Errorf("request %d of seed %d has no answer: %v\n%s", n, flags.seed, err, r)
		return false
	}
	counts.add(r, a)
	if a.status < http.StatusMultipleChoices {
		w.learnFrom(r, a.body)
	}
	if len(faults) == 0 {
		return true
	}
	least, again := w.shrink(j, r, faults)
	w.Errorf("request %d of seed %d: %s\nanswer: %d %.1500s\nlog: %s\nrequest%s:\n%s", n, flags.seed,
		strings.Join(faults, "\n  "), a.status, a.body, w.logs.about(a.header.Get("X-Request-ID")), again, least)
	return false
}

func (c *tally) add(r *request, a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.statuses[a.status]++
	if code := a.problem().Code; code != "" {
		c.codes[code]++
	}
	if a.status < http.StatusBadRequest {
		c.succeeded[r.op.id]++
	} else {
		c.refused[r.op.id]++
	}
}

// send sends a request and judges the answer.
func (w *world) send(j *judge, r *request) (answer, []string, error) {
	body := r.payload()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
		if r.chunked {
			reader = io.MultiReader(reader) // whose length net/http does not know
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.method, w.url, reader)
	if err != nil {
		return answer{}, nil, fmt.Errorf("make the request: %w", err)
	}
	req.URL.Path, req.URL.RawPath = r.path, r.path
	if plain, err := url.PathUnescape(r.path); err == nil {
		req.URL.Path = plain
	}
	req.URL.RawQuery = strings.Join(r.query, "&")
	for _, h := range r.headers {
		req.Header.Add(h[0], h[1])
	}
	if r.caller.auth != "" {
		req.Header.Set("Authorization", r.caller.auth)
	}
	resp, err := w.http.Do(req)
	if err != nil {
		return answer{}, nil, err
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, header: resp.Header}
	if a.stream = strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream"); !a.stream {
		if a.body, err = io.ReadAll(resp.Body); err != nil && !errors.Is(err, io.EOF) {
			return a, nil, fmt.Errorf("read the answer: %w", err)
		}
	}
	return a, j.faults(r, req, a), nil
}

// shrink leaves out of a request what it goes wrong without. again says so if it
// does not go wrong a second time: it is then about what there was.
func (w *world) shrink(j *judge, r *request, faults []string) (least *request, again string) {
	wrong := func(r *request) bool {
		_, now, err := w.send(j, r)
		return err == nil && len(now) > 0 && kind(now[0]) == kind(faults[0])
	}
	if strings.HasPrefix(faults[0], "nothing was broken") {
		return r, "" // and nothing may be
	}
	if !wrong(r) {
		return r, " (sent again it is answered well)"
	}
	for tries := 0; tries < 300; {
		smaller := false
		for _, c := range r.smaller() {
			if tries++; wrong(c) {
				r, smaller = c, true
				break
			}
		}
		if !smaller {
			break
		}
	}
	return r, ", in its least form"
}

// kind is what a fault is about, without its particulars.
func kind(fault string) string {
	head, _, _ := strings.Cut(fault, ":")
	return head
}

// smaller are the requests that lack one part of it.
func (r *request) smaller() (all []*request) {
	with := func(change func(*request)) {
		c := *r
		change(&c)
		all = append(all, &c)
	}
	for i := range r.query {
		with(func(c *request) { c.query = slices.Delete(slices.Clone(r.query), i, i+1) })
	}
	for i := range r.headers {
		with(func(c *request) { c.headers = slices.Delete(slices.Clone(r.headers), i, i+1) })
	}
	if r.chunked {
		with(func(c *request) { c.chunked = false })
	}
	if len(r.text) > 1 {
		with(func(c *request) { c.text = r.text[:len(r.text)/2] })
		with(func(c *request) { c.text = r.text[len(r.text)/2:] })
		with(func(c *request) { c.text = r.text[:len(r.text)-1] })
	}
	if r.body == nil {
		return all
	}
	with(func(c *request) { c.body = nil })
	for i, v := range r.body.all() {
		for k := range v.parts {
			with(func(c *request) {
				c.body = r.body.clone()
				at := c.body.all()[i]
				at.parts = slices.Delete(at.parts, k, k+1)
				if v.kind == '{' {
					at.names = slices.Delete(at.names, k, k+1)
				}
			})
		}
		if n := len(v.scalar); n > 8 && v.scalar[0] == '"' {
			with(func(c *request) {
				c.body = r.body.clone()
				c.body.all()[i].scalar = v.scalar[:n/2] + `"`
			})
		}
	}
	return all
}
