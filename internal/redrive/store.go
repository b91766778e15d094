package redrive

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/schedule"
)

// The keys in Redis, on one slot. Which deliveries a cohort has is kept beside these:
// see schedule's claims.
const (
	keyCohorts = "{fo:redrive}:cohorts" // hash: id -> version and JSON
	keyAll     = "{fo:redrive}:all"     // zset: id by when it was made
	keyLive    = "{fo:redrive}:live"    // set: ids of those that have not ended
	keyRunner  = "{fo:redrive}:runner"  // string: who moves cohorts now
)

// keptFor is how long a cohort that has ended can be looked up: as long as the audit
// log, which names it.
const keptFor = 90 * 24 * time.Hour

// New is a Service. It does not connect.
func New(rdb redis.UniversalClient, l Letters, o Options) *Service {
	if o.Every <= 0 {
		o.Every = stepEvery
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Audit == nil {
		o.Audit = func(context.Context, Action) error { return nil }
	}
	return &Service{store: store{rdb}, letters: l, opts: o, who: rand.Text(), flows: map[string]flow{}, seen: map[string]seen{}}
}

// put writes a cohort over the version that was read. Run twice, as after a lost reply,
// the second run finds its own and says so.
//
// KEYS cohorts, all, live; ARGV id, version expected, JSON, ms, live 0|1, ms before which
// those that ended are forgotten. Returns 1, or 0 if it is at another version.
//
//nolint:dupword // ends of blocks
var put = redis.NewScript(`
local old = redis.call('HGET', KEYS[1], ARGV[1])
local version = old and tonumber(string.match(old, '^%d+')) or 0
local new = string.format('%d %s', ARGV[2] + 1, ARGV[3])
if old == new then return 1 end
if version ~= tonumber(ARGV[2]) then return 0 end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[6], 'LIMIT', 0, 10)) do
  local ended = redis.call('SISMEMBER', KEYS[3], id) == 0
  if ended then redis.call('ZREM', KEYS[2], id) end
  if ended then redis.call('HDEL', KEYS[1], id) end
end
if ARGV[5] == '0' then redis.call('SREM', KEYS[3], ARGV[1]) end
redis.call('HSET', KEYS[1], ARGV[1], new)
redis.call('ZADD', KEYS[2], 'NX', ARGV[4], ARGV[1])
if ARGV[5] == '1' then redis.call('SADD', KEYS[3], ARGV[1]) end
return 1`)

// hold takes the runner's lease, or keeps it. KEYS runner; ARGV who, ms.
var hold = redis.NewScript(`
local who = redis.call('GET', KEYS[1])
if who and who ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1`)

// drop gives the lease back. KEYS runner; ARGV who.
var drop = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0`)

// store keeps cohorts.
type store struct{ rdb redis.UniversalClient }

func failure(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("redrive: %s: %w: %w", op, schedule.ErrUnavailable, err)
}

// put stores a cohort at the version that it was read at, and raises it. It returns
// errVersion.
func (s store) put(ctx context.Context, c *Cohort) error {
	text, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("redrive: encode %s: %w", c.ID, err)
	}
	live := 1
	if c.Closed {
		live = 0
	}
	done, err := put.Run(ctx, s.rdb, []string{keyCohorts, keyAll, keyLive}, c.ID, c.Version, text, c.CreatedAt.UnixMilli(), live,
		c.CreatedAt.Add(-keptFor).UnixMilli()).Int()
	switch {
	case err != nil:
		return failure("store "+c.ID, err)
	case done == 0:
		return fmt.Errorf("redrive: store %s at version %d: %w", c.ID, c.Version, errVersion)
	}
	c.Version++
	return nil
}

func decode(id, text string) (Cohort, error) {
	version, body, _ := strings.Cut(text, " ")
	var c Cohort
	var err error
	if c.Version, err = strconv.ParseInt(version, 10, 64); err == nil {
		err = json.Unmarshal([]byte(body), &c)
	}
	if err != nil {
		return Cohort{}, fmt.Errorf("redrive: decode %s: %w", id, err)
	}
	return c, nil
}

// get reads one; ErrNotFound.
func (s store) get(ctx context.Context, id string) (Cohort, error) {
	text, err := s.rdb.HGet(ctx, keyCohorts, id).Result()
	if errors.Is(err, redis.Nil) {
		return Cohort{}, fmt.Errorf("redrive: %w", ErrNotFound)
	}
	if err != nil {
		return Cohort{}, failure("read "+id, err)
	}
	return decode(id, text)
}

// list reads up to limit, newest first, those made before the given one.
func (s store) list(ctx context.Context, before string, limit int) ([]Cohort, error) {
	start := int64(0)
	if before != "" {
		rank, err := s.rdb.ZRevRank(ctx, keyAll, before).Result()
		if errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("redrive: list before it: %w", ErrNotFound)
		}
		if err != nil {
			return nil, failure("list", err)
		}
		start = rank + 1
	}
	ids, err := s.rdb.ZRevRange(ctx, keyAll, start, start+int64(limit)-1).Result()
	if err != nil {
		return nil, failure("list", err)
	}
	return s.all(ctx, ids)
}

// count is how many have not ended.
func (s store) count(ctx context.Context) (int64, error) {
	n, err := s.rdb.SCard(ctx, keyLive).Result()
	return n, failure("count the live ones", err)
}

// live reads those that have not ended.
func (s store) live(ctx context.Context) ([]Cohort, error) {
	ids, err := s.rdb.SMembers(ctx, keyLive).Result()
	if err != nil {
		return nil, failure("read the live ones", err)
	}
	return s.all(ctx, ids)
}

func (s store) all(ctx context.Context, ids []string) ([]Cohort, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	texts, err := s.rdb.HMGet(ctx, keyCohorts, ids...).Result()
	if err != nil {
		return nil, failure("read", err)
	}
	var out []Cohort
	for i, text := range texts {
		if text, ok := text.(string); ok {
			c, err := decode(ids[i], text)
			if err != nil {
				return nil, err
			}
			out = append(out, c)
		}
	}
	return out, nil
}

// hold takes or keeps the runner's lease, and says whether it has it.
func (s store) hold(ctx context.Context, who string, lasts time.Duration) (bool, error) {
	n, err := hold.Run(ctx, s.rdb, []string{keyRunner}, who, lasts.Milliseconds()).Int()
	return n == 1, failure("hold the runner's lease", err)
}

func (s store) drop(ctx context.Context, who string) error {
	return failure("give the runner's lease back", drop.Run(ctx, s.rdb, []string{keyRunner}, who).Err())
}
