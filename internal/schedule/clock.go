package schedule

import (
	"context"
	"strconv"
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

// testClockLua stands in the prelude when Options.TestClock is set: a key of each
// partition holds an offset in ms or, after an @, the time itself. A binary never
// runs with it.
const testClockLua = `local test = redis.call('GET', T .. 'test-clock')
  if test and string.sub(test, 1, 1) == '@' then ms = tonumber(string.sub(test, 2))
  elseif test then ms = ms + tonumber(test) end`

// SetTestClock moves the clock of every partition by offset from Redis' own. It
// does nothing to an engine that was not opened with TestClock.
func (e *Engine) SetTestClock(ctx context.Context, offset time.Duration) error {
	return e.setTestClock(ctx, strconv.FormatInt(offset.Milliseconds(), 10))
}

// FreezeTestClock stops the clock of every partition at a time, likewise.
func (e *Engine) FreezeTestClock(ctx context.Context, at time.Time) error {
	return e.setTestClock(ctx, "@"+strconv.FormatInt(at.UnixMilli(), 10))
}

func (e *Engine) setTestClock(ctx context.Context, value string) error {
	return e.read(ctx, "set test clock", func(p redis.Pipeliner) {
		for _, prefixes := range [][]string{e.parts, e.events} {
			for _, prefix := range prefixes {
				p.Set(ctx, prefix+"test-clock", value, 0)
			}
		}
	})
}
