package schedule

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Now is Redis' clock, the only one that decides anything.
func (e *Engine) Now(ctx context.Context) (time.Time, error) {
	v, err := e.run1(ctx, e.scripts.now, e.parts[0])
	if err != nil {
		return time.Time{}, err
	}
	ms, ok := v.(int64)
	if !ok {
		return time.Time{}, fmt.Errorf("now: script returned %T, not a time", v)
	}
	return time.UnixMilli(ms).UTC(), nil
}

// testClockLua stands in clock.lua when Options.TestClock is set: a key of each
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
		for _, prefixes := range [][]string{e.parts, e.events, {workersPrefix}} {
			for _, prefix := range prefixes {
				p.Set(ctx, prefix+"test-clock", value, 0)
			}
		}
	})
}
