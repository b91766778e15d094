package schedule

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/delivery"
)

// capUnit is the fineness of an in-flight cap in Redis: it grows by parts of one.
const capUnit = 10_000

// Hold is a reason why a subscriber is not sent to.
type Hold string

// The holds. A subscriber may be on several at once.
const (
	// Paused: somebody said so, until somebody resumes it.
	Paused Hold = "paused"
	// Disabled: its endpoint answered 410, until somebody resumes it.
	Disabled Hold = "disabled"
	// Throttled: its endpoint asked for it by Retry-After, until then.
	Throttled Hold = "throttled"
	// Breaker: it failed too often in a row, until a probe succeeds.
	Breaker Hold = "breaker"
)

// Standing is how a subscriber is served: what the scheduler knows beyond its config.
type Standing struct {
	SubscriberID string
	// Holds that it is on, in the order above; none if it may be sent to.
	Holds []Hold
	// Since is when it went on hold; zero if it is not.
	Since time.Time
	// ThrottledUntil is when that hold ends, and ProbeAt when the breaker lets the
	// next probe go; zero without those holds, ProbeAt also once it may go.
	ThrottledUntil, ProbeAt time.Time
	// Probe is the delivery that is out as the breaker's probe, or "".
	Probe string
	// Failures in a row that are blamed on the endpoint, while the breaker is closed;
	// Openings is how often it opened in a row without a success.
	Failures, Openings int
	// Cap is how many leases it may have at once now, InFlight how many it has.
	Cap      float64
	InFlight int
	// Rate is how many attempts a second its own rate allows; 0 if it has none.
	Rate float64
	// Latency is the moving average of how long an attempt takes; 0 if not known.
	Latency time.Duration
	// Waiting are deliveries that are scheduled, by lane; Pending those and the leased.
	Waiting map[delivery.Lane]int64
	Pending int64
	// Dead are its dead letters, as they stand. Delivered are the deliveries that it
	// ever got: neither a retention nor a discard takes from them.
	Dead, Delivered int64
}

// Standings returns how subscribers stand, in the order of the ids, in one round
// trip. One that does not exist is all zero.
func (e *Engine) Standings(ctx context.Context, ids []string) ([]Standing, error) {
	type reads struct {
		hash    *redis.SliceCmd
		lanes   []*redis.IntCmd
		pending *redis.IntCmd
		dead    *redis.IntCmd
	}
	all := make([]reads, len(ids))
	err := e.read(ctx, "standings", func(p redis.Pipeliner) {
		for i, id := range ids {
			prefix := e.parts[e.PartitionOf(id)]
			all[i].hash = p.HMGet(ctx, prefix+"sub:"+id, "terms", "run", "guard", "delivered")
			for _, lane := range delivery.Lanes {
				all[i].lanes = append(all[i].lanes, p.ZCard(ctx, prefix+"q:"+letterOfLane[lane]+":"+id))
			}
			all[i].pending = p.ZCard(ctx, prefix+"pend:"+id)
			all[i].dead = p.ZCard(ctx, prefix+"dead:"+id)
		}
	})
	if err != nil {
		return nil, err
	}
	at, err := e.Now(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Standing, len(ids))
	for i, id := range ids {
		h := all[i].hash.Val()
		terms, _ := h[0].(string)
		run, _ := h[1].(string)
		guard, _ := h[2].(string)
		if terms == "" {
			continue
		}
		if out[i], err = standing(id, terms, run, guard, at); err != nil {
			return nil, err
		}
		out[i].Pending, out[i].Waiting = all[i].pending.Val(), map[delivery.Lane]int64{}
		out[i].Dead = all[i].dead.Val()
		if n, ok := h[3].(string); ok {
			if out[i].Delivered, err = strconv.ParseInt(n, 10, 64); err != nil {
				return nil, fmt.Errorf("subscriber %s: %w: %w", id, errStanding, err)
			}
		}
		for j, lane := range delivery.Lanes {
			out[i].Waiting[lane] = all[i].lanes[j].Val()
		}
	}
	return out, nil
}

var errStanding = errors.New("damaged state of a subscriber")

// standing reads the fields that lua/subscriber.lua writes.
func standing(id, terms, run, guard string, now time.Time) (Standing, error) {
	t, r, g := strings.Fields(terms), strings.Fields(run), strings.Fields(guard)
	if guard == "" {
		g = strings.Fields("0 0 0 0 0 0 - - 0 0 0 0")
	}
	if len(t) != 8 || len(r) < 7 || len(r) > 8 || len(g) != 12 {
		return Standing{}, fmt.Errorf("subscriber %s: %w", id, errStanding)
	}
	var bad error
	num := func(w string) int64 {
		n, err := strconv.ParseInt(w, 10, 64)
		if err != nil && bad == nil {
			bad = fmt.Errorf("subscriber %s: %w: %w", id, errStanding, err)
		}
		return n
	}
	s := Standing{
		SubscriberID: id, Since: fromMillis(num(g[9])),
		Failures: int(num(g[1])), Openings: int(num(g[5])),
		Cap: min(float64(num(t[1])), float64(num(r[3]))/capUnit), InFlight: int(num(r[0])),
		Latency: time.Duration(num(r[4])) * time.Millisecond,
	}
	if ms, err := strconv.ParseFloat(t[3], 64); err == nil && ms > 0 {
		s.Rate = 1000 / ms
	}
	if t[7] == "1" {
		s.Holds = append(s.Holds, Paused)
	}
	if g[2] == "1" {
		s.Holds = append(s.Holds, Disabled)
	}
	if till := fromMillis(num(g[3])); till.After(now) {
		s.Holds, s.ThrottledUntil = append(s.Holds, Throttled), till
	}
	if open := num(g[4]); open > 0 {
		s.Holds = append(s.Holds, Breaker)
		if g[6] != "-" {
			s.Probe = g[6]
		} else if at := fromMillis(open); at.After(now) {
			s.ProbeAt = at
		}
	}
	if len(s.Holds) == 0 {
		s.Since = time.Time{} // a throttle that ended by itself
	}
	return s, bad
}

// OnHold returns how the subscribers stand that have been on hold for longest, up to
// limit over all partitions, the longest first.
func (e *Engine) OnHold(ctx context.Context, limit int) ([]Standing, error) {
	heads := make([]*redis.ZSliceCmd, len(e.parts))
	err := e.read(ctx, "on hold", func(p redis.Pipeliner) {
		for i, prefix := range e.parts {
			heads[i] = p.ZRangeWithScores(ctx, prefix+"held", 0, int64(limit)-1)
		}
	})
	if err != nil {
		return nil, err
	}
	all := merge(heads)
	ids := make([]string, 0, limit)
	for _, z := range all[:min(limit, len(all))] {
		id, _ := z.Member.(string)
		ids = append(ids, id)
	}
	standings, err := e.Standings(ctx, ids)
	if err != nil {
		return nil, err
	}
	var out []Standing
	for _, s := range standings {
		if len(s.Holds) > 0 { // else its throttle ended, and nothing has looked since
			out = append(out, s)
		}
	}
	return out, nil
}
