package client

import (
	"context"
	"encoding/json"
	"unicode/utf8"
)

// PostBatchRaw posts events that are JSON already, as PostBatch does, each byte for
// byte: one that was posted by other means is then known by its id. One that is no
// JSON or not UTF-8, or an object without an id, is refused here as the server would refuse it; all
// else is the server's to judge.
func (c *Client) PostBatchRaw(ctx context.Context, events []json.RawMessage) (BatchResult, error) {
	b := batch{results: make([]BatchItem, len(events)), bodies: make([][]byte, len(events))}
	var todo []int
	for i, body := range events {
		id, bad := idOf(body)
		b.results[i] = BatchItem{Index: i, ID: id}
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

// idOf finds the id of an event that is JSON; "" of one that the server will refuse.
func idOf(body json.RawMessage) (id string, bad *Problem) {
	if !utf8.Valid(body) { // it would have the server refuse the whole request
		return "", invalid("", notUTF8)
	}
	if !json.Valid(body) {
		return "", invalid("", "is not JSON")
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil || fields == nil {
		return "", nil //nolint:nilerr // no object: the server says so
	}
	raw, there := fields["id"]
	if !there {
		return "", invalid("/id", "is not set: without it a second attempt would be a second event")
	}
	if json.Unmarshal(raw, &id) != nil {
		return "", nil //nolint:nilerr // no text: likewise
	}
	return id, nil
}
