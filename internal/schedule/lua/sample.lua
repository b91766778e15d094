-- sample.lua: what the age gauges and the on-call page show. Reads only; its cost
-- depends on the number of classes, never on the backlog.
--
-- KEYS[1]  prefix of the partition
-- ARGV     class...
-- Returns  {now, leases, ready, scheduled, dead letters,
--           accepted, pending, delivered, dead, cancelled,
--           then per class and lane the due time of the oldest head (0 none):
--           eligible, limited, held}
local out = {NOW, redis.call('ZCARD', T .. 'leases'), 0, 0, redis.call('ZCARD', T .. 'dead')}
for _, lane in ipairs(LANES) do
  out[3] = out[3] + redis.call('ZCARD', T .. 'ready:' .. lane)
  out[4] = out[4] + redis.call('ZCARD', T .. 'due:' .. lane)
end
for _, v in ipairs(redis.call('HMGET', T .. 'ledger', 'accepted', 'pending', 'delivered', 'dead', 'cancelled')) do
  out[#out + 1] = tonumber(v or 0)
end
for _, class in ipairs(ARGV) do
  for _, lane in ipairs(LANES) do
    for _, kind in ipairs({'e', 'l', 'h'}) do
      local head = redis.call('ZRANGE', T .. 'age:' .. kind .. ':' .. class .. ':' .. lane, 0, 0, 'WITHSCORES')
      out[#out + 1] = tonumber(head[2] or 0)
    end
  end
end
return out
