package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Examination is what a look at a Redis from outside tells: nothing was written, and no
// layout claimed. It is for somebody who asks whether all is set up well.
type Examination struct {
	// Version of the server (of the oldest of a cluster), and RoundTrip the best of three.
	Version   string
	RoundTrip time.Duration
	// ClockOff is how far the clock of Redis is from the local one: above 0 it is ahead.
	ClockOff time.Duration
	// Unsafe is what would lose what was accepted: nil, or ErrUnsafe for each thing to set.
	Unsafe error
	// Schema and Partitions of the data that is there; 0 if there is none. Ours is the
	// schema of this build.
	Schema, Partitions, Ours int
	// Classes that subscribers were ever written with.
	Classes []string
	// Subscribers there are.
	Subscribers int64
	Ledger      Ledger
	Workers     []WorkerReport
	// Used and Limit of its memory, bytes; Limit is 0 without one.
	Used, Limit int64
}

// Empty says that it holds no data of ours.
func (x Examination) Empty() bool { return x.Schema == 0 }

// Examine looks at a Redis and what it holds. It is ErrUnavailable if that does not
// answer. Data of another schema is not looked into.
func Examine(ctx context.Context, rdb redis.UniversalClient) (Examination, error) {
	x := Examination{Ours: schema}
	e := &Engine{rdb: rdb}
	if err := e.timing(ctx, &x); err != nil {
		return x, err
	}
	if err := e.server(ctx, &x); err != nil {
		return x, err
	}
	there, err := rdb.HMGet(ctx, metaKey, "schema", "partitions").Result()
	if err != nil {
		return x, classify("examine", err)
	}
	for i, to := range []*int{&x.Schema, &x.Partitions} {
		if text, ok := there[i].(string); ok {
			if *to, err = strconv.Atoi(text); err != nil {
				return x, fmt.Errorf("examine %s: %w: %w", metaKey, ErrLayout, err)
			}
		}
	}
	if x.Schema != schema || x.Partitions < 1 {
		return x, nil
	}
	err = e.contents(ctx, &x)
	return x, err
}

// timing measures the way to Redis, and its clock by the quickest answer.
func (e *Engine) timing(ctx context.Context, x *Examination) error {
	for range 3 {
		begun := time.Now()
		now, err := e.rdb.Time(ctx).Result()
		if err != nil {
			return classify("examine", err)
		}
		if took := time.Since(begun); x.RoundTrip == 0 || took < x.RoundTrip {
			x.RoundTrip, x.ClockOff = took, now.Sub(begun.Add(took/2))
		}
	}
	return nil
}

func (e *Engine) server(ctx context.Context, x *Examination) error {
	if err := e.unsafe(ctx); errors.Is(err, ErrUnsafe) {
		x.Unsafe = err
	} else if err != nil {
		return err
	}
	text, err := e.rdb.Info(ctx, "server").Result()
	if err != nil {
		return classify("examine", err)
	}
	x.Version = parseInfo(text)["redis_version"]
	x.Used, x.Limit, err = e.Memory(ctx)
	return err
}

// contents reads what is there, without the scripts: a look changes nothing.
func (e *Engine) contents(ctx context.Context, x *Examination) error {
	type reads struct {
		classes *redis.StringSliceCmd
		subs    *redis.IntCmd
		ledger  *redis.SliceCmd
	}
	all := make([]reads, x.Partitions)
	_, err := e.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, prefix := range tags("", x.Partitions) {
			all[i] = reads{
				p.SMembers(ctx, prefix+"classes"), p.ZCard(ctx, prefix+"subs"),
				p.HMGet(ctx, prefix+"ledger", "accepted", "pending", "delivered", "dead", "cancelled"),
			}
		}
		return nil
	})
	if err != nil {
		return classify("examine", err)
	}
	for _, r := range all {
		x.Classes = append(x.Classes, r.classes.Val()...)
		x.Subscribers += r.subs.Val()
		l := &x.Ledger
		for i, to := range []*int64{&l.Accepted, &l.Pending, &l.Delivered, &l.Dead, &l.Cancelled} {
			if text, ok := r.ledger.Val()[i].(string); ok {
				n, err := strconv.ParseInt(text, 10, 64)
				if err != nil {
					return fmt.Errorf("examine the ledger: %w", err)
				}
				*to += n
			}
		}
	}
	slices.Sort(x.Classes)
	x.Classes = slices.Compact(x.Classes)
	now, err := e.rdb.Time(ctx).Result()
	if err != nil {
		return classify("examine", err)
	}
	reports, err := e.rdb.HGetAll(ctx, workersPrefix+"reports").Result()
	if err != nil {
		return classify("examine", err)
	}
	x.Workers, err = workersAt(reports, now)
	return err
}
