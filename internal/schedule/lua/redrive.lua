-- redrive.lua: release dead letters of a cohort into the redrive lane.
--
-- KEYS[1]  prefix of the partition
-- ARGV     cohort, attempt budget, how long they may take (ms), id...
-- Returns  a word per delivery: released, already (it was released before), over (it is
--          no dead letter any more, or its subscriber is deleted: it leaves the cohort)
--
-- It is the same delivery: its id, its attempts and their evidence go on. A generation
-- begins, with a budget and an expires_at of its own. The payload stays pinned, as the
-- event's own may be gone, until it is delivered or cancelled.
-- Run twice, the second run finds it released.
local cohort, budget, window = ARGV[1], ARGV[2], tonumber(ARGV[3])
local claimed, released = T .. 'cohort:' .. cohort, T .. 'out:' .. cohort

local function release(id)
  if redis.call('HGET', T .. 'claims', id) ~= cohort then return 'over' end
  if not redis.call('ZSCORE', claimed, id) then return 'already' end
  local r = record(id)
  local s = r and subscriber(r.sb)
  redis.call('ZREM', claimed, id)
  if not r or r.st ~= 'x' or not s or s.tomb then
    redis.call('HDEL', T .. 'claims', id)
    redis.call('HINCRBY', T .. 'tally:' .. cohort, 'over', 1)
    return 'over'
  end
  redis.call('ZREM', T .. 'dead', id)
  redis.call('ZREM', T .. 'dead:' .. r.sb, id)
  redis.call('ZADD', released, NOWS, id)
  redis.call('HINCRBY', T .. 'tally:' .. cohort, 'released', 1)
  r.st, r.ln, r.due, r.exp = 's', 'd', NOWS, plus(NOW, window)
  r.rg, r.bb, r.bu = plus(r.rg, 1), r.at, budget
  r.en, r.rs = '0', '-'
  save(r)
  redis.call('ZADD', T .. 'pend:' .. r.sb, r.exp, id)
  local expiry = redis.call('ZSCORE', T .. 'expiry', r.sb)
  if not expiry or num(r.exp) < num(expiry) then redis.call('ZADD', T .. 'expiry', r.exp, r.sb) end
  enqueue(r)
  count('dead', -1)
  count('pending', 1)
  return 'released'
end

local out = {}
for i = 4, #ARGV do out[#out + 1] = release(ARGV[i]) end
finish()
return out
