package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The server's bounds of one batch.
const (
	maxBatchEvents = 1000
	maxBatchBytes  = 8 << 20
)

var (
	errNotJSON = errors.New("not JSON")
	errNotUTF8 = errors.New("not UTF-8")
)

// BatchResult is what became of the events of a PostBatch.
type BatchResult struct {
	// Accepted were new, Duplicates accepted before, Refused are not: see their Problem.
	Accepted, Duplicates, Refused int
	// Results has one for each event, in their order.
	Results []BatchItem
}

// BatchItem is what became of one event.
type BatchItem struct {
	Index int `json:"index"`
	// Status is 202, or that of the problem; 0 if it is not known what became of it.
	Status     int       `json:"status"`
	ID         string    `json:"id"`
	Deliveries int       `json:"deliveries"`
	Duplicate  bool      `json:"duplicate"`
	AcceptedAt time.Time `json:"accepted_at,omitzero"`
	// Problem says why it was not accepted; nil if it was. Its pointers are into the
	// event, as after a Post.
	Problem *Problem `json:"problem,omitempty"`
}

// PostBatch has any number of events accepted, each by itself and each once, in
// requests of at most 1,000 events and 8 MiB. Events that the server could not take
// for now are sent again as a Post would be, by their ids.
//
// A refused event is no error: see its Problem. The error is for events whose fate is
// not known: their Status is 0 or that of a passing trouble (if no event found the
// service at work, all of them are 0). To try again later, post
// those with the ID that their result has. The rest of the result is good all the
// same.
func (c *Client) PostBatch(ctx context.Context, events []Event) (BatchResult, error) {
	b := batch{results: make([]BatchItem, len(events)), bodies: make([][]byte, len(events))}
	var todo []int
	for i, e := range events {
		if e.ID == "" {
			e.ID = NewID()
		}
		b.results[i] = BatchItem{Index: i, ID: e.ID}
		body, bad := e.body()
		if bad != nil {
			b.results[i].Status, b.results[i].Problem = bad.Status, bad
			continue
		}
		b.bodies[i] = body
		todo = append(todo, i)
	}
	err := b.post(ctx, c, todo)
	return b.sum(), err
}

// batch is the events of one PostBatch.
type batch struct {
	bodies  [][]byte
	results []BatchItem
}

// post sends what is to do, and again what the server could not take, as often as a
// call may be made again. A request that failed altogether ends it: its attempts are
// spent.
func (b *batch) post(ctx context.Context, c *Client, todo []int) error {
	for round := 0; ; round++ {
		for part := range b.parts(todo) {
			if err := b.send(ctx, c, part); err != nil {
				return err
			}
		}
		var again []int
		for _, i := range todo {
			if anyway.afterStatus(b.results[i].Status) {
				again = append(again, i)
			}
		}
		if len(again) == 0 {
			return nil
		}
		first := b.results[again[0]].Problem
		if round >= c.http.RetryMax {
			return fmt.Errorf("POST /v1/events/batch: %d of %d events: %w", len(again), len(b.results), first)
		}
		wait := c.waits.backoff(c.waits.base, c.waits.widest, round, nil)
		if err := rest(ctx, wait); err != nil {
			return fmt.Errorf("POST /v1/events/batch: %w; %d of %d events: %w", err, len(again), len(b.results), first)
		}
		todo = again
	}
}

// parts cuts what is to do into requests.
func (b *batch) parts(todo []int) func(yield func([]int) bool) {
	return func(yield func([]int) bool) {
		begin, size := 0, len(batchHead)+len(batchTail)
		for n, i := range todo {
			more := len(b.bodies[i]) + 1 // and a comma
			if n > begin && (n-begin == maxBatchEvents || size+more > maxBatchBytes) {
				if !yield(todo[begin:n]) {
					return
				}
				begin, size = n, len(batchHead)+len(batchTail)
			}
			size += more
		}
		if begin < len(todo) {
			yield(todo[begin:])
		}
	}
}

const batchHead, batchTail = `{"events":[`, `]}`

// send makes one request, and puts what it came to where it belongs.
func (b *batch) send(ctx context.Context, c *Client, part []int) error {
	body := []byte(batchHead)
	for n, i := range part {
		if n > 0 {
			body = append(body, ',')
		}
		body = append(body, b.bodies[i]...)
	}
	body = append(body, batchTail...)
	var answer struct {
		Results []BatchItem `json:"results"`
	}
	if err := c.do(ctx, request{method: http.MethodPost, path: "/v1/events/batch", body: body, wait: true}, &answer); err != nil {
		return err
	}
	if len(answer.Results) != len(part) {
		return fmt.Errorf("POST /v1/events/batch: %w: %d results for %d events", ErrAnswer, len(answer.Results), len(part))
	}
	for _, item := range answer.Results {
		if item.Index < 0 || item.Index >= len(part) {
			return fmt.Errorf("POST /v1/events/batch: %w: a result for event %d of %d", ErrAnswer, item.Index, len(part))
		}
		i := part[item.Index]
		id := b.results[i].ID
		b.results[i] = item
		b.results[i].Index = i
		if item.ID == "" {
			b.results[i].ID = id
		}
		if item.Problem != nil {
			item.Problem.withoutPrefix("/events/" + strconv.Itoa(item.Index))
		}
	}
	return nil
}

// withoutPrefix makes pointers into a request's list of events pointers into the
// event: how the events were cut into requests is nothing to the caller.
func (p *Problem) withoutPrefix(prefix string) {
	for i, e := range p.Errors {
		if rest, ok := strings.CutPrefix(e.Pointer, prefix); ok && (rest == "" || rest[0] == '/') {
			p.Errors[i].Pointer = rest
		}
	}
}

func (b *batch) sum() BatchResult {
	r := BatchResult{Results: b.results}
	for _, item := range b.results {
		switch {
		case item.Status/100 == 2 && item.Duplicate:
			r.Duplicates++
		case item.Status/100 == 2:
			r.Accepted++
		case item.Status != 0 && !anyway.afterStatus(item.Status):
			r.Refused++
		}
	}
	return r
}

// rest waits, unless ctx ends first.
func rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
