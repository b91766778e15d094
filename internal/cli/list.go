package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/fanout/fanout/client"
)

// listing are the flags of every list.
type listing struct {
	Limit int  `default:"100" help:"Show at most so many."`
	All   bool `help:"Show all, however many."`
}

// pages reads one page of a list.
type pages[T any] func(context.Context, *client.Client, client.Page) (client.List[T], error)

// maxPage is the longest page that the server gives.
const maxPage = 200

// list shows a list: its pages put together as one document, or as a table. What the
// limit leaves out is said, on stderr.
func list[T any](ctx context.Context, s *session, l listing, read pages[T], fill func(*table, []T)) error {
	if l.Limit < 1 {
		return usage("--limit must be 1 or more; --all shows all")
	}
	var (
		items []T
		raws  = []json.RawMessage{}
		p     client.Page
	)
	for {
		p.Limit = maxPage
		if !l.All {
			p.Limit = min(maxPage, l.Limit-len(items))
		}
		page, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.List[T], error) { return read(ctx, c, p) })
		if err != nil {
			return err
		}
		var raw struct {
			Data []json.RawMessage `json:"data"`
		}
		if err := json.Unmarshal(s.answer.raw(), &raw); err != nil {
			return fmt.Errorf("read the list: %w", err)
		}
		items, raws = append(items, page.Data...), append(raws, raw.Data...)
		last := page.NextCursor == "" || page.NextCursor == p.Cursor
		if !last && !l.All && len(items) >= l.Limit {
			s.notef("There are more: these are the first %d. --all shows all, --limit so many.", len(items))
			last = true
		}
		if last {
			break
		}
		p.Cursor = page.NextCursor
	}
	if s.json() {
		b, err := json.Marshal(map[string]any{"data": raws})
		if err != nil {
			return fmt.Errorf("write the list: %w", err)
		}
		return s.document(b)
	}
	s.table(func(t *table) { fill(t, items) })
	return nil
}
