-- put_config.lua: write a subscriber, and with it what the scheduler knows of it.
--
-- KEYS[1]  prefix of the partition
-- ARGV     id, expected version (0 must be new, -1 any), blob, class, cap,
--          lease time (ms), holds
-- Returns  the new version
-- Errors   VERSION it is at another version; NOTFOUND no such subscriber
--
-- Whatever is leased after this runs is leased at the new version.
-- Run twice, the second run finds its own blob one version on and agrees.
local id, expect, blob = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local key, cfg = T .. 'sub:' .. id, T .. 'cfg:' .. id
local s = subscriber(id)
local v = s and tonumber(s.v) or 0

if s and s.tomb then return redis.error_reply('NOTFOUND subscriber was deleted') end
if expect ~= 0 and v == 0 then return redis.error_reply('NOTFOUND no such subscriber') end
if expect >= 0 and v ~= expect then
  if v == expect + 1 and redis.call('GET', cfg) == blob then return v end
  return redis.error_reply('VERSION subscriber is at version ' .. v)
end

if s then
  -- Leave every place under the old class; put_all finds the new ones.
  for _, lane in ipairs(LANES) do
    local place = s.place[lane]
    displace(s, lane, place)
    if KIND[place] then redis.call('ZREM', age_key(s, place, lane), id) end
  end
end
local gen = next_generation()
redis.call('ZADD', T .. 'changes', gen, id)
redis.call('ZADD', T .. 'subs', 0, id)
redis.call('SADD', T .. 'classes', ARGV[4])
redis.call('SET', cfg, blob)
redis.call('HSET', key, 'v', v + 1, 'cls', ARGV[4], 'cap', ARGV[5], 'lt', ARGV[6], 'hold', ARGV[7],
  'pf', '-', 'pr', '-', 'pd', '-')
subs[id] = nil
touch(subscriber(id))
finish()
return v + 1
