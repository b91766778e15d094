-- sample.lua: what the age gauges and the on-call page show. Reads only; its cost
-- depends on the number of classes, never on the backlog.
--
-- KEYS[1]  prefix of the partition
-- ARGV     class...
-- Returns  {now, leases, expired leases, ready, scheduled, dead letters,
--           subscribers on hold, accepted, pending, delivered, dead, cancelled,
--           deliveries that wait for a hold to end,
--           limited (due, and their subscriber at its cap or rate),
--           when the oldest dead letter died (0 none),
--           the present minute, how many retried and redriven deliveries fall due in it
--           and in each of the 14 that follow,
--           then per class and lane, and at last for all other classes together,
--           the due time of the oldest head (0 none): eligible, limited, held}
--
-- A delivery whose lease has expired could have been sent and was not: it counts
-- as eligible since then. The 16 longest expired are looked at, so the oldest of
-- all is exact, and one of a further class may be missing beside many older ones.
local out = {NOW, redis.call('ZCARD', T .. 'leases'), redis.call('ZCOUNT', T .. 'leases', '-inf', NOW), 0, 0,
  redis.call('ZCARD', T .. 'dead'), redis.call('ZCARD', T .. 'held')}
for _, lane in ipairs(LANES) do
  out[4] = out[4] + redis.call('ZCARD', T .. 'ready:' .. lane) + redis.call('ZCARD', T .. 'slow:' .. lane)
  out[5] = out[5] + redis.call('ZCARD', T .. 'due:' .. lane)
end
for _, v in ipairs(redis.call('HMGET', T .. 'ledger', 'accepted', 'pending', 'delivered', 'dead', 'cancelled', 'held')) do
  out[#out + 1] = tonumber(v or 0)
end

out[#out + 1] = 0 -- limited, below
local LIMITED = #out
local oldest = redis.call('ZRANGE', T .. 'dead', 0, 0, 'WITHSCORES')
out[#out + 1] = tonumber(oldest[2] or 0)

-- The release curve lies in one hash an hour: two, where it passes the hour.
local minute = math.floor(NOW / 60000)
out[#out + 1] = minute
local function curve(from, to)
  local fields = {}
  for m = from, to do fields[#fields + 1] = m % 60 end
  if #fields == 0 then return end
  local key = T .. 'falls:' .. format('%d', math.floor(from / 60))
  for _, n in ipairs(redis.call('HMGET', key, unpack(fields))) do out[#out + 1] = tonumber(n or 0) end
end
local last = math.min(minute + 14, minute - minute % 60 + 59) -- of this hour
curve(minute, last)
curve(last + 1, minute + 14)

-- Whatever class the caller does not know is counted in the last row: work that
-- nobody asks after must not be invisible.
local row = {}
for i, class in ipairs(ARGV) do row[class] = i end
local heads = {}
for i = 1, (#ARGV + 1) * 9 do heads[i] = 0 end
local COLUMN = {e = 1, l = 2, h = 3}
local LINE = {f = 0, r = 1, d = 2}

local function head(class, lane, kind, due)
  local i = ((row[class] or #ARGV + 1) - 1) * 9 + LINE[lane] * 3 + COLUMN[kind]
  if due and (heads[i] == 0 or due < heads[i]) then heads[i] = due end
end

for _, class in ipairs(redis.call('SMEMBERS', T .. 'classes')) do
  for lane in pairs(LINE) do
    for kind in pairs(COLUMN) do
      if kind == 'l' then
        out[LIMITED] = out[LIMITED] + redis.call('ZCOUNT', T .. 'age:l:' .. class .. ':' .. lane, '-inf', NOWS)
      end
      local first = redis.call('ZRANGE', T .. 'age:' .. kind .. ':' .. class .. ':' .. lane, 0, 0, 'WITHSCORES')
      head(class, lane, kind, tonumber(first[2]))
    end
  end
end
local expired = redis.call('ZRANGEBYSCORE', T .. 'leases', '-inf', NOW, 'WITHSCORES', 'LIMIT', 0, 16)
for i = 1, #expired, 2 do
  local r = record(expired[i])
  local s = r and r.st == 'l' and subscriber(r.sb)
  if s then head(s.cls, r.ln, 'e', tonumber(expired[i + 1])) end
end

for _, due in ipairs(heads) do out[#out + 1] = due end
return out
