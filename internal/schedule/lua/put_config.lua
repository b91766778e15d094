-- put_config.lua: write a subscriber, and with it what the scheduler knows of it.
--
-- KEYS[1]  prefix of the partition
-- ARGV     id, expected version (0 must be new, -1 any), blob, class, terms (words
--          from max_in_flight on, as in subscriber.lua), cap of a new one (1/10000),
--          change: '' or lift (what somebody can end of a hold ends) or moved (its
--          endpoint is another one, of which nothing is known)
-- Returns  the new version
-- Errors   VERSION it is at another version; NOTFOUND no such subscriber
--
-- Whatever is leased after this runs is leased at the new version.
-- Run twice, the second run finds its own blob one version on and agrees.
local id, expect, blob, class = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local terms, start, change = class .. ' ' .. ARGV[5], ARGV[6], ARGV[7]
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
    displace(s, lane)
    local place = s.place[lane]
    if KIND[place] then redis.call('ZREM', age_key(s, place, lane), id) end
  end
end
local gen = next_generation()
redis.call('ZADD', T .. 'changes', gen, id)
redis.call('ZADD', T .. 'subs', 0, id)
redis.call('SADD', T .. 'classes', class)
redis.call('SET', cfg, blob)
redis.call('HSET', key, 'v', v + 1, 'terms', terms)
if not s then redis.call('HSET', key, 'run', '0 0 0 ' .. start .. ' 0 0 ----') end

local old = s
subs[id] = nil
s = subscriber(id)
for _, lane in ipairs(LANES) do
  s.place[lane] = '-'
  touch(s, lane)
end
s.tat = math.min(s.tat, NOW + s.burst * s.em) -- a raised rate is not to pay the old one's debt
if change == 'lift' then
  -- What the endpoint asked for stands, and the breaker asks it again, now.
  s.disabled, s.open, s.troubled = false, math.min(s.open, NOW), true
elseif change == 'moved' then
  s.cut, s.fails, s.disabled, s.throttled, s.open, s.step = 0, 0, false, 0, 0, 0
  s.probe, s.last, s.changed, s.win, s.lat = '-', '-', 0, tonumber(start), 0
  s.moved, s.troubled = NOW, old ~= nil
end
finish()
return v + 1
