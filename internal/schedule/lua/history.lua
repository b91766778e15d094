-- history.lua: keep a point of on-call's history, unless its place has that one or a
-- later one.
--
-- KEYS[1]  prefix of on-call, "{fo:oncall}:"
-- ARGV     ring, places in it, number of the point, how long it lasts (ms), point (opaque)
-- Returns  1 if it was kept, 0 if somebody else kept it
--
-- Points are numbered by the time: whoever comes first in a period writes its point, so
-- however many processes sample there is one. A ring has as many fields as places, and
-- each point takes the place of the one a whole ring before it. Run twice, the second run
-- finds it kept.
local key, number = T .. ARGV[1], tonumber(ARGV[3])
local field = format('%d', number % tonumber(ARGV[2]))
local old = redis.call('HGET', key, field)
if old and tonumber(string.match(old, '^%d+')) >= number then return 0 end
redis.call('HSET', key, field, ARGV[3] .. ' ' .. ARGV[5])
redis.call('PEXPIRE', key, ARGV[4])
return 1
