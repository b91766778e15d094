package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Page asks for a part of a list.
type Page struct {
	Limit  int    // 1 to 200; 0 is the server's default
	Cursor string // the NextCursor of the page before; "" begins
}

// List is a page of a list.
type List[T any] struct {
	Data []T `json:"data"`
	// NextCursor asks for the next page; "" after the last.
	NextCursor string `json:"next_cursor"`
}

// maxPage is the longest page that the server gives; iterators ask for it.
const maxPage = 200

// get reads one thing.
func get[T any](ctx context.Context, c *Client, path string, query url.Values) (T, error) {
	var out T
	err := c.do(ctx, request{method: http.MethodGet, path: path, query: query}, &out)
	return out, err
}

// list reads one page.
func list[T any](ctx context.Context, c *Client, path string, query url.Values, p Page) (List[T], error) {
	if query == nil {
		query = url.Values{}
	}
	if p.Limit != 0 {
		query.Set("limit", strconv.Itoa(p.Limit))
	}
	if p.Cursor != "" {
		query.Set("cursor", p.Cursor)
	}
	return get[List[T]](ctx, c, path, query)
}

// all goes through a list, page by page. An error comes as the last pair, with a zero
// value. What changes meanwhile is seen or not; nothing is seen twice.
func all[T any](ctx context.Context, page func(context.Context, Page) (List[T], error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		for p := (Page{Limit: maxPage}); ; {
			l, err := page(ctx, p)
			if err != nil {
				yield(none, err)
				return
			}
			for _, v := range l.Data {
				if !yield(v, nil) {
					return
				}
			}
			if l.NextCursor == "" || l.NextCursor == p.Cursor { // the same again would be for ever
				return
			}
			p.Cursor = l.NextCursor
		}
	}
}

// send changes something, and reads what it came to.
func send[T any](ctx context.Context, c *Client, r request, in any) (T, error) {
	var out T
	if in != nil {
		body, err := json.Marshal(in)
		if err != nil {
			return out, fmt.Errorf("%s %s: the request cannot be written as JSON: %w", r.method, r.path, err)
		}
		r.body = body
	}
	err := c.do(ctx, r, &out)
	return out, err
}

// values are the query's parameters that are set.
func values(pairs ...string) url.Values {
	v := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	return v
}

// Duration is a time.Duration that reads and writes as a Go string ("10s") in JSON.
type Duration time.Duration

// String is as time.Duration has it.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes "1h0m0s".
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what time.ParseDuration reads.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("want a duration such as %q: %w", "10s", err)
	}
	*d = Duration(v)
	return nil
}
