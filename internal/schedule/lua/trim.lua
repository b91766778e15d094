-- trim.lua: forget dead letters past their retention, evidence and payload too.
--
-- KEYS[1]  prefix of the partition
-- ARGV     retention (ms), limit
-- Returns  how many were forgotten
--
-- The ledger stays as it is: `dead` counts how deliveries ended, not what is kept.
-- Run twice, the second run finds them gone.
local ids = redis.call('ZRANGEBYSCORE', T .. 'dead', '-inf', NOW - tonumber(ARGV[1]), 'LIMIT', 0, ARGV[2])
for _, id in ipairs(ids) do
  local r = record(id)
  redis.call('ZREM', T .. 'dead', id)
  if r then
    redis.call('ZREM', T .. 'dead:' .. r.sb, id)
    unpin(r)
  end
  redis.call('DEL', T .. 'd:' .. id, T .. 'att:' .. id)
end
return #ids
