-- tombstone.lua: delete a subscriber. O(1): from here on nothing is leased or
-- enqueued for it; cancel.lua ends what still waits.
--
-- KEYS[1]  prefix of the partition
-- ARGV     id, owner ('' if it is not known)
-- Returns  1
-- Errors   NOTFOUND no such subscriber
--
-- The hash stays as the tombstone: an event planned before and enqueued after
-- must find it, and whoever had the subscriber may still see what it left. Run twice,
-- the second run finds it.
local id, owner = ARGV[1], ARGV[2]
local s = subscriber(id)
if not s then return redis.error_reply('NOTFOUND no such subscriber') end
if s.tomb then return 1 end
redis.call('DEL', T .. 'cfg:' .. id)
redis.call('ZREM', T .. 'subs', id)
local gen = next_generation()
redis.call('ZADD', T .. 'changes', gen, id)
redis.call('HSET', T .. 'sub:' .. id, 'tomb', 1)
if owner ~= '' then redis.call('HSET', T .. 'sub:' .. id, 'owner', owner) end
s.tomb = true
for _, lane in ipairs(LANES) do touch(s, lane) end
finish()
return 1
