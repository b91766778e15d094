package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
)

// crowd is how many subscribers there are to choose from.
const crowd = 100_000

// feed is a store of subscribers as a marketplace has them: ten to each seller, who
// want its shipments by two of the carriers, and a tenth with types of their own.
type feed []schedule.Config

func newFeed() (feed, error) {
	all := make(feed, crowd)
	for i := range all {
		filter := map[string]any{"types": []string{"shipment.*"}, "attributes": map[string][]string{
			"carrier": {"dhl", "ups"}, "seller_id": {fmt.Sprint("s_", i%(crowd/10))},
		}}
		if i%10 == 9 {
			filter = map[string]any{"types": []string{fmt.Sprintf("parcel.t%d.*", i)}}
		}
		blob, err := json.Marshal(map[string]any{"url": "https://hooks.example.com/", "class": "standard", "filter": filter})
		if err != nil {
			return nil, err
		}
		all[i] = schedule.Config{ID: fmt.Sprintf("sub_%06d", i), Version: 1, Blob: blob}
	}
	return all, nil
}

func (feed) Config(context.Context, string) (schedule.Config, error) {
	return schedule.Config{}, schedule.ErrNotFound
}
func (feed) Owners(context.Context, []string) ([]string, error) {
	return nil, nil
}
func (feed) Generations(context.Context) ([]int64, error) { return []int64{1}, nil }
func (f feed) Changes(context.Context, int, int64) ([]schedule.Config, int64, error) {
	return f, 1, nil
}

// match measures how long it takes to find ten subscribers among 100,000 for an
// event of 16 attributes.
func (b *bench) match(ctx context.Context) error {
	all, err := newFeed()
	if err != nil {
		return err
	}
	dir := subscriber.NewDirectory(all)
	if err := dir.Refresh(ctx); err != nil {
		return err
	}
	e := delivery.Event{Type: "shipment.delivered", Attributes: map[string]string{"carrier": "dhl", "seller_id": "s_7"}}
	for i := range 14 {
		e.Attributes[fmt.Sprint("attribute_", i)] = fmt.Sprint("value_", i)
	}
	if n := len(dir.Match(e)); n != 10 {
		return fmt.Errorf("%d subscribers match, want 10", n)
	}
	const times = 20_000
	start := time.Now()
	for range times {
		dir.Match(e)
	}
	b.took.figure("match_us", float64(time.Since(start).Microseconds())/times)
	return nil
}
