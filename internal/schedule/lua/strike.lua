-- strike.lua: note that partitions of plans are enqueued; the last one closes the
-- event.
--
-- KEYS[1]  prefix of the events' partition
-- ARGV     per event: id, n, then n partitions
-- Returns  per event: 1 if the plan is still open, else 0
--
-- Run twice, the second run removes nothing.
local out = {}
local i = 1
while i <= #ARGV do
  local id, last = ARGV[i], i + 1 + tonumber(ARGV[i + 1])
  redis.call('SREM', T .. 'left:' .. id, unpack(ARGV, i + 2, last))
  local open = redis.call('EXISTS', T .. 'left:' .. id)
  if open == 0 then redis.call('ZREM', T .. 'open', id) end
  out[#out + 1] = open
  i = last + 1
end
return out
