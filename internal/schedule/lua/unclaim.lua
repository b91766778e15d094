-- unclaim.lua: let go of what a cohort has not released. They stay dead letters.
--
-- KEYS[1]  prefix of the partition
-- ARGV     cohort, limit
-- Returns  how many were let go; 0 when none is left
--
-- Run twice, the second run goes on where the first ended.
local cohort = ARGV[1]
local ids = redis.call('ZRANGE', T .. 'cohort:' .. cohort, 0, tonumber(ARGV[2]) - 1)
if #ids == 0 then return 0 end
redis.call('ZREM', T .. 'cohort:' .. cohort, unpack(ids))
redis.call('HDEL', T .. 'claims', unpack(ids))
redis.call('HINCRBY', T .. 'tally:' .. cohort, 'let_go', #ids)
return #ids
