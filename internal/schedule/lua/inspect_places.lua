-- inspect_places.lua: which deliveries that stand in an order have no record.
--
-- KEYS[1]  prefix of the partition
-- ARGV     name of the order, first, last (places in it)
-- Returns  {how many were looked at, id...}
local ids = redis.call('ZRANGE', T .. ARGV[1], ARGV[2], ARGV[3])
local out = {#ids}
for _, id in ipairs(ids) do
  if not record(id) then out[#out + 1] = id end
end
return out
