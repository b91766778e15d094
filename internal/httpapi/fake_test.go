package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/ingest"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
)

// fakeIngest answers as it is told and keeps what it was given.
type fakeIngest struct {
	mu    sync.Mutex
	posts []ingest.Post
	to    string // of the last SubmitTo
	do    func(ctx context.Context, p ingest.Post) (ingest.Receipt, error)
}

func (f *fakeIngest) Submit(ctx context.Context, p ingest.Post) (ingest.Receipt, error) {
	f.mu.Lock()
	f.posts = append(f.posts, p)
	f.mu.Unlock()
	if f.do != nil {
		return f.do(ctx, p)
	}
	id := p.ID
	if id == "" {
		id = "evt_01J9ZC3T7R6W8Y2K5M4N0P1QXV"
	}
	return ingest.Receipt{ID: id, Deliveries: 2, AcceptedAt: time.UnixMilli(1764518400123)}, nil
}

func (f *fakeIngest) SubmitBatch(ctx context.Context, posts []ingest.Post) []ingest.BatchResult {
	out := make([]ingest.BatchResult, len(posts))
	for i, p := range posts {
		out[i].Receipt, out[i].Err = f.Submit(ctx, p)
	}
	return out
}

func (f *fakeIngest) SubmitTo(ctx context.Context, p ingest.Post, to *subscriber.Subscriber) (ingest.Receipt, error) {
	f.mu.Lock()
	f.to = to.ID
	f.mu.Unlock()
	return f.Submit(ctx, p)
}

func (f *fakeIngest) last(t *testing.T) ingest.Post {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.posts) == 0 {
		t.Fatal("nothing was submitted")
	}
	return f.posts[len(f.posts)-1]
}

// fakeViews knows what it is given.
type fakeViews struct {
	events     map[string]schedule.Event
	deliveries map[string]schedule.Evidence
	standings  map[string]schedule.Standing // of others: all zero but the id and a cap of 1
	err        error
	asked      []int // sizes of Deliveries calls
	queries    []schedule.DeliveryQuery
}

func (f *fakeViews) Event(_ context.Context, id string) (schedule.Event, error) {
	if e, ok := f.events[id]; ok || f.err != nil {
		return e, f.err
	}
	return schedule.Event{}, schedule.ErrNotFound
}

func (f *fakeViews) Deliveries(_ context.Context, ids []string) ([]delivery.Delivery, error) {
	f.asked = append(f.asked, len(ids))
	var out []delivery.Delivery
	for _, id := range ids {
		if d, ok := f.deliveries[id]; ok {
			out = append(out, d.Delivery)
		}
	}
	return out, f.err
}

func (f *fakeViews) Delivery(_ context.Context, id string) (schedule.Evidence, error) {
	if d, ok := f.deliveries[id]; ok || f.err != nil {
		return d, f.err
	}
	return schedule.Evidence{}, schedule.ErrNotFound
}

func (f *fakeViews) Standings(_ context.Context, ids []string) ([]schedule.Standing, error) {
	out := make([]schedule.Standing, len(ids))
	for i, id := range ids {
		out[i] = schedule.Standing{SubscriberID: id, Cap: 1}
		if st, ok := f.standings[id]; ok {
			out[i] = st
		}
	}
	return out, f.err
}

// of are the deliveries of a subscriber ("" for all) that fit: the last to end first,
// then by event id.
func (f *fakeViews) of(subscriberID string, fits func(delivery.State) bool) []schedule.Evidence {
	var out []schedule.Evidence
	for _, d := range f.deliveries {
		if (subscriberID == "" || d.SubscriberID == subscriberID) && fits(d.State) {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b schedule.Evidence) int {
		return cmp.Or(b.EndedAt.Compare(a.EndedAt), strings.Compare(a.EventID+a.SubscriberID, b.EventID+b.SubscriberID))
	})
	return out
}

// from is a page whose cursor is "at" and a place.
func from(all []schedule.Evidence, after string, limit int) ([]schedule.Evidence, string, error) {
	at := 0
	if after != "" {
		if _, err := fmt.Sscanf(after, "at%d", &at); err != nil || at > len(all) {
			return nil, "", fmt.Errorf("page: %w", schedule.ErrCursor)
		}
	}
	if end := at + limit; end < len(all) {
		return all[at:end], fmt.Sprintf("at%d", end), nil
	}
	return all[at:], "", nil
}

func (f *fakeViews) ListDeliveries(_ context.Context, q schedule.DeliveryQuery, after string, limit int) ([]delivery.Delivery, string, error) {
	f.queries = append(f.queries, q)
	page, next, err := from(f.of(q.SubscriberID, func(s delivery.State) bool {
		switch q.State {
		case schedule.ListDead, schedule.ListLeased, schedule.ListScheduled:
			return string(s) == string(q.State)
		default:
			return s == delivery.Scheduled || s == delivery.Leased
		}
	}), after, limit)
	var out []delivery.Delivery
	for _, d := range page {
		out = append(out, d.Delivery)
	}
	return out, next, errors.Join(err, f.err)
}

func (f *fakeViews) DeadLettersPage(_ context.Context, subscriberID, after string, limit int) ([]schedule.Evidence, string, error) {
	page, next, err := from(f.of(subscriberID, func(s delivery.State) bool { return s == delivery.Dead }), after, limit)
	return page, next, errors.Join(err, f.err)
}

func (f *fakeViews) RetryNow(_ context.Context, id string) (delivery.Delivery, error) {
	d := f.deliveries[id].Delivery
	if d.State != delivery.Scheduled {
		return delivery.Delivery{}, fmt.Errorf("retry: %w", schedule.ErrNotScheduled)
	}
	d.DueAt = d.AcceptedAt
	f.deliveries[id] = schedule.Evidence{Delivery: d}
	return d, f.err
}

func (f *fakeViews) CancelDelivery(_ context.Context, id string) (delivery.Delivery, error) {
	d := f.deliveries[id].Delivery
	if d.State == delivery.Dead || d.State == delivery.Delivered {
		return d, fmt.Errorf("cancel: %w", schedule.ErrFinal)
	}
	d.State = delivery.Cancelled
	f.deliveries[id] = schedule.Evidence{Delivery: d}
	return d, f.err
}
