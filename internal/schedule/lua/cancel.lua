-- cancel.lua: cancel pending deliveries, of a subscriber or by id.
--
-- KEYS[1]  prefix of the partition
-- ARGV     subscriber id, limit, retention (ms), id...
--          without ids, the next `limit` pending ones of the subscriber
-- Returns  {cancelled, pending that remain, leases still open}
--
-- A leased one becomes final at once; its request may be on the wire, and its
-- lease stays open until the worker settles or the lease expires.
-- Run twice, the second run finds them final.
local sub, retention = ARGV[1], ARGV[3]
local ids = {unpack(ARGV, 4)}
if #ids == 0 then
  ids = redis.call('ZRANGE', T .. 'pend:' .. sub, 0, tonumber(ARGV[2]) - 1)
end
local n = 0
for _, id in ipairs(ids) do
  local r = record(id)
  if r and r.sb == sub and (r.st == 's' or r.st == 'l') then
    if r.st == 's' then unqueue(r) else touch(subscriber(sub)) end
    close(r, 'c', 'cancelled', retention)
    n = n + 1
  end
end
finish()
local s = subscriber(sub)
return {n, redis.call('ZCARD', T .. 'pend:' .. sub), s and s.n or 0}
