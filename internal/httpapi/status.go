package httpapi

import (
	"context"
	"fmt"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
)

// withStatus is what subscribers look like to their owner, with how each is served.
// A status is read after its subscriber, so it may be of a newer version; it is
// missing for one that was deleted between the two.
func (s *server) withStatus(ctx context.Context, subs []subscriber.Subscriber) ([]Subscriber, error) {
	views := make([]Subscriber, len(subs))
	ids := make([]string, len(subs))
	for i, sub := range subs {
		views[i], ids[i] = subscriberView(sub), sub.ID
	}
	if len(ids) == 0 {
		return views, nil
	}
	standings, err := s.deps.Views.Standings(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("status of subscribers: %w", err)
	}
	for i, st := range standings {
		if st.SubscriberID != "" {
			views[i].Status = statusView(st)
		}
	}
	return views, nil
}

func statusView(st schedule.Standing) SubscriberStatus {
	v := SubscriberStatus{
		Holds: make([]Hold, 0, len(st.Holds)), OnHoldSince: utc(st.Since),
		// The cap grows by parts; what counts is the whole of it.
		InFlight: st.InFlight, InFlightCap: max(1, int(st.Cap)), LatencyMs: st.Latency.Milliseconds(),
		ConsecutiveFailures: st.Failures, Pending: st.Pending,
		Waiting: Waiting{
			Fresh: st.Waiting[delivery.Fresh], Retry: st.Waiting[delivery.Retry], Redrive: st.Waiting[delivery.Redrive],
		},
	}
	for _, reason := range st.Holds {
		v.Holds = append(v.Holds, holdView(reason, st))
	}
	return v
}

// holdView says what a hold means and what ends it.
func holdView(reason schedule.Hold, st schedule.Standing) Hold {
	h := Hold{Reason: reason}
	switch reason {
	case schedule.Paused:
		h.Note = "Somebody paused it; it is sent to again when it is resumed."
	case schedule.Disabled:
		h.Note = "Its endpoint answered 410 Gone; it is sent to again when it is resumed or gets another url."
	case schedule.Throttled:
		h.Until = utc(st.ThrottledUntil)
		h.Note = "Its endpoint asked by Retry-After to be left alone. Nothing is sent before " + moment(h.Until) +
			": that is as it asked, or as far as retry_after_cap goes. It ends by itself then, or with another url, but not by a resume."
	case schedule.Breaker:
		h.Until, h.Probe = utc(st.ProbeAt), st.Probe
		h.Note = "Its endpoint failed too often in a row. "
		switch {
		case st.Probe != "":
			h.Note += "The delivery " + st.Probe + " is out as a probe; if it succeeds, this ends."
		case st.ProbeAt.IsZero():
			h.Note += "The next delivery that is due is let through as a probe; if it succeeds, this ends."
		default:
			h.Note += "One delivery is let through as a probe, not before " + moment(h.Until) +
				"; if it succeeds, this ends. A resume lets the next probe go at once."
		}
	}
	return h
}

// moment is a time in a sentence.
func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// utc is a time as answers show it; the zero time, which they leave out, stays that.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}
