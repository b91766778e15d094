-- strike.lua: note that partitions of a plan are enqueued; the last one closes
-- the event.
--
-- KEYS[1]  prefix of the event's partition
-- ARGV     id, partition...
-- Returns  1 if the plan is still open, else 0
--
-- Run twice, the second run removes nothing.
local id = ARGV[1]
redis.call('SREM', T .. 'left:' .. id, unpack(ARGV, 2))
if redis.call('EXISTS', T .. 'left:' .. id) == 1 then return 1 end
redis.call('ZREM', T .. 'open', id)
return 0
