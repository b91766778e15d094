-- expired_deliveries.lua: deliveries that wait past their expires_at.
--
-- KEYS[1]  prefix of the partition
-- ARGV     limit
-- Returns  {now, id, record, ...}
--
-- `expiry` holds subscribers by when their first pending delivery expires, as a
-- lower bound: it is lowered by enqueue and raised only here, when the time has
-- come and the true head is looked up. Leased heads are looked at again in 1 s.
local limit = tonumber(ARGV[1])
local out = {NOW}
for _, sub in ipairs(redis.call('ZRANGEBYSCORE', T .. 'expiry', '-inf', NOW, 'LIMIT', 0, 16)) do
  local pend = T .. 'pend:' .. sub
  local ids = redis.call('ZRANGEBYSCORE', pend, '-inf', NOW, 'LIMIT', 0, limit)
  local found = false
  for _, id in ipairs(ids) do
    local r = record(id)
    if r and r.st == 's' then
      found = true
      if #out < limit * 2 then
        out[#out + 1] = id
        out[#out + 1] = encode(r)
      end
    end
  end
  if not found then
    local head = redis.call('ZRANGE', pend, 0, 0, 'WITHSCORES')
    redis.call('ZREM', T .. 'expiry', sub)
    if head[2] then redis.call('ZADD', T .. 'expiry', math.max(tonumber(head[2]), NOW + 1000), sub) end
  end
end
return out
