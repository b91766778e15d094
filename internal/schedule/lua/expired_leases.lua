-- expired_leases.lua: leases whose worker did not settle in time.
--
-- KEYS[1]  prefix of the partition
-- ARGV     limit
-- Returns  {now, id, record, version, until, 0, ...}
--
-- Each goes the road of any verdict: Decide(lease_lost), then settle.lua with
-- reclaim, which checks the lease again. One cancelled or delivered meanwhile is
-- listed too: its lease still has to end.
local out = {NOW}
local due = redis.call('ZRANGEBYSCORE', T .. 'leases', '-inf', NOW, 'WITHSCORES', 'LIMIT', 0, ARGV[1])
for i = 1, #due, 2 do
  local r = record(due[i])
  if r then
    local s = subscriber(r.sb)
    out[#out + 1] = r.id
    out[#out + 1] = encode(r)
    out[#out + 1] = s and s.v or '0'
    out[#out + 1] = due[i + 1]
    out[#out + 1] = 0
  else
    redis.call('ZREM', T .. 'leases', due[i]) -- no record: nothing to settle
  end
end
return out
