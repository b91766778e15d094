package schedule

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Now is Redis' clock, the only one that decides anything.
func (e *Engine) Now(ctx context.Context) (time.Time, error) {
	t, err := e.rdb.Time(ctx).Result()
	if err != nil {
		return time.Time{}, classify("time", err)
	}
	return t.UTC().Truncate(time.Millisecond), nil
}

// testClockLua stands in the prelude when Options.TestClock is set: each
// partition keeps an offset in ms. A binary never runs with it.
const testClockLua = ` + tonumber(redis.call('GET', T .. 'test-clock') or 0)`

// SetTestClock moves the clock of every partition by offset from Redis' own. It
// does nothing to an engine that was not opened with TestClock.
func (e *Engine) SetTestClock(ctx context.Context, offset time.Duration) error {
	_, err := e.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, prefixes := range [][]string{e.parts, e.events} {
			for _, prefix := range prefixes {
				p.Set(ctx, prefix+"test-clock", offset.Milliseconds(), 0)
			}
		}
		return nil
	})
	return classify("set test clock", err)
}
