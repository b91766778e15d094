-- inspect_counts.lua: whether subscribers count as many leases as they have, and the
-- ledger adds up.
--
-- KEYS[1]  prefix of the partition
-- ARGV     subscriber id...
-- Returns  {id, what is wrong, ...}: only what is. leases (a subscriber's count is off),
--          ledger (of the partition, its id is '-')
local open, out = {}, {}
for _, id in ipairs(redis.call('ZRANGE', T .. 'leases', 0, -1)) do
  local r = record(id)
  if r then open[r.sb] = (open[r.sb] or 0) + 1 end
end
for _, id in ipairs(ARGV) do
  local s = subscriber(id)
  if s and s.n ~= (open[id] or 0) then
    out[#out + 1] = id
    out[#out + 1] = 'leases'
  end
end
local n = {}
for i, v in ipairs(redis.call('HMGET', T .. 'ledger', 'accepted', 'pending', 'delivered', 'dead', 'cancelled')) do
  n[i] = (v or 0) + 0
end
if n[1] ~= n[2] + n[3] + n[4] + n[5] then
  out[#out + 1] = '-'
  out[#out + 1] = 'ledger'
end
return out
