-- accept.lua: store events with their payloads and their frozen plans.
--
-- KEYS[1]  prefix of the events' partition, "{fo:e3.7}:"
-- ARGV     expand within (ms), then per event:
--          id, body hash, meta, body, deliveries, subs, record ttl (ms), body ttl (ms),
--          n, then n partitions. subs is the whole plan as text; the partitions are
--          those it touches.
-- Returns  four numbers per event: accepted_at (0: the id is taken by an event with
--          another body, and nothing was done), deliveries, duplicate 0|1, open 0|1
--
-- Run twice, the second run is a duplicate with the first one's answer.
local within = tonumber(ARGV[1])

local function accept(id, hash, meta, body, n, subs, record_ttl, body_ttl, first, last)
  local key, left = T .. 'ev:' .. id, T .. 'left:' .. id
  local old = redis.call('HMGET', key, 'h', 'at', 'n')
  if old[1] then
    if old[1] ~= hash then return 0, 0, 0, 0 end
    return tonumber(old[2]), tonumber(old[3]), 1, redis.call('EXISTS', left)
  end
  redis.call('HSET', key, 'h', hash, 'm', meta, 'at', NOWS, 'n', n, 'subs', subs, 'eb', format('%d', NOW + within))
  redis.call('PEXPIRE', key, record_ttl)
  redis.call('SET', T .. 'body:' .. id, body, 'PX', body_ttl)
  if last < first then return NOW, tonumber(n), 0, 0 end
  redis.call('SADD', left, unpack(ARGV, first, last))
  redis.call('PEXPIRE', left, record_ttl)
  redis.call('ZADD', T .. 'open', NOWS, id)
  return NOW, tonumber(n), 0, 1
end

local out = {}
local i = 2
while i <= #ARGV do
  local first = i + 9
  local last = i + 8 + tonumber(ARGV[i + 8])
  local id, hash, meta, body, n, subs, record_ttl, body_ttl = unpack(ARGV, i, i + 7)
  local k = #out
  out[k + 1], out[k + 2], out[k + 3], out[k + 4] =
    accept(id, hash, meta, body, n, subs, record_ttl, body_ttl, first, last)
  i = last + 1
end
return out
