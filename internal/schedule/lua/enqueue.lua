-- enqueue.lua: make one event's deliveries to subscribers of this partition.
--
-- KEYS[1]  prefix of the partition
-- ARGV     event id, accepted_at, expand_by, retention (ms),
--          then per delivery: id, subscriber id, expires_at
-- Returns  how many were new
-- Errors   LATE expand_by has passed, nothing was done
--
-- Run twice, the second run finds the records and does nothing. That is why it
-- is refused after expand_by, when a record may have been forgotten.
local event, accepted, retention = ARGV[1], tonumber(ARGV[2]), ARGV[4]
if NOW > tonumber(ARGV[3]) then
  return redis.error_reply('LATE expand_by has passed')
end

local keys = {}
for i = 5, #ARGV, 3 do keys[#keys + 1] = T .. 'd:' .. ARGV[i] end
local there = redis.call('MGET', unpack(keys))

local fresh = 0
for k = 1, #keys do
  if not there[k] then
    local i = 5 + (k - 1) * 3
    local sub, exp = ARGV[i + 1], tonumber(ARGV[i + 2])
    local r = {id = ARGV[i], ev = event, sb = sub, st = 's', ln = 'f', due = NOW, exp = exp,
      acc = accepted, at = 0, dc = 0, se = 0, rl = 0, ll = 0, rg = 0, bb = 0, bu = 0, fa = 0,
      la = 0, en = 0, hs = 0, oc = '-', rs = '-', wk = '-'}
    local s = subscriber(sub)
    fresh = fresh + 1
    count('accepted', 1)
    if not s or s.tomb then
      -- Deleted between plan and enqueue: accepted, and cancelled at once.
      r.st, r.en = 'c', NOW
      redis.call('SET', T .. 'd:' .. r.id, encode(r), 'PX', retention)
      count('cancelled', 1)
    else
      save(r)
      redis.call('ZADD', T .. 'pend:' .. sub, exp, r.id)
      local first = redis.call('ZSCORE', T .. 'expiry', sub)
      if not first or exp < tonumber(first) then redis.call('ZADD', T .. 'expiry', exp, sub) end
      enqueue(r)
      count('pending', 1)
    end
  end
end
finish()
return fresh
