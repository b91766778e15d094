-- accept.lua: store an event with its payload and its frozen plan.
--
-- KEYS[1]  prefix of the event's partition, "{fo:e3.7}:"
-- ARGV     id, body hash, meta, body, deliveries, subs,
--          expand within (ms), record ttl (ms), body ttl (ms), partition...
--          subs is the whole plan as text; the partitions are those it touches.
-- Returns  {accepted_at, deliveries, duplicate 0|1, open 0|1}
-- Errors   CONFLICT the id is taken by an event with another body
--
-- Run twice, the second run is a duplicate with the first one's answer.
local id, hash = ARGV[1], ARGV[2]
local key, left = T .. 'ev:' .. id, T .. 'left:' .. id

local old = redis.call('HMGET', key, 'h', 'at', 'n')
if old[1] then
  if old[1] ~= hash then
    return redis.error_reply('CONFLICT event id already used with another body')
  end
  return {tonumber(old[2]), tonumber(old[3]), 1, redis.call('EXISTS', left)}
end

local record_ttl = tonumber(ARGV[8])
redis.call('HSET', key, 'h', hash, 'm', ARGV[3], 'at', NOW, 'n', ARGV[5], 'subs', ARGV[6],
  'eb', NOW + tonumber(ARGV[7]))
redis.call('PEXPIRE', key, record_ttl)
redis.call('SET', T .. 'body:' .. id, ARGV[4], 'PX', ARGV[9])
if #ARGV > 9 then
  redis.call('SADD', left, unpack(ARGV, 10))
  redis.call('PEXPIRE', left, record_ttl)
  redis.call('ZADD', T .. 'open', NOW, id)
end
return {NOW, tonumber(ARGV[5]), 0, #ARGV > 9 and 1 or 0}
