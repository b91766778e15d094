-- claim_open.lua: take over plans that stood open for too long: the process that
-- accepted them died, or lost Redis half way.
--
-- KEYS[1]  prefix of an event partition
-- ARGV     limit, after (ms)
-- Returns  {{id, accepted_at, expand_by, subs, partition...}, ...}
--
-- A claimed plan's score moves to now, so nobody else claims it for `after` ms.
-- One past its expand_by is moved from `open` to `late`: its deliveries' records
-- may be gone already, and to expand it now could send them a second time.
local out = {}
local ids = redis.call('ZRANGEBYSCORE', T .. 'open', '-inf', NOW - tonumber(ARGV[2]), 'LIMIT', 0, ARGV[1])
for _, id in ipairs(ids) do
  local ev = redis.call('HMGET', T .. 'ev:' .. id, 'at', 'eb', 'subs')
  local left = redis.call('SMEMBERS', T .. 'left:' .. id)
  if not ev[1] or #left == 0 then
    redis.call('ZREM', T .. 'open', id)
  else
    if NOW > tonumber(ev[2]) then
      redis.call('ZREM', T .. 'open', id)
      redis.call('ZADD', T .. 'late', NOW, id)
    else
      redis.call('ZADD', T .. 'open', NOW, id)
    end
    out[#out + 1] = {id, ev[1], ev[2], ev[3], unpack(left)}
  end
end
return out
